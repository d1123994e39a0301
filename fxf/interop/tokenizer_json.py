"""The tokenizer of a run as a tokenizer.json for `transformers`, which gives the same tokens."""

import json
from collections.abc import Mapping
from typing import Any

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers, processors

from fxf.data.tokenizer import (
    BLANK,
    BYTES,
    CHARACTER,
    OF_BYTES,
    PIECE,
    SPECIAL_TOKENS,
    TOKENIZERS,
    UNK,
    Tokenizer,
    isolated,
    json_of,
)
from fxf.data.tokenizer_file import KIND, cut_inside_special_tokens
from fxf.tasks.task import FIRST, NO_END, Task
from fxf.tasks.text_task import TokenizedTask

# The pattern of the library's ByteLevel pre-tokenizer (Radford et al. 2019).
_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
# "bpe" encodes each line by itself, with its end; these are the line ends of `str.splitlines`.
_ENDS = r"\n\r\x0b\x0c\x1c-\x1e\x{85}\x{2028}\x{2029}"
_LINE = isolated(rf"[^{_ENDS}]*(?:\r\n|[{_ENDS}])|[^{_ENDS}]+")
# The pre-tokenizers of an export with <mask> in its texts: each <mask> is a piece by itself.
_WITH_BLANKS = {
    "character": isolated(f"{BLANK}|{CHARACTER}"),
    "word": pre_tokenizers.Sequence([isolated(BLANK), pre_tokenizers.WhitespaceSplit()]),
    "bpe": pre_tokenizers.Sequence([isolated(BLANK), _LINE, isolated(f"{BLANK}|{_WORDS}"), BYTES, PIECE]),
    "byte": pre_tokenizers.Sequence([isolated(f"{BLANK}|{CHARACTER}"), BYTES]),
}

# As `str.lower`: the library's Lowercase lacks the final sigma.
_LAST_SIGMA = r"(?<=\p{Cased}|\p{Cased}\p{Case_Ignorable})Σ(?!\p{Case_Ignorable}*\p{Cased})"
LOWER_CASE = (normalizers.Replace(Regex(_LAST_SIGMA), "ς"), normalizers.Lowercase())

Around = tuple[int | None, int | None]  # the tokens before and after a text, None for none


def tokens_of(task: Task, model: str) -> dict[str, Any]:
    """Returns the special tokens of a task and its tokenizer.json, as arguments of `huggingface.save`.

    Args:
      model: the name of the task's model.
    """
    before, after = task.around
    ends = {"end": after if task.end_token == NO_END else task.end_token}
    if not isinstance(task, TokenizedTask):
        return {"first": FIRST if model == "encoder_decoder" else before, **ends, "padding": None}
    special = task.tokenizer.special
    first = special.bos if model == "encoder_decoder" else before
    blanks, lower_case = model == "masked_lm", task.data.lower_case
    text = tokenizer_json(task.tokenizer, task.around, blanks=blanks, lower_case=lower_case)
    return {"first": first, **ends, "padding": special.pad, "tokenizer": text}


def tokenizer_json(tokenizer: Tokenizer, around: Around, *, blanks: bool = False, lower_case: bool = False) -> str:
    """Returns a tokenizer.json that encodes a text as the model reads it.

    Args:
      around: the special tokens that the model reads before and after a text.
      blanks: whether <mask> in a text is the mask token.
      lower_case: whether text is converted to lower case.
    """
    record = json.loads(tokenizer.to_json())
    if tokenizer.kind == KIND:
        backend = _of_file(record, lower_case)
    else:
        record |= _exported_form(tokenizer.kind, blanks, lower_case)
        if tokenizer.kind in OF_BYTES and blanks:
            record["model"]["ignore_merges"] = True  # makes the piece <mask> one token, and changes no other piece
        backend = tokenizers.Tokenizer.from_str(json.dumps(record))
    first, last = ([] if token is None else [(backend.id_to_token(token), token)] for token in around)
    single = [*(name for name, _ in first), "$A", *(name for name, _ in last)]
    pair = [*single, "$B:1", *(f"{name}:1" for name, _ in last)]
    backend.post_processor = processors.TemplateProcessing(single, pair, list({*first, *last}))
    return backend.to_str()


def _of_file(record: dict[str, Any], lower_case: bool) -> tokenizers.Tokenizer:
    """Returns the library's tokenizer of a tokenizer file, changed as by `read_tokenizer_file`."""
    record["model"].pop("dropout", None)
    backend = tokenizers.Tokenizer.from_str(json.dumps(record | {"truncation": None, "padding": None}))
    cut_inside_special_tokens(backend, record["model"])
    if lower_case:
        changes = [*LOWER_CASE, *([backend.normalizer] if backend.normalizer else [])]
        backend.normalizer = normalizers.Sequence(changes)
    return backend


def named_tokens(text: str, ids: Mapping[str, int | None], masks: bool) -> dict[str, str | None]:
    """Returns the special tokens of a tokenizer.json by their keys in tokenizer_config.json.

    Args:
      text: the tokenizer.json.
      ids: the special tokens by their keys in config.json.
      masks: whether the model fills in blanks.
    """
    backend, model = tokenizers.Tokenizer.from_str(text), json.loads(text)["model"]
    ids = {key: ids[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")}
    names = {key.removesuffix("_id"): None if n is None else backend.id_to_token(n) for key, n in ids.items()}
    known = SPECIAL_TOKENS[UNK] if backend.token_to_id(SPECIAL_TOKENS[UNK]) is not None else None
    unknown = None if model.get("unk_id") is None else backend.id_to_token(model["unk_id"])
    names["unk_token"] = unknown or model.get("unk_token") or known
    mask_names = {"cls_token": names["bos_token"], "sep_token": names["eos_token"], "mask_token": BLANK}
    return names | (mask_names if masks else {})


def _exported_form(kind: str, blanks: bool, lower_case: bool) -> dict[str, Any]:
    """Returns the entries of a tokenizer.json for `transformers` that are added to, or replace, those of a run's file.

    With them, `transformers` encodes as `Tokenizer.encode`: a word that is spelled like a special token becomes <unk>.
    A character or byte cannot be spelled so.

    Args:
      blanks: whether <mask> in a text is the mask token, as in the task `masking`; "bpe" drops the spaces before it.
      lower_case: whether text is converted to lower case.
    """
    cut = TOKENIZERS[kind].cut
    if kind == "bpe":  # else its words could span two lines
        cut = pre_tokenizers.Sequence([_LINE, cut])
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
        "pre_tokenizer": json_of(_WITH_BLANKS[kind] if blanks else cut),
    }
