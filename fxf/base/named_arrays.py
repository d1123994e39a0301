"""The named arrays of a traced program: finding them, reading them, and running the program with some replaced.

`fxf.layers.named` explains the names, and has the functions that users call.
"""

import contextlib
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.extend.core import Literal, jaxprs_in_params

OF_TRAINING = ("term/", "figure/")  # the full names of such arrays leave out the scopes
BLOCK = re.compile(r"block_(\d+)")
Edit = Callable[[jax.Array, Any], Any]
Key = tuple[str, tuple[int, ...]]  # full name and shape
Found = dict[Key, jax.Array]  # all arrays of this name and shape, [n, ...], in the order of computing


class Place(NamedTuple):
    """Where an array is.

    Attributes:
      path: its scopes, also those of blocks, and then its own name.
      inside: an enclosing primitive that hides it from being read and replaced, if there is one.
    """

    path: tuple[str, ...]
    shape: tuple[int, ...]
    inside: str = ""

    @property
    def name(self) -> str:
        """The full name, without the scopes of blocks."""
        own = self.path[-1]
        if own.startswith(OF_TRAINING):
            return own
        return "/".join(part for part in self.path if not BLOCK.fullmatch(part))

    def within(self, scopes: Iterable[str], closed: str = "") -> "Place":
        """Returns the place as seen from outside these scopes, and outside the primitive `closed` if there is one."""
        return Place((*scopes, *self.path), self.shape, self.inside or closed)


def places_in(equations: Iterable[Any], in_block: bool = False) -> list[Place]:
    """Returns the places of all named arrays of a program's equations, in the order of computing.

    Args:
      in_block: whether an enclosing scope has the number of a block; then a scan is not a loop over blocks.
    """
    found = []
    for equation in equations:
        scopes, kind, params = _scopes(equation), equation.primitive.name, equation.params
        numbered = in_block or any(map(BLOCK.fullmatch, scopes))
        inside = [Place((params["name"],), equation.outvars[0].aval.shape)] if kind == "name" else []
        for inner in jaxprs_in_params(params):
            inside += places_in(inner.eqns, numbered or kind == "scan")
        if kind == "scan":
            inside = params["length"] * inside if numbered else _in_turns(inside, params["length"])
        found += [place.within(scopes, closed="" if kind in OPEN else kind) for place in inside]
    return found


def _scopes(equation: Any) -> tuple[str, ...]:
    """Returns the scopes of an equation without transformations: block_0 and attention of vmap(block_0)/attention."""
    text = re.sub(r"\w+\(|\)", "", str(equation.source_info.name_stack))
    return tuple(filter(None, text.split("/")))


def _in_turns(places: list[Place], length: int) -> list[Place]:
    """Returns the places in all iterations of a scan over blocks, from those in its first one."""
    n_blocks = len({next(filter(BLOCK.fullmatch, place.path), None) for place in places} - {None})

    def at_turn(path: tuple[str, ...], turn: int) -> tuple[str, ...]:
        for i, part in enumerate(path):
            if block := BLOCK.fullmatch(part):
                return (*path[:i], f"block_{int(block[1]) + turn * n_blocks}", *path[i + 1 :])
        return (f"block_{turn}", *path)

    return [place._replace(path=at_turn(place.path, turn)) for turn in range(length) for place in places]


class Chosen(NamedTuple):
    """Which arrays are replaced and how, and which are read, by full name."""

    edits: Mapping[str, Edit]
    read: Collection[str]


def evaluate(
    jaxpr: Any,
    consts: Sequence[Any],
    inputs: Sequence[Any],
    chosen: Chosen,
    scopes: tuple[str, ...] = (),
    before: Mapping[str, Any] | None = None,
) -> tuple[list[Any], Found]:
    """Returns the outputs of a jaxpr, and the arrays that are read.

    Args:
      scopes: the scopes around the jaxpr.
      before: the number of earlier arrays of each full name; traced inside a scan.
    """
    known = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *inputs), strict=True))
    counts: Counter[str] = Counter(before)
    found: dict[Key, list[jax.Array]] = defaultdict(list)
    for equation in jaxpr.eqns:
        arguments = [v.val if isinstance(v, Literal) else known[v] for v in equation.invars]
        names = Counter(place.within(scopes).name for place in places_in([equation], in_block=True))
        here, kind = _scopes(equation), equation.primitive
        # The copy keeps the context and the scopes of the equation.
        with equation.ctx.manager, jax.named_scope("/".join(here)) if here else contextlib.nullcontext():
            if any(name in chosen.edits or name in chosen.read for name in names):
                out, inside = OPEN[kind.name](equation.params, arguments, chosen, (*scopes, *here), counts)
                for key, values in inside.items():
                    found[key].append(values)
            else:
                out = kind.bind(*arguments, **kind.get_bind_params(equation.params))
                out = out if kind.multiple_results else [out]
        counts.update(names)
        known |= zip(equation.outvars, out, strict=True)
    outputs = [v.val if isinstance(v, Literal) else known[v] for v in jaxpr.outvars]
    return outputs, {key: jnp.concatenate(values) for key, values in found.items()}


def _name(params: Any, inputs: Any, chosen: Chosen, scopes: tuple[str, ...], before: Mapping[str, Any]) -> Any:
    (x,), full = inputs, Place((*scopes, params["name"]), ()).name
    if full in chosen.edits:
        x = jnp.broadcast_to(jnp.asarray(chosen.edits[full](x, before[full]), x.dtype), x.shape)
    x = checkpoint_name(x, params["name"])
    return [x], {(full, x.shape): x[None]} if full in chosen.read else {}


def _call(params: Any, inputs: Any, *known: Any) -> Any:
    return evaluate(params["jaxpr"].jaxpr, params["jaxpr"].consts, inputs, *known)


def _checkpoint(params: Any, inputs: Any, *known: Any) -> Any:
    body = lambda *inputs: evaluate(params["jaxpr"], (), inputs, *known)  # noqa: E731
    return jax.checkpoint(body, policy=params["policy"], prevent_cse=params["prevent_cse"])(*inputs)


def _scan(params: Any, inputs: Any, chosen: Chosen, scopes: tuple[str, ...], before: Mapping[str, Any]) -> Any:
    body, tree = params["jaxpr"], params.get("ft_in")  # from JAX 0.11 on
    n_consts, n_carry = map(len, tree.unpack()[:2]) if tree else (params["num_consts"], params["num_carry"])
    consts, first, xs = inputs[:n_consts], inputs[n_consts : n_consts + n_carry], inputs[n_consts + n_carry :]
    in_turn = Counter(place.within(scopes).name for place in places_in(body.jaxpr.eqns, in_block=True))

    def turn(carry: Any, x: Any) -> Any:
        i, xs = x
        counts = {name: before[name] + i * n for name, n in in_turn.items()}
        out, found = evaluate(body.jaxpr, body.consts, [*consts, *carry, *xs], chosen, scopes, counts)
        return out[:n_carry], (out[n_carry:], found)

    options = {key: params[key] for key in ("length", "reverse", "unroll")}
    carry, (ys, found) = jax.lax.scan(turn, list(first), (jnp.arange(params["length"]), xs), **options)
    return [*carry, *ys], {key: x.reshape(-1, *x.shape[2:]) for key, x in found.items()}


# Evaluators of the primitives inside which arrays can be read and replaced.
OPEN: dict[str, Callable[..., tuple[Sequence[Any], Found]]] = {
    "name": _name,
    "jit": _call,
    "remat2": _checkpoint,
    "scan": _scan,
}
