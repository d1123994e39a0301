"""Named arrays: the one way in and out of a computation.

A layer names an array, `x = named("weights", x)`. The compiled program is the same as without the name. `edited` reads
and replaces named arrays from outside: probing, patching, steering and attribution rest on it. `term` adds to the
objective of training, `figure` to its metrics, and `moved` moves a weight without a derivative; only training reads
these three, and elsewhere they cost nothing.

The full name of an array is the path of its scopes (`jax.named_scope`) without those of blocks, then its own name:
`residual`, `attention/weights`, `decoder/cross_attention/weights`. So an array has the same name in all blocks. Terms
and figures have only their own names.

The place of an array also says which block it is in: `block_1/attention/weights`. Code that runs one block after the
other opens the scopes `block_0`, `block_1`, ... In a loop (`jax.lax.scan`) over blocks, a scope inside has the number
of the block in the first iteration, and later iterations count on; without a scope, an iteration is a block. All
iterations of a loop inside a block are one place.
"""

import fnmatch
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name

from fxf.base.errors import UserError, nearest
from fxf.base.named_arrays import OF_TRAINING, Chosen, Edit, Key, evaluate, places_in
from fxf.layers.linear import as_float32

# Suffixes of the names of a term's two arrays, and the prefix of the terms that `moved` makes.
TOTAL, WEIGHT, MOVED = "/total", "/weight", "term/moved/"


def named(name: str, x: Any) -> Any:
    """Names an array, or each array of a tree."""
    return checkpoint_name(x, name)


def term(name: str, total: jax.Array, weight: jax.Array | float = 1.0) -> None:
    """Adds total / weight to the training objective, and shows it in the metrics as `term/<name>`.

    Total and weight are summed over the parts of a batch (microbatches, devices, a `vmap`) before they are divided,
    like the loss. Terms of one name in several blocks add up.

    Args:
      total: a scalar.
      weight: a scalar, such as the number of tokens in the total. It has no gradient.
    """
    named(f"term/{name}{TOTAL}", as_float32(jnp.asarray(total)))
    named(f"term/{name}{WEIGHT}", jax.lax.stop_gradient(jnp.asarray(weight, jnp.float32)))


def moved(name: str, weight: jax.Array, gradient: jax.Array) -> None:
    """Adds `gradient`, which need not be a derivative, to the gradient of a weight, by a term of value 0.

    It is averaged over the parts of a batch. The metrics do not show it.
    """
    away = weight - jax.lax.stop_gradient(weight)
    term(f"moved/{name}", jnp.sum(away * jax.lax.stop_gradient(gradient)))


def figure(name: str, value: jax.Array) -> None:
    """Shows a scalar in the metrics of training as `figure/<name>`.

    A metrics row has its mean over blocks, over the parts of a batch, and over the steps since the last row.
    """
    named(f"figure/{name}", as_float32(jnp.asarray(value)))


def edited(
    function: Callable[..., Any], edits: Mapping[str, Edit] | None = None, read: str | Sequence[str] = ()
) -> Callable[..., tuple[Any, dict[str, jax.Array]]]:
    """Returns a function of the same arguments that returns (output of `function`, the arrays read by full name).

        logits, found = jax.jit(fxf.edited(model.apply, read="attention/weights"))(params, batch)
        weights_NBHTT = found["attention/weights"]

    A name that occurs n times, in n blocks or iterations of a loop, is read as [n, ...], in order of computation.
    Arrays are read after their edits. Names may be inside `jit`, `scan` and `checkpoint` (`remat`).

    Args:
      function: a forward computation; in that of a gradient a name may occur twice.
      edits: by full name or pattern (`*/weights`), `edit(value, i)`, which returns the replacement of the i-th array of
        that name. In a loop i is traced: `jnp.where(i == 2, 0, value)`. The first pattern that matches counts.
      read: full names or patterns.

    Raises:
      UserError: a name or pattern matches no array, or one inside a `cond`, a `while_loop` or a function with custom
        derivatives; or the arrays of a name that is read have several shapes.
    """
    patterns = (read,) if isinstance(read, str) else tuple(read)

    def run(*args: Any, **kwargs: Any) -> tuple[Any, dict[str, jax.Array]]:
        closed, shape = jax.make_jaxpr(function, return_shape=True)(*args, **kwargs)
        places = places_in(closed.jaxpr.eqns)
        names = list(dict.fromkeys(place.name for place in places))
        replaced: dict[str, Edit] = {}
        for pattern, edit in (edits or {}).items():
            replaced = dict.fromkeys(_matching(pattern, names), edit) | replaced
        shapes = {name: set[str]() for pattern in patterns for name in _matching(pattern, names)}
        for place in places:
            if place.inside and (place.name in replaced or place.name in shapes):
                what = f"the array '{place.name}' is named inside a {place.inside}"
                raise UserError(f"{what}, where it can be neither read nor replaced")
            if place.name in shapes:
                shapes[place.name].add(str([*place.shape]))
        for name, several in shapes.items():
            if len(several) > 1:
                raise UserError(f"arrays named '{name}' have several shapes: {', '.join(sorted(several))}")
        out, found = evaluate(closed.jaxpr, closed.consts, jax.tree.leaves((args, kwargs)), Chosen(replaced, shapes))
        arrays = {name: x for (name, _), x in found.items()}
        return jax.tree.unflatten(jax.tree.structure(shape), out), {name: arrays[name] for name in shapes}

    return run


def _matching(pattern: str, names: Collection[str]) -> list[str]:
    if found := fnmatch.filter(names, pattern):
        return found
    raise UserError(f"no array is named '{pattern}' here{nearest(pattern, names)}")


def names_in(function: Callable[..., Any], *args: Any) -> list[str]:
    """Returns the full names of the arrays in `function(*args)`, in order of computation.

    Args:
      args: arrays, or their shapes.
    """
    return list(dict.fromkeys(place.name for place in places_in(jax.make_jaxpr(function)(*args).eqns)))


def intermediates(function: Callable[..., Any], *args: Any) -> dict[str, jax.Array]:
    """Returns the named arrays inside `function(*args)` by place, such as `block_0/attention/weights`.

    Arrays that occur n times in one place are [n, ...]; if they have several shapes, those of the last shape. Terms,
    figures and arrays that `edited` cannot read are left out.
    """
    return reader(function, *args)(*args)


def reader(function: Callable[..., Any], *args: Any) -> Callable[..., dict[str, jax.Array]]:
    """Returns the function that `intermediates` calls, which compiles once for all arguments of these shapes."""
    closed = jax.make_jaxpr(function)(*args)
    places = places_in(closed.jaxpr.eqns)
    left_out = {place.name for place in places if place.inside or place.name.startswith(OF_TRAINING)}
    where: dict[str, list[tuple[Key, int]]] = defaultdict(list)  # by place: (name, shape), and which one of these
    seen: Counter[Key] = Counter()
    for place in places:
        if place.name not in left_out:
            key = place.name, place.shape
            where["/".join(place.path)].append((key, seen[key]))
            seen[key] += 1

    @jax.jit
    def compute(leaves: list[Any]) -> list[jax.Array]:
        _, found = evaluate(closed.jaxpr, closed.consts, leaves, Chosen({}, {name for name, _ in seen}))
        arrays = []
        for several in where.values():
            last, _ = several[-1]
            alike = np.array([i for key, i in several if key == last])
            arrays.append(found[last][alike if len(alike) > 1 else alike[0]])
        return arrays

    return lambda *args: dict(zip(where, compute(jax.tree.leaves(args)), strict=True))
