"""The other config of a trial: another one, or the first with changed keys."""

import pytest

from fxf.errors import UserError
from fxf.runs.configs import read_config
from fxf.trials.arms import Arm, other_config, with_changes
from small_runs import tiny_config

FIRST = Arm(tiny_config(), {"config_file": "reversal", "overrides": {"seed": 3}})


def test_another_config_gets_the_keys_that_the_command_line_sets_for_both():
    found = other_config("reversal:example0", {"train.steps": 7, "optimizer.learning_rate": 1e-5, "log.report": False})
    expected = read_config("reversal:example0").to_dict()
    expected["train"]["steps"], expected["optimizer"]["learning_rate"], expected["log"]["report"] = 7, 1e-5, False
    assert found.config == expected
    assert found.origin["overrides"] == {"train.steps": 7, "optimizer.learning_rate": 1e-5, "log.report": False}


def test_another_config_without_such_a_key_is_refused():
    with pytest.raises(UserError, match=r"^--other=characters: task.n_tokens: unknown key"):
        other_config("characters", {"task.n_tokens": 3})


def test_a_change_is_of_the_other_config_alone():
    before = tiny_config()
    found = with_changes(FIRST, ["model.n_layers=2", "model.activation=silu", "train.skip_nonfinite=1"])
    changes = {"model": {"n_layers": 2, "activation": "silu"}, "train": {"skip_nonfinite": 1}}
    assert found.config == tiny_config(**changes)
    assert FIRST.config == before
    overrides = {"seed": 3, "model.n_layers": 2, "model.activation": "silu", "train.skip_nonfinite": 1}
    assert found.origin == {"config_file": "reversal", "overrides": overrides}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["model.n_layers"], "--change=model.n_layers: expected KEY=VALUE"),
        (["model.n_layer=2"], "--change=model.n_layer: unknown key; did you mean 'n_layers'"),
        (["model.n_layers=x"], "--change=model.n_layers: expected int, got 'x'"),
        (["model=2"], "--change=model: is a section; set its keys, such as --change=model."),
        (["train.steps=1", "train.steps=2"], "--change=train.steps: given twice"),
        (["seed=2"], "--change=seed: the pairs of a trial set the seed"),
    ],
)
def test_a_change_that_is_none_is_refused(changes, message):
    with pytest.raises(UserError, match=f"^{message}"):
        with_changes(FIRST, changes)
