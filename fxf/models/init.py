"""Initializers and learning rates of a model's weights, as its config sets them."""

import dataclasses
import functools
import math

import jax

from fxf.base import weights
from fxf.base.weights import EXPERT, WIDTHS, Initializer, Spec, Weight, axes_of_matrix, is_vector, uniform_half
from fxf.layers.config import TransformerConfig
from fxf.layers.positions import sinusoids


def initialized_as(config: TransformerConfig, spec: Spec) -> Spec:
    """Returns the spec with the initializers of `config.init`, and the learning rates of `config.base_width`.

    "gpt2" (Radford et al. 2019) draws matrices and tables from normal(0.02), and the last matrix of each sublayer from
    normal(0.02 / √(2 n_layers)). It does not change biases and norms.

    In a model m times as wide as its base, matrices between vectors have 1/m of the learning rate, and 1/m of the
    initial variance, as by default at any width. Other weights have the base's rates and deviations, and logits are
    divided by m (`fxf/layers/embedding.py`). So Adam's steps change activations as in the base (Yang et al. 2022,
    "Tensor Programs V", Table 8).
    """
    if config.init == "default" and config.base_d_model == config.d_model:
        return spec
    narrower = config.base_d_model / config.d_model

    @functools.cache  # once for equal weights of blocks, whose paths differ only by index
    def chosen(path: str, weight: Weight) -> Weight:
        if weight.by != "optimizer":
            return weight
        sides = axes_of_matrix(weight)
        grows = sides is not None and {weight.axes[side[0]] for side in sides} <= WIDTHS  # in inputs and outputs
        factor = narrower if grows else 1.0
        if init := _named(config, path, weight):
            scaled = init if factor == 1 else lambda *of: math.sqrt(factor) * init(*of)
            weight = dataclasses.replace(weight, init=scaled)  # a shared one, so that equal weights are drawn together
        return dataclasses.replace(weight, rate=weight.rate * factor)

    return weights.map_weights(lambda path, weight: chosen(weights.without_indices(path), weight), spec)


def _named(config: TransformerConfig, path: str, weight: Weight) -> Initializer | None:
    """Returns the initializer that `config.init` names for a weight, or None if the weight keeps its own."""
    if config.init == "uniform":
        return uniform_half
    axes = [axis for axis in weight.axes if axis not in ("heads", EXPERT)]
    if config.init == "default" or len(axes) < 2 or is_vector(weight) or weight.init is sinusoids:
        return None
    last = path.split("/")[-1] in ("output", "down")
    return jax.nn.initializers.normal(0.02 / math.sqrt(2 * config.n_layers) if last else 0.02)
