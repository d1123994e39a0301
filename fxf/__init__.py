"""Transformers as pure functions in JAX.

Shape letters, used as suffixes of array names and in einsums throughout the package:
B batch, T time, C cache capacity (keys), D d_model, H heads, K head_dim, F d_ff, V vocabulary, L layers.
"""
