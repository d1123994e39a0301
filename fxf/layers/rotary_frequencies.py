"""The frequencies of rotary positions: their base and their scaling for longer sequences."""

import jax.numpy as jnp
import numpy as np

from fxf.layers.config import TransformerConfig

# The keys that only rotary positions read, with the values that stand for nothing.
ROTARY_KEYS = {"rope_theta": 10000.0, "rope_factor": 1.0, "local_rope_theta": 0.0}
LEAST_TURNS_KEPT = 4  # the scaling of Llama 3 keeps a frequency that turns as often in the sequences of training


def rotary_frequencies(config: TransformerConfig, n_pairs: int) -> np.ndarray:
    """Returns the frequencies of the K/2 pairs of a head, [K/2]: θ^(-2i/K), scaled.

    NumPy computes them in float64, because the position multiplies the rounding error, which is larger in XLA's power.
    """
    exponents = -np.arange(n_pairs) / n_pairs
    return _scaled(config, config.rope_theta**exponents).astype(jnp.result_type(float))


def _scaled(config: TransformerConfig, frequencies: np.ndarray) -> np.ndarray:
    """Returns the frequencies divided by rope_factor (Chen et al. 2023).

    With a rope_trained_len it divides only those whose wavelengths are longer than that, and none of those up to a
    quarter of it. Those between are interpolated (Grattafiori et al. 2024, the scaling of Llama 3).
    """
    turns = config.rope_trained_len * frequencies / (2 * np.pi)  # in the sequences of training
    kept = np.clip((turns - 1) / (LEAST_TURNS_KEPT - 1), 0, 1)
    return (1 - kept) * frequencies / config.rope_factor + kept * frequencies
