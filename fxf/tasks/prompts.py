"""Functions that tasks share: from texts to prompts, and from decoded tokens to texts."""

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
      cut_off: whether the tokens reached the limit before an end token; False where no token ends a text.
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
    """Returns the prompts of a decoder as one group. `max_tokens` 0 generates as many tokens as fit after each prompt.

    Raises:
      UserError: a prompt and its new tokens need more than `max_len` positions. The last new token needs none.
    """
    room_N = max_len - prompts["lengths"].astype(np.int64)  # with sliding windows max_len may exceed an int32
    for number, room in enumerate(room_N.tolist(), 1):
        if room < max(max_tokens, 1):
            first = prompts["first"][number - 1] != 0  # a first token 0 is not part of the text
            needed = f"{max_len - room + first} tokens and {max(max_tokens, 1)} to generate"
            raise UserError(f"prompt {number}: {needed}; model.max_len is {max_len}")
    limits = {} if max_tokens else {"limits": room_N.astype(np.int32)}
    return [PromptGroup(range(len(room_N)), {**prompts, **limits}, max_tokens or int(room_N.max()))]


def padded_prompts(rows: Sequence[Sequence[int]]) -> Prompts:
    """Returns the prompts of a decoder, padded with 0. Raises a UserError if a row has no token."""
    lengths = [*map(len, rows)]
    if 0 in lengths:
        raise UserError(f"prompt {lengths.index(0) + 1}: expected at least one token")
    tokens, mask = padded(rows, len(rows), max(lengths), 0)
    return {"first": tokens[:, 0], "tokens": tokens[:, 1:], "lengths": mask.sum(1, dtype=np.int32) - 1}


def map_prompts(function: Callable[[str], T], texts: Sequence[str]) -> list[T]:
    """Returns `function(text)` for each text. The message of a UserError begins with the text's number, from 1."""
    results = []
    for number, text in enumerate(texts, 1):
        try:
            results.append(function(text))
        except UserError as error:
            raise UserError(f"prompt {number}: {error}") from None
    return results


def whole_numbers(text: str, minimum: int, maximum: int, expected: str) -> list[int]:
    """Returns the whole numbers of a text, which spaces separate.

    Raises:
      UserError: a word is not a whole number from `minimum` to `maximum`. The message begins with `expected`.
    """
    for word in text.split():
        if not (word.isdecimal() and minimum <= int(word) <= maximum):
            raise UserError(f"{expected} {minimum} … {maximum} with spaces between, got '{word}'")
    return [int(word) for word in text.split()]


def before_end(tokens: list[int], end_token: int) -> list[int]:
    """Returns the tokens before the first end token, or all if there is none. Answers of floats have none."""
    return tokens[: tokens.index(end_token)] if end_token in tokens and isinstance(tokens[0], int) else tokens


def in_order_of_texts(
    groups: Sequence[PromptGroup], decoded: Sequence[Decoded], end_token: int, n_prompts: int, ends: Sequence[str] = ()
) -> list[list[Hypothesis]]:
    """Returns the hypotheses of each prompt, the best first, in the order of the texts.

    A text in no group has one empty hypothesis. Unused slots of a beam have the score -inf and are left out.

    Args:
      end_token: the token after an answer; negative if only `ends` end a text.
      ends: the words of `decode.ends`.
    """
    hypotheses: list[list[Hypothesis]] = [[Hypothesis([], 0.0)]] * n_prompts
    may_end = end_token >= 0 or len(ends) > 0
    for group, (tokens_NWU, scores_NW) in zip(groups, decoded, strict=True):
        limits = group.prompts.get("limits", [group.max_tokens] * len(group.places))
        scores = np.full(tokens_NWU.shape[:2], None) if scores_NW is None else scores_NW
        rows = zip(group.places, tokens_NWU.tolist(), scores.tolist(), limits, strict=True)
        for place, tokens_WU, scores_W, limit in rows:
            pairs = [(before_end(tokens[:limit], end_token), s) for tokens, s in zip(tokens_WU, scores_W, strict=True)]
            beam = [Hypothesis(new, score, may_end and len(new) == limit) for new, score in pairs]
            hypotheses[place] = [hypothesis for hypothesis in beam if hypothesis.score != -float("inf")]
    return hypotheses
