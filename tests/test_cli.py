"""The command line: what is typed wrong ends in one line that names what was meant."""

import pytest

from fxf.errors import one_line
from runs import script_here

REVERSAL = "--config=configs/reversal.py"


def assert_refused(finished, *parts):
    """The script ends with exit code 2 and one line that has the parts."""
    assert (finished.returncode, finished.stdout) == (2, ""), finished
    (line,) = finished.stderr.splitlines()
    assert line.startswith("error: ")
    for part in parts:
        assert part in line


@pytest.mark.parametrize(
    ("flags", "parts"),
    [
        (["--config="], ["--config: missing"]),
        (["--config.model.n_layers=3"], ["--config: missing"]),
        ([REVERSAL, "--confg.seed=3"], ["--confg.seed: unknown flag; did you mean '--config.seed'?"]),
        ([REVERSAL, "--config.seed=1", "--config.seed=2"], ["--config.seed: given twice"]),
        ([REVERSAL, REVERSAL], ["--config: given twice"]),
        ([REVERSAL, "config.seed=3"], ["got 'config.seed=3'; did you mean '--config.seed=3'?"]),
        ([REVERSAL, "x\ny"], [r"expected flags alone, got 'x\ny'"]),
        ([REVERSAL, "--config.train.learning_rate=1"], ["unknown key; did you mean 'optimizer.learning_rate'?"]),
        ([REVERSAL, "--config.model=3"], ["--config.model: is a section; set its keys"]),
        ([REVERSAL, "--config.seed.x=3"], ["'seed' is a key, no section; type --config.seed=VALUE"]),
        ([REVERSAL, "--config.model.n_heads="], ["--config.model.n_heads: expected int, got ''"]),
        ([REVERSAL, "--config.model.n_heads"], ["--config.model.n_heads: expected int, got nothing"]),
        ([REVERSAL, "--config.log.tensorboard=maybe"], ["--config.log.tensorboard: expected bool, got 'maybe'"]),
        ([REVERSAL, "--config.optimizer.b1=high"], ["--config.optimizer.b1: expected float, got 'high'"]),
        (
            [REVERSAL, "--config.train.steps=10"],
            ["optimizer.warmup_steps: 50 is not less than train.steps 10", "set optimizer.warmup_steps to 1"],
        ),
    ],
)
def test_what_is_typed_wrong_is_named(flags, parts):
    assert_refused(script_here("describe", *flags), *parts)


@pytest.mark.parametrize(
    ("flags", "parts"),
    [
        (["--beam_with=3"], ["--beam_with: unknown flag; did you mean 'beam_width'?", "--top_k"]),
        (["--config.decode.beam_width=3"], ["--config.decode.beam_width: unknown flag; did you mean 'beam_width'?"]),
        (["--beam_width=two"], ["--beam_width: expected int, got 'two'"]),
        (["-3 1"], ["-3 1: unknown flag; an argument that begins with - stands behind --"]),
        (["--workdir="], ["--workdir: missing"]),
    ],
)
def test_what_is_typed_wrong_for_a_script_without_a_config_is_named(flags, parts):
    assert_refused(script_here("generate", *flags), *parts)


def test_a_file_as_workdir_is_named(tmp_path):
    path = tmp_path / "file"
    path.write_text("")
    for name, flags in (("evaluate", []), ("train", [REVERSAL])):
        assert_refused(script_here(name, *flags, f"--workdir={path}"), f"--workdir: {path} is a file")


def test_a_message_stays_on_its_line_and_keeps_its_backslashes():
    assert one_line("a\\b\n\x1b[2Jé") == r"a\b\n\x1b[2Jé"
