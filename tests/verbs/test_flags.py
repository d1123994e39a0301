"""The command line: what is typed wrong ends in one line that names what was meant."""

import io
import json

import pytest

from fxf import __main__ as command
from fxf.errors import UserError, one_line
from fxf.verbs import flags as cli
from fxf.verbs.flags import answer_lines, read_lines
from small_runs import script

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
        (["--config="], ["--config: expected a value, got ''"]),
        (["--config.model.n_layers=3"], ["--config: missing"]),
        ([REVERSAL, "--confg.seed=3"], ["--confg.seed: unknown flag; did you mean '--config.seed'?"]),
        ([REVERSAL, "--config.seed=1", "--config.seed=2"], ["--config.seed: given twice"]),
        ([REVERSAL, REVERSAL], ["--config: given twice"]),
        ([REVERSAL, "config.seed=3"], ["got 'config.seed=3'; did you mean '--config.seed=3'?"]),
        ([REVERSAL, "x\ny"], [r"expected only flags, got 'x\ny'"]),
        ([REVERSAL, "--config.train.learning_rate=1"], ["unknown key; did you mean 'optimizer.learning_rate'?"]),
        ([REVERSAL, "--config.optimizer.lr=1"], ["unknown key; did you mean 'learning_rate'?"]),
        ([REVERSAL, "--config.optimizer.q=1"], ["unknown key (optimizer has: "]),
        ([REVERSAL, "--config.model=3"], ["--config.model: is a section; set its keys"]),
        ([REVERSAL, "--config.seed.x=3"], ["'seed' is a key, not a section; type --config.seed=VALUE"]),
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
    assert_refused(script("describe", *flags), *parts)


@pytest.mark.parametrize(
    ("flags", "parts"),
    [
        (["--beam_with=3"], ["--beam_with: unknown flag; did you mean 'beam_width'?", "--top_k"]),
        (["--config.decode.beam_width=3"], ["--config.decode.beam_width: unknown flag; did you mean 'beam_width'?"]),
        (["--beam_width=two"], ["--beam_width: expected int, got 'two'"]),
        (["--n_best=0"], ["--n_best: expected at least 1, got 0"]),
        (["-x"], ["-x: unknown flag"]),
        (["--workdir="], ["--workdir: expected a value, got ''"]),
    ],
)
def test_what_is_typed_wrong_for_a_script_without_a_config_is_named(flags, parts):
    assert_refused(script("generate", *flags), *parts)


@pytest.mark.parametrize("flag", ["--head=0", "--output=heads.png"])
def test_what_shows_one_array_needs_its_name(flag):
    assert_refused(script("probe", flag, "3 1"), f"{flag.split('=')[0]}: only --name reads it")


def test_a_file_as_workdir_is_named(tmp_path):
    path = tmp_path / "file"
    path.write_text("")
    for name, flags in (("evaluate", []), ("train", [REVERSAL])):
        assert_refused(script(name, *flags, f"--workdir={path}"), f"--workdir: {path} is a file")


def test_a_working_directory_that_is_gone_is_named(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    told = []
    monkeypatch.setattr(command.signals, "print_last_line", told.append)
    with pytest.raises(SystemExit, match="2"):
        command.act("fxf keys", "fxf.verbs.keys", [])
    assert told == ["error: the working directory is gone (No such file or directory); change to one that is there"]


def test_a_message_stays_on_its_line_and_keeps_its_backslashes():
    assert one_line("a\\b\n\x1b[2Jé") == r"a\b\n\x1b[2Jé"


ANSWERS = [[("a\nb\\\x1b[31m\u2028é", -0.5, False), ("c", -1.25, True)], [("", -2.0, True)]]


def test_a_message_too_long_to_read_loses_its_middle():
    finished = script("describe", REVERSAL, f"--config.model.activation=x{'y' * 5000}z")
    assert_refused(finished, "model.activation: expected one of", "'xyyy", "yyy … yyy", "yyyz'")
    assert len(finished.stderr) < 1100


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


@pytest.mark.parametrize(("most", "longest"), [(7, 99), (99, 2)])
def test_prompts_without_an_end_are_refused(most, longest, tmp_path, monkeypatch):
    monkeypatch.setattr(cli, "MAX_INPUT", most)
    monkeypatch.setattr(cli, "MAX_PROMPT", longest)
    (tmp_path / "prompts").write_text("1\n234\n5\n6")
    message = r"expected at most 7 bytes" if most == 7 else r":2: expected at most 2 characters, got 3"
    with pytest.raises(UserError, match=message):
        read_lines(str(tmp_path / "prompts"))
    for path in (None, "/dev/stdin"):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"1\n234\n5\n6")))
        with pytest.raises(UserError, match=f"standard input.*{message}"):
            read_lines(path)


def test_prompts_come_from_a_file_or_from_standard_input_alone(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"1 2\n3")))
    assert read_lines("/dev/stdin") == ["1 2", "3"]
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(UserError, match="standard input: it is closed"):
        read_lines(None)
    with pytest.raises(UserError, match="--input: /dev/zero: expected a file, got a device"):
        read_lines("/dev/zero")


FIGURES = {"task": "reversal", "train_loss": 0.123456789, "steps": 7}


def test_a_conversation_has_the_lines_of_standard_input_and_ends_at_one_without_an_end(monkeypatch):
    monkeypatch.setattr(cli.sys, "stdin", io.TextIOWrapper(io.BytesIO(b"1\n2\n3\n")))
    assert list(cli.lines_of_standard_input()) == [b"1\n", b"2\n", b"3\n"]
    monkeypatch.setattr(cli, "MAX_INPUT", 2)
    monkeypatch.setattr(cli.sys, "stdin", io.TextIOWrapper(io.BytesIO(b"123\n")))
    with pytest.raises(UserError, match="standard input: expected at most 2 bytes"):
        next(cli.lines_of_standard_input())


def test_figures_are_a_line_in_a_pipe_a_table_on_a_terminal_and_an_object_on_request(capsys, monkeypatch):
    cli.print_figures(FIGURES)
    assert capsys.readouterr().out == "task reversal  train_loss 0.123457  steps 7\n"
    cli.print_figures(FIGURES, as_json=True)
    assert json.loads(capsys.readouterr().out) == FIGURES
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    cli.print_figures(FIGURES)
    assert capsys.readouterr().out == "task        reversal\ntrain_loss  0.123457\nsteps       7\n"


def test_the_help_of_a_verb_ends_with_the_exit_codes():
    said = script("evaluate", "--help").stdout
    assert said.endswith(cli.EXITS)
    assert [int(line.split()[0]) for line in cli.EXITS.splitlines()[1:]] == [0, 1, 2, 75, 130, 141]
