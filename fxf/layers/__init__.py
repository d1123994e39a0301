"""The mathematics: each layer is a spec of its weights and a pure function; the keys they read; the loss."""
