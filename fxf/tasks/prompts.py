"""Steps that tasks share, from texts to prompts and from decoded tokens to texts."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from fxf.base.errors import UserError
from fxf.data.batches import padded
from fxf.models.decoder import Decoded
from fxf.models.steps import PromptGroup, Prompts

T = TypeVar("T")


class Hypothesis(NamedTuple):
    """The tokens of a continuation before its end token.

    Attributes:
      score: log-probability / length^length_penalty; None without a beam search.
      cut_off: whether the tokens reached their largest number before an end token; False where no token ends a text.
    """

    tokens: list[int]
    score: float | None
    cut_off: bool = False


class Answer(NamedTuple):
    """The text of an answer, with `score` and `cut_off` of its `Hypothesis`."""

    text: str
    score: float | None
    cut_off: bool = False


def one_group(prompts: Prompts, max_tokens: int, max_len: int) -> list[PromptGroup]:
    """Returns the prompts of a decoder as one group. `max_tokens` 0 means as many as fit after each prompt.

    Raises:
      UserError: a prompt and its new tokens need more than `max_len` positions. The last new token needs none.
    """
    room_N = max_len - prompts["lengths"].astype(np.int64)  # of a model whose window slides it is beyond an int32
    for number, room in enumerate(room_N.tolist(), 1):
        if room < max(max_tokens, 1):
            first = prompts["first"][number - 1] != 0  # a token 0 in front does not belong to the text
            needed = f"{max_len - room + first} tokens and {max(max_tokens, 1)} to generate"
            raise UserError(f"prompt {number}: {needed}; model.max_len is {max_len}")
    if max_tokens:
        return [PromptGroup(range(len(room_N)), prompts, max_tokens)]
    return [PromptGroup(range(len(room_N)), {**prompts, "limits": room_N.astype(np.int32)}, int(room_N.max()))]


def padded_prompts(rows: Sequence[Sequence[int]]) -> Prompts:
    """Returns the prompts of a decoder, padded with 0, from rows of at least one token."""
    tokens, mask = padded(rows, len(rows), max(map(len, rows)), 0)
    return {"first": tokens[:, 0], "tokens": tokens[:, 1:], "lengths": mask.sum(1, dtype=np.int32) - 1}


def of_each_prompt(function: Callable[[str], T], texts: Sequence[str]) -> list[T]:
    """Returns `function(text)` for each text. A UserError's line begins with the text's number, from 1."""
    found = []
    for number, text in enumerate(texts, 1):
        try:
            found.append(function(text))
        except UserError as error:
            raise UserError(f"prompt {number}: {error}") from None
    return found


def whole_numbers(text: str, minimum: int, maximum: int, expected: str) -> list[int]:
    """Returns the whole numbers of a text, which are separated by spaces.

    Raises:
      UserError: a word is not a whole number from `minimum` to `maximum`. The line begins with `expected`.
    """
    for word in text.split():
        if not (word.isdecimal() and minimum <= int(word) <= maximum):
            raise UserError(f"{expected} {minimum} … {maximum} with spaces between, got '{word}'")
    return [int(word) for word in text.split()]


def before_end(tokens: list[int], end_token: int) -> list[int]:
    """Returns the tokens before the first end token, or all where there is none."""
    return tokens[: tokens.index(end_token)] if end_token in tokens else tokens


def in_order_of_texts(
    groups: Sequence[PromptGroup], decoded: Sequence[Decoded], end_token: int, n_prompts: int, ends: Sequence[str] = ()
) -> list[list[Hypothesis]]:
    """Returns the hypotheses that were found for each prompt, the best first, in the order of the texts.

    A text in no group has one empty hypothesis. What a beam did not find has the score -inf, and is left out.

    Args:
      end_token: the token behind an answer's end; below 0 where no token ends a text but those of `ends`.
      ends: the words of the key of the `decode` section.
    """
    found: list[list[Hypothesis]] = [[Hypothesis([], 0.0)]] * n_prompts
    may_end = end_token >= 0 or len(ends) > 0
    for group, (tokens_NWU, scores_NW) in zip(groups, decoded, strict=True):
        limits = group.prompts.get("limits", [group.max_tokens] * len(group.places))
        scores = np.full(tokens_NWU.shape[:2], None) if scores_NW is None else scores_NW
        rows = zip(group.places, tokens_NWU.tolist(), scores.tolist(), limits, strict=True)
        for place, tokens_WU, scores_W, limit in rows:
            pairs = [(before_end(tokens[:limit], end_token), s) for tokens, s in zip(tokens_WU, scores_W, strict=True)]
            of_prompt = [Hypothesis(new, score, may_end and len(new) == limit) for new, score in pairs]
            found[place] = [each for each in of_prompt if each.score != -float("inf")]
    return found
