"""What a process finds and what happens to it: devices, memory, streams, signals."""
