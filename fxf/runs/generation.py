"""Generation: from texts to prompts, from prompts to tokens, and from tokens to texts."""

import functools
import sys
import time
from collections.abc import Iterable

from fxf.errors import UserError, printable
from fxf.runs.experiment import Experiment
from fxf.tasks.prompts import Answer, decode_groups
from fxf.training.metrics import Clock
from fxf.weights import Params


def generate_texts(
    experiment: Experiment, params: Params, texts: list[str], max_tokens: int = 0, seed: int = 0
) -> list[list[Answer]]:
    """Returns the answers to each text, in order: its hypotheses as texts with their scores, the best first.

    Raises:
      UserError: the task answers no prompts, or cannot read a text.
    """
    task = experiment.task
    if task.to_prompts is None or task.to_text is None:
        raise UserError(f"task '{experiment.config['task']['name']}' answers no prompts")
    max_len = experiment.model.max_len or (sys.maxsize if max_tokens else experiment.max_len)
    groups = task.to_prompts(texts, max_tokens, max_len)
    layout = experiment.layout_of_one_copy()
    evaluator = experiment.evaluator(Clock(time.perf_counter()), layout, seed)(params)
    decoded = decode_groups(functools.partial(task.decode, evaluator), groups, task.end_token, len(texts))
    return [
        [(task.to_text(text, tokens), score) for tokens, score in hypotheses]
        for text, hypotheses in zip(texts, decoded, strict=True)
    ]


def print_samples(samples: Iterable[tuple[str, str | None, str]]) -> None:
    """Prints samples (prompt, expected, answer): a line each, or the lines of a text that has no prompt."""
    for prompt, expected, answer in samples:
        if not prompt:
            print("\n".join(map(printable, answer.split("\n"))))
        else:
            wrong = expected is not None and answer != expected
            print(printable(f"{prompt}  →  {answer}" + (f"   (expected: {expected})" if wrong else "")))
