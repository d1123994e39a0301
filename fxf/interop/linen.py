"""A Flax Linen module for any model of fxf."""

from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax

from fxf.machine.random_keys import random_key
from fxf.models.model import Batch, Model
from fxf.weights import Weight, draw


class LinenModel(nn.Module):
    """A model of fxf with the `init`, `apply` and `tabulate` of Linen.

    `init(key, batch)` draws `initialize(model.spec, key)`, and `apply({'params': params}, batch)` returns
    `model.apply(params, batch)`. Inside another module, Linen sets the key.
    """

    model: Model

    @nn.compact
    def __call__(self, batch: Batch, *, train: bool = False) -> jax.Array:
        """Returns logits [B, T, V].

        Args:
          train: whether to apply dropout, with Linen's random keys 'dropout'.
        """
        params = {name: _weights(self, name, value, name, _init_key(self)) for name, value in self.model.spec.items()}
        return self.model.apply(params, batch, rng=self.make_rng("dropout") if train else None)


class _Weights(nn.Module):
    """A part of the table of weights, as a module, because `tabulate` gives each module a row."""

    spec: Mapping[str, Any]
    prefix: str

    @nn.compact
    def __call__(self, key: jax.Array) -> dict[str, Any]:
        return {name: _weights(self, name, value, f"{self.prefix}/{name}", key) for name, value in self.spec.items()}


def _weights(module: nn.Module, name: str, value: Any, path: str, key: jax.Array) -> Any:
    """Returns the module's weight or subtree of weights `name`."""
    if isinstance(value, Weight):
        return module.param(name, lambda _: draw(path, value, key))
    return _Weights(value, path, name=name)(key)


def _init_key(module: nn.Module) -> jax.Array:
    """Returns the unchanged key of `init`; Linen's `make_rng` would fold the names of modules into it."""
    assert module.scope is not None
    given = module.scope.rngs.get("params")
    return random_key(0) if given is None else given.as_jax_rng()
