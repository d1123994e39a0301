"""Tokenizers from a `tokenizer.json` of Hugging Face `tokenizers`, with their token ids unchanged."""

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import pre_tokenizers

from fxf.base.errors import UserError, text_of
from fxf.base.files import read_file
from fxf.data import tokenizer
from fxf.data.tokenizer import TOKENIZER_FILE, Special, Tokenizer

KIND = "file"
# Names of the tokens that begin a document, end it, and pad rows. Without a padding token, the one that ends documents
# pads. The more specific names come first. Append new names: existing runs read their files again.
# ruff: noqa: SIM905
BEGINS = "<|begin_of_text|> <bos> <s> [CLS] <|endoftext|> <｜begin▁of▁sentence｜> <|startoftext|> [BOS]".split()
ENDS = "<|end_of_text|> <|endoftext|> <eos> </s> [SEP] <｜end▁of▁sentence｜> [EOS] <|im_end|> <|eot_id|>".split()
FILLS = "<pad> [PAD] <|pad|> <|finetune_right_pad_id|> <｜▁pad▁｜>".split()
# No vocabulary has this token. A BPE model without an unknown token drops unknown text; with this one it raises.
NO_UNKNOWN = "\0unknown"


def is_file(name: str) -> bool:
    """Returns whether `data.tokenizer` names a file, not a kind of tokenizer."""
    return name.endswith(".json")


def any_tokenizer(folder: Path | None, data: Any, texts: Callable[[], Iterable[str]]) -> Tokenizer:
    """Returns the tokenizer in `folder`, or else the one in a file, or one learned from `texts()`.

    Args:
      data: a `data` section, which has `tokenizer` and `vocab_size`.

    Raises:
      UserError: as `train_tokenizer` and `read_tokenizer_file`; or the folder's tokenizer is of another kind.
    """
    name = data.tokenizer
    if folder and (path := folder / TOKENIZER_FILE).exists():
        saved = read_tokenizer_file(path)
        if not is_file(name) and saved.kind != name:
            raise UserError(f"data.tokenizer: expected '{saved.kind}', that of {folder}; got '{name}'")
        return saved
    if is_file(name):
        return read_tokenizer_file(Path(os.path.expanduser(name)), "data.tokenizer")
    return tokenizer.train_tokenizer(name, data.vocab_size, texts())


def read_tokenizer_file(path: Path, key: str = "") -> Tokenizer:
    """Returns the tokenizer in a `tokenizer.json`, fxf's own or another.

    It encodes text that is spelled like a special token as plain text, and without BPE dropout. The tokens that begin
    and end a document are found by their usual names; without a begin token, the end token takes its place.

    Args:
      key: the config key that names the file, for error messages.

    Raises:
      UserError: the file is missing or is no tokenizer, or it has no end token.
    """
    backend = read_backend(path, key)
    backend.encode_special_tokens = True
    text, added = backend.to_str(), _special_names(backend)
    eos = _first(ENDS, added, backend)
    if eos is None:  # fxf's own tokenizers mark no tokens as special
        if not (kind := tokenizer.kind_of(backend)):
            expected = f"one named {', '.join(ENDS)}, or a tokenizer of fxf: one of {', '.join(tokenizer.TOKENIZERS)}"
            where = f"{key}: {path}" if key else path
            raise UserError(f"{where}: no special token ends a document; expected {expected}")
        return Tokenizer(kind, backend)
    bos, pad, model = _first(BEGINS, added, backend), _first(FILLS, added, backend), json.loads(text)["model"]
    unk = backend.token_to_id(model["unk_token"]) if model.get("unk_token") else model.get("unk_id")
    begins, fills = (eos if token is None else token for token in (bos, pad))
    special = Special(begins, fills, eos, tokenizer.NO_TOKEN if unk is None else unk, 0)
    if isinstance(backend.model, tokenizers.models.BPE):
        backend.model.dropout = None
        if unk is None:
            backend.model.unk_token = NO_UNKNOWN
    cut_inside_special_tokens(backend, model)
    return Tokenizer(KIND, backend, special, text)


def cut_inside_special_tokens(backend: tokenizers.Tokenizer, model: Mapping[str, Any]) -> None:
    """Makes a tokenizer cut text that spells a special token after the token's first character.

    `encode_special_tokens` stops the library from finding special tokens in text, but a Unigram or word model may still
    have them as pieces, and so may one with byte fallback: <0x0A>.

    Args:
      model: the `model` of its tokenizer.json.
    """
    names = _special_names(backend)
    if model.get("byte_fallback"):
        names |= {f"<0x{byte:02X}>" for byte in range(256)}
    pieces = sorted(name for name in names if len(name) > 1 and _is_piece(backend, name))
    if pieces:
        pattern = "|".join(f"{re.escape(name[0])}(?={re.escape(name[1:])})" for name in pieces)
        cuts = [*filter(None, [backend.pre_tokenizer]), pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated")]
        backend.pre_tokenizer = pre_tokenizers.Sequence(cuts)


def _is_piece(backend: tokenizers.Tokenizer, name: str) -> bool:
    """Returns whether the model encodes the name of a token as this token."""
    try:
        return backend.token_to_id(name) in [token.id for token in backend.model.tokenize(name)]
    except Exception:  # a model without an unknown token; the library raises no narrower type
        return False


def read_backend(path: Path, key: str = "") -> tokenizers.Tokenizer:
    """Returns the library's tokenizer, without truncation or padding; arguments and errors as `read_tokenizer_file`."""
    content = read_file(path, key)
    try:
        backend = tokenizers.Tokenizer.from_str(content.decode("utf-8"))
    except Exception as error:  # the library raises no narrower type
        what = f"{path}: not a tokenizer file: {text_of(error)}"
        raise UserError(f"{key}: {what}" if key else f"{what}; put the right one back, or remove it") from None
    backend.no_truncation()
    backend.no_padding()
    return backend


def _special_names(backend: tokenizers.Tokenizer) -> set[str]:
    return {token.content for token in backend.get_added_tokens_decoder().values() if token.special}


def _first(names: Sequence[str], added: set[str], backend: tokenizers.Tokenizer) -> int | None:
    """Returns the token of the first name that is a special token, None for none."""
    return next((backend.token_to_id(name) for name in names if name in added), None)
