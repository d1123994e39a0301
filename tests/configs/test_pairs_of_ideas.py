"""Two ideas together build, train a step and decode as in the full forward pass, or one line says why not."""

import functools
import itertools
import random

import jax
import jax.numpy as jnp
import numpy as np
from test_ideas_in_runs import IDEAS, OF_CORE, SIZES, TINY, file_of

import fxf
from fxf.base.config import flatten
from fxf.base.errors import UserError
from fxf.models import MODELS
from fxf.runs.experiment import build
from fxf.sweeps.points import make_points
from fxf.testing import assert_cached_equals_full
from helpers import loss_and_gradient, random_params, random_tokens, some
from small_runs import new_process

NAMES = sorted({*IDEAS, *OF_CORE})
CHOICES = {"model.name", "model.attention", "model.block", "model.blocks", "model.feed_forward", "model.activation"}
N_PAIRS, VOCAB_SIZE = 60, 11


def changes_of(name):
    """Returns the model keys that an idea changes in the config of reversal."""
    if name in OF_CORE:
        return dict(OF_CORE[name])
    plain, config = (dict(flatten(fxf.read_config(file).to_dict())) for file in ("reversal", file_of(name)))
    changed = {key: value for key, value in config.items() if plain.get(key) != value and key.startswith("model.")}
    return {key: value for key, value in changed.items() if key not in SIZES or key == "model.n_layers"}


@functools.cache
def drawn_pairs():
    """Returns random pairs that choose different parts of a model. The last one failed once."""
    with new_process():
        changes = {name: changes_of(name) for name in NAMES}
    pairs = [(a, b) for a, b in itertools.combinations(NAMES, 2) if not CHOICES & changes[a].keys() & changes[b].keys()]
    return [*random.Random(0).sample(pairs, N_PAIRS - 1), ("hyper_connections", "mixture_of_depths")]


@some("number", range(N_PAIRS), [])
def test_two_ideas_work_together_or_say_why_not(number):
    pair = drawn_pairs()[number]
    with new_process():
        both = {**SIZES, **{key: value for name in reversed(pair) for key, value in changes_of(name).items()}}
        for name in pair:
            fxf.read_config(file_of(name))  # its folder is searched from now on
        plain = fxf.read_config("reversal").to_dict()
        keys = {key.removeprefix("model."): value for key, value in both.items()}
        plain["model"] |= {key: value for key, value in keys.items() if "." not in key}  # also those of a guest's model
        short = {"task.max_length": 5, "task.longer": 0}
        config = make_points(plain, [{**TINY, **short, **both}])[0].config
        try:
            experiment = build(config)
        except UserError as error:
            assert (
                "\n" not in str(error) and str(error).startswith(("model.", "lora.")) and "too short" not in str(error)
            )
            return
        model = MODELS[experiment.model_config.name].make(experiment.model_config, VOCAB_SIZE)
        params, tokens_BT = random_params(model.spec), random_tokens((3, 7), VOCAB_SIZE)
        batch = {"inputs": tokens_BT, "targets": tokens_BT, "weights": np.ones((3, 7), np.float32)}
        step = jax.jit(lambda params, batch: loss_and_gradient(model, params, batch, jax.random.key(0)))
        assert all(jnp.isfinite(x).all() for x in jax.tree.leaves(step(params, batch)))
        assert_cached_equals_full(model, params, {"inputs": tokens_BT}, capacities=[9])
