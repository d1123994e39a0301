"""The kinds of tokenizers of fxf, their special tokens, and the form in which `transformers` reads them."""

import json
from typing import Any, NamedTuple

from tokenizers import Regex, decoders, normalizers, pre_tokenizers

from fxf.base.config import Choices

SPECIAL_TOKENS = ("<bos>", "<pad>", "<eos>", "<unk>", "<mask>")
BOS, PAD, EOS, UNK, MASK = range(5)
BLANK = SPECIAL_TOKENS[MASK]
OF_BYTES = ("bpe", "byte")  # the kinds that have tokens for every text
NO_TOKEN = -1

MAX_PIECE = 256  # bytes within which pairs are merged; learning takes quadratic time in the length of a piece


class Special(NamedTuple):
    """The special tokens of a vocabulary, NO_TOKEN for none. Text becomes none of the `reserved` first, only `unk`."""

    bos: int = BOS
    pad: int = PAD
    eos: int = EOS
    unk: int = UNK
    reserved: int = len(SPECIAL_TOKENS)


class Level(NamedTuple):
    """A kind of tokenizer: how it cuts text and joins tokens, and the tokens that it needs besides the special ones."""

    cut: pre_tokenizers.PreTokenizer
    join: decoders.Decoder | None
    minimum: int


def _isolated(pattern: str) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Split(Regex(pattern), "isolated")


_CHARACTER, _PIECE = r"[\s\S]", _isolated(rf"[\s\S]{{1,{MAX_PIECE}}}")
_BYTES_OF_WORDS, _BYTES = (pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=cuts) for cuts in (True, False))
TOKENIZERS = Choices(
    {
        "character": Level(_isolated(_CHARACTER), decoders.Fuse(), 1),
        "word": Level(pre_tokenizers.WhitespaceSplit(), None, 1),  # no decoder: the library puts a space between tokens
        "bpe": Level(pre_tokenizers.Sequence([_BYTES_OF_WORDS, _PIECE]), decoders.ByteLevel(), 256),
        "byte": Level(_BYTES, decoders.ByteLevel(), 256),
    }
)

# The pattern by which the library's ByteLevel cuts text into words (Radford et al. 2019).
_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
# Bytes are read line by line, each with its end, as `str.splitlines` cuts them.
_ENDS = r"\n\r\x0b\x0c\x1c-\x1e\x{85}\x{2028}\x{2029}"
_LINE = _isolated(rf"[^{_ENDS}]*(?:\r\n|[{_ENDS}])|[^{_ENDS}]+")
# What cuts a text in an export; where it has blanks, a blank is a piece of its own, which the vocabulary has.
_EXPORTED = {
    "character": TOKENIZERS["character"].cut,
    "word": TOKENIZERS["word"].cut,
    "bpe": pre_tokenizers.Sequence([_LINE, TOKENIZERS["bpe"].cut]),
    "byte": pre_tokenizers.Sequence([_LINE, _BYTES]),
}
_WITH_BLANKS = {
    "character": _isolated(f"{BLANK}|{_CHARACTER}"),
    "word": pre_tokenizers.Sequence([_isolated(BLANK), pre_tokenizers.WhitespaceSplit()]),
    "bpe": pre_tokenizers.Sequence([_isolated(BLANK), _LINE, _isolated(f"{BLANK}|{_WORDS}"), _BYTES, _PIECE]),
    "byte": pre_tokenizers.Sequence([_isolated(f"{BLANK}|{_CHARACTER}"), _BYTES]),
}

# As `str.lower`: the library's own change knows one small sigma, and not that of a word's end.
LOWER_CASE = (normalizers.Replace(Regex(r"(?<=\p{L})Σ(?!\p{L})"), "ς"), normalizers.Lowercase())


def json_of(part: Any) -> Any:
    """Returns the JSON of a part of the library's tokenizer."""
    return json.loads(part.__getstate__())


def exported_form(kind: str, blanks: bool, lower_case: bool) -> dict[str, Any]:
    """Returns what a tokenizer.json for `transformers` has besides, or in place of, that of a run.

    It gives a text the tokens of `Tokenizer.encode`: a word that is spelled like a special token becomes <unk>.
    Characters and bytes never are so spelled.

    Args:
      blanks: whether <mask> in a text is that token, as in the task `masking`; no space stands before one of bytes.
      lower_case: whether text is read in lower case.
    """
    changes: list[normalizers.Normalizer] = [*LOWER_CASE] if lower_case else []
    if kind == "word":
        names = "|".join(name for name in SPECIAL_TOKENS if not (blanks and name == BLANK))
        word = Regex(rf"((?<!\S)|(?<={BLANK}))({names})(?=\s|\z|{BLANK})")
        changes.append(normalizers.Replace(word, SPECIAL_TOKENS[UNK]))
    if kind == "bpe" and blanks:
        changes.append(normalizers.Replace(Regex(f" +(?={BLANK})"), ""))
    how = {**dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False), "special": True}
    return {
        "added_tokens": [{"id": number, "content": name, **how} for number, name in enumerate(SPECIAL_TOKENS)],
        "normalizer": json_of(normalizers.Sequence(changes)) if changes else None,
        "pre_tokenizer": json_of((_WITH_BLANKS if blanks else _EXPORTED)[kind]),
    }
