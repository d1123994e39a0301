"""The base class of tasks with a tokenizer."""

import logging
from collections.abc import Iterable, Sequence
from typing import Any

from fxf.base.errors import UserError, shortened
from fxf.data.text import EncodedText
from fxf.data.tokenizer import TOKENIZER_FILE, Tokenizer
from fxf.models.decode_config import DecodeConfig
from fxf.models.rules import Words
from fxf.tasks.task import Evaluator, Task

log = logging.getLogger(__name__)


def warn_of_unknown(tokenizer: Tokenizer, texts: Iterable[str]) -> None:
    """Warns of characters or words of prompts that the vocabulary lacks."""
    if lacking := dict.fromkeys(f"'{word}'" for text in texts for word in tokenizer.unknown(text)):
        log.warning("warning: the vocabulary lacks %s; read as <unk>", shortened(", ".join(lacking)))


class TokenizedTask(Task):
    """A task with a tokenizer, which the run keeps in its folder.

    Attributes:
      begins: the token that the decoder reads before a text, NO_TOKEN for none.
      text: the text; a task on other data has its own `figures` and `digests`.
    """

    text: EncodedText

    def __init__(self, data: Any, tokenizer: Tokenizer) -> None:
        self.data, self.tokenizer, self.vocab_size = data, tokenizer, tokenizer.vocab_size
        self.files, self.begins = {TOKENIZER_FILE: tokenizer.to_json()}, tokenizer.special.bos

    def figures(self) -> dict[str, Any]:
        return self.text.figures()

    def digests(self) -> dict[str, str]:
        return self.text.digests()

    def evaluate(self, evaluator: Evaluator, part: str, loss_name: str) -> dict[str, Any]:
        """Returns the metrics of the part "validation" or "test"; `loss_name` names the loss among them."""
        raise NotImplementedError

    def validate(self, evaluator: Evaluator) -> dict[str, Any]:
        return self.evaluate(evaluator, "validation", "validation_loss")

    def test(self, evaluator: Evaluator) -> dict[str, Any]:
        return self.evaluate(evaluator, "test", "test_loss" if self.data.test else "validation_loss")

    def token_name(self, token: int) -> str:
        return self.tokenizer.name(token)

    def cased(self, text: str) -> str:
        r"""Normalizes a text as the data: \n for \r\n, and lower case with `data.lower_case`."""
        text = text.replace("\r\n", "\n")
        return text.lower() if self.data.lower_case else text

    def encode_prompts(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the tokens of each prompt, and warns of text that the vocabulary lacks."""
        cased, unk = list(map(self.cased, texts)), self.tokenizer.special.unk
        prompts = list(map(self.tokenizer.encode, cased))
        # `unknown` encodes again, so it is called only for prompts with an unknown token.
        warn_of_unknown(self.tokenizer, (text for text, tokens in zip(cased, prompts, strict=True) if unk in tokens))
        return prompts

    def rules(self, decode: DecodeConfig) -> dict[str, Any]:
        ends = [token for word in decode.ends.split() for token in self.tokens_of(word)]
        words = [self.known(word, "decode.banned") for word in self.cased(decode.banned).split()]
        # A word may have other tokens within a text than at its start.
        banned = {tuple(tokens) for word in words for tokens in (self.tokenizer.encode(word), self.behind(f" {word}"))}
        prefix = self.beginning(self.known(self.cased(decode.prefix), "decode.prefix"))
        return {"end_token": (self.end_token, *ends), "words": Words(sorted(banned), prefix, self.begins)}

    def behind(self, text: str) -> list[int]:
        """Returns the tokens of a text that follows another text, here itself."""
        alone, twice = self.tokenizer.encode(text), self.tokenizer.encode(text + text)
        return twice[len(alone) :] if twice[: len(alone)] == alone else alone

    def beginning(self, text: str) -> list[int]:
        """Returns the tokens of the text that an answer begins with."""
        return self.tokenizer.encode(text)

    def known(self, text: str, where: str) -> str:
        """Returns `text`. Raises a UserError if the vocabulary lacks some of it; `where` begins the message."""
        if lacking := self.tokenizer.unknown(text):
            raise UserError(f"{where}: the vocabulary lacks '{lacking[0]}'")
        return text

    def tokens_of(self, word: str) -> list[int]:
        """Returns the tokens with this name, and those that are this word, in the data's case, anywhere in a text.

        Raises:
          UserError: there is none.
        """
        tokens = [token for token in range(self.vocab_size) if self.tokenizer.name(token) == word]
        if not self.tokenizer.unknown(text := self.cased(word)):
            usual = self.tokenizer.encode(text), self.behind(f" {text}")
            tokens += [token for token, *others in usual if not others and token not in tokens]
        if not tokens:
            raise UserError(f"decode.ends: '{word}' is not one token of the vocabulary")
        return tokens

    def to_text(self, text: str, tokens: list[int]) -> str:
        return self.tokenizer.decode(tokens)
