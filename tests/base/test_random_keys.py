"""Keys draw the same bits as JAX's, in programs without 64-bit numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fxf.base.random_keys import key_of_part, keys_of_rows, random_key, random_words

DRAWS = {
    "words": lambda key: jax.random.bits(key, (3, 5, 7)),
    "one word": lambda key: jax.random.bits(key, ()),
    "no word": lambda key: jax.random.bits(key, (3, 0)),
    "bytes": lambda key: jax.random.bits(key, (11,), jnp.uint8),
    "keys": lambda key: jax.random.key_data(jax.random.split(key, (3, 2)))[..., :2],
    "a key of a number": lambda key: jax.random.key_data(jax.random.fold_in(key, 2**31 + 5))[:2],
    "without replacement": lambda key: jax.random.choice(key, 31, (7,), replace=False),
    "of several keys": lambda key: jax.vmap(lambda each: jax.random.uniform(each, (3,)))(jax.random.split(key, 5)),
}


def drawn(key, words):
    """Returns all draws, and `words(key, n)` of one key and of several."""
    keys = jax.random.split(key, 3)
    several = {f"{n} words of several": jax.vmap(lambda each, n=n: words(each, n))(keys) for n in (1, 7)}
    alone = {f"{n} words": words(key, n) for n in (0, 1, 7)}
    return {name: draw(key) for name, draw in DRAWS.items()} | several | alone


def bits(key, n):
    return jax.random.bits(key, (n,), jnp.uint32)


def assert_same(found, expected):
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)


def test_a_key_draws_the_bits_of_jaxs_key_without_64_bit_types():
    ours = jax.jit(lambda seed: drawn(random_key(seed), random_words))
    text = ours.lower(np.uint32(3)).as_text()
    assert "ui32" in text and "i64>" not in text
    theirs = jax.jit(lambda seed: drawn(jax.random.key(seed), bits))
    for seed in (np.uint32(3), np.uint32(2**32 - 1)):
        assert_same(ours(seed), theirs(seed))


@pytest.mark.parametrize("kind", ["threefry2x32", "rbg"])
def test_the_words_of_jaxs_own_keys_are_its_bits(kind):
    key = jax.random.key(3, impl=kind)
    np.testing.assert_array_equal(random_words(key, 7), bits(key, 7))


def test_keys_of_parts_draw_the_parts_of_the_whole_array():
    derive = {"a key": lambda key: key, "of a split": lambda key: jax.random.split(key, 3)[1]}
    draw = {
        "bits": lambda key, rows: jax.random.bits(key, (rows, 3, 2)),
        "words": lambda key, rows: random_words(key, rows * 3).reshape(rows, 3),
        "rows": lambda key, rows: jax.vmap(lambda k: bits(k, 7))(keys_of_rows(jax.random.fold_in(key, 5), rows)),
    }

    def all_draws(key, n_rows):
        return {f"{a}: {b}": draw[b](derive[a](key), n_rows) for a in derive for b in draw}

    part = jax.jit(lambda number: all_draws(key_of_part(random_key(3), number), 3))
    parts, whole = [part(number) for number in range(5)], jax.jit(lambda: all_draws(random_key(3), 15))()
    assert_same({name: np.concatenate([each[name] for each in parts]) for name in whole}, whole)
    of_jax = [jax.random.key_data(key_of_part(jax.random.key(3), number)).tolist() for number in range(2)]
    assert of_jax[0] != of_jax[1]
