"""The `decode` section of a config."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from fxf.base.config import key, require_off
from fxf.base.errors import UserError


@dataclasses.dataclass(frozen=True)
class DecodeConfig:
    """The `decode` section: how evaluation and generation choose tokens. The default is greedy decoding."""

    temperature: float = key(0.0, "logits are divided by this before a draw; 0: the most probable token", minimum=0)
    top_k: int = key(0, "sample only among the k most probable tokens; 0: among all", minimum=0)
    top_p: float = key(1.0, "nucleus sampling: the fewest tokens with at least this probability", above=0, maximum=1)
    no_repeat_ngram: int = key(0, "no n-gram of this size repeats in an answer; 0: off", minimum=0)
    repetition_penalty: float = key(1.0, "divides logits of tokens in prompt or answer, or multiplies if < 0", above=0)
    min_tokens: int = key(0, "minimum number of tokens in an answer, before its end token", minimum=0)
    ends: str = key("", "space-separated words of one token each that also end an answer")
    banned: str = key("", "space-separated words whose usual tokens no answer contains")
    prefix: str = key("", "text that each answer begins with")
    beam_width: int = key(1, "number of hypotheses in the beam search; 1: no beam search", minimum=1)
    length_penalty: float = key(1.0, "the score of a hypothesis is log-probability / length^length_penalty", minimum=0)
    weights: Literal["plain", "int8", "fp8"] = key(
        "plain",
        "how evaluation and generation store matrices; plain: as they are; int8 or fp8 (e4m3): in 8 bits, with a scale "
        "for each output",
    )
    early_stop: bool = key(True, "stop when beam_width hypotheses are finished; otherwise when no live one can win")

    def __post_init__(self) -> None:
        for name, (off, unread) in METHODS.items():
            if getattr(self, name) == off:
                require_off("decode", self, unread, f"with decode.{name} {off} nothing reads it")
        if self.beam_width > 1:
            require_off("decode", self, {"temperature": 0}, "beam search does not read it")
        for name in ("ends", "banned"):
            if getattr(self, name).isspace():
                raise UserError(f"decode.{name}: expected words, got white space; fxf generate --stop ends at any text")


# The value of each key that switches its method off, and the keys that nothing reads then, with their defaults.
METHODS: dict[str, tuple[float, dict[str, Any]]] = {
    "beam_width": (1, {"length_penalty": 1.0, "early_stop": True}),
    "temperature": (0.0, {"top_k": 0, "top_p": 1.0}),
}


def changed_decode(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the `decode` section with some keys changed.

    Changing a key of the beam search switches sampling off, and the reverse. Keys that the resulting method does not
    read return to their defaults.
    """
    beam, sampling = ({name, *unread} & set(changes) for name, (_, unread) in METHODS.items())
    off = {"temperature": 0.0} if beam else {"beam_width": 1} if sampling else {}
    changed = {**values, **off, **changes}
    for name, (value, unread) in METHODS.items():
        if changed.get(name) == value:
            changed |= unread | {key: changes[key] for key in unread if key in changes}
    return changed
