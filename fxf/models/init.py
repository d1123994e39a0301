"""Initializers of all the weights of a model, by config."""

import dataclasses
import math

import jax

from fxf.layers.config import TransformerConfig
from fxf.layers.position_kinds import sinusoids
from fxf.weights import Spec, Weight, changed, uniform_half


def initialized_as(config: TransformerConfig, spec: Spec) -> Spec:
    """Returns the spec with the initializers that `config.init` names.

    "gpt2" (Radford et al. 2019) draws matrices and tables from normal(0.02), and the last matrix of each sublayer from
    normal(0.02 / √(2 n_layers)). It does not change biases and norms.
    """
    if config.init == "default":
        return spec

    def chosen(path: str, weight: Weight) -> Weight:
        if config.init == "uniform":
            return dataclasses.replace(weight, init=uniform_half)
        name = path.split("/")[-1]
        axes = [axis for axis in weight.axes if axis != "heads"]
        if len(axes) < 2 or weight.init is sinusoids:
            return weight
        scale = 0.02 / math.sqrt(2 * config.n_layers) if name in ("output", "down") else 0.02
        return dataclasses.replace(weight, init=jax.nn.initializers.normal(scale))

    return changed(chosen, spec)
