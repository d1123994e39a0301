"""Keys draw what JAX's own draw, from programs without numbers of 64 bits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fxf.base.random_keys import key_of_part, random_key, random_words

DRAWS = {
    "words": lambda key: jax.random.bits(key, (3, 5, 7)),
    "one word": lambda key: jax.random.bits(key, ()),
    "no word": lambda key: jax.random.bits(key, (3, 0)),
    "bytes": lambda key: jax.random.bits(key, (11,), jnp.uint8),
    "keys": lambda key: jax.random.key_data(jax.random.split(key, (3, 2)))[..., :2],
    "a key of a number": lambda key: jax.random.key_data(jax.random.fold_in(key, 2**31 + 5))[:2],
    "whole numbers": lambda key: jax.random.randint(key, (4, 3), -2, 99),
    "normal numbers": lambda key: jax.random.normal(key, (5, 3)),
    "choices": lambda key: jax.random.categorical(key, jnp.zeros((3, 9))),
    "without replacement": lambda key: jax.random.choice(key, 31, (7,), replace=False),
    "of several keys": lambda key: jax.vmap(lambda each: jax.random.uniform(each, (3,)))(jax.random.split(key, 5)),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
@pytest.mark.parametrize("seed", [3, 2**32 - 1])
def test_a_key_draws_the_bits_of_jaxs_key(draw, seed):
    expected = draw(jax.random.key(np.uint32(seed)))
    np.testing.assert_array_equal(draw(random_key(np.uint32(seed))), expected)


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_a_program_that_draws_has_no_type_of_64_bits(draw):
    text = jax.jit(lambda seed: draw(random_key(seed))).lower(np.uint32(3)).as_text()
    assert "ui32" in text and "i64>" not in text


@pytest.mark.parametrize("n", [0, 1, 7])
@pytest.mark.parametrize("key", [random_key(3), jax.random.key(3), jax.random.key(3, impl="rbg")], ids=str)
def test_random_words_are_the_bits_of_jax_for_every_kind_of_key(key, n):
    keys = jax.random.split(key, 3)
    expected = jax.vmap(lambda each: jax.random.bits(each, (n,), jnp.uint32))(keys)
    np.testing.assert_array_equal(jax.vmap(lambda each: random_words(each, n))(keys), expected)
    np.testing.assert_array_equal(random_words(key, n), jax.random.bits(key, (n,), jnp.uint32))


@pytest.mark.parametrize(
    "derive", [lambda key: key, lambda key: jax.random.split(key, 3)[1]], ids=["a key", "of a split"]
)
@pytest.mark.parametrize(
    "draw",
    [
        lambda key, rows: jax.random.bits(key, (rows, 3, 2)),
        lambda key, rows: random_words(key, rows * 3).reshape(rows, 3),
        lambda key, rows: jax.random.uniform(jax.random.fold_in(key, 5), (rows, 7)),
    ],
    ids=["bits", "words", "of a number"],
)
def test_the_keys_of_parts_draw_the_parts_of_the_whole_array(draw, derive):
    parts = [draw(derive(key_of_part(random_key(3), number)), 4) for number in range(5)]
    np.testing.assert_array_equal(np.concatenate(parts), draw(derive(random_key(3)), 20))


def test_words_of_64_bits_are_those_of_jax_and_differ_between_parts():
    with jax.enable_x64(True):
        ours, theirs = (jax.random.bits(key, (3,), jnp.uint64) for key in (random_key(3), jax.random.key(3)))
        other = jax.random.bits(key_of_part(random_key(3), 1), (3,), jnp.uint64)
    np.testing.assert_array_equal(ours, theirs)
    assert (ours != other).all()
