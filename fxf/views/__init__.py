"""Views of an experiment and of a trained model: keys, weights, memory, speed, and what is inside while it reads."""
