"""Weights and programs for other libraries, and from them."""
