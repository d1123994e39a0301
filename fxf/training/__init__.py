"""Training on one device or many: optimizer, step, sharding, processes, checkpoint, loop."""
