"""Damaged files of a run folder."""

import json
from typing import Any

from experiments.hostile.case import Case, accepted, case, refused
from experiments.hostile.fixtures import BINARY, DEEP, LONG
from experiments.hostile.steps import append, borrow, change, fifo, folder, link, mode, remove, rewrite, write

# fmt: off

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


CASES = [
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
    *(
        case(
            f"config.json: {key} of another type: resume", "train @reversal --workdir=half", refused("config.json"),
            change("half/config.json", key, value),
        )
        for key, value in {"overrides": 3, "expected": [1], "versions": "x", "changes": [3]}.items()
    ),
    case(
        "a zero with a sign is the same config", "train @reversal --workdir=reversal --config.model.dropout=-0.0",
        accepted("finished already"),
    ),
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
