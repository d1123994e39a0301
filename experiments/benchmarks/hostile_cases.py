"""The cases of hostile.py by class; what is wrong in silence stands first."""

import json
from typing import Any

import numpy as np
from hostile_box import (
    POINTS,
    Case,
    accepted,
    alter,
    append,
    borrow,
    case,
    change,
    cut,
    fifo,
    flip,
    folder,
    link,
    listening,
    mode,
    move,
    refused,
    remove,
    rewrite,
    tab_separated,
    write,
)

NEAR_ZERO, BEYOND = "1e-60", "1e39"  # 0 and infinite in float32
DEEP = "[" * 100_000
BINARY = bytes(range(256))
LONG = "x" * 300
BAD_JSON: dict[str, str | bytes] = {"empty": "", "a list": "[]", "null": "null", "binary": BINARY, "deep": DEEP}


# --- Changed data: the same paths and folders, other contents -------------------------------------------------------

ANOTHER_TEXT = (borrow("other.txt", "text.txt"),)
ANOTHER_PAIRS = (rewrite("pairs.tsv", lambda text: text.replace("chat", "chien bleu")),)
ANOTHER_TOKENIZER = (borrow("fresh/tokenizer.json", "characters/tokenizer.json"),)
ANOTHERS_CHECKPOINTS = (borrow("seed1/checkpoints", "reversal/checkpoints"),)
ONE_OF_ANOTHERS = (borrow("seed1/checkpoints/6", "half/checkpoints/6"),)

CHANGED_DATA = [
    case("another text: train", "train @characters --workdir=halfway", refused("text.txt", "halfway"), *ANOTHER_TEXT),
    case(
        "another text: train a finished run", "train @characters --workdir=characters", refused("text.txt"),
        *ANOTHER_TEXT,
    ),
    case("another text: evaluate", "evaluate --workdir=characters", refused("text.txt"), *ANOTHER_TEXT),
    case("another text: masking, evaluate", "evaluate --workdir=masking", refused("text.txt"), *ANOTHER_TEXT),
    case(
        "another text: sweep", "sweep --config=texts.py --workdir=texts --workers=0", refused("text.txt"),
        write("texts.py", POINTS.replace("tiny.json", "characters/config.json") .replace("json.load(file)", 'json.load(file)["config"]') .replace("seed=seed", "seed=0") .replace("range(2)", "[0]")),
        borrow("characters", "texts/seed=0"), *ANOTHER_TEXT, runs=("characters",),
    ),
    case("other pairs: train", "train @pairs --workdir=pairs", refused("pairs.tsv"), *ANOTHER_PAIRS),
    case(
        "other pairs: resume", "train @pairs --workdir=pairs", refused("pairs.tsv"), *ANOTHER_PAIRS,
        remove("pairs/result.json"), remove("pairs/checkpoints/6"),
    ),
    case("other pairs: evaluate", "evaluate --workdir=pairs", refused("pairs.tsv"), *ANOTHER_PAIRS),
    case(
        "a text lost with its tokenizer: resume", "train @characters --workdir=halfway",
        refused("text.txt|tokenizer.json"), *ANOTHER_TEXT, remove("halfway/tokenizer.json"),
    ),
    *(
        case(f"another tokenizer: {name}", command, refused("tokenizer.json"), *ANOTHER_TOKENIZER, runs=("characters",))
        for name, command in {
            "train": "train @characters --workdir=characters",
            "evaluate": "evaluate --workdir=characters",
            "generate": "generate --workdir=characters 'the cat'",
            "probe": "probe --workdir=characters 'the' 'cat'",
            "export": "export --workdir=characters --format=safetensors",
        }.items()
    ),
    *(
        case(f"checkpoints of another run: {name}", command, refused("checkpoint", "run"), *steps, runs=("reversal",))
        for name, command, steps in [
            ("train", "train @reversal --workdir=half", ONE_OF_ANOTHERS),
            ("evaluate", "evaluate --workdir=reversal", ANOTHERS_CHECKPOINTS),
            ("generate", "generate --workdir=reversal '1 2'", ANOTHERS_CHECKPOINTS),
            ("probe", "probe --workdir=reversal '1 2'", ANOTHERS_CHECKPOINTS),
            ("export", "export --workdir=reversal --format=safetensors", ANOTHERS_CHECKPOINTS),
            (
                "sweep",
                "sweep --config=points.py --workdir=sweep --workers=1",
                (borrow("seed1/checkpoints/6", "sweep/seed=0/checkpoints/6"), remove("sweep/seed=0/result.json")),
            ),
        ]
    ),
]


# --- Run folders ----------------------------------------------------------------------------------------------------


def edited(name: str, keys: str, value: Any, *parts: str, run: str = "reversal") -> Case:
    command = {"reversal": "evaluate --workdir=reversal", "characters": "evaluate --workdir=characters"}[run]
    return case(name, command, refused(*(parts or ("config.json",))), change(f"{run}/config.json", keys, value))


def twice(text: str) -> str:
    """Returns the JSON of an object with a section again at its end, of other values."""
    record = json.loads(text)
    again = {**record["config"], "seed": 3}
    return text.rstrip()[:-1] + f', "config": {json.dumps(again)}' + "}"


def other_result(result: Any) -> Any:
    return {**result, "exact_match": 1.0}


RUN_FOLDERS = [
    edited("config.json: fewer heads, of the same weights", "config/model/n_heads", 1),
    edited("config.json: other attention, of the same weights", "config/model/attention", "expressive"),
    edited("config.json: another epsilon", "config/model/norm_epsilon", 0.5),
    edited("config.json: another seed", "config/seed", 1),
    edited("config.json: another learning rate", "config/optimizer/learning_rate", 0.5),
    edited(
        "config.json: another path of data", "config/data/path", "other.txt", "other.txt|config.json",
        run="characters",
    ),
    edited("config.json: another width", "config/model/d_model", 8, "d_model|config.json|fit"),
    edited("config.json: a number as a string", "config/model/n_layers", "1", "n_layers"),
    edited("config.json: a whole number as a float", "config/model/n_layers", 1.0, "n_layers"),
    edited("config.json: true for a number", "config/model/n_layers", True, "n_layers"),
    edited("config.json: null for a key", "config/model/n_layers", None, "n_layers"),
    edited("config.json: an unknown key", "config/model/layers", 1, "layers"),
    edited("config.json: a key removed", "config/model/n_layers", ..., "n_layers"),
    edited("config.json: a section removed", "config/model", ..., "model"),
    edited("config.json: decode removed", "config/decode", ..., "decode"),
    edited("config.json: name is a list", "config/model/name", ["transformer_lm"], "name"),
    edited("config.json: name is an object", "config/task/name", {}, "name"),
    edited("config.json: no config in it", "config", ...),
    edited("config.json: config is a list", "config", []),
    edited("config.json: config is null", "config", None),
    edited("config.json: not a number", "config/optimizer/eps", float("nan"), "eps"),
    case(
        "config.json: the same key twice", "evaluate --workdir=reversal", refused("config.json"),
        rewrite("reversal/config.json", twice),
    ),
    case(
        "config.json: of another run", "evaluate --workdir=reversal", refused("run|checkpoint|config"),
        borrow("seed1/config.json", "reversal/config.json"),
    ),
    *(
        case(f"config.json: {what}", "train @reversal --workdir=reversal", refused("config.json"), step)
        for what, step in {
            "empty": write("reversal/config.json", ""),
            "a list": write("reversal/config.json", "[]"),
            "null": write("reversal/config.json", "null"),
            "binary": write("reversal/config.json", BINARY),
            "UTF-16": write("reversal/config.json", "{}".encode("utf-16")),
            "deep": write("reversal/config.json", DEEP),
            "a folder": folder("reversal/config.json"),
            "a loop of links": link("reversal/config.json", "config.json"),
            "a pipe": fifo("reversal/config.json"),
            "a number of 5,000 digits": write("reversal/config.json", '{"config": %s}' % ("9" * 5000)),
        }.items()
    ),
    case(
        "config.json: missing, evaluate", "evaluate --workdir=reversal", refused("config.json"),
        remove("reversal/config.json"),
    ),
    case(
        "config.json: missing, checkpoints there: train", "train @reversal --workdir=reversal", refused("config.json"),
        remove("reversal/config.json"),
    ),
    case(
        "result.json of another run", "train @reversal --workdir=reversal", refused("result.json"),
        borrow("seed1/result.json", "reversal/result.json"),
    ),
    *(
        case(f"result.json: {what}", "train @reversal --workdir=reversal", refused("result.json"), step)
        for what, step in {
            "empty": write("reversal/result.json", ""),
            "a list": write("reversal/result.json", "[]"),
            "null": write("reversal/result.json", "null"),
            "an empty object": write("reversal/result.json", "{}"),
            "binary": write("reversal/result.json", BINARY),
            "deep": write("reversal/result.json", DEEP),
            "a folder": folder("reversal/result.json"),
        }.items()
    ),
    *(
        case(f"metrics.jsonl: {what}", "train @reversal --workdir=half", refused("metrics.jsonl"), step)
        for what, step in {
            "binary": write("half/metrics.jsonl", BINARY),
            "lists": write("half/metrics.jsonl", "[]\n[]\n"),
            "without steps": write("half/metrics.jsonl", "{}\n"),
            "a folder": folder("half/metrics.jsonl"),
        }.items()
    ),
    case(
        "metrics.jsonl: its last line cut, as by a kill", "train @reversal --workdir=half",
        accepted("resuming at step 4"), append("half/metrics.jsonl", '{"step": 5, "lo'),
    ),
    case(
        "a finished run without its checkpoints: evaluate", "evaluate --workdir=reversal", refused("no checkpoint"),
        remove("reversal/checkpoints"),
    ),
    case(
        "the run's checkpoints for its folder", "evaluate --workdir=reversal/checkpoints", refused("no run here"),
        runs=("reversal",),
    ),
    case("a sweep for a run", "evaluate --workdir=sweep", refused("no run here")),
    case(
        "a run for a sweep", "sweep --config=points.py --workdir=reversal --workers=0", refused("reversal"),
        runs=("reversal",),
    ),
    case("the folder is a file", "train @reversal --workdir=text.txt", refused("text.txt")),
    case("the folder lies in a file", "train @reversal --workdir=text.txt/run", refused("text.txt/run")),
    case("the folder is a loop of links", "train @reversal --workdir=loop", refused("loop"), link("loop", "loop")),
    case("the folder's name is too long", f"train @reversal --workdir={LONG}", refused("too long")),
    case("the folder's name has a line end", "evaluate --workdir='a\nb'", refused("a\\nb")),
    case("the folder's name has an escape", "evaluate --workdir='\x1b[31mred'", refused("\\x1b[31mred")),
    case("the folder's name is empty", "train @reversal --workdir=", refused("--workdir: missing")),
    case("the folder holds other things", "train @reversal --workdir=parallel", refused("parallel")),
    case(
        "the folder may not be written: train", "train @reversal --workdir=locked/run",
        refused("locked/run", "ermission"), folder("locked"), mode("locked", 0o555), unprivileged=True,
    ),
    case(
        "the folder may not be written: resume", "train @reversal --workdir=half", refused("half", "ermission"),
        mode("half", 0o555), mode("half/checkpoints", 0o555), unprivileged=True,
    ),
    case(
        "the folder may not be written: export", "export --workdir=reversal --format=safetensors",
        refused("params.safetensors"), mode("reversal", 0o555), unprivileged=True,
    ),
    case(
        "the folder may not be read", "evaluate --workdir=reversal", refused("reversal", "ermission"),
        mode("reversal", 0), unprivileged=True,
    ),
    case(
        "the folder may be read alone: evaluate", "evaluate --workdir=reversal", accepted("exact_match"),
        mode("reversal", 0o555), mode("reversal/checkpoints", 0o555), mode("reversal/checkpoints/6", 0o555),
        unprivileged=True,
    ),
    case(
        "another config: train", "train @reversal --config.model.d_ff=8 --workdir=reversal",
        refused("model.d_ff", "7", "8"),
    ),
    case("another task: train", "train @series --workdir=reversal", refused("reversal", "another config")),
]


# --- Checkpoints ----------------------------------------------------------------------------------------------------

LAST = "reversal/checkpoints/6"
FALLS_BACK = accepted("passing over the damaged checkpoint of step 6", "step 4")
ODD_STEPS = {
    "leading zeros": "0000007",
    "a sign": "+7",
    "full-width digits": "７",
    "Arabic digits": "٩",
    "a superscript": "7²",
    "a power": "1e3",
    "a minus": "-7",
    "twenty digits": "99999999999999999999",
    "5,000 digits in spirit": "9" * 200,
}

CHECKPOINTS = [
    case("a step renamed", "evaluate --workdir=reversal", refused("20"), move(LAST, "reversal/checkpoints/20")),
    case(
        "a copy of a step as a later one: evaluate", "evaluate --workdir=reversal", accepted("passing over", "20"),
        borrow(LAST, "reversal/checkpoints/20"), runs=("reversal",),
    ),
    case(
        "a copy of a step as a later one: train", "train @reversal --workdir=half", accepted("passing over", "step 4"),
        borrow("reversal/checkpoints/4", "half/checkpoints/5"), writes="checkpoints",
    ),
    case(
        "the state of a step in the folder of another", "evaluate --workdir=reversal",
        accepted("passing over", "step 6"), borrow("reversal/checkpoints/2", LAST),
    ),
    case(
        "a folder without any file, whose digests are of none", "evaluate --workdir=reversal",
        accepted("passing over", "9"), folder("reversal/checkpoints/9"),
        write("reversal/checkpoints/9/digests.json", "{}"),
    ),
    case(
        "a link to another run's step", "evaluate --workdir=reversal", accepted("passing over", "8"),
        link("reversal/checkpoints/8", "../../seed1/checkpoints/6"), runs=("seed1",),
    ),
    *(
        case(f"{what}: {name}", command, FALLS_BACK if name != "generate" else accepted("passing over"), *steps)
        for what, steps in {
            "the newest cut": (cut(LAST),),
            "the newest with a byte changed": (flip(LAST),),
            "the newest cut, without digests": (cut(LAST), remove(f"{LAST}/digests.json")),
            "the newest without files": (folder(LAST),),
            "the newest a file": (write(LAST, "six"),),
        }.items()
        for name, command in {
            "evaluate": "evaluate --workdir=reversal",
            "generate": "generate --workdir=reversal '1 2'",
        }.items()
    ),
    *(
        case(f"{what}: train", "train @reversal --workdir=half", accepted("resuming at step 2", "step 4"), *steps)
        for what, steps in {
            "the newest cut, without digests": (cut("half/checkpoints/4"), remove("half/checkpoints/4/digests.json")),
            "the newest a file": (write("half/checkpoints/4", "four"),),
            "the newest without files": (folder("half/checkpoints/4"),),
        }.items()
    ),
    *(
        case(f"digests: {what}", "evaluate --workdir=reversal", FALLS_BACK, step)
        for what, step in {
            "empty": write(f"{LAST}/digests.json", ""),
            "a list": write(f"{LAST}/digests.json", "[]"),
            "of numbers": write(f"{LAST}/digests.json", '{"_CHECKPOINT_METADATA": 3}'),
            "deep": write(f"{LAST}/digests.json", DEEP),
            "binary": write(f"{LAST}/digests.json", BINARY),
            "a folder": folder(f"{LAST}/digests.json"),
        }.items()
    ),
    *(
        case(
            f"a folder named with {what}", "evaluate --workdir=reversal", accepted("step 6"),
            borrow(LAST, f"reversal/checkpoints/{name}"),
        )
        for what, name in ODD_STEPS.items()
    ),
    case(
        "a loop of links among them", "evaluate --workdir=reversal", accepted("step 6"),
        link("reversal/checkpoints/8", "8"),
    ),
    case(
        "every one cut", "evaluate --workdir=reversal", refused("damaged", "2, 4, 6"),
        *(cut(f"reversal/checkpoints/{n}") for n in (2, 4, 6)),
    ),
    case(
        "every one cut: train", "train @reversal --workdir=half", refused("damaged", "2, 4"),
        *(cut(f"half/checkpoints/{n}") for n in (2, 4)),
    ),
    case(
        "metadata of a step without its keys", "evaluate --workdir=reversal", accepted("passing over"),
        remove(f"{LAST}/digests.json"), write(f"{LAST}/checkpoint_metadata/metadata", "{}"),
        write(f"{LAST}/_CHECKPOINT_METADATA", "{}"),
    ),
    case("a chosen step that is cut", "evaluate --workdir=reversal --step=6", refused("step 6", "damaged"), cut(LAST)),
    case("a chosen step that is not there", "generate --workdir=reversal --step=5 '1 2'", refused("step 5", "2, 4, 6")),
    case("a negative step", "evaluate --workdir=reversal --step=-1", refused("step")),
    case("a step of twenty digits", "evaluate --workdir=reversal --step=99999999999999999999", refused("step")),
    case(
        "the folder of checkpoints a file", "evaluate --workdir=reversal", refused("checkpoint"),
        write("reversal/checkpoints", "none"),
    ),
    case(
        "the folder of checkpoints a file: train", "train @reversal --workdir=half", refused("checkpoint"),
        write("half/checkpoints", "none"),
    ),
    case(
        "checkpoints of another shape", "evaluate --workdir=reversal", refused("checkpoint"),
        borrow("series/checkpoints", "reversal/checkpoints"),
    ),
]


# --- Tokenizers -----------------------------------------------------------------------------------------------------

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

TOKENIZERS = [
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


# --- Prompts --------------------------------------------------------------------------------------------------------

PROMPTS = [
    case(
        "a letter that the vocabulary lacks", "generate --workdir=characters 'the Ж'",
        accepted("Ж", "vocabulary|unknown|<unk>"),
    ),
    case(
        "a word that the vocabulary lacks", "generate --workdir=masking 'the zebra <mask> on'",
        accepted("zebra", "vocabulary|unknown|<unk>"),
    ),
    case(
        "a word that the six lack", "generate --workdir=six 'where is the zebra'",
        accepted("zebra", "vocabulary|unknown|<unk>"),
    ),
    case("capitals where training had none", "probe --workdir=primer THEKINGDOM", accepted("THEKINGDOM|K")),
    case("an answer of two lines", "generate --workdir=characters 'a\nb' 'c'", accepted("\\n", lines=2)),
    case("control characters in a prompt", "generate --workdir=characters 'the \x1b[31m\x07'", accepted("\\x1b")),
    case("a prompt of half a character", "generate --workdir=characters '\udcff'", refused("\\udcff")),
    case("a prompt shorter than the model's sight", "generate --workdir=primer 'the'", refused("prompt 1")),
    case(
        "a temperature for outputs that are no logits", "generate --workdir=primer --temperature=0.8 'the cat sat on'",
        refused("temperature"),
    ),
    case(
        "a second text longer than the positions: characters", f"probe --workdir=characters the {'the' + 'cat' * 20}",
        refused("16"),
    ),
    case(
        "a second text longer than the positions: reversal", f"probe --workdir=reversal '1 2' '{'1 2 ' * 20}'",
        refused("11"),
    ),
    case(
        "a second text longer than the positions: pairs", f"probe --workdir=pairs 'I see' '{'le chat ' * 40}'",
        refused("40"),
    ),
    case(
        "a second text longer than the positions: series", f"probe --workdir=series '1 2' '{'1 2 ' * 20}'",
        refused("8"),
    ),
    case(
        "a second text longer than the positions: primer", f"probe --workdir=primer the {'the' + 'cat' * 20}",
        refused("9"),
    ),
    case("a second text with a number beyond the base", "probe --workdir=series '1 2' '7'", refused("'7'")),
    case("a second text without numbers: series", "probe --workdir=series '1 2' x", refused("'x'")),
    case("a second text without numbers: reversal", "probe --workdir=reversal '1 2' x", refused("'x'")),
    case(
        "a second text for a model that fills in blanks", "probe --workdir=masking 'the <mask> sat' 'cat'",
        refused("cat|answer|second"),
    ),
    case(
        "a prompt that just fits: probe", "probe --workdir=primer 'the cat s'", accepted("positions|residual|weights"),
    ),
    case("full-width digits", "generate --workdir=reversal '３ １'", refused("３")),
    case("Arabic digits", "generate --workdir=series '١ ٢'", refused("١")),
    case("a superscript for a number", "generate --workdir=reversal '²'", refused("²")),
    case("a number of 5,000 digits", f"generate --workdir=reversal {'1' * 5000}", refused("prompt 1")),
    case("leading zeros", "generate --workdir=reversal '01 2'", refused("'01'")),
    case("a signed number", "generate --workdir=reversal '+1'", refused("'+1'")),
    case("a negative number", "generate --workdir=reversal -- '-1'", refused("'-1'")),
    case("the end token as a symbol", "generate --workdir=reversal '0 1'", refused("'0'")),
    case("a symbol too many", "generate --workdir=reversal '1 4'", refused("prompt 1", "'4'")),
    case("commas between", "generate --workdir=reversal '1,2'", refused("'1,2'")),
    case("tabs between", "generate --workdir=reversal '1\t2'", accepted(lines=1)),
    case("a prompt too long", f"generate --workdir=reversal '{'1 ' * 20}'", refused("prompt 1", "11")),
    case("an empty prompt: reversal", "generate --workdir=reversal ''", refused("prompt 1")),
    case("a prompt of white space: series", "generate --workdir=series '   '", refused("prompt 1")),
    case(
        "an empty line among sentences", "generate --workdir=pairs", accepted(lines=3),
        stdin=b"I see the cat.\n\nI see\n",
    ),
    case(
        "a line of white space among sentences", "generate --workdir=pairs", accepted(lines=3),
        stdin=b"I see the cat.\n \t \nI see\n",
    ),
    case("no blank to fill in", "generate --workdir=masking 'the cat'", refused("prompt 1", "<mask>")),
    case("a sentence too long", f"generate --workdir=pairs '{'the cat ' * 60}'", refused("prompt 1", "40")),
    case("a run without prompts", "generate --workdir=map 1", refused("boolean_map")),
    case("no prompt", "generate --workdir=reversal", refused("no prompt")),
    case(
        "prompts that are not UTF-8", "generate --workdir=reversal", refused("standard input:2", "UTF-8"),
        stdin=b"1 2\n\xff\n",
    ),
    case("prompts with NUL", "generate --workdir=reversal", refused("prompt 1", "\\x00"), stdin=b"1 \x00\n"),
    case(
        "prompts with a byte order mark", "generate --workdir=reversal", accepted(lines=1), stdin=b"\xef\xbb\xbf1 2\n",
    ),
    case(
        "prompts with the line ends of DOS", "generate --workdir=pairs", accepted(lines=2),
        stdin=b"I see the cat.\r\nI see\r\n",
    ),
    case("a line of 2 MB", "generate --workdir=pairs", refused("prompt 1", "40"), stdin=b"the cat " * 250_000),
    case("a folder of prompts", "generate --workdir=reversal --input=parallel", refused("--input: parallel")),
    case(
        "prompts from a pipe that nobody writes", "generate --workdir=reversal --input=pipe", refused("--input: pipe"),
        fifo("pipe"),
    ),
    case("prompts without end", "generate --workdir=reversal --input=/dev/zero", refused("--input: /dev/zero")),
]


# --- Texts and pairs ------------------------------------------------------------------------------------------------

TRAIN_TEXT = "train @characters --workdir=new"
TRAIN_PAIRS = "train @pairs --workdir=new"
TRAIN_PARALLEL = "train @parallel --workdir=new"
GERMAN = [("Ich sehe", "I see"), ("Du willst", "You want"), ("Ein Hund", "A dog"), ("Brot", "Bread"), ("Wein", "Wine")]
CORRUPT = b"I see\tJe vois\nYou want\tTu v\xffux\nA\tUn\nB\tDeux\n"
BAD_PAIRS: list[tuple[Any, ...]] = [
    ("one column", "I see\n" * 9, ":1", "TAB"),
    ("four columns", "a\tb\tc\td\n" * 9, ":1", "4 columns"),
    ("commas for tabs", "I see,Je vois\n" * 9, ":1", "TAB"),
    ("an empty source", "a\tb\n\tc\nd\te\n", ":2", "source"),
    ("a target of white space", "a\tb\nc\t \nd\te\n", ":2", "target"),
    ("not UTF-8", CORRUPT, ":2", "0xff"),
    ("empty", ""),
    ("UTF-16", "a\tb\n".encode("utf-16") * 9),
]

TEXTS = [
    *(
        case(f"a text: {what}", TRAIN_TEXT, refused("text.txt"), step)
        for what, step in {
            "missing": remove("text.txt"),
            "a folder": folder("text.txt"),
            "empty": write("text.txt", ""),
            "a pipe": fifo("text.txt"),
            "a socket": listening("text.txt"),
            "a loop of links": link("text.txt", "text.txt"),
            "/dev/zero by a link": link("text.txt", "/dev/zero"),
            "/dev/null by a link": link("text.txt", "/dev/null"),
            "binary": write("text.txt", BINARY * 9),
            "UTF-16": write("text.txt", ("the cat\n" * 99).encode("utf-16")),
            "latin-1": write("text.txt", ("déjà vu\n" * 99).encode("latin-1")),
            "halves of characters": write("text.txt", "the \ud800 cat\n" * 99),
            "NUL bytes": write("text.txt", "the cat\n" * 99 + "\0" * 50 + "the cat\n" * 99),
            "too short": write("text.txt", "the cat"),
        }.items()
    ),
    case(
        "a text that may not be read", TRAIN_TEXT, refused("text.txt", "ermission"), mode("text.txt", 0),
        unprivileged=True,
    ),
    case(
        "a text with a byte order mark", TRAIN_TEXT, accepted("training_tokens"),
        write("text.txt", "\ufeff" + "the cat\n" * 99),
    ),
    case(
        "a text with the line ends of DOS", TRAIN_TEXT, accepted("training_tokens"),
        write("text.txt", "the cat\r\n" * 99),
    ),
    case(
        "a text of one line of 10 MB, in words", f"{TRAIN_TEXT} --config.data.tokenizer=word",
        accepted("training_tokens"), write("text.txt", "the cat sat " * 870_000),
    ),
    case(
        "a text of one word of 1 MB, in subwords",
        f"{TRAIN_TEXT} --config.data.tokenizer=bpe --config.data.vocab_size=300", accepted("training_tokens"),
        write("text.txt", "thecatsatonabed" * 70_000),
    ),
    case(
        "a text of white space, in words", f"{TRAIN_TEXT} --config.data.tokenizer=word", refused("text.txt"),
        write("text.txt", " \n" * 500),
    ),
    case(
        "a text whose validation part is too short", f"{TRAIN_TEXT} --config.data.validation=0.001",
        refused("text.txt", "validation"),
    ),
    case(
        "a text whose name has a line end", "train @characters --workdir=new --config.data.path='a\nb.txt'",
        refused("a\\nb.txt"),
    ),
    case(
        "a text whose name is too long", f"train @characters --workdir=new --config.data.path={LONG}",
        refused("too long"),
    ),
    case(
        "a vocabulary that leaves most letters out", f"{TRAIN_TEXT} --config.data.vocab_size=8",
        accepted("unknown_share"),
    ),
]

SWAPPED = write("pairs.tsv", tab_separated(GERMAN * 4))
PAIRS = [
    case(
        "German TAB English, read as it stands", f"{TRAIN_PAIRS} --config.data.source=de --config.data.target=en",
        accepted("Ich|Du|Ein|Brot|Wein"), SWAPPED,
    ),
    case(
        "a split tested on what it trains on", f"{TRAIN_PARALLEL} --config.data.test=train",
        refused("data.test", "train"),
    ),
    case(
        "a test file that repeats the training's", TRAIN_PARALLEL,
        accepted("parallel/test.en|test.en|overlap|training"), borrow("parallel/train.en", "parallel/test.en"),
        borrow("parallel/train.fr", "parallel/test.fr"),
    ),
    case("both sides the same language's", TRAIN_PARALLEL + " --config.data.target=en", refused("data.target")),
    case(
        "both sides the same text", TRAIN_PARALLEL, accepted("same|equal|copies"),
        *(borrow(f"parallel/{part}.en", f"parallel/{part}.fr") for part in ("train", "val", "test")),
    ),
    case("a suffix that no file has", TRAIN_PARALLEL + " --config.data.target=ger", refused("train.ger")),
    case(
        "a side with a line less", TRAIN_PARALLEL, refused("train.", "no such line"),
        write("parallel/train.fr", "Je vois\n"),
    ),
    case("a side with a line more, empty", TRAIN_PARALLEL, refused("val.en"), append("parallel/val.en", "\n")),
    case("a side missing", TRAIN_PARALLEL, refused("val.fr"), remove("parallel/val.fr")),
    case("a file for the folder", TRAIN_PARALLEL + " --config.data.path=pairs.tsv", refused("data.path", "pairs.tsv")),
    case("a folder for the file", TRAIN_PAIRS + " --config.data.path=parallel", refused("data.path", "parallel")),
    *(
        case(f"pairs: {what}", TRAIN_PAIRS, refused("pairs.tsv", *parts), write("pairs.tsv", content))
        for what, content, *parts in BAD_PAIRS
    ),
    case("pairs: two lines", TRAIN_PAIRS, refused("3"), write("pairs.tsv", "a\tb\nc\td\n")),
    case(
        "pairs: one source alone", TRAIN_PAIRS, refused("3"),
        write("pairs.tsv", "".join(f"a\tb{i}\n" for i in range(9))),
    ),
    case(
        "pairs: a sentence too long", f"{TRAIN_PAIRS} --config.data.max_length=4",
        refused("pairs.tsv:1", "data.max_length"),
    ),
    case(
        "pairs: all sentences too long, skipped",
        f"{TRAIN_PAIRS} --config.data.max_length=2 --config.data.on_error=skip", refused("data.max_length"),
    ),
    case(
        "pairs: bad lines skipped and counted", f"{TRAIN_PAIRS} --config.data.on_error=skip", accepted("skipped 2"),
        append("pairs.tsv", "one\n\ttwo\n"),
    ),
    case(
        "a data set that is none",
        "train @pairs --workdir=new --config.data.name=tfds --config.data.path=ted_hrlr_translat/pt_to_en",
        refused("data.path", "ted_hrlr_translat", "did you mean"), seconds=60,
    ),
    case(
        "the phrase book's languages swapped",
        "train --config=configs/translation.py --workdir=new --config.data.source=fr --config.data.target=en",
        refused("data."),
    ),
    case(
        "a key that the corpus does not read", "train @six --workdir=new --config.data.path=pairs.tsv",
        refused("data.path", "six"),
    ),
    case(
        "prepared pairs damaged", TRAIN_PAIRS, refused("prepared"), lambda box: spoil_prepared(box),
        env={"TFDS_DATA_DIR": "prepared"},
    ),
]


def spoil_prepared(box: Any) -> None:
    """Copies the pairs as TFDS has prepared them, and halves what is there."""
    import shutil

    shutil.copytree(box.parents[2] / "tensorflow_datasets", box / "prepared")
    for path in (box / "prepared").rglob("*array_record*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


# --- Keys and values ------------------------------------------------------------------------------------------------


def keys(name: str, flags: str, *parts: str, run: str = "reversal", **options: Any) -> Case:
    return case(name, f"train @{run} --workdir=new {flags}", refused(*parts), **options)


KEYS = [
    keys("dashes forgotten", "config.model.n_layers=4", "config.model.n_layers=4"),
    keys("a letter forgotten", "--config.model.n_layer=3", "model.n_layer", "n_layers"),
    keys("a letter of the section forgotten", "--config.modle.n_layers=3", "modle", "model"),
    keys("the section forgotten", "--config.n_layers=3", "n_layers", "model.n_layers"),
    keys("capitals", "--config.model.N_LAYERS=3", "N_LAYERS", "n_layers"),
    keys("a hyphen", "--config.model.n-layers=3", "n-layers", "n_layers"),
    keys("a key of a key", "--config.model.n_layers.x=3", "n_layers"),
    keys("a method's name", "--config.model.items=3", "items"),
    keys("an attribute's name", "--config.__class__=3", "__class__"),
    keys("a section that this task lacks", "--config.data.path=text.txt", "data"),
    keys("a section for a value", "--config.model=3", "model"),
    keys("nothing for a value", "--config.model.n_layers=", "n_layers"),
    keys("no value", "--config.seed", "seed"),
    keys("a key of another optimizer", "--config.optimizer.momentum=0.9", "optimizer.momentum"),
    keys(
        "a key of another schedule", "--config.optimizer.schedule=constant --config.optimizer.final_learning_rate=0.1",
        "final_learning_rate",
    ),
    keys("a key of another model", "--config.model.segments=2", "segments"),
    keys("a key with a line end", "'--config.model.a\nb=3'", "a\\nb"),
]

VALUES = [
    *(
        keys(f"{value} for {key}", f"--config.{key}={value}", key.split(".")[-1])
        for key, values in {
            "optimizer.learning_rate": ("inf", "nan", "1e400", "0", "-1e-3", NEAR_ZERO, BEYOND),
            "optimizer.eps": ("inf", "-0.0"),
            "optimizer.clip_norm": ("inf", "nan"),
            "optimizer.b2": ("1", "nan"),
            "optimizer.weight_decay": ("inf", BEYOND),
            "model.norm_epsilon": ("inf", NEAR_ZERO),
            "model.dropout": ("1", "-0.1", "nan"),
            "model.n_layers": ("2.5", "four", "True", "0", "-1", "1e3", "1_0", "٣"),
            "model.n_heads": ("4",),
            "model.positions": ("rope", "sinusodal"),
            "model.window": ("-1",),
            "task.n_tokens": ("2147483648",),
            "train.steps": ("9223372036854775808", "0"),
            "seed": ("-1", "4294967296", "1.0"),
            "checkpoint.keep": ("0",),
            "checkpoint.best": ("loss",),
            "train.patience": ("3",),
            "log.tensorboard": ("2",),
            "log.every": ("0",),
            "parallel.data": ("2",),
            "parallel.tensor": ("2",),
            "parallel.coordinator": ("localhost:1",),
            "decode.temperature": ("inf", NEAR_ZERO),
            "decode.top_p": ("0", "2"),
            "decode.length_penalty": ("inf",),
        }.items()
        for value in values
    ),
    keys("warm-up as long as the training", "--config.optimizer.warmup_steps=6", "warmup_steps"),
    keys(
        "a last rate above the peak", "--config.optimizer.schedule=cosine --config.optimizer.final_learning_rate=1",
        "final_learning_rate",
    ),
    keys("a model for another task", "--config.model.name=masked_lm", "model.name|model."),
    keys(
        "a text all held out", "--config.data.validation=0.49 --config.data.test=0.49 --config.task.length=14",
        "data.", run="characters",
    ),
    keys("the same port for no one", "--config.parallel.processes=2", "parallel.coordinator"),
]


# --- Flags ----------------------------------------------------------------------------------------------------------

SHOWN = "generate --workdir=reversal"
FLAGS = [
    case("an argument of evaluate", "evaluate --workdir=reversal step=4", refused("step=4")),
    case("an argument of describe", "describe @reversal config.model.n_layers=4", refused("config.model.n_layers=4")),
    case(
        "an argument of sweep", "sweep --config=points.py --workdir=new --dry_run config.seed=1",
        refused("config.seed=1"),
    ),
    case("an argument of export", "export --workdir=reversal --format=jax step=4", refused("step=4")),
    case(
        "a weights file over the run's config",
        "export --workdir=reversal --format=safetensors --output=reversal/config.json", refused("config.json"),
    ),
    case(
        "a weights file over the run's result", "export --workdir=reversal --format=jax --output=reversal/result.json",
        refused("result.json"),
    ),
    case(
        "a picture over a file that is none",
        "probe --workdir=reversal --name=embedding/positions --output=text.txt '1 2'", refused("text.txt", ".png"),
    ),
    case(
        "a picture in a folder that is not there",
        "probe --workdir=reversal --name=params/embedding/table --output=none/x.png '1 2'", refused("none/x.png"),
    ),
    case(
        "a weights file in a folder that is not there",
        "export --workdir=reversal --format=safetensors --output=none/x", refused("none/x"),
    ),
    case(
        "a folder for a weights file", "export --workdir=reversal --format=jax --output=parallel", refused("parallel"),
    ),
    case(
        "a file for a folder", "export --workdir=reversal --format=huggingface --output=text.txt",
        refused("text.txt|model."),
    ),
    case("a format misspelt", "export --workdir=reversal --format=safetensor", refused("--format", "safetensors")),
    case("a format forgotten", "export --workdir=reversal", refused("--format")),
    case("a head without a name", "probe --workdir=reversal --head=0 '1 2'", refused("--head")),
    case(
        "a head beyond the last", "probe --workdir=reversal --name=block_1/attention/weights --head=2 '1 2'",
        refused("--head"),
    ),
    case("a picture without a name", "probe --workdir=reversal --output=x.png '1 2'", refused("--output")),
    case("a lens and a name", "probe --workdir=reversal --lens --name=embedding/positions '1 2'", refused("--lens")),
    case(
        "a name that is near", "probe --workdir=reversal --name=block_1/attention/weight '1 2'",
        refused("--name", "block_1/attention/weights"),
    ),
    case("three texts", "probe --workdir=reversal '1 2' 2 1", refused("3 arguments")),
    case("a lens where there are no blocks", "probe --workdir=map --lens '1 2'", refused("boolean_map")),
    case("a seed below 0", f"{SHOWN} --seed=-1 1", refused("seed")),
    case("no hypothesis", f"{SHOWN} --n_best=0 1", refused("n_best")),
    case("more hypotheses than the beam", f"{SHOWN} --beam_width=2 --n_best=3 1", refused("n_best", "beam_width")),
    case("fewer than no tokens", f"{SHOWN} --max_tokens=-1 1", refused("max_tokens")),
    case("more tokens than positions", f"{SHOWN} --max_tokens=1000000000 1", refused("max_len", "11")),
    case("a beam that draws", f"{SHOWN} --beam_width=2 --temperature=1 1", refused("temperature")),
    case("a seed that nothing draws with", f"{SHOWN} --seed=3 1", refused("seed")),
    case("a temperature that is none", f"{SHOWN} --temperature=nan 1", refused("temperature")),
    case("an infinite temperature", f"{SHOWN} --temperature=inf 1", refused("temperature")),
    case("a temperature next to nothing", f"{SHOWN} --temperature={NEAR_ZERO} 1", refused("temperature")),
    case("top_k beyond the vocabulary", f"{SHOWN} --temperature=1 --top_k=1000 1", refused("top_k")),
    case("prompts twice", f"{SHOWN} --input=prompts.txt 1", refused("--input")),
    case("no file of prompts", f"{SHOWN} --input=prompt.txt", refused("--input", "prompt.txt")),
    case("a flag misspelt", f"{SHOWN} --beam_with=2 1", refused("beam_with", "beam_width")),
    case("a file of flags that is not there", f"{SHOWN} --flagfile=none 1", refused("none")),
    case("slurm's flags without it", "sweep --config=points.py --workdir=new --minutes=3", refused("--minutes")),
    case("fewer than no workers", "sweep --config=points.py --workdir=new --workers=-1", refused("workers")),
    case(
        "a table and a dry run", "sweep --config=points.py --workdir=sweep --workers=0 --dry_run",
        refused("--dry_run"),
    ),
    case(
        "an axis that no point changes", "sweep --config=points.py --workdir=sweep --workers=0 --x=model.n_layers",
        refused("--x"),
    ),
    case(
        "an axis that no result has", "sweep --config=points.py --workdir=sweep --workers=0 --y=exact_mach",
        refused("--y", "exact_match"), writes=r"^sweep/table",
    ),
]


# --- Config files and sweeps ----------------------------------------------------------------------------------------


def config_file(name: str, text: str | bytes, *parts: str) -> Case:
    return case(
               f"a config file: {name}", "train --config=mine.py --workdir=new", refused(*parts),
               write("mine.py", text),
           )


def get_config(*lines: str) -> str:
    """Returns the text of a config file that changes the tiny config."""
    body = "".join(f"    {line}\n" for line in lines)
    return (
        f"{POINTS.split('def get_config')[0]}\ndef get_config():\n    config = _tiny()\n{body}    return config\n"
        + ("\n\ndef _tiny():\n    with open('tiny.json') as file:\n        return ConfigDict(json.load(file))\n")
    )


DEAF = """from fxf.models import MODELS

read, make = MODELS["transformer_lm"]
MODELS["transformer_lm"] = (read, lambda config, size: make(config, size)._replace(prefill=None, step=None))
"""

CONFIG_FILES = [
    config_file("a model that cannot generate", DEAF + get_config(), "generat"),
    config_file("a section lost", get_config("del config.model"), "model"),
    config_file("a section that is none", get_config("config.modle = ConfigDict()"), "modle", "model"),
    config_file(
        "a list for a number",
        get_config("config.train.steps = [6]") .replace("= [6]", "= (6,)") .replace("config.train.steps", "config.train = config.train.copy_and_resolve_references(); del config.train['steps']; config.train.steps"),
        "steps",
    ),
    config_file("a seed of none", get_config("del config['seed']", "config.seed = None"), "seed"),
    config_file(
        "a placeholder",
        "from ml_collections import config_dict\n" + get_config("del config['seed']", "config.seed = config_dict.placeholder(int)"),
        "seed",
    ),
    config_file(
        "true for a number", get_config("del config.train['steps']", "config.train.steps = True"), "train.steps",
    ),
    config_file("a dict", "def get_config():\n    return {'seed': 0}\n", "ConfigDict"),
    config_file("nothing returned", "def get_config():\n    pass\n", "ConfigDict"),
    config_file("no function", "x = 1\n", "get_config"),
    config_file("a number for the function", "get_config = 3\n", "mine.py"),
    config_file("two arguments wanted", "def get_config(a, b):\n    pass\n", "mine.py"),
    config_file("empty", "", "get_config"),
    config_file("binary", BINARY, "mine.py"),
    config_file("UTF-16", get_config().encode("utf-16"), "mine.py"),
    config_file("NUL bytes", "x = 1\0\n", "mine.py"),
    config_file("a syntax error", "def get_config(:\n", "mine.py:1", "SyntaxError"),
    config_file("a wrong name", get_config("config.model.layers = 3"), "model.layers", "n_layers"),
    config_file("an exception", get_config("raise ValueError('so\\nnot')"), "mine.py", "ValueError", "so not|so\\nnot"),
    config_file(
        "an exception of its own imports", "import nothing_of_the_kind\n" + get_config(), "mine.py:1",
        "nothing_of_the_kind",
    ),
    config_file("endless recursion", "def get_config():\n    return get_config()\n", "mine.py:2", "RecursionError"),
    config_file("it exits with 0", get_config("raise SystemExit(0)"), "mine.py"),
    config_file("it exits with 1", get_config("import sys", "sys.exit('bye')"), "mine.py"),
    config_file("it interrupts", get_config("raise KeyboardInterrupt"), "mine.py"),
    case(
        "a config file: it changes the folder", "train --config=mine.py --workdir=new", refused("mine.py"),
        write("mine.py", get_config("import os", "os.chdir('parallel')")),
    ),
    case("a config file: a folder", "train --config=configs --workdir=new", refused("configs")),
    case("a config file: a pipe", "train --config=mine.py --workdir=new", refused("mine.py"), fifo("mine.py")),
    case(
        "a config file: a loop of links", "train --config=mine.py --workdir=new", refused("mine.py"),
        link("mine.py", "mine.py"),
    ),
    case("a config file: missing", "train --config=configs/reversl.py --workdir=new", refused("configs/reversal.py")),
    case(
        "a config file: an argument for one that takes none", "train --config=configs/masking.py:large --workdir=new",
        refused("configs/masking.py"),
    ),
    case(
        "a config file: an empty argument", "train --config=configs/reversal.py: --workdir=new",
        refused("configs/reversal.py"),
    ),
    case(
        "a config file: an argument misspelt", "train --config=configs/reversal.py:exmaple0 --workdir=new",
        refused("exmaple0", "example0"),
    ),
    case("a config file: given twice", "train @reversal --config=points.py --workdir=new", refused("--config")),
]


def sweeps(name: str, body: str, *parts: str) -> Case:
    text = POINTS.split("def sweep")[0] + (f"def sweep(add):\n    {body}\n" if body else "")
    return case(
               f"a sweep: {name}", "sweep --config=mine.py --workdir=new --dry_run", refused(*parts),
               write("mine.py", text),
           )


SWEEPS = [
    sweeps("no point", "pass", "no point"),
    sweeps("no function", "", "sweep"),
    sweeps("the same point twice", "add(seed=1); add(seed=1)", "point 2", "point 1"),
    sweeps(
        "a value that is not a number, twice",
        "add(**{'optimizer.b1': float('nan')}); add(**{'optimizer.b1': float('nan')})", "b1",
    ),
    sweeps("a list for a value", "add(seed=[1, 2])", "seed"),
    sweeps("a dict for a value", "add(seed={})", "seed"),
    sweeps("an array of two", "import numpy; add(seed=numpy.arange(2))", "seed"),
    sweeps("a string for a number", "add(seed='1')", "seed"),
    sweeps("true for a number", "add(seed=True)", "seed"),
    sweeps("an unknown key", "add(**{'model.n_layer': 1})", "model.n_layer", "model.n_layers"),
    sweeps("an argument without a name", "add(1)", "mine.py"),
    sweeps("it raises", "add(seed=1); raise RuntimeError('no')", "mine.py", "RuntimeError"),
    sweeps("it exits", "raise SystemExit(0)", "mine.py"),
    sweeps(
        "values of different lengths",
        "from fxf.sweeps.points import zipped; zipped({'seed': [1], 'train.steps': [1, 2]})", "zipped",
    ),
    sweeps("a key that is set for all", "[add(**{'train.steps': n}) for n in (0, 1)]", "train.steps"),
    case(
        "a sweep: a key that the command line sets too",
        "sweep --config=points.py --config.seed=3 --workdir=new --dry_run", refused("seed"),
    ),
    case("a sweep: its folder a file", "sweep --config=points.py --workdir=text.txt --workers=0", refused("text.txt")),
    case(
        "a sweep: a point's folder holds another run", "sweep --config=points.py --workdir=sweep --workers=0",
        refused("seed=1", "seed"), borrow("seed1", "sweep/seed=0"),
    ),
    *(
        case(
            f"a table: a result that is {what}", "sweep --config=points.py --workdir=sweep --workers=0",
            refused("seed=1/result.json"), write("sweep/seed=1/result.json", content), writes="^sweep/(table|plot)",
        )
        for what, content in BAD_JSON.items()
    ),
    case(
        "a table: a result that names other keys", "sweep --config=points.py --workdir=sweep --workers=0",
        refused("result.json"), change("sweep/seed=1/result.json", "point", "seed=7"),
        change("sweep/seed=1/result.json", "status", "<script>"), change("sweep/seed=1/result.json", "seed", 7),
        writes="^sweep/(table|plot)",
    ),
]


# --- Weights files --------------------------------------------------------------------------------------------------


def gpt2(change_tensors: Any = None, config: dict[str, Any] | None = None, file: str = "gpt2/model.safetensors") -> Any:
    """Returns a step that makes the folder of a small GPT-2, whose tensors and config are changed."""

    def step(box: Any) -> None:
        from safetensors.numpy import save_file

        rng = np.random.default_rng(0)
        sizes = {"wte.weight": (11, 4), "wpe.weight": (7, 4), "ln_f.weight": (4,), "ln_f.bias": (4,)}
        for i, (n, m) in {
            "attn.c_attn": (4, 12),
            "attn.c_proj": (4, 4),
            "mlp.c_fc": (4, 16),
            "mlp.c_proj": (16, 4),
        }.items():
            sizes |= {f"h.0.{i}.weight": (n, m), f"h.0.{i}.bias": (m,)}
        for i in ("ln_1", "ln_2"):
            sizes |= {f"h.0.{i}.weight": (4,), f"h.0.{i}.bias": (4,)}
        tensors = {f"transformer.{name}": rng.normal(size=shape).astype(np.float32) for name, shape in sizes.items()}
        record: dict[str, Any] = {
            "model_type": "gpt2",
            "n_layer": 1,
            "n_embd": 4,
            "n_head": 2,
            "n_positions": 7,
            "vocab_size": 11,
            "n_inner": None,
            "activation_function": "gelu_new",
            "layer_norm_epsilon": 1e-5,
            "resid_pdrop": 0.0,
            "embd_pdrop": 0.0,
            "attn_pdrop": 0.0,
            **(config or {}),
        }
        (box / file).parent.mkdir(exist_ok=True)
        (box / file).parent.joinpath("config.json").write_text(json.dumps(record))
        save_file(change_tensors(tensors) if change_tensors else tensors, box / file)

    return step


TABLE, FIRST = "transformer.wte.weight", "transformer.h.0.mlp.c_fc.weight"


def tensor(name: str, function: Any) -> Any:
    return lambda tensors: {**tensors, name: function(tensors[name])}


def with_value(value: float) -> Any:
    return tensor(FIRST, lambda x: np.where(np.arange(x.size).reshape(x.shape) == 5, np.float32(value), x))


BAD_CONFIGS: list[tuple[Any, ...]] = [
    ("model_type", "bart", "model_type", "bart"),
    ("model_type", ["gpt2"], "model_type"),
    ("vocab_size", "11", "vocab_size"),
    ("vocab_size", True, "vocab_size"),
    ("vocab_size", 12, "wte"),
    ("n_layer", 1_000_000_000, "gpt2"),
    ("n_layer", 0, "n_layer"),
    ("n_layer", 1.0, "n_layer"),
    ("n_positions", 9, "wpe"),
    ("n_embd", None, "n_embd"),
    ("activation_function", "gleu", "activation_function", "gelu"),
    ("layer_norm_epsilon", "1e-5", "layer_norm_epsilon|norm_epsilon"),
    ("layer_norm_epsilon", 1e400, "epsilon"),
    ("tie_word_embeddings", False, "tie_word_embeddings"),
    ("add_cross_attention", 1, "add_cross_attention"),
    ("quantization_config", {"bits": 8}, "quantization_config"),
]
LOAD = "load_huggingface gpt2"
ST = "gpt2/model.safetensors"
WEIGHTS_FILES = [
    case("a GPT-2", LOAD, accepted("Loaded"), gpt2()),
    case(
        "a GPT-2 of whole numbers", LOAD, refused("gpt2", "int8"),
        gpt2(tensor(FIRST, lambda x: (x * 40).astype(np.int8))),
    ),
    case("a GPT-2 with a value that is no number", LOAD, refused("gpt2", "c_fc"), gpt2(with_value(np.nan))),
    case("a GPT-2 with an infinite value", LOAD, refused("gpt2", "c_fc"), gpt2(with_value(np.inf))),
    case(
        "a GPT-2 in float64 beyond float32", LOAD, refused("gpt2", "c_fc"),
        gpt2(tensor(FIRST, lambda x: x.astype(np.float64) * 1e300)),
    ),
    case("a GPT-2 in float16", LOAD, accepted("Loaded"), gpt2(tensor(FIRST, lambda x: x.astype(np.float16)))),
    case(
        "a GPT-2 with a tensor by both its names", LOAD, refused("wte.weight"),
        gpt2(lambda t: {**t, "wte.weight": t[TABLE] + 1}),
    ),
    case(
        "a GPT-2 with another output", LOAD, refused("lm_head"), gpt2(lambda t: {**t, "lm_head.weight": t[TABLE] + 1}),
    ),
    case(
        "a GPT-2 that lacks a tensor", LOAD, refused("c_fc"),
        gpt2(lambda t: {k: v for k, v in t.items() if k != FIRST}),
    ),
    case(
        "a GPT-2 with a tensor of its own", LOAD, refused("adapter"),
        gpt2(lambda t: {**t, "transformer.h.0.adapter": t[TABLE]}),
    ),
    case("a GPT-2 with a tensor turned round", LOAD, refused("c_fc"), gpt2(tensor(FIRST, lambda x: x.T.copy()))),
    case("a GPT-2 with a name of two lines", LOAD, refused("a\\nb"), gpt2(lambda t: {**t, "a\nb\x1b[31m": t[TABLE]})),
    *(
        case(f"a GPT-2 whose config says {key} {value!r}", LOAD, refused(*parts), gpt2(config={key: value}))
        for key, value, *parts in BAD_CONFIGS
    ),
    *(
        case(f"a GPT-2 whose {what}", LOAD, refused("gpt2", *parts), gpt2(), step)
        for what, step, *parts in [
            ("config is empty", write("gpt2/config.json", ""), "config.json"),
            ("config is a list", write("gpt2/config.json", "[]"), "config.json"),
            ("config is deep", write("gpt2/config.json", DEEP), "config.json"),
            ("config is binary", write("gpt2/config.json", BINARY), "config.json"),
            ("config is a pipe", fifo("gpt2/config.json"), "config.json"),
            ("config is missing", remove("gpt2/config.json"), "config.json"),
            ("tensors are missing", remove(ST), "model.safetensors"),
            ("tensors are in pieces", move(ST, "gpt2/model-00001-of-00002.safetensors"), "model.safetensors"),
            ("tensors are empty", write(ST, ""), "model.safetensors"),
            ("tensors are cut", cut("gpt2"), "model.safetensors"),
            ("tensors are a folder", folder(ST), "model.safetensors"),
            ("tensors are a pipe", fifo(ST), "model.safetensors"),
            ("tensors' header has no end", write(ST, b"\xff" * 8 + b"{}"), "model.safetensors"),
            ("tensors are text", write(ST, "weights"), "model.safetensors"),
        ]
    ),
    case(
        "weights of another run", "load_weights seed.safetensors", refused("seed.safetensors"),
        lambda box: weights_of(box, lambda a: {k: v[..., :2] for k, v in a.items()}), runs=("reversal",),
    ),
    case(
        "weights of which one is not a number", "load_weights seed.safetensors", refused("seed.safetensors"),
        lambda box: weights_of(box, lambda a: {k: v * np.float32(np.nan) for k, v in a.items()}), runs=("reversal",),
    ),
    case(
        "weights of whole numbers", "load_weights seed.safetensors", refused("seed.safetensors"),
        lambda box: weights_of(box, lambda a: {k: v.astype(np.int32) for k, v in a.items()}), runs=("reversal",),
    ),
    case(
        "weights in float64", "load_weights seed.safetensors", refused("seed.safetensors"),
        lambda box: weights_of(box, lambda a: {k: v.astype(np.float64) for k, v in a.items()}), runs=("reversal",),
    ),
]


def weights_of(box: Any, function: Any) -> None:
    """Writes the weights of a model like the tiny run's, changed, in a safetensors file."""
    from safetensors.numpy import save_file

    from fxf.experiment import build
    from fxf.weights import leaves

    spec = build(json.loads((box / "tiny.json").read_text())).model.spec
    save_file(
        function({path: np.ones(weight.shape, np.float32) for path, weight in leaves(spec)}), box / "seed.safetensors"
    )


# --- Environments ---------------------------------------------------------------------------------------------------

EVALUATE = "evaluate --workdir=reversal"
TRAIN = "train @reversal --workdir=new"
ENVIRONMENTS = [
    case("a device that is not here", TRAIN, refused("cuda"), env={"JAX_PLATFORMS": "cuda"}),
    case("a device that is not here: evaluate", EVALUATE, refused("tpu"), env={"JAX_PLATFORMS": "tpu"}),
    case("a device that is none", "describe @reversal", refused("quantum"), env={"JAX_PLATFORMS": "quantum"}),
    case("devices in no number", TRAIN, refused("JAX_NUM_CPU_DEVICES"), env={"JAX_NUM_CPU_DEVICES": "two"}),
    case("a flag that XLA lacks", TRAIN, refused("XLA_FLAGS"), env={"XLA_FLAGS": "--xla_no_such_flag=1"}),
    case("numbers of 64 bits", EVALUATE, refused("JAX_ENABLE_X64"), env={"JAX_ENABLE_X64": "1"}),
    case("no home", EVALUATE, accepted("exact_match"), env={"HOME": None}),
    case("a home that is not there", EVALUATE, accepted("exact_match"), env={"HOME": "/nowhere"}),
    case("prepared data in a file", TRAIN_PAIRS, refused("text.txt"), env={"TFDS_DATA_DIR": "text.txt"}),
    case(
        "prepared data where nothing can be written", TRAIN_PAIRS, refused("/proc"),
        env={"TFDS_DATA_DIR": "/proc/data"},
    ),
    case(
        "a language without letters", "train @six --workdir=new", accepted("bleu"),
        env={"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ),
    case(
        "an output of ASCII", "generate --workdir=six 'good morning'", accepted(lines=1),
        env={"PYTHONIOENCODING": "ascii"},
    ),
    case("no git", TRAIN, accepted("exact_match"), env={"PATH": "/nowhere"}),
    case(
        "a plotting backend that is none",
        "probe --workdir=reversal --name=block_1/attention/weights --output=x.png '1 2'", accepted("x.png"),
        env={"MPLBACKEND": "quantum"},
    ),
    case("no asserts", EVALUATE, accepted("exact_match"), env={"PYTHONOPTIMIZE": "2"}),
    case("stdout closed", EVALUATE, refused("stdout|standard output"), stdout="closed"),
    case("stdout on a full disk: evaluate", EVALUATE, refused("stdout|standard output"), stdout="full"),
    case("stdout on a full disk: train", TRAIN, refused("stdout|standard output"), stdout="full", writes="^new"),
    case("stdout on a full disk: help", "train --help", refused("stdout|standard output"), stdout="full"),
    case(
        "a pipe that nobody reads: generate", "generate --workdir=reversal 1 2 3", refused("stdout|standard output"),
        stdout="broken pipe",
    ),
    case(
        "a pipe that nobody reads: describe", "describe @reversal", refused("stdout|standard output"),
        stdout="broken pipe",
    ),
    case(
        "a pipe that nobody reads: probe", "probe --workdir=reversal --lens '1 2'", refused("stdout|standard output"),
        stdout="broken pipe",
    ),
    case(
        "flags in a real process", "train @reversal --config.model.n_layer=3 --workdir=new", refused("model.n_layer"),
        own_process=True,
    ),
]


# --- Remote paths ---------------------------------------------------------------------------------------------------

REMOTE = [
    *(
        case(f"{path} for {what}", command.replace("PATH", path), refused(path.split(":")[0]), runs=("reversal",))
        for path in ("s3://bucket/run", "http://example.org/run", "gs://bucket/run")
        for what, command in {
            "a run: train": "train @reversal --workdir=PATH",
            "a run: evaluate": "evaluate --workdir=PATH",
        }.items()
    ),
    case("a scheme with capitals", "train @reversal --workdir=S3://bucket/run", refused("S3://|s3://")),
    case("a scheme of files", "train @reversal --workdir=file:///tmp/run", refused("file:")),
    case("a scheme with one slash", "train @reversal --workdir=gs:/bucket/run", refused("gs:/")),
    case("s3:// for a run: generate", "generate --workdir=s3://bucket/run 1", refused("s3://")),
    case("s3:// for a run: probe", "probe --workdir=s3://bucket/run 1", refused("s3://")),
    case("s3:// for a run: export", "export --workdir=s3://bucket/run --format=jax", refused("s3://")),
    case("s3:// for a sweep", "sweep --config=points.py --workdir=s3://bucket/sweep", refused("s3://")),
    case("s3:// for a text", f"{TRAIN_TEXT} --config.data.path=s3://bucket/text", refused("s3://")),
    case(
        "s3:// for weights", "export --workdir=reversal --format=safetensors --output=s3://bucket/x", refused("s3://"),
    ),
    case(
        "s3:// for a picture",
        "probe --workdir=reversal --name=block_1/attention/weights --output=s3://bucket/x.png '1 2'", refused("s3://"),
    ),
]


# --- Sizes: each in a process of its own, as a user starts it -------------------------------------------------------

HUGE = {
    "model.d_model=1000000": "reversal",
    "model.d_model=1000000000": "reversal",
    "model.d_ff=1000000000": "reversal",
    "model.n_layers=1000000": "reversal",
    "model.max_len=1000000000": "reversal",
    "model.max_len=1000000000000000000": "reversal",
    "train.batch_size=1000000000": "reversal",
    "task.max_length=1000000000": "reversal",
    "task.n_tokens=1000000000": "reversal",
    "task.length=1000000000": "characters",
    "task.base=1000000000": "series",
    "task.dim=1000000": "map",
}


def extra(size: str) -> str:
    """Returns what has to go with a size."""
    return {
        "task.max_length=1000000000": "--config.model.max_len=3000000000",
        "task.length=1000000000": "--config.model.max_len=1000000000",
    }.get(size, "")


SIZES = [
    *(
        case(
            f"{size}: train", f"train @{run} --config.{size} {extra(size)} --workdir=new".replace("  ", " "),
            refused(size.split("=")[0]), own_process=True, seconds=10,
        )
        for size, run in HUGE.items()
    ),
    *(
        case(
            f"{size}: describe", f"describe @{run} --config.{size} {extra(size)}".strip(), accepted("total"),
            own_process=True, seconds=10,
        )
        for size, run in HUGE.items()
        if size.startswith("model") or "batch" in size
    ),
    case(
        "a beam of 1,000,000,000", f"{SHOWN} --beam_width=1000000000 1", refused("beam_width"), own_process=True,
        seconds=10,
    ),
    case(
        "a beam of 1,000,000,000: evaluate", f"{EVALUATE} --beam_width=1000000000", refused("beam_width"),
        own_process=True, seconds=10,
    ),
    case(
        "a width of 1,000,000,000: describe in time",
        "describe --config=configs/reversal.py --config.model.d_model=1000000000", accepted("total"), seconds=5,
    ),
]

CASES: dict[str, list[Case]] = {
    "changed data": CHANGED_DATA,
    "prompts": PROMPTS,
    "values": VALUES,
    "tokenizers": TOKENIZERS,
    "run folders": RUN_FOLDERS,
    "checkpoints": CHECKPOINTS,
    "pairs": PAIRS,
    "texts": TEXTS,
    "weights files": WEIGHTS_FILES,
    "keys": KEYS,
    "flags": FLAGS,
    "config files": CONFIG_FILES,
    "sweeps": SWEEPS,
    "environments": ENVIRONMENTS,
    "remote paths": REMOTE,
    "sizes": SIZES,
}
