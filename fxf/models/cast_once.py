"""Casts weights to the type of the computation once for decoding, and not again for each token."""

from collections.abc import Callable
from typing import Any

import jax
from jax.extend.core import Literal, jaxpr_as_fun

from fxf.base.on_gpu import on_gpu, row_major

# Primitives that are computed early if they read weights only: they cast, move and scale.
EARLY = ("broadcast_in_dim", "convert_element_type", "mul", "reshape", "squeeze", "transpose")


def cast_once(step: Any, params: Any, cache: Any, tokens_R: Any, *, dtype: str) -> tuple[Callable, Callable]:
    """Returns functions `cast` and `rest`: `rest(cast(params), cache, tokens_R)` has the bits of `step`.

    `cast` does the part of the step that depends on weights only. A weight that the step reads in two types, such as a
    table with tied logits, has a copy in each.

    Args:
      params, cache, tokens_R: arguments of the step; only their shapes and types matter.
      dtype: the type of the step's matrix products.
    """
    if not on_gpu() and all(w.dtype == dtype for w in jax.tree.leaves(params)):
        return lambda params: params, step
    # On a GPU, products of one row read weights of any type, and products of several rows only the computation's.
    widen = not (on_gpu() and tokens_R.size == 1)
    closed, out = jax.make_jaxpr(step, return_shape=True)(params, cache, tokens_R)
    jaxpr, n_weights = closed.jaxpr, len(jax.tree.leaves(params))
    of_params, of_others = jaxpr.invars[:n_weights], jaxpr.invars[n_weights:]
    of_weights, early, late = dict.fromkeys(of_params), list[Any](), list[Any]()
    for equation in jaxpr.eqns:
        inputs, n_bytes = variables(equation.invars), max(map(_n_bytes, equation.outvars), default=0)
        is_early = equation.primitive.name in EARLY and inputs and all(v in of_weights for v in inputs)
        is_early = is_early and (widen or n_bytes <= max(map(_n_bytes, inputs)))
        (early if is_early else late).append(equation)
        of_weights |= dict.fromkeys(equation.outvars if is_early else ())
    read = {*variables(jaxpr.outvars), *(v for equation in late for v in variables(equation.invars))}
    kept = [v for v in of_weights if v in read]

    def part(inputs: list[Any], outputs: list[Any], equations: list[Any]) -> Callable[..., list[Any]]:
        names = jaxpr.debug_info.with_unknown_names()
        new = jaxpr.replace(invars=inputs, outvars=outputs, eqns=equations, debug_info=names)
        return jaxpr_as_fun(closed.replace(jaxpr=new))

    casts, steps = part(of_params, kept, early), part([*kept, *of_others], jaxpr.outvars, late)

    def cast(params: Any) -> list[jax.Array]:
        return [row_major(w) for w in casts(*jax.tree.leaves(params))]

    def rest(weights: list[jax.Array], *others: Any) -> Any:
        return jax.tree.unflatten(jax.tree.structure(out), steps(*weights, *jax.tree.leaves(others)))

    return jax.jit(cast), rest


def variables(atoms: Any) -> list[Any]:
    return [v for v in atoms if not isinstance(v, Literal)]


def _n_bytes(variable: Any) -> int:
    return variable.aval.size * variable.aval.dtype.itemsize
