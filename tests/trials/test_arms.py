"""The other config of a trial: another one, the first with changed keys, or with what a file registers."""

import shutil

import pytest

from fxf.errors import UserError
from fxf.runs.command_line import origin_of, read_config
from fxf.runs.config_file import load
from fxf.runs.experiment import build
from fxf.trials.arms import Arm, other_config, with_changes, with_functions
from fxf.trials.plan import make_plan
from small_runs import ROOT, new_process, tiny_config

GUESTS = ROOT / "tests/guests"
FIRST = Arm(tiny_config(), {"config_file": "reversal", "overrides": {"seed": 3}})
ACTIVATION = """from fxf.layers.feed_forward import ACTIVATIONS

ACTIVATIONS["tripled"] = lambda x: 3 * x
"""


def write(folder, text, name="mine"):
    path = folder / f"{name}.py"
    path.write_text(text)
    return str(path)


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


def test_what_a_file_registers_is_for_the_other_config_and_its_runs_record_the_file(tmp_path):
    with new_process():
        path = write(tmp_path, ACTIVATION)
        found = with_functions(FIRST, path)
        assert found.config == tiny_config(model={"activation": "tripled"})
        assert found.origin["overrides"] == {"seed": 3, "model.activation": "tripled"}
        assert found.origin["registered_by"] == load(path).origin()["registered_by"]
        assert found.origin["registered_by"]["registers"] == ["activation 'tripled'"]
        build(found.config)


def test_a_function_that_cannot_be_computed_is_refused_before_any_run(tmp_path):
    with new_process():
        found = with_functions(FIRST, write(tmp_path, ACTIVATION.replace("lambda x: 3 * x", "lambda x: x[..., :-1]")))
        with pytest.raises(UserError, match="the other config: its loss cannot be computed: TypeError: "):
            make_plan(FIRST, found, tmp_path / "trial")


@pytest.mark.parametrize("guest", ["model", "optimizer", "positions", "attention", "metric"])
def test_a_section_gets_the_keys_of_what_a_guest_registers(guest, tmp_path):
    with new_process():
        path = shutil.copy(GUESTS / f"{guest}.py", tmp_path)
        changes = {"optimizer": ["optimizer.b3=0.5"], "metric": ["task.metrics=length_ratio"]}.get(guest, [])
        found = with_functions(FIRST, str(path), changes)
        build(found.config)
        assert found.config != FIRST.config


def test_where_a_file_registers_two_of_a_kind_a_change_chooses(tmp_path):
    with new_process():
        path = write(tmp_path, f"{ACTIVATION}ACTIVATIONS['doubled'] = lambda x: 2 * x\n")
        with pytest.raises(
            UserError, match=r"no key names what it registers \(activation 'doubled', activation 'tripled'"
        ):
            with_functions(FIRST, path)
        assert with_functions(FIRST, path, ["model.activation=doubled"]).config["model"]["activation"] == "doubled"


def test_a_file_that_cannot_be_tried_is_refused(tmp_path):
    with new_process(), pytest.raises(UserError, match=r"mine.py: it registers nothing"):
        with_functions(FIRST, write(tmp_path, "def gelu(x):\n    return x\n"))
    with new_process(), pytest.raises(UserError, match=r"wrong.py:2: ZeroDivisionError"):
        with_functions(FIRST, write(tmp_path, "\n1 / 0\n", "wrong"))
    with new_process(), pytest.raises(UserError, match=r"activation 'relu' is registered already; choose another"):
        with_functions(FIRST, write(tmp_path, ACTIVATION.replace("tripled", "relu"), "taken"))
    with new_process():
        config_file = str(shutil.copy(GUESTS / "positions.py", tmp_path))
        first = Arm(FIRST.config, origin_of(config_file, {}))
        with pytest.raises(UserError, match=r"the config file .*positions.py registers something too"):
            with_functions(first, write(tmp_path, ACTIVATION, "second"))
