"""The intermediate arrays of a computation that code names with `jax.ad_checkpoint.checkpoint_name`.

A name costs nothing unless someone asks for it. Attention names its `weights`. Embeddings name their `positions`.
Embeddings and blocks name the `residual` stream that they return. Any line of a layer can name more.
"""

import re
from collections.abc import Callable
from typing import Any

import jax
from jax.extend import core


def intermediates(function: Callable[..., Any], *args: Any) -> dict[str, jax.Array]:
    """Returns the named arrays inside `function(*args)` by scopes and name, such as "block_0/attention/weights".

    It leaves out arrays inside a loop over blocks (model.scan_blocks), and arrays that a backward pass recomputes
    (model.remat).
    """
    return reader(function, *args)(*args)


def reader(function: Callable[..., Any], *args: Any) -> Callable[..., dict[str, jax.Array]]:
    """Returns the function that `intermediates` calls, which compiles once for all arguments of these shapes."""
    closed = jax.make_jaxpr(function)(*args)
    found = {
        _path(equation): equation.outvars[0] for equation in closed.jaxpr.eqns if equation.primitive.name == "name"
    }
    debug_info = closed.jaxpr.debug_info._replace(result_paths=None)
    jaxpr = closed.jaxpr.replace(outvars=list(found.values()), debug_info=debug_info)
    compute = jax.jit(core.jaxpr_as_fun(core.ClosedJaxpr(jaxpr, closed.consts)))
    return lambda *args: dict(zip(found, compute(*jax.tree.leaves(args)), strict=True))


def _path(equation: Any) -> str:
    scopes = re.sub(r"\w+\(|\)", "", str(equation.source_info.name_stack))  # without transformations: vmap(block_0)
    return f"{scopes}/{equation.params['name']}".lstrip("/")
