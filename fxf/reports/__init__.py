"""Pages and tables of runs, made from the files of their folders, without JAX."""
