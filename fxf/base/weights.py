"""The table of weights: a `Weight` for each trained array determines initialization, counts, printing and decay.

A spec is a nested dict of `Weight`; params are the same tree with arrays as leaves.
"""

import dataclasses
import fnmatch
import functools
import math
import zlib
from collections import Counter
from collections.abc import Callable, Collection, ItemsView, Iterator, Mapping, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict, path_aware_map

from fxf.base.errors import UserError, closest, did_you_mean, of_shape

Initializer = Callable[[jax.Array, tuple[int, ...], Any], jax.Array]
Spec = Mapping[str, Any]
Params = dict[str, Any]

LAYERS, COPIES = "layers", "copies"  # axes of a stack of layers, and of models side by side
EXPERT = "expert"  # an axis of experts, each of which has a weight of its own
VOCABULARY = "vocabulary"  # an axis of all tokens
TABLES = {VOCABULARY, "position", "segment"}  # first axis of a table of rows: it is looked up, not summed over
WIDTHS = {"embed", "mlp", "heads"}  # axes that are longer in a wider model


@dataclasses.dataclass(frozen=True)
class Weight:
    """One trained array: its shape, a logical name for each axis, and `init(key, shape, dtype) -> array`.

    Its learning rate is `rate` times that of the optimizer. A weight of rate 0 keeps its bits: it has no gradient, no
    decay and no state of the optimizer.

    Attributes:
      by: what updates it. By "sign" each step adds -rate · sign(gradient), by "gradient" -rate · gradient;
        `fxf.layers.named.moved` may make the gradient. Then the optimizer, with its schedule, clipping and decay,
        leaves the weight alone and sees its new value, and the norm of the gradient does not count it.
    """

    shape: tuple[int, ...]
    axes: tuple[str, ...]
    init: Initializer
    rate: float = 1.0
    by: Literal["optimizer", "sign", "gradient"] = "optimizer"

    def __post_init__(self) -> None:
        is_named = len(self.shape) == len(self.axes) and all(isinstance(axis, str) for axis in self.axes)
        if not is_named or not all(hasattr(size, "__index__") for size in self.shape):
            raise ValueError(f"shape {self.shape} needs ints, and a name for each axis, got {self.axes}")


@functools.cache
def fan_in(in_axes: int = 1, size: int = 0) -> Initializer:
    """Normal, with variance 1 / (size of the first `in_axes` axes), which keeps the variance of activations.

    Args:
      size: replaces the size of these axes; 0: it does not.
    """

    def init(key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        return jax.random.normal(key, shape, dtype) / math.sqrt(size or math.prod(shape[:in_axes]))

    return init


def uniform_half(key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
    """Uniform on (-1/2, 1/2), the init of seed 004's `generateRandomWeights`."""
    return jax.random.uniform(key, shape, dtype, -0.5, 0.5)


def leaves(spec: Spec) -> ItemsView[str, Weight]:
    """Returns ('a/b/c', weight) for every weight of the spec, in its order.

    Raises:
      UserError: a leaf is not a `Weight`, such as a list of them.
    """
    weights = flatten(spec)
    for path, weight in weights.items():
        if not isinstance(weight, Weight):
            raise UserError(f"{path}: expected a Weight, or a dict of them, in a spec; got {type(weight).__name__}")
    return weights.items()


def without_repeats(spec: Spec) -> Iterator[tuple[str, Weight, int]]:
    """Yields (path, weight, copies), equal weights of several blocks once, with * in the path for the block's index."""
    alike = Counter((with_wildcards(path), weight) for path, weight in leaves(spec))
    yield from ((path, weight, copies) for (path, weight), copies in alike.items())


def map_weights(f: Callable[[str, Weight], Any], spec: Spec) -> Any:
    """Returns the tree of `f(path, weight)`."""
    return path_aware_map(lambda path, weight: f("/".join(map(str, path)), weight), spec)


def flatten(tree: Any) -> dict[str, Any]:
    """Returns the leaves of a nested dict by path, 'a/b/c': of params, or of any tree made by `map_weights`."""
    return {"/".join(map(str, path)): leaf for path, leaf in flatten_dict(tree).items()}


def matching(patterns: str, paths: Collection[str], where: str = "") -> list[str]:
    """Returns the paths of weights that comma-separated patterns choose, such as 'blocks/*/attention/*,!blocks/0/*'.

    `*` stands for any characters, also for /. A pattern with ! in front leaves paths out. The last pattern that matches
    a path decides.

    Args:
      where: the config key that holds the patterns; then each of them must match a path, and all together choose one.

    Raises:
      UserError: a pattern matches no path, or no path is chosen.
    """
    chosen = dict.fromkeys(paths, False)
    for pattern in filter(None, map(str.strip, patterns.split(","))):
        matched = fnmatch.filter(paths, pattern.removeprefix("!"))
        if where and not matched:
            examples = ", ".join(dict.fromkeys(map(with_wildcards, paths)))
            words = {word for path in paths for word in path.split("/")}
            typed = pattern.strip("!*/")
            near = closest(typed, [*paths, *words])
            forms = (f"{typed}/*", near, f"{near}/*", f"*/{near}", f"*/{near}/*")
            meant = next((form for form in forms if fnmatch.filter(paths, form)), "")
            hint = did_you_mean(meant) or f"; the weights are {examples}"
            raise UserError(f"{where}: '{pattern}' matches no weight{hint}")
        chosen |= dict.fromkeys(matched, not pattern.startswith("!"))
    found = [path for path, is_chosen in chosen.items() if is_chosen]
    if where and not found:
        raise UserError(f"{where}: '{patterns}' chooses no weight; all but some are *,!embedding/*")
    return found


def stack(spec: Spec, n: int, axis: str) -> Spec:
    """Returns the spec of `n` copies stacked on a leading axis, each copy initialized on its own."""

    def stacked(_: str, weight: Weight) -> Weight:
        def init(key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
            keys = jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(shape[0]))
            return jax.vmap(lambda k: weight.init(k, shape[1:], dtype))(keys)

        return dataclasses.replace(weight, shape=(n, *weight.shape), axes=(axis, *weight.axes), init=init)

    return map_weights(stacked, spec)


def initialize(
    spec: Spec, key: jax.Array, dtype: Any = jnp.float32, given: Mapping[str, jax.Array] | None = None
) -> Params:
    """Draws the params, except those that are `given` by path.

    Each weight's key derives from its path alone, so adding one leaves the others as they were. Equal weights, such as
    those of all blocks, are drawn together, because a program compiles as fast for many of them as for one.
    """
    known = {path: value.astype(dtype) for path, value in (given or {}).items()}
    drawn = [(path, weight) for path, weight in leaves(spec) if path not in known]
    alike: dict[Weight, list[int]] = {}
    for i, (_, weight) in enumerate(drawn):
        alike.setdefault(weight, []).append(i)
    keys_N = _keys(key, [path for path, _ in drawn])
    for weight, places in alike.items():
        values = _drawn(drawn[places[0]][0], weight, keys_N[np.array(places)], dtype)
        known |= {drawn[place][0]: value for place, value in zip(places, values, strict=True)}
    return map_weights(lambda path, _: known[path], spec)


def _drawn(path: str, weight: Weight, keys_N: jax.Array, dtype: Any) -> jax.Array:
    """Returns the values of equal weights, one for each key. An error names the path of the first one."""
    try:
        return jax.vmap(lambda k: of_shape(weight.init(k, weight.shape, dtype), weight.shape, f"{path}: init"))(keys_N)
    except Exception as error:
        error.add_note(f"{path}: `init` is called as init(key, shape, dtype) with the shape {weight.shape}")
        raise


def _keys(key: jax.Array, paths: Sequence[str]) -> jax.Array:
    """Returns the random keys of the weights at these paths, [N].

    Each is `key`, folded with a digest of the path without its indices, and then with each index.
    """
    digests = [zlib.crc32(without_indices(path).encode()) for path in paths]
    indices = [[int(part) for part in path.split("/") if part.isdecimal()] for path in paths]
    keys_N = jax.vmap(jax.random.fold_in, (None, 0))(key, np.array(digests, np.uint32))
    for depth in range(max(map(len, indices), default=0)):
        deep = np.array([i for i, row in enumerate(indices) if len(row) > depth])
        folded = jax.vmap(jax.random.fold_in)(keys_N[deep], np.array([indices[i][depth] for i in deep], np.uint32))
        keys_N = keys_N.at[deep].set(folded)
    return keys_N


def with_wildcards(path: str) -> str:
    """Returns the path with * for the index of a block."""
    return "/".join("*" if part.isdecimal() else part for part in path.split("/"))


def without_indices(path: str) -> str:
    """Returns the path that a weight of every block shares."""
    return "/".join(part for part in path.split("/") if not part.isdecimal())


def shapes(spec: Spec, dtype: Any = jnp.float32) -> Params:
    """Returns the params' shapes and dtypes without allocating them."""
    return map_weights(lambda _, w: jax.ShapeDtypeStruct(w.shape, dtype), spec)


def count(spec: Spec) -> int:
    """Returns the number of scalars in the params."""
    return sum(copies * math.prod(w.shape) for _, w, copies in without_repeats(spec))


def decay_mask(spec: Spec) -> Any:
    """Returns a tree of bools: True for the matrices of linear maps, False for biases, norms and tables of rows.

    Tables of rows are those of embeddings and positions. A leading axis `heads` does not count: with `head_dim` it is
    one axis, and any other axis after it has a few numbers per head.
    """

    def decays(_: str, weight: Weight) -> bool:
        axes = [axis for axis in weight.axes if axis not in (LAYERS, COPIES, EXPERT)]
        return len(axes) - (axes[:1] == ["heads"]) >= 2 and axes[0] not in TABLES and not is_vector(weight)

    return map_weights(decays, spec)


def is_vector(weight: Weight) -> bool:
    """Returns whether a weight is one vector over all heads, [heads, head_dim]."""
    return {*weight.axes} - {LAYERS, COPIES, EXPERT} == {"heads", "head_dim"}


def axes_of_matrix(weight: Weight) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Returns the indices of the axes that are the rows and the columns of a matrix, or None for another weight.

    Matrices are those of linear maps between vectors; the map to logits does not count. `heads` and `head_dim` count as
    one axis. Each expert has a matrix of its own.
    """
    names = weight.axes
    starts = [i for i, name in enumerate(names) if name not in ("head_dim", EXPERT)]
    if len(starts) != 2 or TABLES & set(names):
        return None
    first, second = starts
    return tuple(range(first, second)), tuple(range(second, len(names)))
