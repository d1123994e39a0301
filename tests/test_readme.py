"""The README's code runs, and its commands exist."""

import re

import jax
import numpy as np
import pytest

from fxf.layers import block, feed_forward
from fxf.training.step import loss_and_gradient
from fxf.weights import count
from helpers import random_tokens, small_model
from runs import ROOT

README = (ROOT / "README.md").read_text()


def test_the_worked_example_of_a_layer_variant_trains(monkeypatch):
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    namespace = vars(feed_forward) | {}
    exec(code, namespace)
    plain, _ = small_model()
    monkeypatch.setattr(block, "feed_forward_spec", namespace["gated_feed_forward_spec"])
    monkeypatch.setattr(block, "feed_forward", namespace["gated_feed_forward"])
    model, params = small_model()
    assert count(model.spec) == count(plain.spec) + 2 * 6 * 11  # a gate in each of two blocks
    tokens = random_tokens((3, 5))
    batch = {"inputs": tokens, "targets": tokens, "weights": np.ones((3, 5), np.float32)}
    _, _, gradient = jax.jit(lambda p: loss_and_gradient(model, p, batch))(params)
    assert np.abs(gradient["blocks"]["feed_forward"]["gate"]).min() > 0


@pytest.mark.parametrize("pattern", [r"python (experiments/\w+\.py)", r"`?(configs/\w+\.py)", r"(fxf/[\w/]+\.py)"])
def test_files_that_the_readme_names_exist(pattern):
    names = set(re.findall(pattern, README))
    assert names
    for name in names:
        assert (ROOT / name).is_file()


def test_make_targets_that_the_readme_names_exist():
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"(?:`|    )make (\w+)", README))
    assert targets == {"reversal", "translation", "test", "check", "help"}
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)
