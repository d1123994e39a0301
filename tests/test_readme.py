"""The README's code runs, and its commands exist."""

import re

import jax
import numpy as np
import pytest

from fxf.models.encoder_decoder import EncoderDecoderConfig, encoder_decoder
from fxf.runs.config_file import load
from fxf.testing import assert_cached_equals_full, assert_consistent
from fxf.training.step import loss_and_gradient
from helpers import VOCAB_SIZE, random_params, random_tokens, small, small_model
from small_runs import ROOT, new_process

README = (ROOT / "README.md").read_text()


@pytest.fixture
def sigmoid(tmp_path):
    """Executes the worked example of a kind of attention as a config file."""
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    (tmp_path / "mine.py").write_text(code)
    with new_process():
        assert load(tmp_path / "mine.py").call("get_config").model.attention == "sigmoid"
        yield


def test_the_worked_example_of_a_kind_of_attention_trains(sigmoid):
    model, params = small_model(attention="sigmoid")
    tokens = random_tokens((3, 5))
    batch = {"inputs": tokens, "targets": tokens, "weights": np.ones((3, 5), np.float32)}
    step = jax.jit(lambda p: loss_and_gradient(model, p, batch))
    loss, weight, gradient = jax.device_get(step(params))
    moved = jax.tree.map(lambda p, g: np.asarray(p) - 0.1 * g / weight, params, gradient)
    assert step(moved)[0] < loss


def test_the_worked_example_of_a_kind_of_attention_decodes_as_it_trains(sigmoid):
    batch = {"inputs": random_tokens((3, 6))}
    assert_consistent(*small_model(attention="sigmoid"), batch)
    model, params = small_model(attention="sigmoid", window=3, positions="alibi", n_kv_heads=1)
    assert_cached_equals_full(model, params, batch, capacities=(6, 12, 40), n_hypotheses=1)


def test_the_worked_example_of_a_kind_of_attention_reads_no_padding(sigmoid):
    source, n = random_tokens((3, 5), seed=1), np.array([[2], [5], [1]])
    batch = {"inputs": random_tokens((3, 6)), "source": source, "source_mask": np.arange(5)[None] < n}
    model = encoder_decoder(small(EncoderDecoderConfig, attention="sigmoid"), VOCAB_SIZE)
    assert_consistent(model, random_params(model.spec), batch)


@pytest.mark.parametrize("pattern", [r"python (experiments/\w+\.py)", r"`?(configs/\w+\.py)", r"(fxf/[\w/]+\.py)"])
def test_files_that_the_readme_names_exist(pattern):
    names = set(re.findall(pattern, README))
    assert names
    for name in names:
        assert (ROOT / name).is_file()


def test_make_targets_that_the_readme_names_exist():
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"(?:`|    )make ([\w-]+)", README))
    assert targets == {"reversal", "translation", "test", "test-all", "fuzz", "check", "help", "environment"}
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)
