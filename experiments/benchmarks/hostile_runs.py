"""Hostile run folders: other data under the same paths, damaged files, other checkpoints."""

import json
from typing import Any

from hostile_box import (
    BINARY,
    DEEP,
    LONG,
    POINTS,
    Case,
    accepted,
    append,
    borrow,
    case,
    change,
    cut,
    failed,
    fifo,
    flip,
    folder,
    link,
    mode,
    move,
    refused,
    remove,
    rewrite,
    write,
)

# fmt: off


# --- Changed data: the same paths and folders, other contents --------------------------------------------------------

# A sweep of one point: a run on a text.
TEXTS_SWEEP = (
    POINTS.replace("tiny.json", "characters/config.json").replace("load(file)", 'load(file)["config"]')
    .replace("range(2)", "[0]")
)
ANOTHER_TEXT = (borrow("other.txt", "text.txt"),)
ANOTHER_PAIRS = (rewrite("pairs.tsv", lambda text: text.replace("chat", "chien bleu")),)
ANOTHER_TOKENIZER = (borrow("fresh/tokenizer.json", "characters/tokenizer.json"),)
ANOTHERS_CHECKPOINTS = (borrow("seed1/checkpoints", "reversal/checkpoints"),)
ONE_OF_ANOTHERS = (borrow("seed1/checkpoints/6", "half/checkpoints/6"),)

CHANGED_DATA = [
    case("another text: train", "train @characters --workdir=halfway", refused("data.path", "halfway"), *ANOTHER_TEXT),
    case(
        "another text: train a finished run", "train @characters --workdir=characters", refused("data.path"),
        *ANOTHER_TEXT,
    ),
    case("another text: evaluate", "evaluate --workdir=characters", refused("data.path"), *ANOTHER_TEXT),
    case("another text: masking, evaluate", "evaluate --workdir=masking", refused("data.path"), *ANOTHER_TEXT),
    case(
        "another text: sweep", "sweep --config=texts.py --workdir=texts --workers=0", refused("data.path"),
        write("texts.py", TEXTS_SWEEP),
        borrow("characters", "texts/seed=0"), *ANOTHER_TEXT, runs=("characters",),
    ),
    case("other pairs: train", "train @pairs --workdir=pairs", refused("data.path"), *ANOTHER_PAIRS),
    case(
        "other pairs: resume", "train @pairs --workdir=pairs", refused("data.path"), *ANOTHER_PAIRS,
        remove("pairs/result.json"), remove("pairs/checkpoints/6"),
    ),
    case("other pairs: evaluate", "evaluate --workdir=pairs", refused("data.path"), *ANOTHER_PAIRS),
    case(
        "a text lost with its tokenizer: resume", "train @characters --workdir=halfway",
        refused("data.path|tokenizer.json"), *ANOTHER_TEXT, remove("halfway/tokenizer.json"),
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
        ]
    ),
    case(
        "checkpoints of another run: sweep", "sweep --config=points.py --workdir=sweep --workers=1",
        failed("seed=0", "another run"), borrow("seed1/checkpoints", "sweep/seed=0/checkpoints"),
        remove("sweep/seed=0/result.json"), writes="^sweep",
    ),
]


# --- Run folders -----------------------------------------------------------------------------------------------------


def edited(name: str, keys: str, value: Any, *parts: str, run: str = "reversal") -> Case:
    command = {"reversal": "evaluate --workdir=reversal", "characters": "evaluate --workdir=characters"}[run]
    return case(name, command, refused(*(parts or ("config.json",))), change(f"{run}/config.json", keys, value))


def twice(text: str) -> str:
    """Returns the JSON of an object whose end repeats a section with other values."""
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
    edited("config.json: a number as a string", "config/model/n_layers", "1"),
    edited("config.json: a whole number as a float", "config/model/n_layers", 1.0),
    edited("config.json: true for a number", "config/model/n_layers", True),
    edited("config.json: null for a key", "config/model/n_layers", None),
    edited("config.json: an unknown key", "config/model/layers", 1),
    edited("config.json: a key removed", "config/model/n_layers", ...),
    edited("config.json: a section removed", "config/model", ...),
    edited("config.json: decode removed", "config/decode", ..., "decode"),
    edited("config.json: name is a list", "config/model/name", ["transformer_lm"]),
    edited("config.json: name is an object", "config/task/name", {}),
    edited("config.json: no config in it", "config", ...),
    edited("config.json: config is a list", "config", []),
    edited("config.json: config is null", "config", None),
    edited("config.json: not a number", "config/optimizer/eps", float("nan")),
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
            "a pipe": fifo("reversal/config.json"),
            "a number of 5,000 digits": write("reversal/config.json", '{"config": %s}' % ("9" * 5000)),
        }.items()
    ),
    case(
        "config.json: missing, evaluate", "evaluate --workdir=reversal", refused("config.json"),
        remove("reversal/config.json"),
    ),
    case(
        "config.json: missing, checkpoints there: train", "train @reversal --workdir=reversal", accepted("exact_match"),
        remove("reversal/config.json"),
    ),
    case(
        "result.json of another run", "train @reversal --workdir=reversal", accepted("result of another run"),
        borrow("seed1/result.json", "reversal/result.json"),
    ),
    *(
        case(f"result.json: {what}", "train @reversal --workdir=reversal", accepted("counts as absent"), step)
        for what, step in {
            "empty": write("reversal/result.json", ""),
            "a list": write("reversal/result.json", "[]"),
            "null": write("reversal/result.json", "null"),
            "an empty object": write("reversal/result.json", "{}"),
            "binary": write("reversal/result.json", BINARY),
            "deep": write("reversal/result.json", DEEP),
        }.items()
    ),
    case(
        "result.json: a folder", "train @reversal --workdir=reversal", refused("result.json"),
        folder("reversal/result.json"),
    ),
    *(
        case(f"metrics.jsonl: {what}", "train @reversal --workdir=half", accepted("metrics.jsonl", "dropped"), step)
        for what, step in {
            "binary": write("half/metrics.jsonl", BINARY),
            "lists": write("half/metrics.jsonl", "[]\n[]\n"),
            "without steps": write("half/metrics.jsonl", "{}\n{}\n"),
        }.items()
    ),
    case(
        "metrics.jsonl: a folder", "train @reversal --workdir=half", refused("metrics.jsonl"),
        folder("half/metrics.jsonl"),
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
    case("the folder is a file", "train @reversal --workdir=text.txt", refused("text.txt")),
    case("the folder lies in a file", "train @reversal --workdir=text.txt/run", refused("text.txt/run")),
    case("the folder is a loop of links", "train @reversal --workdir=loop", refused("loop"), link("loop", "loop")),
    case("the folder's name is too long", f"train @reversal --workdir={LONG}", refused("too long")),
    case("the folder's name has a line end", "evaluate --workdir='a\nb'", refused("a\\nb")),
    case("the folder's name has an escape", "evaluate --workdir='\x1b[31mred'", refused("\\x1b[31mred")),
    case("the folder's name is empty", "train @reversal --workdir=", refused("--workdir", "a value")),
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
    case("another task: train", "train @series --workdir=reversal", refused("reversal", "another run")),
]


# --- Checkpoints -----------------------------------------------------------------------------------------------------

LAST = "reversal/checkpoints/6"
FALLS_BACK = accepted("skipping the damaged checkpoint of step 6", "step 4")
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
    case(
        "a step renamed", "evaluate --workdir=reversal", accepted("skipping", "step 20"),
        move(LAST, "reversal/checkpoints/20"),
    ),
    case(
        "a copy of a step as a later one: evaluate", "evaluate --workdir=reversal", accepted("skipping", "20"),
        borrow(LAST, "reversal/checkpoints/20"), runs=("reversal",),
    ),
    case(
        "a copy of a step as a later one: train", "train @reversal --workdir=half", accepted("skipping", "step 4"),
        borrow("reversal/checkpoints/4", "half/checkpoints/5"), writes="checkpoints",
    ),
    case(
        "the state of a step in the folder of another", "evaluate --workdir=reversal",
        accepted("skipping", "step 6"), borrow("reversal/checkpoints/2", LAST),
    ),
    case(
        "a folder without any file, whose digests are of none", "evaluate --workdir=reversal",
        accepted("skipping", "9"), folder("reversal/checkpoints/9"),
        write("reversal/checkpoints/9/digests.json", "{}"),
    ),
    case(
        "a link to another run's step", "evaluate --workdir=reversal", accepted("skipping", "8"),
        link("reversal/checkpoints/8", "../../seed1/checkpoints/6"), runs=("seed1",),
    ),
    *(
        case(f"{what}: {name}", command, FALLS_BACK if name != "generate" else accepted("skipping"), *steps)
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
        "metadata of a step without its keys", "evaluate --workdir=reversal", accepted("skipping"),
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
