"""Bounds on the difference between two computations of the same numbers, from float32 arithmetic.

An operation rounds its result by at most half a unit in the last place (ulp). So two computations of n operations in
sequence, in any order, differ by at most n ulps, taken at the largest intermediate number: a small sum of large terms
is as uncertain as its terms.
"""

import jax
import numpy as np

UNIT = float(np.finfo(np.float32).eps)  # in the last place of 1.0
# From token to logit in the tests' models: two blocks of at most 50 sequential operations.
OPERATIONS = 100


def bound(largest, operations=OPERATIONS):
    """Returns the largest possible difference of two computations whose numbers are at most `largest`."""
    return operations * UNIT * float(largest)


def largest_of(tree):
    """Returns the largest finite magnitude in a tree of arrays."""
    leaves = [np.abs(np.asarray(leaf, np.float64)) for leaf in jax.tree.leaves(tree)]
    return max(float(leaf[np.isfinite(leaf)].max(initial=0)) for leaf in leaves)


def assert_close(actual, expected, operations=OPERATIONS, largest=None):
    """Asserts that two trees of arrays are equal up to rounding.

    `largest` is the largest intermediate summand, by default the maximum of each expected array.
    """

    def compare(path, a, b):
        most = largest_of(b) if largest is None else largest
        np.testing.assert_allclose(a, b, rtol=0, atol=bound(most, operations), err_msg=jax.tree_util.keystr(path))

    jax.tree_util.tree_map_with_path(compare, actual, expected)


def assert_slope(function, gradient, at, moving, least=0.0):
    """Asserts that a function's gradient along a direction equals finite differences in float64."""

    def along(step):
        return function(*jax.tree.map(lambda x, m: x + step * m, at, moving))

    slope = (along(1e-6) - along(-1e-6)) / 2e-6
    terms = [np.asarray(g, np.float64) * m for g, m in zip(*map(jax.tree.leaves, (gradient, moving)), strict=True)]
    bound = 1e-5 * sum(np.abs(term).sum() for term in terms)
    assert abs(sum(term.sum() for term in terms) - slope) <= max(bound, least)


def assert_as_by_hand(function, by_hand, at, still=(), allowed=1e-5):
    """Asserts that a function and its gradient equal the float64 formulas and their finite differences.

    Each array is perturbed separately, except those at paths with a name in `still`. The gradient of one array is as
    uncertain as ten operations on the largest of all.
    """
    rng, exact = np.random.default_rng(2), jax.tree.map(np.float64, at)
    expected = by_hand(*exact)
    factors = jax.tree.map(lambda y: rng.normal(size=np.shape(y)).astype(np.float32), expected)

    @jax.jit
    def learned(*at):
        y, back = jax.vjp(function, *at)
        return y, back(factors)

    def total(*at):
        return sum((y * f).sum() for y, f in zip(*map(jax.tree.leaves, (by_hand(*at), factors)), strict=True))

    y, gradient = learned(*at)
    assert_close(y, expected, operations=allowed / UNIT, largest=largest_of(expected))
    arrays, structure = jax.tree_util.tree_flatten_with_path(exact)
    for i, (path, _) in enumerate(arrays):
        if not any(name in jax.tree_util.keystr(path) for name in still):
            moving = [rng.normal(size=x.shape) * (i == j) for j, (_, x) in enumerate(arrays)]
            least = bound(largest_of(gradient), 10) * np.abs(moving[i]).sum()
            assert_slope(total, gradient, exact, structure.unflatten(moving), least)


def without_key_biases(params):
    """Returns {path: weight} without the biases of keys.

    Softmax is invariant to them: their true gradient is zero, and Adam turns its rounding errors into full steps.
    """
    named = {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(params)}
    return {name: leaf for name, leaf in named.items() if "key_bias" not in name}
