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
from flax.traverse_util import flatten_dict, unflatten_dict

from fxf.base.config import Field
from fxf.base.errors import UserError
from fxf.base.random_keys import random_key
from fxf.base.weights import Params, Spec, Weight
from fxf.layers.layer import Context, whole_rows

NOT_KEYS = ("self", "parent", "name", "rngs")
WHAT_IS_READ = ("documents", "positions")  # arrays of a batch that change what a token reads
SIMPLE = {kind.__name__: kind for kind in (int, float, bool, str)}


@dataclasses.dataclass(frozen=True)
class FlaxModule:
    """A module as pure functions of its weights, and as a layer [R, T, D] to [R, T, D]. Kinds are subclasses.

    A layer whose module takes the mask, or the context, reads within a document; any other may read across. The module
    keeps nothing for later tokens. So a model with it decodes by the whole sequence, unless the module's class has
    `cached = True`, because each token is read alone.

    Attributes:
      module: a Linen module; or a function that makes an NNX module of its keys and `rngs`, such as its class.
      keys: what that function takes besides.
      width: of the vectors that the module reads; 0: it reads tokens.
      dtype: of the vectors.
      by_document, cached: as in `fxf.layers.layer.Layer`.
    """

    module: Any
    keys: tuple[tuple[str, Any], ...] = ()
    width: int = 0
    dtype: str = "float32"
    by_document: bool = False
    cached: bool = False

    def begin(self, key: jax.Array) -> tuple[jax.Array, dict[str, Any]]:
        """Returns the module's output on two tokens, and its weights by path, drawn by its own initializers.

        A weight may be in a box of Flax, which names its axes.
        """
        raise NotImplementedError

    def output(self, params: Params, x: jax.Array, rng: jax.Array | None, given: Mapping[str, Any]) -> jax.Array:
        """Returns the module's output; `given` are arguments for it by name, of which it gets those that it takes."""
        raise NotImplementedError

    def apply(self, params: Params, x_RTD: jax.Array, context: Context) -> tuple[jax.Array, Context]:
        """Returns the module's output, and the context as it is."""
        return self.output(params, x_RTD, context.rng, of_context(context)).astype(x_RTD.dtype), context

    @property
    def name(self) -> str:
        """The name of the module's class."""
        return getattr(self.module, "__name__", type(self.module).__name__)

    def example(self) -> tuple[jax.Array, dict[str, Any]]:
        """Returns two tokens or their vectors, and the arguments that go with them."""
        if not self.width:
            return jnp.zeros((1, 2), jnp.int32), of_training(None)
        return jnp.zeros((1, 2, self.width), self.dtype), of_context(whole_rows(2))

    def spec(self, n_outputs: int = 0) -> Spec:
        """Returns the table of the module's weights.

        Args:
          n_outputs: the width that its outputs must have; 0: that of the vectors that it reads.

        Axes have the names that Flax's metadata for partitioning give them; those without one are not sharded.

        Raises:
          UserError: its outputs do not have the expected width.
        """
        output, flat = jax.eval_shape(self.begin, random_key(0))
        shape = (1, 2, n_outputs or self.width)
        if output.shape != shape:
            raise UserError(f"model: {self.name} makes {output.shape} of 1 row of 2 tokens; expected {shape}")
        found: dict[str, Weight] = {}
        for path, value in flat.items():
            array = nn.unbox(value)
            names = dict(enumerate(nn.get_partition_spec(value)))
            axes = [name if isinstance(name := names.get(i), str) else f"axis_{i}" for i in range(array.ndim)]
            found[path] = Weight(array.shape, tuple(axes), Draw(self, path))
        return unflatten_dict(found, sep="/")


class Linen(FlaxModule):
    """The functions of a Linen module."""

    def begin(self, key: jax.Array) -> tuple[jax.Array, dict[str, Any]]:
        x, given = self.example()
        given = _taken(self.module, given)
        output, variables = self.module.init_with_output({"params": key, "dropout": key}, x, **given)
        _require_params(self.name, set(variables) - {"params"})
        return output, flatten_dict(variables.get("params", {}), sep="/")

    def output(self, params: Params, x: jax.Array, rng: jax.Array | None, given: Mapping[str, Any]) -> jax.Array:
        rngs = None if rng is None else {"dropout": rng}
        return self.module.apply({"params": params}, x, rngs=rngs, **_taken(self.module, given))


class NNX(FlaxModule):
    """The functions of an NNX module.

    Each trace makes the module, for what it holds besides weights, and puts the weights in the place of those drawn,
    which the compiler leaves out.
    """

    def begin(self, key: jax.Array) -> tuple[jax.Array, dict[str, Any]]:
        module = self._made(key, None)
        state = nnx.state(module, nnx.Param)
        axes = dict(nnx.to_flat_state(nnx.get_partition_spec(state)))
        # Before the call: what it leaves in the module is not of its weights.
        others = [v for _, v in nnx.to_flat_state(nnx.state(module)) if isinstance(v, nnx.Variable)]
        _require_params(self.name, {type(v).__name__ for v in others if not isinstance(v, nnx.Param | nnx.RngState)})
        weights: dict[str, Any] = {
            _path(path): nn.Partitioned(variable[...], tuple(axes[path].get_raw_value()))
            for path, variable in nnx.to_flat_state(state)
        }
        x, given = self.example()
        return module(x, **_taken(module, given)), weights

    def output(self, params: Params, x: jax.Array, rng: jax.Array | None, given: Mapping[str, Any]) -> jax.Array:
        module = self._made(random_key(0), rng)
        state, flat = nnx.state(module, nnx.Param), flatten_dict(params, sep="/")
        for path, variable in nnx.to_flat_state(state):
            variable.set_value(flat[_path(path)])
        nnx.update(module, state)
        return module(x, **_taken(module, given))

    def _made(self, key: jax.Array, rng: jax.Array | None) -> Any:
        """Returns the module with weights drawn from `key`, and dropout from `rng` if there is one."""
        rngs = nnx.Rngs(key) if rng is None else nnx.Rngs(key, dropout=rng)
        with nnx.use_eager_sharding(False):  # fxf shards weights by the names of their axes
            module = self.module(**dict(self.keys), rngs=rngs)
        module.set_attributes(deterministic=rng is None, raise_if_not_found=False)
        return module


@dataclasses.dataclass(frozen=True)
class Draw:
    """The initializer of one weight: the module draws all of its own, of which the compiler keeps this one."""

    module: FlaxModule
    path: str

    def __call__(self, key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        drawn = nn.unbox(self.module.begin(key)[1][self.path])
        assert drawn.shape == shape
        return drawn.astype(dtype)


def flax_layer(cls: Any, values: Mapping[str, Any], path: str, width: int, dtype: str) -> FlaxModule:
    """Returns the layer of a module's class.

    Args:
      values: of the fields of a Linen module, or the parameters of an NNX module.
      path: of its section, for errors.

    Raises:
      UserError: the class needs another value.
    """
    for name, parameter in parameters_of(cls).items():
        if name not in values and parameter.default is parameter.empty:
            raise UserError(f"{path}.{name}: {cls.__name__} needs a value; it is no key of the model, so give one here")
    cached, takes = getattr(cls, "cached", False), inspect.signature(cls.__call__).parameters
    by_document = cached or "mask" in takes or "context" in takes
    of_layer: dict[str, Any] = {"width": width, "dtype": dtype, "by_document": by_document, "cached": cached}
    is_linen = issubclass(cls, nn.Module)
    return Linen(cls(**values), **of_layer) if is_linen else NNX(cls, tuple(values.items()), **of_layer)


def fields_of_module(cls: Any) -> dict[str, Field]:
    """Returns the fields of a Linen module's class, or the parameters of an NNX module's, with their types."""
    return {name: Field(_kind(parameter.annotation), {}) for name, parameter in parameters_of(cls).items()}


def parameters_of(cls: Any) -> dict[str, inspect.Parameter]:
    """Returns the parameters of a class that are keys, by name."""
    found = inspect.signature(cls.__init__).parameters
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {name: p for name, p in found.items() if name not in NOT_KEYS and p.kind not in several}


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


def _taken(module: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments that the module takes.

    Raises:
      UserError: it does not take those that say what a token reads.
    """
    taken = inspect.signature(module.__call__).parameters
    for name in WHAT_IS_READ:
        if name in given and name not in taken:
            raise UserError(f"{name}: {type(module).__name__}, a module of Flax, does not take them")
    return {name: value for name, value in given.items() if name in taken}


def _require_params(name: str, others: set[str]) -> None:
    """Raises a UserError if a module has variables that are no weights."""
    if others:
        kinds = ", ".join(sorted(others))
        raise UserError(f"model: {name} has variables besides its params, {kinds}, which fxf does not keep")


def _path(path: tuple[Any, ...]) -> str:
    return "/".join(map(str, path))
