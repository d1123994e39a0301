"""Runs: from a config to a run folder, and the code that the verbs share."""
