"""Weights that decoding casts to the type of the computation once, and not again for each token."""

from collections.abc import Callable
from typing import Any

import jax
from jax.experimental.layout import Layout, with_layout_constraint
from jax.extend.core import Literal, jaxpr_as_fun

from fxf.base.on_gpu import on_gpu

MOVES = ("convert_element_type", "reshape", "squeeze", "transpose")


def cast_once(step: Callable[..., Any], params: Any, *others: Any) -> tuple[Callable, Callable]:
    """Returns functions `cast` and `rest`: `rest(cast(params), *others)` is `step(params, *others)`, to the bit.

    `cast` does what a step does with weights alone: it casts them to a type that is not wider, and reshapes them. A
    weight that the step reads in two types, such as a table that also makes logits, is there in both.

    Args:
      params, others: arguments of the step, of which only shapes and types count.
    """
    closed, out = jax.make_jaxpr(step, return_shape=True)(params, *others)
    jaxpr, n_weights = closed.jaxpr, len(jax.tree.leaves(params))
    of_params, of_others = jaxpr.invars[:n_weights], jaxpr.invars[n_weights:]
    of_weights, early, late = dict.fromkeys(of_params), list[Any](), list[Any]()
    for equation in jaxpr.eqns:
        is_early = equation.primitive.name in MOVES and _is_in(of_weights, equation.invars[0]) and not _widens(equation)
        (early if is_early else late).append(equation)
        of_weights |= dict.fromkeys(equation.outvars if is_early else ())
    read = {v for v in (*jaxpr.outvars, *(v for each in late for v in each.invars)) if not isinstance(v, Literal)}
    kept = [v for v in of_weights if v in read]
    # Where a GPU multiplies one vector with a matrix, it reads the matrix once if each output has its weights in a row,
    # and else writes all terms of the sums first.
    in_rows = [on_gpu() and v.aval.ndim == 2 and v not in of_params for v in kept]

    def part(inputs: list[Any], outputs: list[Any], equations: list[Any]) -> Callable[..., list[Any]]:
        names = jaxpr.debug_info.with_unknown_names()
        new = jaxpr.replace(invars=inputs, outvars=outputs, eqns=equations, debug_info=names)
        return jaxpr_as_fun(closed.replace(jaxpr=new))

    casts, steps = part(of_params, kept, early), part([*kept, *of_others], jaxpr.outvars, late)

    def cast(params: Any) -> list[jax.Array]:
        found = zip(casts(*jax.tree.leaves(params)), in_rows, strict=True)
        return [with_layout_constraint(w.T, Layout((0, 1))) if turned else w for w, turned in found]

    def rest(weights: list[jax.Array], *others: Any) -> Any:
        plain = [w.T if turned else w for w, turned in zip(weights, in_rows, strict=True)]
        return jax.tree.unflatten(jax.tree.structure(out), steps(*plain, *jax.tree.leaves(others)))

    return jax.jit(cast), rest


def _is_in(found: Any, variable: Any) -> bool:
    return not isinstance(variable, Literal) and variable in found


def _widens(equation: Any) -> bool:
    before, after = (v.aval.dtype.itemsize for v in (equation.invars[0], equation.outvars[0]))
    return after > before
