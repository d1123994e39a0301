"""The tokenizer of a run as a tokenizer.json for `transformers`, which gives the same tokens."""

import json
from collections.abc import Mapping
from typing import Any

import tokenizers
from tokenizers import normalizers, processors

from fxf.data.tokenizer import BLANK, LOWER_CASE, OF_BYTES, SPECIAL_TOKENS, UNK, Tokenizer, exported_form
from fxf.data.tokenizer_file import KIND, cut_inside_special_tokens
from fxf.tasks.task import FIRST, NO_END, Task
from fxf.tasks.text_task import TokenizedTask

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
        record |= exported_form(tokenizer.kind, blanks, lower_case)
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
    if record["model"].get("dropout"):
        record["model"]["dropout"] = None
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
