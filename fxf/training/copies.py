"""Copies of weights in the type of the computation, which a loop of steps carries beside its state.

The update of a weight then writes the copy too. Without the copies, each step reads the weights once more to cast them.
"""

from typing import Any

import jax
from jax.extend.core import Jaxpr, JaxprEqn, jaxprs_in_params

from fxf.base.weights import Params
from fxf.layers.linear import copied
from fxf.models.model import Batch, Model
from fxf.training.gradient import batch_loss
from fxf.training.sharding import Layout

Copies = list[jax.Array | None]


def are_only_cast(model: Model, params: Params, batch: Batch, rng: Any, layout: Layout) -> list[bool]:
    """Returns which weights the loss of training only casts to `model.dtype`; the arguments may be shapes."""
    leaves = jax.tree.leaves(params)
    if model.dtype == model.weights_dtype or model.penalty is not None or layout.pmap:
        return [False] * len(leaves)
    program = jax.make_jaxpr(lambda p, b, key: batch_loss(model, p, b, key, layout=layout))(params, batch, rng).jaxpr
    return [_is_only_cast(program, variable, model.dtype) for variable in program.invars[: len(leaves)]]


def copies_of(model: Model, params: Params, only_cast: list[bool], layout: Layout) -> Copies:
    """Returns a copy of each weight that is only cast, sharded as the weight is, and None for the others."""
    leaves = zip(jax.tree.leaves(params), only_cast, jax.tree.leaves(layout.weights(model.spec)), strict=True)
    return [jax.lax.with_sharding_constraint(x.astype(model.dtype), s) if cast else None for x, cast, s in leaves]


def reading(model: Model, copies: Copies) -> Model:
    """Returns the model that reads the copies in place of its weights; the gradient is still that of the weights."""

    def to_plain(params: Params) -> Params:
        leaves, tree = jax.tree.flatten(params)
        read = [x if copy is None else copied(x, copy) for x, copy in zip(leaves, copies, strict=True)]
        return model.to_plain(jax.tree.unflatten(tree, read))

    return model._replace(to_plain=to_plain)


def _is_only_cast(program: Jaxpr, variable: Any, dtype: str) -> bool:
    uses = [(equation, i) for equation in program.eqns for i, x in enumerate(equation.invars) if x is variable]
    return variable not in program.outvars and all(_casts(program, *use, dtype) for use in uses)


def _casts(program: Jaxpr, equation: JaxprEqn, i: int, dtype: str) -> bool:
    """Returns whether an equation, or all that follows it, casts its i-th operand."""
    name, inner = equation.primitive.name, list(jaxprs_in_params(equation.params))
    if name == "convert_element_type":
        return equation.params["new_dtype"] == dtype
    if name in ("reshape", "transpose", "squeeze", "sharding_constraint"):
        return _is_only_cast(program, equation.outvars[0], dtype)
    one_to_one = len(inner) == 1 and len(inner[0].invars) == len(equation.invars)
    return one_to_one and _is_only_cast(inner[0], inner[0].invars[i], dtype)
