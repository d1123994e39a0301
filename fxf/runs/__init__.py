"""From a config to a run folder, and what the scripts share."""
