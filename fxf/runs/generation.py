"""Answers of a task: generating texts, scoring given pairs, and writing files of answers."""

import logging
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fxf.base.config import Field, checked
from fxf.base.errors import UserError, shortened
from fxf.base.weights import Params
from fxf.data.text_files import good_lines, lines_of, read_text_file, tab_separated
from fxf.models.steps import PromptGroup
from fxf.runs.evaluator import Evaluators
from fxf.runs.experiment import Experiment
from fxf.tasks.prompts import Answer, Hypothesis, in_order_of_texts
from fxf.tasks.task import Evaluator, Task

log = logging.getLogger(__name__)

AT_ONCE = 1024  # texts whose answers come together
LENGTH_STEP = 32  # prompts are padded to multiples of it, because each length compiles a program
CUT_OFF = "the answer is cut off before its end, at max_tokens or where the task or the model has no more room"

# Each prompt with its right answers and the generated one.
Answers = Sequence[tuple[str, list[str], str]]


class Answering:
    """Answers the prompts of an experiment's task with params; it compiles once for each shape of prompts.

    Args:
      stop: texts; an answer ends before whichever of them is complete in it first.

    Raises:
      UserError: the task answers no prompts; or, when it is called, cannot read a text.
    """

    def __init__(
        self, experiment: Experiment, params: Params, max_tokens: int = 0, seed: int = 0, stop: Sequence[str] = ()
    ) -> None:
        if not experiment.task.has("to_text"):
            raise UserError(f"task '{experiment.config['task']['name']}' answers no prompts")
        if stop and experiment.decode.beam_width > 1:
            raise UserError("stop: beam search does not read it; leave decode.beam_width at 1")
        self._task = experiment.task
        self._max_tokens = checked(max_tokens, Field(int, {"minimum": 0}), "max_tokens")
        if 0 < max_tokens < (fewest := experiment.decode.min_tokens):
            raise UserError(f"max_tokens: {max_tokens} is less than decode.min_tokens {fewest}")
        cased = getattr(self._task, "cased", str)  # answers are in the case of the data
        self._stop = [cased(words) for words in ([stop] if isinstance(stop, str) else stop) if words]
        self._ends = experiment.decode.ends.split()
        self._in_beams, self._room = experiment.decode.beam_width > 1, experiment.model.max_len
        self._drafts = experiment.draft is not None
        rolls = experiment.model.rolls and not self._in_beams and not self._drafts
        self._max_len = self._room or experiment.max_len
        if max_tokens and (rolls or not self._room):
            self._max_len = sys.maxsize
        self._evaluator = Evaluators(experiment, seed=seed)(params)

    def __call__(self, texts: list[str]) -> list[list[Answer]]:
        """Returns the answers to each text, in order: its hypotheses as texts with their scores, the best first.

        Of hypotheses that spell the same text with other tokens, only the best is there.
        """
        return [answers for part in self.parts(texts) for answers in part]

    def parts(self, texts: list[str]) -> Iterator[list[list[Answer]]]:
        """Yields the same answers, to `AT_ONCE` texts at a time, so that an interruption loses few."""
        groups = [group._replace(places=group.places or range(len(texts))) for group in self._groups(texts)]
        for start in range(0, len(texts), AT_ONCE):
            places = range(len(texts))[start : start + AT_ONCE]
            chosen = [group.at(np.flatnonzero(np.isin(group.places, places))) for group in groups]
            part = [group for group in chosen if group.places]
            found = self._task.decode(self._evaluator, part) if part else []
            decoded = in_order_of_texts(part, found, self._task.end_token, len(texts), self._ends)
            answers = []
            for place in places:
                of_text: dict[str, Answer] = {}
                for answer, _is_stopped in (self._answer(texts[place], each) for each in decoded[place]):
                    of_text.setdefault(answer.text, answer)
                answers.append([*of_text.values()])
            yield answers

    def stream(self, text: str) -> Iterator[Answer]:
        """Yields the part of an answer that is final, after each token; the last one is what calling returns.

        Raises:
          UserError: tokens are not generated one by one; or as by calling.
        """
        if self._in_beams:
            raise UserError("stream: beam search knows its answer at the end, not token by token; set beam_width to 1")
        if type(self._task).decode is not Task.decode:
            raise UserError("stream: this task finds its tokens at the end, not token by token")
        assert self._evaluator.stream is not None
        answer, sure = Answer(self._task.to_text(text, []), None), ""
        for group in self._groups([text]):
            (limit,) = group.whole()["limits"]
            for tokens in self._evaluator.stream(group):
                cut_off = (self._task.end_token >= 0 or len(self._ends) > 0) and len(tokens) == limit
                answer, is_stopped = self._answer(text, Hypothesis(tokens, None, cut_off))
                if is_stopped:
                    break
                # The next token may still complete a character or a stop, so these are not final. Beside the bytes of
                # an incomplete character, a tokenizer may hide characters in front of it, which stay final.
                known = answer.text.rstrip("\ufffd")
                begun = [n for words in self._stop for n in range(1, len(words)) if known.endswith(words[:n])]
                sure = max(sure, known[: len(known) - max(begun, default=0)], key=len)
                yield Answer(sure, None)
        yield answer

    def _groups(self, texts: list[str]) -> list[PromptGroup]:
        groups, room = self._task.to_prompts(texts, self._max_tokens, self._max_len), self._room
        decoded = [group for group in groups if "lengths" in group.prompts]
        for lengths, places in ((group.prompts["lengths"], group.places) for group in decoded if room):
            if (n := lengths.max()) > room:  # a text may pass it, but its prompt may not
                number = places[lengths.argmax()] + 1
                raise UserError(f"prompt {number}: {n} tokens; expected at most model.max_len {room}")
        if room and any((group.prompts["lengths"] + group.whole()["limits"]).max() > room for group in decoded):
            log.warning("warning: a text passes model.max_len; attention then sees the newest %d tokens", room)
        return groups if self._drafts else [_padded(group, room or self._max_len) for group in groups]

    def _answer(self, text: str, found: Hypothesis) -> tuple[Answer, bool]:
        """Returns a hypothesis as text, and whether it is cut at a stop: the one that is complete first in a stream."""
        # Some tasks have no empty answer.
        answer, start = self._task.to_text(text, found.tokens), len(self._task.to_text(text, []) if self._stop else "")
        stops = [(at + len(words), at) for words in self._stop if (at := answer.find(words, start)) >= 0]
        if stops:
            return Answer(answer[: min(stops)[1]], None), True
        return Answer(answer, found.score, bool(found.cut_off)), False


def _padded(group: PromptGroup, room: int) -> PromptGroup:
    """Returns the group with its prompts padded to one of few lengths, each of which compiles a program.

    Prompts and new tokens together stay within `room`, unless they pass it anyway.
    """
    prompts, most = group.prompts, group.max_tokens
    if prompts.keys() - {"limits"} != {"first", "tokens", "lengths"}:  # other arrays may have an entry for each token
        return group
    length = prompts["tokens"].shape[1]
    largest = room if "limits" in prompts or length + most > room else room - most
    padding = max(0, min(-length % LENGTH_STEP, largest - length))
    if "limits" in prompts:  # as many as fit
        most = max(most, min(room, room - length - padding + LENGTH_STEP))
    tokens = np.pad(prompts["tokens"], [(0, 0), (0, padding)])
    return group._replace(prompts={**prompts, "tokens": tokens}, max_tokens=most)


def warn_of_cut_off(answers: Sequence[Sequence[Answer]], n_best: int = 1, first: int = 1) -> None:
    """Warns, in one line, of answers whose best hypotheses reached their largest number of tokens before they ended."""
    numbers = [str(n) for n, found in enumerate(answers, first) if any(each.cut_off for each in found[:n_best])]
    if numbers:
        log.warning("warning: prompt %s: %s", shortened(", ".join(numbers), 60), CUT_OFF)


def score_pairs(experiment: Experiment, evaluator: Evaluator, path: Path) -> dict[str, Any]:
    """Returns the metrics and answers of the pairs in a file, each line a prompt, a tab and a right answer.

    Raises:
      UserError: the task scores no given pairs, or a line is wrong.
    """
    task = experiment.task
    if not task.has("test_pairs"):
        raise UserError(f"--pairs: task '{experiment.config['task']['name']}' scores no given pairs")
    pairs = tab_separated(lines_of(read_text_file(path, "--pairs")), 2, 0, 1)
    lines, _ = good_lines(pairs, [str(path)] * 2, skip=False)
    return task.test_pairs(evaluator, [(line.source, line.target) for line in lines])


def write_answers(experiment: Experiment, folder: Path, answers: Answers | None) -> None:
    """Writes the prompts, answers and right answers, a line each: sources.txt, hypotheses.txt and references.txt.

    If some prompts have several right answers, references_2.txt has the second ones, and so on, or the first again
    where there is none: sacreBLEU, which reads such files, would count an empty line as a right answer.

    Raises:
      UserError: the task has no answers.
      OSError: a file cannot be written.
    """
    if not answers:
        raise UserError(f"--output: task '{experiment.config['task']['name']}' has no answers to write")
    sources, references, hypotheses = zip(*answers, strict=True)
    texts: dict[str, Sequence[str]] = {"sources": sources, "hypotheses": hypotheses}
    for n in range(max(map(len, references))):
        texts[f"references_{n + 1}" if n else "references"] = [(right[n:] or right or [""])[0] for right in references]
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("references_[0-9]*.txt"):  # of answers with more references, written here before
        old.unlink()
    for name, lines in texts.items():
        one_each = [line.replace("\r", " ").replace("\n", " ") + "\n" for line in lines]
        (folder / f"{name}.txt").write_text("".join(one_each), encoding="utf-8")
