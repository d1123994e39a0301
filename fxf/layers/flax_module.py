"""Modules of Flax, Linen or NNX, as pure functions of their weights, and as layers.

A module's `__call__` takes vectors [R, T, D], or tokens [B, T] in a model of its own. What else it takes is known by
the names of its parameters: `deterministic` and `train` say whether there is dropout. In a layer `mask` is who sees
whom, bool [R, 1, T, T] as Flax has it, or None if all do; and `context` is the layer's context.
"""

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import nnx
from flax.core import FrozenDict
from flax.nnx.variablelib import variable_type_from_name
from flax.traverse_util import flatten_dict, unflatten_dict

from fxf.base.config import Field
from fxf.base.errors import UserError
from fxf.base.random_keys import random_key
from fxf.base.weights import Params, Spec, Weight
from fxf.layers.layer import Context, whole_rows

NOT_KEYS = ("self", "parent", "name", "rngs")
WHAT_IS_READ = ("documents", "positions")  # arrays of a batch that change what a token reads
SIMPLE = {kind.__name__: kind for kind in (int, float, bool, str)}


def as_linen(module: Any, keys: Mapping[str, Any] | None = None) -> nn.Module:
    """Returns a Linen module as it is; and around it the module that a function makes of its keys and `rngs`."""
    return module if isinstance(module, nn.Module) else nnx.bridge.ToLinen(module, kwargs=FrozenDict(keys or {}))


@dataclasses.dataclass(frozen=True)
class FlaxModule:
    """A module as pure functions of its weights, and as a layer [R, T, D] to [R, T, D].

    A layer whose module takes the mask, or the context, reads within a document; any other may read across. The module
    keeps nothing for later tokens. So a model with it decodes by the whole sequence, unless the module's class has
    `cached = True`, because each token is read alone.

    Attributes:
      module: as `as_linen` returns it.
      width: of the vectors that the module reads; 0: it reads tokens.
      dtype: of the vectors.
      by_document, cached, by_row: as in `fxf.layers.layer.Layer`.
    """

    module: nn.Module
    width: int = 0
    dtype: str = "float32"
    by_document: bool = False
    cached: bool = False
    by_row: bool = True

    def begin(self, key: jax.Array) -> tuple[jax.Array, dict[str, Any]]:
        """Returns the output on two tokens outside of training, and the weights by path, as their initializers draw.

        A weight may be in a box of Flax, which names its axes.
        """
        x, given = jnp.zeros((1, 2), jnp.int32), of_training(None)
        if self.width:
            x, given = jnp.zeros((1, 2, self.width), self.dtype), of_context(whole_rows(2))
        with nnx.use_eager_sharding(False):  # fxf shards weights by the names of their axes
            rngs = {"params": key, "dropout": key}
            variables: Any = self.module.init(rngs, x, **_taken(self.module, given))
        weights = variables.pop("params", {})
        # Arrays of an NNX module that are no variables stay as the module makes them.
        kinds = {name: variable_type_from_name(name, allow_register=True) for name in variables}
        if others := [name for name, kind in kinds.items() if issubclass(kind, nnx.Variable)]:
            what = f"{self.name} has variables besides its params, {', '.join(others)}"
            raise UserError(f"model: {what}, which fxf does not keep")
        paths = flatten_dict(weights)
        flat = {"/".join(map(str, path)): value for path, value in paths.items()}
        return self.output(nn.unbox(unflatten_dict(flat, sep="/")), x, None, given), flat

    def output(self, params: Params, x: jax.Array, rng: jax.Array | None, given: Mapping[str, Any]) -> jax.Array:
        """Returns the module's output; `given` are arguments for it by name, of which it gets those that it takes."""
        variables = {"params": nnx.restore_int_paths(params) if is_nnx(self.module) else params}
        with nnx.use_eager_sharding(False):
            rngs = None if rng is None else {"dropout": rng}
            output: Any = self.module.apply(variables, x, rngs=rngs, **_taken(self.module, given))
        return output

    def apply(self, params: Params, x_RTD: jax.Array, context: Context) -> tuple[jax.Array, Context]:
        """Returns the module's output, and the context as it is."""
        return self.output(params, x_RTD, context.rng, of_context(context)).astype(x_RTD.dtype), context

    @property
    def name(self) -> str:
        """The name of the module's class."""
        function = self.module.nnx_class if is_nnx(self.module) else type(self.module)
        return getattr(function, "__name__", repr(function))

    def spec(self, n_outputs: int = 0) -> Spec:
        """Returns the table of the module's weights.

        Args:
          n_outputs: the width that its outputs must have; 0: that of the vectors that it reads.

        Axes have the names that Flax's metadata for partitioning give them; those without one are not sharded.

        Raises:
          UserError: its outputs do not have the expected width, or it has variables that are no weights.
        """
        output, flat = jax.eval_shape(self.begin, random_key(0))
        shape = (1, 2, n_outputs or self.width)
        if output.shape != shape:
            raise UserError(f"model: {self.name} makes {output.shape} of 1 row of 2 tokens; expected {shape}")
        found: dict[str, Weight] = {}
        for path, value in flat.items():
            array = nn.unbox(value)
            with nnx.use_eager_sharding(False):
                names = dict(enumerate(nn.get_partition_spec(value)))
            axes = [name if isinstance(name := names.get(i), str) else f"axis_{i}" for i in range(array.ndim)]
            found[path] = Weight(array.shape, tuple(axes), Draw(self, path))
        return unflatten_dict(found, sep="/")


@dataclasses.dataclass(frozen=True)
class Draw:
    """The initializer of one weight: the module draws all of its own, of which the compiler keeps this one."""

    module: FlaxModule
    path: str

    def __call__(self, key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        return nn.unbox(self.module.begin(key)[1][self.path]).astype(dtype)


def flax_layer(cls: Any, values: Mapping[str, Any], width: int, dtype: str) -> FlaxModule:
    """Returns the layer of a module's class; `values` are its fields (Linen) or its parameters (NNX)."""
    cached, takes = getattr(cls, "cached", False), inspect.signature(cls.__call__).parameters
    by_document = cached or "mask" in takes or "context" in takes
    module = cls(**values) if issubclass(cls, nn.Module) else as_linen(cls, values)
    return FlaxModule(module, width, dtype, by_document, cached, getattr(cls, "by_row", True))


def fields_of_module(cls: Any) -> dict[str, Field]:
    """Returns the fields of a Linen module's class, or the parameters of an NNX module's, with their types."""
    several, found = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD), dict[str, Field]()
    for name, parameter in inspect.signature(cls.__init__).parameters.items():
        if name not in NOT_KEYS and parameter.kind not in several:
            found[name] = Field(_kind(parameter.annotation), {}, parameter.default is parameter.empty)
    return found


def _kind(annotation: Any) -> Any:
    """Returns the type of a key: a simple one, a callable, or any."""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return Callable if "Callable" in text else SIMPLE.get(text, Any)


def of_training(rng: jax.Array | None) -> dict[str, Any]:
    """Returns the arguments that say whether the module trains."""
    return {"deterministic": rng is None, "train": rng is not None}


def of_context(context: Context) -> dict[str, Any]:
    """Returns the arguments that a module of a layer may take."""
    seen_RTT = context.places.sees(context.places)
    mask = None if seen_RTT is None else seen_RTT[:, None]
    return {**of_training(context.rng), "mask": mask, "context": context}


def is_nnx(module: Any) -> bool:
    """Returns whether a Linen module is around one of NNX."""
    return isinstance(module, nnx.bridge.ToLinen)


def _taken(module: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments that the module takes.

    Raises:
      UserError: it does not take those that say what a token reads.
    """
    if is_nnx(module):
        return {"nnx_method": _called, **given}
    _, *taken = inspect.signature(module.__call__).parameters  # whatever the name of what it reads
    for name in WHAT_IS_READ:
        if name in given and name not in taken:
            raise UserError(f"{name}: {type(module).__name__}, a module of Flax, does not take them")
    return {name: value for name, value in given.items() if name in taken}


def _called(module: nnx.Module, x: jax.Array, **given: Any) -> jax.Array:
    """Calls an NNX module, whose dropout is on in training alone."""
    module.set_attributes(deterministic=given["deterministic"], raise_if_not_found=False)
    return module(x, **_taken(module, given))
