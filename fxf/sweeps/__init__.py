"""Sweeps of many runs: points, the workers that run them, the table of their results."""
