"""The cost of programs on hardware that need not be present: compiled for it, and read from the optimized HLO."""
