"""The named arrays of a traced program: where they are, and its outputs with other arrays in the place of some.

`fxf.layers.named` says what names mean, and what users call.
"""

import contextlib
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import flax.struct
import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.extend.core import Literal

from fxf.base.errors import UserError
from fxf.base.operations import inner_jaxprs

OF_TRAINING = ("term/", "figure/")  # arrays whose names begin so have no scopes
BLOCK = re.compile(r"block_(\d+)")
Edit = Callable[[jax.Array, Any], Any]


class Place(NamedTuple):
    """Where an array is.

    Attributes:
      path: the scopes, those of blocks too, and its own name.
      inside: the primitive inside of which it can be neither read nor replaced, if there is one.
    """

    path: tuple[str, ...]
    inside: str = ""

    @property
    def name(self) -> str:
        """The full name, which does not say in which block the array is."""
        own = self.path[-1]
        if own.startswith(OF_TRAINING):
            return own
        return "/".join(part for part in self.path if not BLOCK.fullmatch(part))


def by_name(places: Iterable[Place]) -> dict[str, list[Place]]:
    """Returns the places of each full name."""
    found: dict[str, list[Place]] = {}
    for place in places:
        found.setdefault(place.name, []).append(place)
    return found


def places_in(jaxpr: Any, in_block: bool = False) -> list[Place]:
    """Returns the places of all named arrays, in the order of computing."""
    return [place for equation in jaxpr.eqns for place in places_of(equation, in_block)]


def places_of(equation: Any, in_block: bool) -> list[Place]:
    """Returns the places of the named arrays of an equation.

    Args:
      in_block: whether the scopes around it have the number of a block, so that a loop does not count blocks.
    """
    scopes, kind = _scopes(equation), equation.primitive.name
    in_block = in_block or any(map(BLOCK.fullmatch, scopes))
    if kind == "name":
        inside = [Place((equation.params["name"],))]
    else:
        inner = list(inner_jaxprs(equation.params))
        inside = [place for each in inner for place in places_in(each, in_block or kind == "scan")]
    if kind == "scan":
        inside = _in_turns(inside, equation.params["length"], in_block)
    closed = "" if kind in OPEN else kind
    return [Place((*scopes, *place.path), place.inside or closed) for place in inside]


def _scopes(equation: Any) -> tuple[str, ...]:
    """Returns the scopes of an equation, without transformations: those of vmap(block_0)/attention."""
    text = re.sub(r"\w+\(|\)", "", str(equation.source_info.name_stack))
    return tuple(filter(None, text.split("/")))


def _in_turns(places: list[Place], length: int, in_block: bool) -> list[Place]:
    """Returns the places of all turns of a loop, from those of its first turn."""
    if in_block:
        return length * places
    numbers = {part for place in places for part in place.path if BLOCK.fullmatch(part)}

    def at_turn(path: tuple[str, ...], turn: int) -> tuple[str, ...]:
        for i, part in enumerate(path):
            if block := BLOCK.fullmatch(part):
                return (*path[:i], f"block_{int(block[1]) + turn * len(numbers)}", *path[i + 1 :])
        return (f"block_{turn}", *path)

    return [Place(at_turn(place.path, turn), place.inside) for turn in range(length) for place in places]


class Chosen(NamedTuple):
    """What replaces the arrays of a full name, and which arrays are read."""

    edits: Mapping[str, Edit]
    read: frozenset[str]

    def any_of(self, names: Iterable[str]) -> bool:
        return any(name in self.edits or name in self.read for name in names)


@flax.struct.dataclass
class Part:
    """Arrays of one name, [n, ...], and which of all arrays of that name they are."""

    values: jax.Array
    at: tuple[int, ...] = flax.struct.field(pytree_node=False)


Parts = dict[str, list[Part]]


def in_order(name: str, found: Parts) -> jax.Array:
    """Returns all arrays of a name, [n, ...]."""
    parts = found[name]
    if len(shapes := {part.values.shape[1:] for part in parts}) > 1:
        raise UserError(f"arrays named '{name}' have several shapes: {', '.join(sorted(map(str, map(list, shapes))))}")
    at = [i for part in parts for i in part.at]
    values = jnp.concatenate([part.values for part in parts])
    return values if at == sorted(at) else values[jnp.argsort(jnp.array(at))]


def evaluate(
    jaxpr: Any,
    consts: Sequence[Any],
    inputs: Sequence[Any],
    chosen: Chosen,
    scopes: tuple[str, ...] = (),
    first: Mapping[str, Any] | None = None,
) -> tuple[list[Any], Parts]:
    """Returns the outputs of a jaxpr, and the arrays that are read.

    Args:
      scopes: those that the jaxpr is inside of.
      first: by full name, how many arrays of that name come before; in a loop it is traced.
    """
    known = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *inputs), strict=True))
    seen: Counter[str] = Counter()
    found: Parts = defaultdict(list)
    for equation in jaxpr.eqns:
        arguments = [v.val if isinstance(v, Literal) else known[v] for v in equation.invars]
        names = Counter(Place((*scopes, *place.path)).name for place in places_of(equation, in_block=True))
        here = _scopes(equation)
        # The context and the scopes of the equation hold for its copy too.
        with equation.ctx.manager, jax.named_scope("/".join(here)) if here else contextlib.nullcontext():
            if chosen.any_of(names):
                before = {name: (first or {}).get(name, 0) + seen[name] for name in names}
                apply = OPEN[equation.primitive.name]
                out, parts = apply(equation.params, arguments, chosen, (*scopes, *here), before)
                for name, some in parts.items():
                    found[name] += [Part(part.values, tuple(seen[name] + i for i in part.at)) for part in some]
            else:
                out = equation.primitive.bind(*arguments, **equation.primitive.get_bind_params(equation.params))
                out = out if equation.primitive.multiple_results else [out]
        seen += names
        known |= zip(equation.outvars, out, strict=True)
    return [v.val if isinstance(v, Literal) else known[v] for v in jaxpr.outvars], dict(found)


def _name(params: Any, inputs: Any, chosen: Chosen, scopes: tuple[str, ...], before: Mapping[str, Any]) -> Any:
    (x,), full = inputs, Place((*scopes, params["name"])).name
    if full in chosen.edits:
        new = jnp.asarray(chosen.edits[full](x, before[full]), x.dtype)
        x = jnp.broadcast_to(new, x.shape)
    x = checkpoint_name(x, params["name"])
    return [x], {full: [Part(x[None], (0,))]} if full in chosen.read else {}


def _call(params: Any, inputs: Any, *known: Any) -> Any:
    return evaluate(params["jaxpr"].jaxpr, params["jaxpr"].consts, inputs, *known)


def _checkpoint(params: Any, inputs: Any, *known: Any) -> Any:
    body = lambda *inputs: evaluate(params["jaxpr"], (), inputs, *known)  # noqa: E731
    return jax.checkpoint(body, policy=params["policy"], prevent_cse=params["prevent_cse"])(*inputs)


def _scan(params: Any, inputs: Any, chosen: Chosen, scopes: tuple[str, ...], before: Mapping[str, Any]) -> Any:
    n_consts, body, length = params["num_consts"], params["jaxpr"], params["length"]
    n_fixed = n_consts + params["num_carry"]
    in_turn = Counter(Place((*scopes, *place.path)).name for place in places_in(body.jaxpr, in_block=True))

    def turn(carry: Any, x: Any) -> Any:
        i, xs = x
        first = {name: before[name] + i * n for name, n in in_turn.items()}
        out, parts = evaluate(body.jaxpr, body.consts, [*inputs[:n_consts], *carry, *xs], chosen, scopes, first)
        return out[: params["num_carry"]], (out[params["num_carry"] :], parts)

    def of_all_turns(name: str, part: Part) -> Part:
        at = tuple(i * in_turn[name] + j for i in range(length) for j in part.at)
        return Part(part.values.reshape(-1, *part.values.shape[2:]), at)

    options = {key: params[key] for key in ("length", "reverse", "unroll")}
    xs = (jnp.arange(length), inputs[n_fixed:])
    carry, (ys, parts) = jax.lax.scan(turn, list(inputs[n_consts:n_fixed]), xs, **options)
    return [*carry, *ys], {name: [of_all_turns(name, part) for part in some] for name, some in parts.items()}


# How to evaluate the primitives inside of which arrays can be read and replaced.
OPEN: dict[str, Callable[..., tuple[Sequence[Any], Parts]]] = {
    "name": _name,
    "jit": _call,
    "remat2": _checkpoint,
    "scan": _scan,
}
