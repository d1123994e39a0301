"""A text as tokens: reading it, splitting it, and cutting windows for training and scoring."""

import dataclasses
import functools
import logging
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fxf.base.config import key
from fxf.base.errors import UserError
from fxf.base.files import digest, folder_at
from fxf.data import phrasebook
from fxf.data.text_files import decoded, read_text_file
from fxf.data.tokenizer import PAD, VOCAB_SIZE, lines_of
from fxf.data.tokenizer_file import any_tokenizer

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class TextConfig:
    """The `data` section of tasks on running text. The text is split by position: train, validation, test."""

    path: str = key("", "a UTF-8 text file; by default the English of the phrase book, one sentence per line")
    validation: float = key(0.1, "share for validation: of a text's characters, or of documents", above=0, below=0.5)
    test: float = key(0.0, "share for the test; 0 tests on the validation part", minimum=0, below=0.5)
    lower_case: bool = key(False, "convert the text to lower case")
    tokenizer: str = key("character", "one of fxf.data.tokenizer.TOKENIZERS; language_model: or a tokenizer.json")
    vocab_size: int = key(VOCAB_SIZE, "maximum size of a learned vocabulary, with the 5 special tokens", minimum=1)


class EncodedText:
    """A text with its tokenizer. The file is read only when a method needs it, so a trained run can do without it.

    Attributes:
      parts: `parts()` returns the parts of the text by name.
      tokens: `tokens(part)` returns the tokens [N] of "train", "validation" or "test", in the tokenizer's dtype.
    """

    def __init__(self, config: TextConfig, folder: Path | None, length: int) -> None:
        """Reads the tokenizer of the run folder or of a file, or learns it from the training part.

        Args:
          length: minimum number of tokens in each part.

        Raises:
          UserError: the text or the tokenizer cannot be read, or the tokenizer cannot be learned.
        """
        self._config, self._length = config, length
        self.parts = functools.cache(lambda: read_text(config))
        self.tokens = functools.cache(self._tokens)
        self.tokenizer = any_tokenizer(folder, config, lambda: lines_of(self.parts()["train"]))

    def _tokens(self, part: str) -> np.ndarray:
        """Returns the tokens of a part. Raises a UserError if there are fewer than the minimum."""
        tokens_N = self.tokenizer.array(self.parts()[part])
        if len(tokens_N) < self._length:
            name = self._config.path or "the phrase book"
            needed = f"task.length needs {self._length}; take a longer text or a lower task.length"
            raise UserError(f"data.path: {name}: {part} has {len(tokens_N)} tokens; {needed}")
        return tokens_N

    def figures(self) -> dict[str, Any]:
        """Returns sizes and the share of unknown tokens."""
        train, validation, _ = map(self.tokens, ("train", "validation", "test"))  # also checks the test part's length
        n_unknown = sum(np.count_nonzero(tokens == self.tokenizer.special.unk) for tokens in (train, validation))
        return {
            "training_tokens": len(train),
            "validation_tokens": len(validation),
            "vocabulary": self.tokenizer.vocab_size,
            "unknown_share": round(n_unknown / (len(train) + len(validation)), 6),
        }

    def digests(self) -> dict[str, str]:
        """Returns the digest of the text, by its key or name."""
        return {"data.path" if self._config.path else "phrasebook": digest("\0".join(self.parts().values()).encode())}

    def held_out(self) -> dict[str, str]:
        """Returns the digests of the validation and test parts."""
        return {f"{part} text": digest(self.parts()[part].encode()) for part in ("validation", "test")}


def read_text(config: TextConfig) -> dict[str, str]:
    r"""Returns the parts of the text, split by position; \r\n becomes \n.

    If `config.test` is 0, the test part is the validation part.

    Raises:
      UserError: the file is missing or not UTF-8.
    """
    text = file_text(folder_at(config.path, "data.path"), "data.path") if config.path else phrasebook.english()
    if config.lower_case:
        text = text.lower()
    first, second = (int(len(text) * share) for share in (1 - config.validation - config.test, 1 - config.test))
    validation = text[first:second]
    return {"train": text[:first], "validation": validation, "test": text[second:] if config.test else validation}


def draw_windows(key: jax.Array, tokens_N: np.ndarray, shape: tuple[int, int]) -> jax.Array:
    """Returns windows of the tokens, int32, with uniformly drawn starts; `shape` is (B, T).

    Under `jax.jit` the tokens become a constant of the program, which the device holds once.
    """
    starts_B1 = jax.random.randint(key, (shape[0], 1), 0, len(tokens_N) - shape[1] + 1)
    return jnp.asarray(tokens_N)[starts_B1 + jnp.arange(shape[1])[None]].astype(jnp.int32)


def scoring_windows(tokens_N: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns targets and weights, both [windows, length], that count every token once.

    Each window begins with the last token of the previous one, here with weight 0. So every token but the text's first
    has a context of at least one token.
    """
    step = length - 1
    n_windows = max(1, -(-(len(tokens_N) - 1) // step))
    index = np.arange(n_windows)[:, None] * step + np.arange(length)
    targets = np.where(index < len(tokens_N), tokens_N[np.minimum(index, len(tokens_N) - 1)], PAD)
    weights = (index < len(tokens_N)).astype(np.float32)
    weights[1:, 0] = 0
    return targets.astype(np.int32), weights


def file_text(path: Path, key: str) -> str:
    r"""Returns the text of a file, with \n for \r\n; `key` is the config key that holds its path.

    Raises:
      UserError: as `read_text_file`; or the file is not UTF-8 text.
    """
    text = decoded(read_text_file(path, key), path).replace("\r\n", "\n")
    if text.startswith('{"'):
        log.warning("warning: %s: %s looks like lines of JSON; it is read as plain text", key, path)
    return text if "\n" in text else text.replace("\r", "\n")
