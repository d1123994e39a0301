"""A user's own task that gives wrong batches or figures ends in one line."""

import pytest

from fxf.errors import UserError
from fxf.runs import contract
from fxf.runs.configs import read_config
from fxf.runs.experiment import build
from fxf.tasks.language_model import LanguageModel
from small_runs import ROOT, new_process

COPY = (ROOT / "tests/guests/task.py").read_text()
BATCH = (
    "return language_model_batch(targets_BT, jnp.ones(targets_BT.shape) * (jnp.arange(self.longest) > self.n)[None])"
)
TINY = {"n_layers": 1, "d_model": 6, "d_ff": 7, "n_heads": 2, "max_len": 64}


@pytest.fixture(autouse=True)
def process():
    with new_process():
        yield


def built(text, path):
    path.write_text(text.replace("task:COPY", "mine:COPY"))
    config = read_config(str(path))
    with config.unlocked():
        config.model.update(TINY)
        config.train.batch_size = 5
    return build(config)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("b['inputs'] += 5", "inputs: expected tokens 0 … 11, got 12"),
        ("b['inputs'] -= 1", "inputs: expected tokens 0 … 11, got -1"),
        ("b['targets'] += 5 * (b['weights'] > 0)", "targets: expected tokens 0 … 11, got 1"),
        ("b['weights'] *= 0", "weights: expected finite numbers with a sum above 0, got the sum 0"),
        ("b['weights'] *= jnp.nan", "weights: expected finite numbers with a sum above 0, got the sum nan"),
        ("b['targets'] *= 1.0", r"targets: expected ints, got float32 \[5, 12\]"),
        ("b = {k: jnp.tile(x, 4) for k, x in b.items()}", "inputs: expected at most 12 tokens in a row, got 48"),
    ],
)
def test_a_batch_from_which_no_model_can_learn(change, message, tmp_path):
    experiment = built(COPY.replace(BATCH, f"b = {BATCH[7:]}; {change}; return b"), tmp_path / "mine.py")
    with pytest.raises(UserError, match=f"^task 'mine:COPY': batch: {message}"):
        contract.require_learnable(experiment)


def test_a_target_without_weight_may_be_any_number(tmp_path):
    unread = "b['targets'] = jnp.where(b['weights'] > 0, b['targets'], -100)"
    experiment = built(COPY.replace(BATCH, f"b = {BATCH[7:]}; {unread}; return b"), tmp_path / "mine.py")
    contract.require_learnable(experiment)


def test_an_error_in_a_users_function_is_a_traceback_that_ends_at_their_line(tmp_path):
    experiment = built(COPY.replace(BATCH, "raise ValueError('mine')"), tmp_path / "mine.py")
    with pytest.raises(ValueError, match="mine") as found:
        contract.require_learnable(experiment)
    assert str(found.traceback[-1].path) == str(tmp_path / "mine.py")


@pytest.mark.parametrize(
    ("figures", "message"),
    [
        (None, "expected a dict of figures by name, got NoneType"),
        ({"x": "good"}, "x: expected a number, got 'good'"),
        ({"z": 1}, "missing x or y, which the task's metrics name; got z"),
        ({"y": 1}, "missing x, checkpoint.best; got y"),
    ],
)
def test_figures_that_are_none(figures, message):
    with pytest.raises(UserError, match=f"^task 'copy': validate: {message}"):
        contract.figures_of("task 'copy': validate", figures, ("-x", "y"), "-x")


def test_a_loss_without_bits_leaves_metrics_out_that_no_checkpoint_is_chosen_by():
    found = {"validation_loss": 0.5, "accuracy": 0.25}
    assert contract.figures_of("task", found, LanguageModel.metrics) == found
