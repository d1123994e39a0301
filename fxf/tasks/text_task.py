"""The base class of the tasks on text, whose tokens are those of a tokenizer."""

import logging
from collections.abc import Sequence
from typing import Any

from fxf.data.tokenizer import TOKENIZER_FILE, Tokenizer
from fxf.decoding.config import DecodeConfig
from fxf.errors import UserError, shortened
from fxf.tasks.task import Task

log = logging.getLogger(__name__)

WARNINGS = 8  # maximum of lines about prompts


def warn_of_unknown(tokenizer: Tokenizer, prompts: Sequence[Sequence[str]]) -> None:
    """Warns of words that the vocabulary lacks, a line for each of the first prompts; a prompt has several texts."""
    lacking = [dict.fromkeys(word for text in texts for word in tokenizer.unknown(text)) for texts in prompts]
    told = [(number, ", ".join(f"'{word}'" for word in words)) for number, words in enumerate(lacking, 1) if words]
    for number, words in told[:WARNINGS]:
        log.warning("warning: prompt %d: the vocabulary lacks %s; read as <unk>", number, shortened(words))
    if len(told) > WARNINGS:
        log.warning("warning: %d more prompts have words that the vocabulary lacks", len(told) - WARNINGS)


class TokenizedTask(Task):
    """A task whose tokens are those of a tokenizer, which the run keeps in its folder."""

    def __init__(self, data: Any, tokenizer: Tokenizer) -> None:
        self.data, self.tokenizer, self.vocab_size = data, tokenizer, tokenizer.vocab_size
        self.files = {TOKENIZER_FILE: tokenizer.to_json()}

    def token_name(self, token: int) -> str:
        return self.tokenizer.name(token)

    def cased(self, text: str) -> str:
        r"""Returns the text as the data are read: with \n for \r\n, and in lower case if they are."""
        text = text.replace("\r\n", "\n")
        return text.lower() if self.data.lower_case else text

    def encode_prompts(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the tokens of each prompt. It warns of text that the vocabulary lacks."""
        cased = list(map(self.cased, texts))
        prompts, unk = self.tokenizer.encode_all(cased), self.tokenizer.special.unk
        # Few prompts need the second reading, which tells what is unknown.
        lacking = [[text] if unk in tokens else [] for text, tokens in zip(cased, prompts, strict=True)]
        warn_of_unknown(self.tokenizer, lacking)
        return prompts

    def rules(self, decode: DecodeConfig) -> dict[str, Any]:
        ends = [self.token_of(word) for word in decode.ends.split()]
        words = [self.known(word, "decode.banned") for word in decode.banned.split()]
        # A word has other tokens inside of a text than at its start.
        banned = {tuple(tokens) for word in words for tokens in (self.tokenizer.encode(word), self.inside(word))}
        prefix = self.tokenizer.encode(self.known(self.cased(decode.prefix), "decode.prefix"))
        return {"end_token": (self.end_token, *ends), "banned": sorted(banned), "prefix": prefix}

    def inside(self, word: str) -> list[int]:
        """Returns the tokens of a word with a space in front, behind another word."""
        before = self.tokenizer.encode("a")
        tokens = self.tokenizer.encode(f"a {word}")
        return tokens[len(before) :] if tokens[: len(before)] == before else tokens

    def known(self, text: str, where: str) -> str:
        """Returns a text.

        Raises:
          UserError: the vocabulary lacks some of it.
        """
        if lacking := self.tokenizer.unknown(text):
            raise UserError(f"{where}: the vocabulary lacks '{lacking[0]}'")
        return text

    def token_of(self, word: str) -> int:
        """Returns the token that has this name, or that is this word.

        Raises:
          UserError: there is none.
        """
        named = [token for token in range(self.vocab_size) if self.tokenizer.name(token) == word]
        tokens = named or self.tokenizer.encode(word)
        if len(tokens) != 1 or (self.tokenizer.unknown(word) and not named):
            raise UserError(f"decode.ends: '{word}' is not one token of the vocabulary")
        return tokens[0]

    def to_text(self, text: str, tokens: list[int]) -> str:
        return self.tokenizer.decode(tokens)
