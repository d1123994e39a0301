"""The mathematics: each layer is a spec of its weights and a pure function. Also their config keys, and the loss."""
