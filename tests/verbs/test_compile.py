"""The command line of `fxf compile`, where it ends before anything is compiled."""

import pytest

from small_runs import script

REVERSAL = "--config=configs/reversal.py"


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        ([], "--topology: missing; for example --topology=h100:8 or --topology=v5e:2x4"),
        (
            ["--topology=h10:8"],
            "--topology: no hardware 'h10'; did you mean 'h100'? (here are h100, h200, v5e, v5p, v6e)",
        ),
        (["--topology=h100:9"], "--topology: expected a number of GPUs, up to 8 or a multiple, behind h100:, got '9'"),
        (
            ["--topology=h100:8", "--program=prefill"],
            "--program: expected one of training, decoding; got 'prefill'",
        ),
    ],
)
def test_what_cannot_be_compiled_for_is_one_line(flags, line):
    finished = script("compile", REVERSAL, *flags)
    assert (finished.returncode, finished.stdout) == (2, "")
    assert finished.stderr == f"error: {line}\n"
