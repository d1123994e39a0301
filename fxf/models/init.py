"""Ways to initialize all the weights of a model, by config."""

import dataclasses
import math

import jax

from fxf.layers.config import TransformerConfig
from fxf.layers.positions import sinusoids
from fxf.weights import LAYERS, Initializer, Spec, Weight, changed, each_copy, uniform_half


def initialized_as(config: TransformerConfig, spec: Spec) -> Spec:
    """Returns the spec with the initializers that `config.init` chooses.

    "gpt2" (Radford et al. 2019) draws matrices and tables from normal(0.02), and those of them whose product is added
    to the residual stream from normal(0.02 / √(2 n_layers)); biases and norms stay as they are.
    """
    if config.init == "default":
        return spec

    def drawn(weight: Weight, init: Initializer) -> Weight:
        return dataclasses.replace(weight, init=each_copy(init) if LAYERS in weight.axes else init)

    def chosen(path: str, weight: Weight) -> Weight:
        if config.init == "uniform":
            return drawn(weight, uniform_half)
        name = path.split("/")[-1]
        axes = [axis for axis in weight.axes if axis not in (LAYERS, "heads")]
        if len(axes) < 2 or weight.init is sinusoids:
            return weight
        scale = 0.02 / math.sqrt(2 * config.n_layers) if name in ("output", "down") else 0.02
        return drawn(weight, jax.nn.initializers.normal(scale))

    return changed(chosen, spec)
