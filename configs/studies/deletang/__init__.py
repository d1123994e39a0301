"""The fifteen algorithmic problems of Delétang et al. 2022 (arXiv 2207.02098), drawn on the device at any length."""
