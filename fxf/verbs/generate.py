r"""Answers prompts with a trained run: translates, reverses, continues a text or fills in blanks.

It prints one line for each prompt, in order, after every 1,024 prompts. Line ends, control characters and backslashes
are written as in Python (\n, \x1b, \\). With --format=json each line is a JSON object with the exact text, the number
of its prompt, and cut_off: whether the answer reached --max_tokens or the model's last position before its end. A
warning on standard error names the prompts of such answers.

fxf generate --workdir=runs/reversal "3 1 4 1 5" "9 2 6"
fxf generate --workdir=runs/characters --temperature=0.8 --top_k=20 "The king"
fxf generate --workdir=runs/characters --repetition_penalty=1.2 --banned="king queen" --stop="." "The"
fxf generate --workdir=runs/characters --temperature=0.8 --stream "The"
fxf generate --workdir=runs/large --draft=runs/small "The"
fxf generate --workdir=runs/translation --input=sentences.txt > translations.txt
fxf generate --workdir=runs/translation --beam_width=5 --n_best=3 < sentences.txt
fxf generate --workdir=runs/translation --interactive

With --stream the answer to one prompt, the same answer, appears token by token. With --draft a smaller run with the
same vocabulary drafts tokens, and one step of this run checks several of them (speculative decoding). The answers are
the same, or samples of the same distribution. With --n_best each prompt gets several lines, the best first. A line has
the prompt's number, the score (log-probability over the length penalty) and the text, separated by tabs, or as the keys
prompt, score and text of a JSON object. With --interactive each line of standard input is answered at once, until
standard input ends (Ctrl-D).
"""

import logging
import re
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from fxf.base import status
from fxf.base.config import one_of
from fxf.base.errors import UserError, one_line, printable
from fxf.base.files import to_json
from fxf.verbs.flags import Parser, add_decode, add_run, decode_of, place, read_lines, require_workdir, whole

log = logging.getLogger(__name__)

ARGUMENTS = "prompts"


def flags(parser: Parser) -> None:
    add_run(parser)
    add_decode(parser)
    parser.flag("input", place, doc="file with one prompt per line; without it and without arguments, standard input")
    parser.flag("n_best", whole(1), doc="number of hypotheses of the beam to show, with their scores")
    parser.flag("format", default="text", doc="format of the answers: text or json")
    parser.flag("max_tokens", whole(0), 0, "most new tokens; 0: as many as model.max_len, or data.max_length, allows")
    parser.flag("stop", default=[], doc="an answer ends before this text; may be repeated", action="append")
    parser.flag("draft", doc="folder of a smaller run with the same vocabulary, for speculative decoding")
    parser.flag("draft_tokens", whole(1), doc="number of tokens that --draft drafts at a time; by default 4")
    parser.flag("seed", whole(0, 2**32 - 1), doc="seed of sampling; by default 0")
    parser.switch("interactive", "answer each line of standard input at once")
    parser.switch("stream", "show the answer to one prompt, or to each line of --interactive, token by token")


def main(args: Namespace) -> None:
    from fxf.runs import api
    from fxf.runs.generation import Answering, warn_of_cut_off

    one_of(args.format, ("text", "json"), "--format")
    workdir, prompts = require_workdir(args), args.arguments
    if args.interactive and (prompts or args.input):
        raise UserError("--interactive: reads prompts from standard input alone; give none as arguments or by --input")
    if prompts and args.input:
        raise UserError(f"--input: prompts are given as arguments too: '{prompts[0]}'")
    if args.stream and (args.n_best or args.format == "json"):
        raise UserError("--stream: shows the text of one answer; leave out --n_best and --format=json")
    if typed := next(filter(re.compile(r"\\[nrt]").search, args.stop), ""):
        log.warning("warning: --stop: '%s' has a backslash; a shell makes a line end or a tab of $'%s'", typed, typed)
    run = api.load(workdir, args.step, **decode_of(args))
    if args.draft:
        run = run.with_draft(api.load(args.draft), args.draft_tokens or 4)
    elif args.draft_tokens:
        raise UserError("draft_tokens: there is no draft model; give a smaller run by --draft")
    experiment, width = run.experiment, run.experiment.decode.beam_width
    if args.n_best and width == 1:
        raise UserError("n_best: only beam search scores its hypotheses; set decode.beam_width above 1")
    if args.n_best and args.n_best > width:
        raise UserError(f"n_best: {args.n_best} is more than decode.beam_width {width}")
    if args.seed is not None and not experiment.decode.temperature:
        raise UserError("seed: no token is drawn; set decode.temperature above 0")
    answering = Answering(experiment, run.params, args.max_tokens, args.seed or 0, args.stop)

    def answer(prompts: list[str], first: int = 1) -> None:
        """Prints the answers to prompts with numbers from `first` on, and warns of those that were cut off."""
        if args.stream:
            warn_of_cut_off([[print_as_it_comes(answering.stream(prompts[0]))]], first=first)
            return
        for answers in answering.parts(prompts):
            warn_of_cut_off(answers, args.n_best or 1, first)
            for line in answer_lines(answers, args.n_best, args.format == "json", first):
                print(line, flush=True)
            first += len(answers)

    if args.interactive:
        return converse(answer)
    prompts = prompts or read_lines(args.input)
    if not prompts:
        raise UserError("no prompt: give prompts as arguments, or one on each line of standard input")
    if args.stream and len(prompts) > 1:
        raise UserError(f"--stream: expected one prompt, got {len(prompts)}")
    answer(prompts)


def answer_lines(answers: Sequence[Sequence[Any]], n_best: int | None, as_json: bool, first: int = 1) -> Iterator[str]:
    """Yields a line for the best text of each answer, or for each of `n_best` hypotheses, with prompt number and score.

    Args:
      answers: the hypotheses of each prompt, the best first: (text, score, whether it was cut off).
    """
    for number, hypotheses in enumerate(answers, first):
        for text, score, cut_off in hypotheses[: n_best or 1]:
            if as_json:
                scored = {"score": score} if n_best else {}
                yield to_json({"prompt": number, **scored, "text": text, "cut_off": cut_off})
            else:
                yield f"{number}\t{score:.4f}\t{printable(text)}" if n_best else printable(text)


def print_as_it_comes(answers: Iterator[Any]) -> Any:
    """Prints what each answer adds to the previous one, then a line end, and returns the last answer."""
    shown = ""
    for answer in answers:
        status.end()  # else the status line would appear within the answer's line
        # Some tokenizers decode a text differently when more tokens follow; then the whole answer is printed again.
        start, before = (len(shown), "") if answer.text.startswith(shown) else (0, "\n")
        print(before + printable(answer.text[start:]), end="", flush=True)
        shown = answer.text
    print()
    return answer


def converse(answer: Callable[[list[str], int], None]) -> None:
    """Answers each line of standard input. If a line is not a prompt, its error is the answer."""
    from fxf.data.text_files import decoded

    status.end()  # the user types
    mark = "> " if sys.stdin.isatty() else ""
    print(mark, end="", flush=True)
    for number, content in enumerate(sys.stdin.buffer, 1):
        try:
            line = content.removesuffix(b"\n").removesuffix(b"\r")
            answer([decoded(line, "standard input", number).removeprefix("\ufeff")], number)  # a byte order mark
        except UserError as error:
            what = one_line(str(error)).replace("prompt 1:", f"prompt {number}:", 1)  # each line is answered alone
            print(f"error: {what}", file=sys.stderr, flush=True)
        print(mark, end="", flush=True)
