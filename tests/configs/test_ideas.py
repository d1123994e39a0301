"""Each file of configs/ideas trains, decodes as its full forward, and is what its paper's formulas say.

The oracles are in ideas_ideas*.py, in NumPy float64. ORACLES has, by the idea's name (with ":variant" if there are
several), a function of the model's config, the blocks' weights and the vectors [T, D] of one sequence, which returns
the vectors after the blocks.

OBJECTIVES has, for ideas that change the whole model or its objective, a function of the model's config, all weights,
and the inputs, targets and weights [T] of one sequence, which returns the objective; and whether it takes a random key.
"""

import dataclasses
import functools
import importlib
from pathlib import Path

import jax
import numpy as np
import pytest

import fxf
from closeness import assert_as_by_hand
from fxf.base.config import registered_section
from fxf.layers.block import layers_of
from fxf.layers.feed_forward import Dense
from fxf.layers.kinds import stack_of
from fxf.layers.layer import Context, Places
from fxf.layers.named import TOTAL, WEIGHT, names_in
from fxf.layers.positions import places_of
from fxf.models import MODELS
from fxf.models.transformer_lm import TransformerLMConfig
from fxf.runs.guests import load, record
from fxf.testing import assert_consistent
from fxf.training.gradient import batch_loss
from helpers import lines_of, random_params, random_tokens, some, table
from small_runs import ROOT

FOLDER = ROOT / "configs" / "ideas"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py"))
TABLES = [importlib.import_module(path.stem) for path in sorted(Path(__file__).parent.glob("ideas_ideas*.py"))]
ORACLES = {name: oracle for module in TABLES for name, oracle in module.ORACLES.items()}
OBJECTIVES = {name: each for module in TABLES for name, each in getattr(module, "OBJECTIVES", {}).items()}
KEYS = {name: keys for keys, name in table("keys of tiny ideas")}
T, VOCAB_SIZE = 7, 13
ALLOWED = 1e-5  # relative to an array's largest number

EVERY = some("name", NAMES, [])


pytestmark = pytest.mark.usefixtures("process")


def tiny(name):
    """Returns the idea's config with a tiny model."""
    config = fxf.read_config(str(FOLDER / f"{name.partition(':')[0]}.py"))
    sizes = {"n_layers": 2, "d_model": 8, "d_ff": 12, "n_heads": 2, "max_len": 64}
    for key, value in {**sizes, **KEYS.get(name, {})}.items():
        config.model[key] = value
    return config


def model_config(name, **changes):
    keys = tiny(name).model.to_dict() | changes
    return registered_section(MODELS[keys["name"]].config, keys, "model")


def test_every_idea_has_an_oracle():
    assert sorted({name.partition(":")[0] for name in ORACLES}) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_run_of_an_idea_records_its_file(name):
    config = tiny(name).to_dict()
    names_itself = f"{name}:" in str(config["model"])
    assert names_itself or name in ("looped", "sink_logits")  # made of fxf's own parts
    assert (name in record(config)) == names_itself


@EVERY
def test_cached_decoding_equals_the_full_forward(name):
    config = model_config(name)
    model = MODELS[config.name].make(config, VOCAB_SIZE)
    params, tokens_BT = random_params(model.spec), random_tokens((3, T + 1), VOCAB_SIZE)
    assert_consistent(model, params, {"inputs": tokens_BT})
    lengths_B = np.array([0, 1, 1])
    cache = model.prefill(params, {"inputs": tokens_BT[:, :1], "lengths": lengths_B}, T + 1)
    if cache.can_rewind:  # a step reads several tokens
        at = np.arange(3)[:, None], lengths_B[:, None] + np.arange(4)[None]
        found, expected = model.step(params, cache, tokens_BT[at])[0], model.apply(params, {"inputs": tokens_BT})[at]
        np.testing.assert_allclose(found, expected, rtol=0, atol=ALLOWED * np.abs(expected).max())


@some("name", sorted(ORACLES), ["sigmoid", "sink_logits:at_0", "value_residual"])
def test_an_idea_and_its_gradient_equal_its_papers_formula(name):
    config = model_config(name)
    stack, x_TD = stack_of(config), np.random.default_rng(1).normal(size=(T, config.d_model)).astype(np.float32)

    def blocks(given):
        places = places_of(config, {"inputs": np.zeros((1, T), np.int32)}, None, causal=True)
        y, _ = stack.apply(given["params"], stack.start(given["x"][None]), Context(places))
        return stack.finish(y)[0]

    given = {"params": jax.tree.map(np.asarray, random_params(stack.spec())), "x": x_TD}
    assert_as_by_hand(blocks, lambda given: ORACLES[name](config, given["params"], given["x"]), [given])


@some("name", sorted(OBJECTIVES), [])
def test_an_ideas_objective_and_its_gradient_equal_its_papers_formula(name):
    oracle, in_training = OBJECTIVES[name]
    tokens_T, rng = random_tokens((T + 1,), VOCAB_SIZE), np.random.default_rng(1)
    arrays = (tokens_T[:-1], tokens_T[1:], rng.uniform(0.5, 1.5, T).astype(np.float32))

    def objective(given):
        config = model_config(name, dtype=given["params"]["embedding"]["table"].dtype.name)
        batch = dict(zip(("inputs", "targets", "weights"), (x[None] for x in arrays), strict=True))
        loss = functools.partial(batch_loss, MODELS[config.name].make(config, VOCAB_SIZE))
        key = jax.random.key(0) if in_training else None
        names = [each for each in names_in(loss, given["params"], batch, key) if each.startswith("term/")]
        (total, weight), found = fxf.edited(loss, read=names)(given["params"], batch, key)
        terms = [each.removesuffix(TOTAL) for each in names if each.endswith(TOTAL)]
        return total / weight + sum((found[each + TOTAL] / found[each + WEIGHT]).sum() for each in terms)

    config = model_config(name)
    params = jax.tree.map(np.asarray, random_params(MODELS[config.name].make(config, VOCAB_SIZE).spec))
    of_paper = lambda given: np.float64(oracle(config, given["params"], *arrays))  # noqa: E731
    assert_as_by_hand(objective, of_paper, [{"params": params}])


@EVERY
def test_packed_documents_are_read_as_if_alone_and_scanned_blocks_equal_plain_ones(name):
    config = model_config(name)
    config = dataclasses.replace(config, n_layers=2 * config.n_layers)
    model = MODELS[config.name].make(config, VOCAB_SIZE)
    assert all(getattr(layer, "by_document", True) for layer in layers_of(stack_of(config)))
    params, tokens_BT = random_params(model.spec), random_tokens((1, T), VOCAB_SIZE)
    where = {"documents": np.repeat([[0, 1]], [3, T - 3], axis=1), "positions": np.array([[0, 1, 2, 0, 1, 2, 3]])}
    forward = jax.jit(model.apply)
    packed = forward(params, {"inputs": tokens_BT, **where})
    alone = [forward(params, {"inputs": part}) for part in np.split(tokens_BT, [3], axis=1)]
    expected = np.concatenate(alone, axis=1)
    np.testing.assert_allclose(packed, expected, rtol=0, atol=ALLOWED * np.abs(expected).max())

    looped = MODELS[config.name].make(dataclasses.replace(config, scan_blocks=True), VOCAB_SIZE)
    found = jax.jit(looped.apply)(params, {"inputs": tokens_BT, **where})
    np.testing.assert_allclose(found, packed, rtol=0, atol=ALLOWED * np.abs(expected).max())


def test_stochastic_depth_drops_layers_for_whole_rows_at_its_rate():
    stochastic = load(FOLDER / "z_loss.py").StochasticDepth
    config, n_rows, survival = TransformerLMConfig(d_model=6, d_ff=7, n_heads=2), 1000, 0.7
    block = stochastic(config, {"feed_forward": Dense(config)}, survival)
    params = random_params(block.spec())
    x_RTD = np.random.default_rng(0).normal(size=(n_rows, 2, 6)).astype(np.float32)

    @jax.jit
    def changes():
        place = Places(np.arange(2)[None])
        return [block.apply(params, x_RTD, Context(place, rng=rng))[0] - x_RTD for rng in (None, jax.random.key(0))]

    whole_RTD, change_RTD = jax.device_get(changes())
    computes_R = np.abs(change_RTD).max((1, 2)) > 0
    np.testing.assert_allclose(
        change_RTD, np.where(computes_R[:, None, None], whole_RTD / survival, 0), rtol=0, atol=1e-5
    )
    assert abs(computes_R.mean() - survival) < 4 * (survival * (1 - survival) / n_rows) ** 0.5


@pytest.mark.parametrize("name", NAMES)
def test_an_idea_has_at_most_50_lines_of_code_besides_imports(name):
    assert lines_of(FOLDER / f"{name}.py") <= 50
