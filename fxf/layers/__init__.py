"""The mathematics: each layer has a table of its weights and a pure function. Also config keys, and the loss."""
