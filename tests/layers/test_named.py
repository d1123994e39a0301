import jax
import jax.numpy as jnp
import numpy as np
import pytest

from closeness import assert_close
from fxf.base.errors import UserError
from fxf.base.named_arrays import places_in
from fxf.layers.named import edited, figure, intermediates, moved, named, names_in, term
from fxf.models.encoder_decoder import EncoderDecoderConfig, encoder_decoder
from helpers import random_params, random_tokens, small, small_model


def layer(x, w):
    with jax.named_scope("attention"):
        x = x + named("weights", jnp.sin(w * x))
    return named("residual", x)


def in_a_row(x, ws):
    for i, w in enumerate(ws):
        with jax.named_scope(f"block_{i}"):
            x = layer(x, w)
    return x


def in_a_loop(x, ws):
    again = jax.checkpoint(jax.jit(layer))
    return jax.lax.scan(lambda x, w: (again(x, w), None), x, ws)[0]


def in_a_loop_of_two(x, ws):
    """One block, then a loop over pairs of blocks, then one more."""

    def turn(x, pair):
        for i in (1, 2):
            with jax.named_scope(f"block_{i}"):
                x = layer(x, pair[i - 1])
        return x, None

    x = jax.lax.scan(turn, in_a_row(x, ws[:1]), ws[1:5].reshape(-1, 2))[0]
    with jax.named_scope("block_5"):
        return layer(x, ws[5])


FORMS = {
    "in a row": in_a_row,
    "in a loop, compiled and computed again": in_a_loop,
    "in a loop of two": in_a_loop_of_two,
    "of rows": lambda x, ws: jax.vmap(in_a_row, (0, None))(x, ws),
    "with derivatives of its own around nothing that is named": lambda x, ws: in_a_row(jax.nn.relu(x), ws),
}
WS, X = np.linspace(0.3, 1.1, 6, dtype=np.float32), np.array([0.5, 0.2, 2.0], np.float32)


def by_hand(x, ws, edit):
    """Returns the last stream, and the weights and streams of all blocks after `edit`, in float64."""
    x, weights, streams = x.astype(np.float64), [], []
    for i, w in enumerate(ws.astype(np.float64)):
        weights.append(edit["attention/weights"](np.sin(w * x), i))
        streams.append(edit["residual"](x + weights[-1], i))
        x = streams[-1]
    return x, {"attention/weights": np.array(weights), "residual": np.array(streams)}


EDITS = {
    "attention/*": lambda x, i: jnp.where(i == 3, 0, x),
    "*": lambda x, i: x + 0.25 * (i == 1),  # the first pattern that matches counts
}
IN_NUMPY = {
    "attention/weights": lambda x, i: 0 * x if i == 3 else x,
    "residual": lambda x, i: x + 0.25 if i == 1 else x,
}
SAME = dict.fromkeys(IN_NUMPY, lambda x, _: x)


@pytest.mark.parametrize("form", FORMS)
def test_arrays_are_read_and_replaced_by_name_and_number_whatever_the_form_of_the_program_with_a_gradient(form):
    function = FORMS[form]

    @jax.jit
    def found(added):
        read = [edited(function, edits, read=("*/weights", "residual"))(X, WS) for edits in (None, EDITS)]
        steered = lambda added: edited(function, {"residual": lambda x, i: x + added[i]})(X, WS)[0].sum()  # noqa: E731
        return read, jax.grad(steered)(added), function(X, WS)

    (plain, replaced), gradient, out = found(np.zeros((6, 3), np.float32))
    assert_close(plain, by_hand(X, WS, SAME))
    assert_close(replaced, by_hand(X, WS, IN_NUMPY))
    assert_close(plain[0], out)
    # A change of a stream is multiplied by 1 + w cos w x of each later block.
    before = np.array([X, *plain[1]["residual"][:-1]], np.float64)
    passed = 1 + WS[:, None] * np.cos(WS[:, None] * before)
    assert_close(gradient, [passed[i + 1 :].prod(0) for i in range(6)])


def test_an_array_comes_with_the_number_of_its_block():
    plain, *found = (intermediates(form, X, WS) for form in (in_a_row, in_a_loop, in_a_loop_of_two))
    for each in found:
        assert list(each) == [f"block_{i}/{name}" for i in range(6) for name in ("attention/weights", "residual")]
        assert_close(each, plain)


def test_a_loop_inside_a_block_is_one_named_array():
    def blocks(x):
        for i in range(2):
            with jax.named_scope(f"block_{i}"):
                x = jax.lax.scan(lambda x, w: (named("state", x * w), None), x, WS)[0]
        return x

    found = intermediates(blocks, X)
    assert {name: x.shape for name, x in found.items()} == {f"block_{i}/state": (6, 3) for i in range(2)}
    assert_close(found["block_1/state"][-1], jax.jit(blocks)(X))


@jax.custom_jvp
def with_a_jvp(x):
    return named("a", x)


@jax.custom_vjp
def with_a_vjp(x):
    return named("a", x)


with_a_jvp.defjvp(lambda primals, tangents: (*primals, *tangents))
with_a_vjp.defvjp(lambda x: (x, None), lambda _, g: (g,))
CLOSED = {
    "cond": lambda x: jax.lax.cond(x.sum() > 0, lambda x: named("a", x), lambda x: x, x),
    "while": lambda x: jax.lax.while_loop(lambda x: x.sum() < 9, lambda x: named("a", x + 1), x),
    "custom_jvp_call": with_a_jvp,
    "custom_vjp_call": with_a_vjp,
}


@pytest.mark.parametrize("kind", CLOSED)
def test_an_unreadable_array_is_an_error_if_requested_and_left_out_otherwise(kind):
    both = lambda x: named("b", CLOSED[kind](x))  # noqa: E731
    for options in ({"read": "a"}, {"edits": {"a": lambda x, _: x}}):
        with pytest.raises(UserError, match=f"^the array 'a' is named inside a {kind}, where it can be neither read"):
            edited(both, **options)(X)
    out, found = edited(both, {"b": lambda x, _: 2 * x}, read="b")(X)
    assert_close((out, found["b"][0]), (2 * both(X), out))
    assert list(intermediates(both, X)) == ["b"]


@pytest.mark.parametrize("options", [{"read": "residul"}, {"edits": {"residul": lambda x, _: x}}])
def test_a_name_that_no_array_has_is_one_line_with_the_nearest(options):
    with pytest.raises(UserError, match=r"^no array is named 'residul' here; did you mean 'residual'\?$"):
        edited(in_a_row, **options)(X, WS)


def test_arrays_of_one_name_and_several_shapes_cannot_be_read_as_one():
    function = lambda x: named("a", x).sum() + named("a", x[1:]).sum()  # noqa: E731
    with pytest.raises(UserError, match=r"^arrays named 'a' have several shapes: \[2\], \[3\]$"):
        edited(function, read="a")(X)
    assert_close(intermediates(function, X), {"a": X[1:]})


def test_names_say_where_an_array_is_but_not_in_which_block():
    model = encoder_decoder(small(EncoderDecoderConfig, n_layers=2), 7)
    batch = {"inputs": random_tokens((1, 4)), "source": random_tokens((1, 3)), "source_mask": np.ones((1, 3), bool)}
    params, prompts = random_params(model.spec), {**batch, "lengths": np.array([4])}
    names = ("residual", "attention/heads", "attention/weights")
    of_encoder, of_decoder = ({f"{side}/{name}" for name in names} for side in ("encoder", "decoder"))
    of_decoder |= {"decoder/cross_attention/heads", "decoder/cross_attention/weights"}
    of_all, fill = of_encoder | of_decoder, lambda *given: model.prefill(*given, 5)
    step = of_decoder, model.step, jax.eval_shape(fill, params, prompts), np.array([1])
    for expected, function, *given in ((of_all, model.features, batch), (of_all, fill, prompts), step):
        names = names_in(function, params, *given)
        assert {name for name in names if "embedding" not in name} == expected


@pytest.mark.parametrize("scan", [False, True])
def test_blocks_inside_a_block_are_not_blocks_of_the_model(scan):
    model, params = small_model(n_layers=3, blocks="2@(attention+feed_forward, feed_forward)", scan_blocks=scan)
    program = jax.make_jaxpr(model.features)(params, {"inputs": random_tokens((2, 5))})
    paths = ["/".join(place.path) for place in places_in(program.jaxpr.eqns)]
    assert [path for path in paths if path.endswith("/residual")][1:] == [f"block_{i}/residual" for i in range(3)]
    assert sum(path.endswith("inner_residual") for path in paths) == 3 * 4


def test_a_model_with_scanned_and_recomputed_blocks_is_edited_like_a_plain_one():
    model, params = small_model(n_layers=3)
    batch = {"inputs": random_tokens((2, 5))}
    without_a_head = {"attention/weights": lambda x_BHTT, i: jnp.where(i == 1, x_BHTT.at[:, 2].set(0), x_BHTT)}
    edits = {**without_a_head, "residual": lambda x_BTD, i: x_BTD.at[0].multiply(1 + i)}  # steers the first row alone
    models = model, small_model(n_layers=3, scan_blocks=True, remat="dots")[0]
    of_both = [jax.jit(edited(each.features, edits, read=[*edits]))(params, batch) for each in models]
    assert_close(*of_both)
    assert (of_both[1][1]["attention/weights"][1, :, 2] == 0).all()
    assert float(np.abs(of_both[1][0] - jax.jit(model.features)(params, batch))[1].max()) > 1e-3


@pytest.mark.parametrize("kind", ["softmax", "linear", "expressive", "latent"])
def test_the_weights_of_attention_are_shares_of_the_tokens_so_far(kind):
    model, params = small_model(attention=kind)
    found = jax.jit(edited(model.features, read="attention/weights"))(params, {"inputs": random_tokens((2, 5))})[1]
    weights = found["attention/weights"]
    assert_close(weights.sum(-1), np.ones(weights.shape[:-1]))
    np.testing.assert_array_equal(weights > 0, np.broadcast_to(np.tri(5, dtype=bool), weights.shape))


def asks(x, w):
    x = named("a", x)
    term("small", jnp.square(x).sum(), x.size)
    moved("w", w, x.sum())
    figure("largest", x.max())
    return w * x


def test_unread_arrays_are_not_in_the_program():
    plain, asking = (
        jax.jit(f).lower(X, 2.0).compile().as_text() for f in (lambda x, w: w * x, lambda x, w: asks(x, w))
    )
    left, right = ([line.split("=")[0] for line in each.splitlines() if "f32" in line] for each in (plain, asking))
    assert left == right
    texts = [jax.jit(f).lower(X).as_text() for f in (lambda x: named("a", jnp.sin(x)), lambda x: jnp.sin(x))]
    assert texts[0] == texts[1]


def test_terms_and_metrics_have_no_scope():
    assert [*intermediates(asks, X, X)] == ["a"]
    assert names_in(lambda x: jax.vmap(asks)(x, x), X)[1:] == [
        *("term/small/total", "term/small/weight", "term/moved/w/total", "term/moved/w/weight", "figure/largest")
    ]
