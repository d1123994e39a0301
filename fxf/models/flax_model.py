"""A model that is one Flax module, Linen or NNX, from tokens to logits."""

from typing import Any

import jax

from fxf.base.weights import Params
from fxf.layers.flax_module import FlaxModule, as_linen, of_training
from fxf.layers.linear import as_float32
from fxf.models.model import Batch, Model, WholeSequences


def of_module(module: Any, vocab_size: int, *, max_len: int | None = None, dtype: str = "float32") -> Model:
    """Returns the model of a module that maps tokens [B, T] to logits [B, T, V].

    The module gets arrays of the batch, such as `input_mask` or `documents`, and `train` or `deterministic`, by the
    names of its parameters. To generate, it must be causal: it decodes by the whole sequence.

    Args:
      module: a Linen module; or a function of `rngs` that returns an NNX module, such as its class.
      max_len: the maximum number of tokens in a row when decoding; None: no maximum.
      dtype: the type in which the module computes; it does not set that type.

    Raises:
      UserError: the output has another shape, or the module has variables that are not params.
    """
    functions = FlaxModule(as_linen(module))
    spec = functions.spec(vocab_size)

    def features(params: Params, batch: Batch, *, rng: jax.Array | None = None) -> jax.Array:
        return as_float32(functions.output(cut(params), batch["inputs"], rng, {**batch, **of_training(rng)}))

    def cut(params: Params) -> Params:
        """Leaves out the padding that a step adds to the vocabulary: the module checks the shapes of its weights."""
        return jax.tree.map(lambda weight, x: x[tuple(map(slice, weight.shape))], dict(spec), params)

    def readout(_: Params, logits: jax.Array) -> jax.Array:
        return logits

    decoding = WholeSequences(features, readout)
    return Model(spec, features, readout, decoding.prefill, decoding.step, max_len=max_len, dtype=dtype)
