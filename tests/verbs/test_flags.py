"""The command line: its messages, answers and figures; tests/mistakes.txt has what people type wrong."""

import json

from fxf.verbs import flags as cli
from fxf.verbs.generate import answer_lines
from small_runs import command

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
