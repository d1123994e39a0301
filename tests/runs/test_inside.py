"""What the page of a run shows of its model."""

import json
from collections import defaultdict

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.ad_checkpoint import checkpoint_name

from fxf.base.weights import count
from fxf.runs import inside, probe
from fxf.runs.experiment import build
from fxf.runs.inside import visible
from helpers import random_params
from small_runs import tiny_config

SMALL = {"n_layers": 1, "d_model": 6, "d_ff": 7, "n_heads": 2}


@pytest.fixture(scope="module")
def found():
    experiment = build(tiny_config())
    params = random_params(experiment.model.spec)
    return experiment, params, inside.contents(experiment, 4, params, [("3 1", "1 3")])


def test_attention_is_shown_in_percent_by_the_tokens_that_are_read(found):
    experiment, params, shown = found
    (example,) = shown["examples"]
    (*_, attention) = example["maps"]
    assert (attention["name"], attention["rowName"], attention["columnName"]) == ("block_0/attention", "query", "key")
    assert attention["rows"] == attention["columns"] == ["0", "3", "1", "0", "1", "3"]
    batch = experiment.task.to_batch("3 1", "1 3")
    weights_HTT = probe.intermediates_of(experiment, params, batch)["block_0/attention/weights"][0]
    values = np.array([head["values"] for head in attention["heads"]]).reshape(2, 6, 6)
    np.testing.assert_allclose(values, 100 * weights_HTT, atol=0.051)  # one decimal


def test_positions_the_lens_and_every_weight_are_there(found):
    experiment, _, shown = found
    (example,) = shown["examples"]
    assert [part["name"] for part in example["maps"][:2]] == ["positions", "embedding of tokens and positions"]
    assert len(example["maps"][0]["heads"][0]["values"]) == 6 * 6 and example["maps"][0]["columns"] == 6
    assert example["lens"][0] == ["reads", "embedding", "block_0"] and len(example["lens"]) == 7
    assert sum(row[-1] for row in shown["weights"]) == shown["parameters"] == count(experiment.model.spec)
    assert (example["title"], shown["step"]) == ("3 1 → 1 3", 4)


def test_arrays_of_a_layers_own_are_left_out_also_under_the_names_of_others(found, monkeypatch):
    """Names that a page looks for may hold arrays of other shapes, which it does not show."""
    experiment, params, shown = found

    def features(params, batch, *, rng=None):
        x_BTD = experiment.model.features(params, batch, rng=rng)
        with jax.named_scope("router"):
            matrix_DD = checkpoint_name(x_BTD[0].T @ x_BTD[0], "weights")
            stream_BTU = checkpoint_name(jnp.concatenate([x_BTD, x_BTD], -1), "residual")
        with jax.named_scope("embedding"):
            checkpoint_name(x_BTD[0], "positions")
        checkpoint_name(jnp.float32(3), "number")
        return x_BTD + 0 * (matrix_DD.sum() + stream_BTU.sum())

    other = experiment._replace(model=experiment.model._replace(features=features), programs=defaultdict(dict))
    monkeypatch.setattr(type(other), "with_model", lambda self, **changes: self)
    (example,) = inside.contents(other, 4, params, [("3 1", "1 3")])["examples"]
    (expected,) = shown["examples"]
    assert example["lens"] == expected["lens"]
    assert example["maps"] == expected["maps"][1:]  # its positions [T, D] are not vectors of a batch


def test_an_answer_that_fills_all_positions_is_shown_without_its_last_token_which_was_never_read(found):
    experiment, params, _ = found
    (example,) = inside.contents(experiment, 4, params, [("3 1", "3 1 2 3 1 2 1 2")])["examples"]
    assert len(example["lens"]) == 1 + experiment.max_len


def test_a_run_without_a_checkpoint_has_a_page_and_a_warning(tmp_path, caplog):
    (tmp_path / "config.json").write_text(json.dumps({"config": tiny_config(), "overrides": {}}))
    path = inside.write(tmp_path)
    assert path.exists() and not (tmp_path / "inside.json").exists()
    assert "the page shows nothing inside the model" in caplog.text


def test_tokens_that_cannot_be_seen_are_signs():
    assert [visible(text) for text in (" a", "\n", "\t", "")] == ["␣a", "⏎", "⇥", "∅"]
