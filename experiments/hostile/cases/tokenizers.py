"""Damaged tokenizers of a run."""

from typing import Any

from experiments.hostile.case import case, refused
from experiments.hostile.fixtures import BINARY, DEEP
from experiments.hostile.steps import alter, borrow, change, fifo, folder, remove, write

# fmt: off

TOKENIZER = "characters/tokenizer.json"


def swapped_ids(record: Any) -> Any:
    words = record["model"]["vocab"]
    words["e"], words["t"] = words["t"], words["e"]
    return record


def vocabulary(changes: dict[str, Any]) -> Any:
    return lambda record: {**record, "model": {**record["model"], "vocab": {**record["model"]["vocab"], **changes}}}


def merges_reversed(record: Any) -> Any:
    return {**record, "model": {**record["model"], "merges": record["model"]["merges"][::-1]}}


ADDED = {
    "id": 99,
    "content": "xx",
    "special": False,
    "single_word": False,
    "lstrip": False,
    "rstrip": False,
    "normalized": True,
}
CUT_AT_3 = {"max_length": 3, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}
PADDED = {
    "strategy": {"Fixed": 8},
    "direction": "Right",
    "pad_to_multiple_of": None,
    "pad_id": 1,
    "pad_type_id": 0,
    "pad_token": "<pad>",
}

CASES = [
    *(
        case(f"tokenizer.json: {what}", "generate --workdir=characters 'the cat'", refused("tokenizer.json"), step)
        for what, step in {
            "two ids swapped": alter(TOKENIZER, swapped_ids),
            "an id beyond the vocabulary": alter(TOKENIZER, vocabulary({"e": 999})),
            "an id twice": alter(TOKENIZER, vocabulary({"e": 7, "t": 7})),
            "a negative id": alter(TOKENIZER, vocabulary({"e": -1})),
            "an added token": change(TOKENIZER, "added_tokens", [ADDED]),
            "truncation": change(TOKENIZER, "truncation", CUT_AT_3),
            "padding": change(TOKENIZER, "padding", PADDED),
            "a normalizer": change(TOKENIZER, "normalizer", {"type": "Lowercase"}),
            "another pre-tokenizer": change(TOKENIZER, "pre_tokenizer", {"type": "WhitespaceSplit"}),
            "no decoder": change(TOKENIZER, "decoder", None),
            "another unknown token": change(TOKENIZER, "model/unk_token", "e"),
            "an empty vocabulary": change(TOKENIZER, "model/vocab", {}),
            "of another run": borrow("masking/tokenizer.json", TOKENIZER),
            "empty": write(TOKENIZER, ""),
            "an empty object": write(TOKENIZER, "{}"),
            "null": write(TOKENIZER, "null"),
            "binary": write(TOKENIZER, BINARY),
            "deep": write(TOKENIZER, DEEP),
            "a folder": folder(TOKENIZER),
            "a pipe": fifo(TOKENIZER),
            "missing": remove(TOKENIZER),
        }.items()
    ),
    case(
        "tokenizer.json: two ids swapped, train", "train @characters --workdir=halfway", refused("tokenizer.json"),
        alter("halfway/tokenizer.json", swapped_ids),
    ),
    case(
        "tokenizer.json: merges in another order", "evaluate --workdir=pairs", refused("tokenizer.json"),
        alter("pairs/tokenizer.json", merges_reversed),
    ),
    case(
        "tokenizer.json: merges of nothing", "evaluate --workdir=pairs", refused("tokenizer.json"),
        change("pairs/tokenizer.json", "model/merges", [["q", "zzz"]]),
    ),
]
