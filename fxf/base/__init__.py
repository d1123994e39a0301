"""The machine that a process runs on: devices, memory, compiling, streams, signals."""
