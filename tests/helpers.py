"""Small models for tests."""

import ast
import copy
import math
import re
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import settings
from jax.extend.core import jaxprs_in_params

from fxf import testing
from fxf.base.weights import map_weights
from fxf.data.phrasebook import phrases
from fxf.layers.attention import Attention
from fxf.layers.kinds import layer_of
from fxf.layers.layer import Context, Places
from fxf.models.decode_config import DecodeConfig
from fxf.models.model import Model
from fxf.models.transformer_lm import TransformerLMConfig, transformer_lm
from fxf.runs.generation import Answering
from fxf.training.gradient import objective_and_gradient
from fxf.training.parallel import ParallelConfig
from fxf.training.sharding import make_layout

SIZES = {"n_layers": 1, "d_model": 6, "d_ff": 11, "n_heads": 3, "max_len": 13}
VOCAB_SIZE = 7


def small(config_class=TransformerLMConfig, **changes):
    return config_class(**{**SIZES, **changes})


def random_params(spec, seed=0):
    """Draws every weight at random, so that no zero bias or unit scale hides a mistake."""
    rng = np.random.default_rng(seed)
    drawn = map_weights(lambda _, weight: rng.uniform(-0.5, 0.5, weight.shape).astype(np.float32), spec)
    return jax.device_put(drawn)  # jnp.asarray would compile a program for each shape


def scaled(params, factor):
    """Returns params times a factor; no program is compiled for it."""
    return jax.device_put(jax.tree.map(lambda w: factor * np.asarray(w), params))


def small_model(vocab_size=VOCAB_SIZE, seed=0, **changes):
    """Returns (model, params), all params random."""
    model = transformer_lm(small(**changes), vocab_size)
    return model, random_params(model.spec, seed)


def loss_and_gradient(model, params, batch, rng=None, **options):
    """Returns the result of `objective_and_gradient` without the metrics."""
    return objective_and_gradient(model, params, batch, rng, **options)[:3]


def random_tokens(shape, vocab_size=VOCAB_SIZE, seed=0):
    return np.random.default_rng(seed).integers(0, vocab_size, shape).astype(np.int32)


def equations(jaxpr):
    """Yields the equations of a program, including those of its loops and calls."""
    for equation in jaxpr.eqns:
        yield equation
        for inner in jaxprs_in_params(equation.params):
            yield from equations(inner)


def full_logits(model, params, batch):
    """Returns a batch's logits by the program that fxf.testing also compiles."""
    return np.asarray(testing._compiled(model.features, model.readout)(params, batch))


def twice(batch):
    """Returns a batch with each row twice: fxf.testing's shape for two hypotheses per prompt."""
    return {name: np.repeat(value, 2, axis=0) for name, value in batch.items()}


def examples(n):
    """Returns settings for a property with a compilation per example; `make fuzz` tries twice as many."""
    return settings(max_examples=n if settings.get_current_profile_name() == "same" else 2 * n)


def first_phrases(language):
    """Returns the beginning of the phrase book, because tokenizing all of it takes seconds."""
    return phrases(language)[:2500]


def one_device():
    """Returns the layout for a single device."""
    return make_layout(ParallelConfig(data=1), jax.devices())


def first_batch(task):
    """Returns the first training batch of a task."""
    return jax.device_get(jax.jit(task.batch)(jax.random.key(0), 0))


def generated(task, evaluator, texts, max_tokens, max_len):
    """Returns the answers of a task with an evaluator, as `Answering` returns those of a run."""
    model = Model({}, None, None, max_len=max_len)
    experiment = SimpleNamespace(task=task, max_len=max_len, model=model, decode=DecodeConfig(), draft=None)
    with mock.patch("fxf.runs.generation.Evaluators", lambda *_, **__: lambda _: evaluator):
        return Answering(experiment, None, max_tokens)(texts)


def with_attributes(task, **changes):
    """Returns a copy of a task with other attributes."""
    task = copy.copy(task)
    vars(task).update(changes)
    return task


def in_groups(decode):
    """Makes an evaluator's `decode` from a function of a group's prompts and their maximum number of tokens."""
    return lambda groups: [decode(group.prompts, group.max_tokens) for group in groups]


def places(length, causal=True, documents=None):
    """Returns the `Places` of whole rows of this length."""
    indices = np.arange(length, dtype=np.int32)[None]
    return Places(indices, indices if causal else None, documents, causal=causal)


def applied(layer, params, x, **context):
    """Applies a layer to whole rows [R, T, D], causally unless `places` are given."""
    return layer.apply(params, x, Context(**{"places": places(x.shape[1]), **context}))[0]


class Newest(Attention):
    """Attention that depends on the order of keys: each weighs twice as much as the one before."""

    ordered = True

    def weigh(self, params, scores_BHTC, bias_BHTC):
        rank_BHTC = jnp.cumsum(bias_BHTC > -jnp.inf, -1)
        return jax.nn.softmax(scores_BHTC + bias_BHTC + rank_BHTC * math.log(2))


def attention_of(config):
    return layer_of(config, "attention")


def table(name):
    """Returns [({key: value}, text after " > ")] for the cases of cases.txt under a heading that begins so."""
    found, here = [], False
    for line in Path(__file__).with_name("cases.txt").read_text().splitlines():
        if line.startswith("#"):
            here = line[2:].partition(":")[0] == name
        elif here and line:
            keys, _, text = line.partition(" > ")
            found.append((values(keys), text))
    assert found, f"cases.txt has no table {name}"
    return found


def lines_of(path):
    """Returns the number of lines of code, without docstrings, imports, comments and blank lines."""
    text, apart = path.read_text(), set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            apart |= {*range(node.lineno, node.end_lineno + 1)}
        elif isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node):
            apart |= {*range(node.body[0].lineno, node.body[0].end_lineno + 1)}
    lines = enumerate(text.splitlines(), 1)
    return sum(n not in apart and bool(line.split("#")[0].strip()) for n, line in lines)


def marked(name):
    """Returns a table's cases named by their texts; texts that end in "thorough" set that mark."""
    named = [(changes, text.removesuffix(" thorough"), text) for changes, text in table(name)]
    return [pytest.param(keys, id=id, marks=pytest.mark.thorough if id != text else ()) for keys, id, text in named]


def values(keys):
    """Returns {key: value} of "KEY=VALUE, …" with Python's literals."""
    _, *parts = re.split(r"(?:^|, )([\w./]+)=", keys)
    return dict(zip(parts[::2], map(ast.literal_eval, parts[1::2]), strict=True))


def refused(name):
    """Returns [({key: value}, pattern)] of a table whose texts are messages, with … for any words."""
    return [(changes, ".*".join(map(re.escape, re.split(" ?… ?", message)))) for changes, message in table(name)]


def programs():
    """Returns {name: text} of compile/programs.txt."""
    parts = (Path(__file__).parent / "compile/programs.txt").read_text().split("\n# ")[1:]
    return {name: text.strip("\n") + "\n" for name, _, text in (part.partition("\n") for part in parts)}


def some(name, values, quick):
    """Parametrizes a test by the quick values each time, and by the others with `make test-all`."""
    marks = {value: () if value in quick else pytest.mark.thorough for value in values}
    return pytest.mark.parametrize(name, [pytest.param(value, marks=mark) for value, mark in marks.items()])
