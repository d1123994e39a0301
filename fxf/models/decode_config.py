"""The `decode` section of a config."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from fxf.base.config import key, with_changes
from fxf.base.errors import UserError


@dataclasses.dataclass(frozen=True)
class DecodeConfig:
    """The `decode` section: how evaluation and generation choose tokens. The default is greedy decoding."""

    temperature: float = key(0.0, "divides logits; 0: the most probable token", minimum=0, when="beam_width=1")
    top_k: int = key(0, "sample among the k most probable tokens; 0: among all", minimum=0, when="temperature")
    top_p: float = key(
        1.0,
        "nucleus sampling: the fewest tokens with at least this probability",
        above=0,
        maximum=1,
        when="temperature",
    )
    no_repeat_ngram: int = key(0, "no n-gram of this size repeats in an answer; 0: off", minimum=0)
    repetition_penalty: float = key(1.0, "divides logits of tokens in prompt or answer, or multiplies if < 0", above=0)
    min_tokens: int = key(0, "minimum number of tokens in an answer, before its end token", minimum=0)
    ends: str = key("", "space-separated words of one token each that also end an answer")
    banned: str = key("", "space-separated words whose usual tokens no answer contains")
    prefix: str = key("", "text that each answer begins with")
    beam_width: int = key(1, "number of hypotheses in the beam search; 1: no beam search", minimum=1)
    length_penalty: float = key(1.0, "scores are log-probability / length^length_penalty", minimum=0, when="beam_width")
    weights: Literal["plain", "int8", "fp8"] = key(
        "plain",
        "how evaluation and generation store matrices; plain: as they are; int8 or fp8 (e4m3): in 8 bits, with a scale "
        "for each output",
    )
    early_stop: bool = key(
        True, "stop when beam_width hypotheses are finished; otherwise when no live one can win", when="beam_width"
    )

    def __post_init__(self) -> None:
        for name in ("ends", "banned"):
            if getattr(self, name).isspace():
                raise UserError(f"decode.{name}: expected words, got white space; fxf generate --stop ends at any text")


def changed_decode(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the `decode` section with some keys changed.

    Changing a key of the beam search switches sampling off, and the reverse. Keys that the resulting method does not
    read return to their defaults.
    """
    beam = changes.keys() & {"beam_width", "length_penalty", "early_stop"}
    sampling = changes.keys() & {"temperature", "top_k", "top_p"}
    off = {"temperature": 0.0} if beam else {"beam_width": 1} if sampling else {}
    return with_changes(DecodeConfig, {**values, **off}, changes)
