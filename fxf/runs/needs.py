"""Figures of an experiment's blocks and arrays, without their memory."""

import math
from collections.abc import Callable
from typing import Any

import jax

from fxf.models import MODELS
from fxf.runs import contract
from fxf.runs.experiment import Experiment


def by_layers(experiment: Experiment, measure: Callable[[Experiment], dict[str, int]]) -> dict[str, int]:
    """Returns the figures that `measure` finds, where every block after the first adds the same to each figure.

    It measures at most two blocks; or all, if some are frozen, or if a user's model may have unlike ones.
    """
    n_layers, frozen = experiment.config["model"].get("n_layers", 1), experiment.config["optimizer"]["frozen"]
    of_users = contract.is_of_users(MODELS[experiment.config["model"]["name"]].make)
    if n_layers <= 2 or frozen or of_users:  # frozen blocks have no state
        return measure(experiment)
    one, two = (measure(experiment.with_model(n_layers=n)) for n in (1, 2))
    return {name: one[name] + (n_layers - 1) * (two[name] - one[name]) for name in one}


def device_bytes(tree: Any) -> int:
    """Returns the bytes of a tree of shapes that one device holds."""
    leaves = jax.tree.leaves(tree)
    shapes = (leaf.sharding.shard_shape(leaf.shape) if leaf.sharding else leaf.shape for leaf in leaves)
    return sum(math.prod(shape) * leaf.dtype.itemsize for shape, leaf in zip(shapes, leaves, strict=True))
