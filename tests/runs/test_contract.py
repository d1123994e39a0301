"""A user's own task or function that does not keep its contract ends in one line."""

import jax
import numpy as np
import pytest

from fxf.errors import UserError, nearest
from fxf.runs import cli, config_file, contract
from fxf.runs.command_line import read_config
from fxf.runs.experiment import build
from fxf.runs.needs import require_training
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
    path.write_text(text)
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
        ("b['weights'] *= 1j", r"weights: expected real numbers, got complex64 \[5, 12\]"),
        ("b['targets'] *= 1.0", r"targets: expected ints, got float32 \[5, 12\]"),
        ("b['inputs'] *= 1.0", r"the model cannot learn from inputs float32 \[5, 12\], .*: TypeError: Indexer must"),
        ("del b['inputs']", "the model cannot learn from targets .*: it lacks 'inputs'"),
        ("b['inputs'] = b['inputs'][:, :3]", r"the model cannot learn from inputs int32 \[5, 3\], .*: TypeError: "),
        ("b['inputs'] = 'abc'", "inputs: expected an array, got str"),
        ("b = {k: x[:0] for k, x in b.items()}", r"inputs: expected elements, got none in int32 \[0, 12\]"),
        ("b = {k: jnp.tile(x, 4) for k, x in b.items()}", "inputs: expected at most 12 tokens in a row, got 48"),
        ("b['positons'] = b['inputs']", "positons: no model reads it; did you mean 'positions'"),
        (
            "import numpy; b['weights'] *= 1 + numpy.random.rand()",
            "gives other numbers when it is called again",
        ),
        ("b['positions'] = b['inputs'] - 9", r"positions: expected ints of at least 0, got int32 \[5, 12\]"),
        ("b['documents'] = b['inputs'] * 0.5", r"documents: expected ints of at least 0, got float32 \[5, 12\]"),
        ("b['positions'] = b['inputs'][:, :2]", r"positions \[5, 2\] and inputs \[5, 12\] differ in shape"),
    ],
)
def test_a_batch_from_which_no_model_can_learn(change, message, tmp_path):
    experiment = built(COPY.replace(BATCH, f"b = {BATCH[7:]}; {change}; return b"), tmp_path / "mine.py")
    with pytest.raises(UserError, match=f"^task 'copy': batch: {message}"):
        require_training(experiment, experiment.layout())
        contract.require_learnable(experiment)


def test_a_target_without_weight_may_be_any_number(tmp_path):
    unread = "b['targets'] = jnp.where(b['weights'] > 0, b['targets'], -100)"
    experiment = built(COPY.replace(BATCH, f"b = {BATCH[7:]}; {unread}; return b"), tmp_path / "mine.py")
    contract.require_learnable(experiment)


def test_a_later_batch_from_which_no_model_can_learn_has_no_finite_loss_and_is_named(tmp_path):
    late = "b['targets'] = jnp.where(step == 3, 12, b['targets'])"
    experiment = built(COPY.replace(BATCH, f"b = {BATCH[7:]}; {late}; return b"), tmp_path / "mine.py")
    contract.require_learnable(experiment)
    checked = contract.of_users(experiment)
    weights = [checked.batch(jax.random.key(0), step)["weights"] for step in (2, 3)]
    assert np.isfinite(weights[0]).all()
    assert np.isnan(weights[1]).all()
    checked.require_finite(1, np.array([1.0, 2.0]))
    with pytest.raises(UserError, match=r"^task 'copy': batch of step 4: targets: expected tokens 0 … 11, got 12"):
        checked.require_finite(1, np.array([1.0, 2.0, np.nan]))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "batch(self, key, step)",
            "batch(self, key)",
            r"batch: expected a function of \(key, step\), got batch\(key\)",
        ),
        (
            "validate(self, evaluator)",
            "validate(self)",
            r"validate: expected a function of \(evaluator\), got validate",
        ),
        (
            "to_text(self, text, tokens)",
            "to_text(self, text)",
            r"to_text: expected a function of \(text, tokens\), got",
        ),
    ],
)
def test_a_function_of_a_task_that_takes_other_arguments(old, new, message, tmp_path):
    assert old in COPY
    with pytest.raises(UserError, match=f"^task 'copy': {message}.* in .*mine.py:[0-9]+$"):
        built(COPY.replace(old, new), tmp_path / "mine.py")


FUNCTIONS = """
import jax.numpy as jnp
import optax
from fxf.layers.attention import ATTENTIONS
from fxf.layers.attention_kinds import weighted
from fxf.layers.feed_forward import ACTIVATIONS
from fxf.layers.normalization import NORMS, Norm
from fxf.layers.position_kinds import Positions
from fxf.layers.positions import POSITIONS
from fxf.runs.experiment import default_config
from fxf.tasks.text_metrics import METRICS
from fxf.training.optimizer import OPTIMIZERS, SCHEDULES, RegisteredOptimizer, plain


def short(x):
    return x


def empty(x, y):
    return None


"""


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "SCHEDULES['mine'] = short",
            r"schedule 'mine': expected a function of \(peak, final, steps, config\), got sh",
        ),
        (
            "METRICS['mine'] = short",
            r"metric 'mine': expected a function of \(answers, references\), got short\(x\) in ",
        ),
        ("ACTIVATIONS['mine'] = empty", r"activation 'mine': expected a function of \(x\), got empty\(x, y\) in .*:19"),
        ("NORMS['mine'] = Norm(short, short)", r"norm 'mine': rows: expected a function of \(config, params, rows\)"),
        ("POSITIONS['mine'] = Positions(bias=3)", r"positions 'mine': bias: expected a function of .*, got 3"),
        (
            "OPTIMIZERS['mine'] = RegisteredOptimizer(plain(optax.sgd), ('momentun',))",
            "optimizer 'mine': reads: unknown key 'momentun'; did you mean 'momentum'",
        ),
    ],
)
def test_a_registered_function_that_takes_other_arguments(line, message, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(f"{FUNCTIONS}{line}\n")
    with pytest.raises(UserError, match=f"mine.py: {message}"):
        read_config(str(path))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "weighted(short)",
            r"^short\(x\) in .*mine.py:15: TypeError: short\(\) takes 1 .*; fxf calls it as .*weigh\(sc",
        ),
        ("weighted(empty)", r"^AttributeError: 'NoneType' .*: either attention 'mine' of .*mine.py takes or returns"),
    ],
)
def test_a_function_inside_another_one_is_found_when_it_is_called(line, message, tmp_path, monkeypatch):
    text = f"{FUNCTIONS}ATTENTIONS['mine'] = {line}\n\n\ndef get_config():\n    return default_config('reversal')\n"
    text = text.replace("return default", "config = default")
    experiment = built(f"{text}    config.model.attention = 'mine'\n    return config\n", tmp_path / "mine.py")
    with pytest.raises((TypeError, AttributeError)) as found:
        require_training(experiment, experiment.layout())
    line = cli.why_not_ours(found.value)
    monkeypatch.setenv("JAX_TRACEBACK_FILTERING", "off")
    assert cli.why_not_ours(found.value) == ""
    with pytest.raises(UserError, match=message):
        raise UserError(line)


def test_where_only_configs_of_fxf_register_something_a_fault_is_fxfs_own():
    read_config("studies/recall")
    assert config_file.executed()
    with pytest.raises(TypeError) as found:
        nearest(None, ["a"])
    assert cli.why_not_ours(found.value) == ""


@pytest.mark.parametrize(
    ("figures", "message"),
    [
        (None, "expected a dict of figures by name, got NoneType"),
        ({"x": "good"}, "x: expected a number, got 'good'"),
        ({"x": 1, "samples": [1]}, r"samples: expected tuples of \(prompt, expected, answer\), got 1"),
        ({"x": 1, "samples": [("a", None, "b", False)]}, r"samples: expected tuples of \(prompt, expected, answer\)"),
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
