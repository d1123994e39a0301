"""Flax modules, Linen or NNX, as pure functions of their weights, and as layers.

A module's `__call__` takes vectors [R, T, D], or tokens [B, T] if it is a whole model. It gets other arguments by the
names of its parameters. `deterministic` and `train` switch dropout. In a layer, `mask` is the attention mask, bool [R,
1, T, T] as in Flax, or None if all tokens see all, and `context` is the layer's context.
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
from flax.traverse_util import unflatten_dict

from fxf.base.config import Field
from fxf.base.errors import UserError
from fxf.base.random_keys import random_key
from fxf.base.weights import Params, Spec, Weight, flatten
from fxf.layers.layer import Context, whole_rows

WHAT_IS_READ = ("documents", "positions")  # arrays of a batch that change what a token reads
SIMPLE = {kind.__name__: kind for kind in (int, float, bool, str)}


def as_linen(module: Any, keys: Mapping[str, Any] | None = None) -> nn.Module:
    """Returns a Linen module unchanged, or one that wraps `module(**keys, rngs=...)`, which makes an NNX module."""
    return module if isinstance(module, nn.Module) else nnx.bridge.ToLinen(module, kwargs=FrozenDict(keys or {}))


@dataclasses.dataclass(frozen=True)
class FlaxModule:
    """A module as pure functions of its weights, and as a layer [R, T, D] to [R, T, D].

    A layer whose module takes the mask or the context stays within a document; any other may read across documents. A
    module has no cache. So a model with it decodes by the whole sequence, unless the class of the module has
    `cached = True`, because it reads each token alone.

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
        """Returns the output for two tokens, outside training, and the initial weights by path.

        A weight may be in a Flax box, which names its axes.
        """
        x, given = jnp.zeros((1, 2), jnp.int32), of_training(None)
        if self.width:
            x, given = jnp.zeros((1, 2, self.width), self.dtype), _context_arguments(whole_rows(2))
        with nnx.use_eager_sharding(False):  # fxf shards weights by the names of their axes
            rngs = {"params": key, "dropout": key}
            variables: Any = self.module.init(rngs, x, **_taken(self.module, given))
        weights = variables.pop("params", {})
        # Arrays of an NNX module that are not variables stay as the module makes them.
        kinds = {name: variable_type_from_name(name, allow_register=True) for name in variables}
        if others := [name for name, kind in kinds.items() if issubclass(kind, nnx.Variable)]:
            what = f"{self.name} has variables besides its params, {', '.join(others)}"
            raise UserError(f"model: {what}, which fxf does not keep")
        flat = flatten(weights)
        return self.output(nn.unbox(unflatten_dict(flat, sep="/")), x, None, given), flat

    def output(self, params: Params, x: jax.Array, rng: jax.Array | None, given: Mapping[str, Any]) -> jax.Array:
        """Returns the module's output. Of the arguments `given` by name, it gets those that it takes."""
        variables = {"params": nnx.restore_int_paths(params) if is_nnx(self.module) else params}
        with nnx.use_eager_sharding(False):
            rngs = None if rng is None else {"dropout": rng}
            output: Any = self.module.apply(variables, x, rngs=rngs, **_taken(self.module, given))
        return output

    def apply(self, params: Params, x_RTD: jax.Array, context: Context) -> tuple[jax.Array, Context]:
        """Returns the module's output, and the context as it is."""
        return self.output(params, x_RTD, context.rng, _context_arguments(context)).astype(x_RTD.dtype), context

    @property
    def name(self) -> str:
        """The name of the module's class."""
        function = self.module.nnx_class if is_nnx(self.module) else type(self.module)
        return getattr(function, "__name__", repr(function))

    def spec(self, n_outputs: int = 0) -> Spec:
        """Returns the table of the module's weights.

        Axes have the names of Flax's partitioning metadata; axes without one are not sharded.

        Args:
          n_outputs: the width that its outputs must have; 0: the width of its inputs.

        Raises:
          UserError: its outputs do not have the expected width, or it has variables that are not weights.
        """
        output, flat = jax.eval_shape(self.begin, random_key(0))
        shape, made = (1, 2, n_outputs or self.width), jax.tree.map(lambda x: x.shape, output)
        if made != shape:
            raise UserError(f"model: {self.name} makes {made} of 1 row of 2 tokens; expected {shape}")
        weights: dict[str, Weight] = {}
        for path, value in flat.items():
            array = nn.unbox(value)
            with nnx.use_eager_sharding(False):
                names = dict(enumerate(nn.get_partition_spec(value)))
            axes = [name if isinstance(name := names.get(i), str) else f"axis_{i}" for i in range(array.ndim)]
            weights[path] = Weight(array.shape, tuple(axes), Draw(self, path))
        return unflatten_dict(weights, sep="/")


@dataclasses.dataclass(frozen=True)
class Draw:
    """The initializer of one weight: the module draws all its weights, and the compiler drops all but this one."""

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
    several, fields = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD), dict[str, Field]()
    for name, parameter in inspect.signature(cls.__init__).parameters.items():
        if name not in ("self", "parent", "name", "rngs") and parameter.kind not in several:
            fields[name] = Field(_kind(parameter.annotation), {}, parameter.default is parameter.empty)
    return fields


def _kind(annotation: Any) -> Any:
    """Returns the type of a key: one of SIMPLE, Callable, or Any."""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return Callable if "Callable" in text else SIMPLE.get(text, Any)


def of_training(rng: jax.Array | None) -> dict[str, Any]:
    """Returns the arguments that say whether the module trains."""
    return {"deterministic": rng is None, "train": rng is not None}


def _context_arguments(context: Context) -> dict[str, Any]:
    """Returns the arguments that a layer's module may take."""
    seen_RTT = context.places.sees(context.places)
    mask = None if seen_RTT is None else seen_RTT[:, None]
    return {**of_training(context.rng), "mask": mask, "context": context}


def is_nnx(module: Any) -> bool:
    """Returns whether a Linen module wraps an NNX module."""
    return isinstance(module, nnx.bridge.ToLinen)


def _taken(module: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns those of the arguments `given` that the module takes.

    Raises:
      UserError: it does not take an array that changes what a token reads.
    """
    if is_nnx(module):
        return {"nnx_method": _called, **given}
    _, *taken = inspect.signature(module.__call__).parameters  # the first is its input, whatever its name
    for name in WHAT_IS_READ:
        if name in given and name not in taken:
            raise UserError(f"{name}: {type(module).__name__}, a module of Flax, does not take them")
    return {name: value for name, value in given.items() if name in taken}


def _called(module: nnx.Module, x: jax.Array, **given: Any) -> jax.Array:
    """Calls an NNX module, with dropout only in training."""
    module.set_attributes(deterministic=given["deterministic"], raise_if_not_found=False)
    return module(x, **_taken(module, given))
