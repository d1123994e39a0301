"""Several runs: the points of a sweep, and trials of one config against another over pairs of seeds."""
