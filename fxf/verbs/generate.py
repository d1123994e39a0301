r"""Answers prompts with a trained run: translates, reverses, continues a text or fills in blanks.

It prints one line for each prompt, in order. Line ends, control characters and backslashes are written as in Python
(\n, \x1b, \\). With --format=json each line is a JSON object with the exact text, the number of its prompt, and
cut_off: whether it reached --max_tokens, or the end of the room for it, before its end. A warning on standard error
names the prompts of such answers.

fxf generate --workdir=runs/reversal "3 1 4 1 5" "9 2 6"
fxf generate --workdir=runs/characters --temperature=0.8 --top_k=20 "The king"
fxf generate --workdir=runs/translation --input=sentences.txt > translations.txt
fxf generate --workdir=runs/translation --beam_width=5 --n_best=3 < sentences.txt
fxf generate --workdir=runs/translation --interactive

With --n_best each prompt gets several lines, the best first. A line has the prompt's number, the score
(log-probability over the length's penalty) and the text, separated by tabs, or as the keys prompt, score and text of a
JSON object. With --interactive each line of standard input is answered at once, until it ends (Ctrl-D).
"""

import sys
from collections.abc import Callable
from typing import Any

from absl import flags

from fxf.errors import UserError, one_line
from fxf.machine import status
from fxf.runs import cli

CONFIG, WORKDIR = cli.define_config_file(), cli.define_workdir()
DECODE = cli.define_decode()
STEP = flags.DEFINE_integer("step", None, "checkpoint to use; by default the one that the run's result used")
INPUT = flags.DEFINE_string(
    "input", None, "file with one prompt per line; without it and without arguments, standard input"
)
N_BEST = flags.DEFINE_integer("n_best", None, "hypotheses of the beam to show, with their scores", 1)
FORMAT = flags.DEFINE_enum("format", "text", ["text", "json"], "how the answers are written")
MAX_TOKENS = flags.DEFINE_integer(
    "max_tokens",
    0,
    "maximum number of new tokens; 0 for as many as model.max_len allows, or data.max_length of a translation",
    0,
)
SEED = flags.DEFINE_integer("seed", None, "seed of sampling; by default 0", 0, 2**32 - 1)
INTERACTIVE = flags.DEFINE_boolean("interactive", False, "answer each line of standard input at once")


def main(prompts: list[str]) -> None:
    from fxf.runs import run

    workdir = cli.require_workdir(WORKDIR)
    if INTERACTIVE.value and (prompts or INPUT.value):
        raise UserError("--interactive: reads prompts from standard input alone; give none as arguments or by --input")
    if prompts and INPUT.value:
        raise UserError(f"--input: prompts are given as arguments too: '{prompts[0]}'")
    options: dict[str, Any] = {
        "n_best": N_BEST.value,
        "max_tokens": MAX_TOKENS.value,
        "seed": SEED.value,
        "step": STEP.value,
        "config_file": CONFIG.value,
    }
    if INTERACTIVE.value:
        generate = run.generator(workdir, DECODE(), **options)
        with status.hidden():
            converse(generate)
    else:
        show(run.generate(workdir, prompts or cli.read_lines(INPUT.value), DECODE(), **options))


def show(answers: list[Any]) -> None:
    from fxf.runs.generation import warn_of_cut_off

    warn_of_cut_off(answers, N_BEST.value or 1)
    for line in cli.answer_lines(answers, N_BEST.value, FORMAT.value == "json"):
        print(line, flush=True)


def converse(generate: Callable[[list[str]], list[Any]]) -> None:
    """Answers each line of standard input. A line that is no prompt gets its error as the answer."""
    mark = "> " if sys.stdin and sys.stdin.isatty() else ""
    print(mark, end="", flush=True)
    for number, content in enumerate(cli.lines_of_standard_input(), 1):
        try:
            line = content.removesuffix(b"\n").removesuffix(b"\r")
            show(generate([cli.prompt_of(line, f"standard input:{number}")]))
        except UserError as error:
            print(f"error: {one_line(str(error))}", file=sys.stderr, flush=True)
        print(mark, end="", flush=True)
