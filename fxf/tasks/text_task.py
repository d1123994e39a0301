"""Base classes of the tasks on text, with a tokenizer and the parts of a running text."""

from collections.abc import Sequence
from typing import Any

from fxf.data.text import encoded_text
from fxf.data.tokenizer import TOKENIZER_FILE, Tokenizer, warn_of_unknown
from fxf.tasks.task import RunInfo, Task


class TokenizedTask(Task):
    """A task whose tokens are those of a tokenizer, which the run keeps in its folder."""

    def __init__(self, data: Any, tokenizer: Tokenizer) -> None:
        self.data, self.tokenizer = data, tokenizer
        self.vocab_size, self.token_name = tokenizer.vocab_size, tokenizer.name
        self.files = {TOKENIZER_FILE: tokenizer.to_json()}

    def cased(self, text: str) -> str:
        """Returns the text, in lower case if the data are."""
        return text.lower() if self.data.lower_case else text

    def encode_prompts(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the tokens of each prompt. It warns of text that the vocabulary lacks."""
        cased = list(map(self.cased, texts))
        warn_of_unknown(self.tokenizer, [[text] for text in cased])
        return self.tokenizer.encode_all(cased)


class TextTask(TokenizedTask):
    """A task on the running text that `data` names. Each part of the text has at least `length` tokens."""

    def __init__(self, run: RunInfo, length: int) -> None:
        self.text = encoded_text(run.data, run.folder, length)
        self.figures, self.digests = self.text.figures, self.text.digests
        super().__init__(run.data, self.text.tokenizer)
