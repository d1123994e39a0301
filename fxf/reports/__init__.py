"""What can be seen of a model and of a run."""
