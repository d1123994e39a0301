"""Base classes of the tasks on text, with a tokenizer and the parts of a running text."""

import itertools
import logging
from collections.abc import Sequence
from typing import Any

from fxf.data.text import EncodedText
from fxf.data.tokenizer import TOKENIZER_FILE, Tokenizer
from fxf.tasks.task import RunInfo, Task

log = logging.getLogger(__name__)

WARNINGS = 8  # maximum of lines about prompts, and of words in a line


def warn_of_unknown(tokenizer: Tokenizer, prompts: Sequence[Sequence[str]]) -> None:
    """Warns of words that the vocabulary lacks, a line for each of the first prompts; a prompt has several texts."""
    lacking = [
        (number, dict.fromkeys(itertools.chain(*map(tokenizer.unknown, texts))))
        for number, texts in enumerate(prompts, 1)
    ]
    lacking = [(number, found) for number, found in lacking if found]
    for number, found in lacking[:WARNINGS]:
        named = ", ".join(f"'{word[:40]}{'…' * (len(word) > 40)}'" for word in list(found)[:WARNINGS])
        others = f" and {len(found) - WARNINGS} others" if len(found) > WARNINGS else ""
        log.warning("warning: prompt %d: the vocabulary lacks %s%s; read as <unk>", number, named, others)
    if len(lacking) > WARNINGS:
        log.warning("warning: %d more prompts have words that the vocabulary lacks", len(lacking) - WARNINGS)


class TokenizedTask(Task):
    """A task whose tokens are those of a tokenizer, which the run keeps in its folder."""

    def __init__(self, data: Any, tokenizer: Tokenizer) -> None:
        self.data, self.tokenizer = data, tokenizer
        self.vocab_size, self.token_name = tokenizer.vocab_size, tokenizer.name
        self.files = {TOKENIZER_FILE: tokenizer.to_json()}

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


class TextTask(TokenizedTask):
    """A task on the running text that `data` names. Each part of the text has at least `length` tokens."""

    def __init__(self, run: RunInfo, length: int) -> None:
        self.text = EncodedText(run.data, run.folder, length)
        self.figures, self.digests = self.text.figures, self.text.digests
        super().__init__(run.data, self.text.tokenizer)
