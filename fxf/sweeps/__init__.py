"""Several runs: sweeps over config keys, and trials that compare two configs over pairs of seeds."""
