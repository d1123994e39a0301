"""The command `fxf`, its verbs, messages, answers and figures; tests/mistakes.txt has what people type wrong."""

import json
import subprocess
import sys

import pytest

from fxf.base.errors import why_not_ours
from fxf.verbs import VERBS
from fxf.verbs import flags as cli
from fxf.verbs.generate import answer_lines
from small_runs import ROOT, command, script


def test_every_module_of_the_room_is_a_verb():
    modules = {path.stem for path in (ROOT / "fxf/verbs").glob("*.py")}
    assert modules - {"__init__", "command", "flags"} == set(VERBS)


def test_without_a_verb_it_lists_the_verbs_with_a_line_each_and_imports_no_library():
    heavy = "{'jax', 'numpy', 'absl', 'ml_collections'}"
    program = f"import sys; import fxf.__main__ as m; m.main(); assert not {heavy} & set(sys.modules)"
    for arguments in ([], ["--help"]):
        run = [sys.executable, "-c", program, *arguments]
        done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, timeout=600)
        assert (done.returncode, done.stderr) == (0, "")
        lines = [line for line in done.stdout.splitlines() if line.startswith("  fxf ")]
        assert [line.split()[1] for line in lines] == list(VERBS)
        assert all(len(line.split()) > 5 and line.endswith(".") and len(line) < 120 for line in lines)


@pytest.mark.thorough
def test_a_verb_reads_a_config_of_fxf_by_its_name_in_any_folder_and_imports_no_library_that_it_does_not_need(tmp_path):
    """What reads data sets, writes checkpoints, logs and plots, and scores texts is imported where it is used."""
    program = (
        "import sys; sys.argv = ['fxf', 'describe', '--config=reversal:example0', '--config.model.n_layers=1'];"
        "import fxf.__main__ as m; m.main();"
        "unused = {'grain', 'matplotlib', 'orbax', 'sacrebleu', 'tensorboardX', 'tensorflow_datasets'};"
        "assert not unused & set(sys.modules), unused & set(sys.modules)"
    )
    run = [sys.executable, "-c", program]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stderr) == (0, "")
    assert "11 x 128" in done.stdout
    assert "--workdir" in script("help", "train", cwd=tmp_path).stdout


def test_a_library_that_an_installation_lacks_is_named_with_what_brings_it():
    lacking = ModuleNotFoundError("No module named 'safetensors'", name="safetensors.numpy")
    compiler = ModuleNotFoundError("No module named 'libtpu'", name="libtpu")
    assert why_not_ours(compiler) == "libtpu is not installed: pip install 'fxf[compile]'"
    assert why_not_ours(lacking) == "safetensors is not installed: pip install 'fxf[interop]'"
    assert why_not_ours(ModuleNotFoundError("of a user's own", name="mine")) == ""


REVERSAL = "--config=configs/reversal.py"


ANSWERS = [[("a\nb\\\x1b[31m\u2028é", -0.5, False), ("c", -1.25, True)], [("", -2.0, True)]]


def test_a_message_too_long_to_read_loses_its_middle_and_has_no_line_end():
    finished = command("describe", REVERSAL, f"--config.model.activation=x\n{'y' * 5000}z")
    assert (finished.returncode, finished.stdout) == (2, "")
    (line,) = finished.stderr.splitlines()
    assert line.startswith("error: model.activation: expected one of") and len(line) < 1100
    assert all(part in line for part in (r"'x\n", "yyy … yyy", "yyyz'"))


def test_every_answer_is_one_line_whatever_is_in_it():
    assert list(answer_lines(ANSWERS, None, as_json=False)) == [r"a\nb\\\x1b[31m\u2028é", ""]
    best = ["1\t-0.5000\t" + r"a\nb\\\x1b[31m\u2028é", "1\t-1.2500\tc", "2\t-2.0000\t"]
    assert list(answer_lines(ANSWERS, 2, as_json=False)) == best


def test_an_answer_as_json_has_its_exact_text():
    plain = [json.loads(line) for line in answer_lines(ANSWERS, None, as_json=True)]
    assert plain == [
        {"prompt": 1, "text": ANSWERS[0][0][0], "cut_off": False},
        {"prompt": 2, "text": "", "cut_off": True},
    ]
    lines = list(answer_lines(ANSWERS, 2, as_json=True))
    assert [json.loads(line)["score"] for line in lines] == [-0.5, -1.25, -2.0]
    assert not any("\n" in line or "\x1b" in line for line in lines)


FIGURES = {"task": "reversal", "train_loss": 0.123456789, "steps": 7}


def test_figures_are_a_line_and_an_object_on_request(capsys):
    cli.print_figures(FIGURES)
    assert capsys.readouterr().out == "task reversal  train_loss 0.123457  steps 7\n"
    cli.print_figures(FIGURES, as_json=True)
    assert json.loads(capsys.readouterr().out) == FIGURES
