"""What a process finds and what happens to it: devices, memory, compiling, streams, signals."""
