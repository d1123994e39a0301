"""Hostile starts, training keys, scores and pages: weights from elsewhere, and what is done with a finished run."""

import json
from typing import Any

from hostile_box import (
    BEYOND,
    EVALUATE,
    SHOWN,
    TRAIN,
    WEIGHTS,
    Case,
    accepted,
    borrow,
    case,
    change,
    fifo,
    flip,
    folder,
    link,
    refused,
    remove,
    write,
)

# --- Weights to start from -------------------------------------------------------------------------------------------


def start(name: str, flags: str, *parts: str, steps: Any = (), **options: Any) -> Case:
    return case(name, f"{TRAIN} {flags}", refused(*parts), *steps, **{"runs": ("reversal",), **options})


FROM = "--from=reversal"
FROM_FILE = f"--config.start.path={WEIGHTS}"
A_FILE = (borrow(WEIGHTS, WEIGHTS),)
STARTS = [
    start("a start of nothing", "--from=", "--from", "a value"),
    start("a start that is nowhere", "--from=reversl", "start.path", "reversl", "reversal"),
    start("a start at a step that is not there", f"{FROM}:5", "step 5|5"),
    start("a start at a step that is no number", f"{FROM}:last", "start.path"),
    start("a start at a negative step", f"{FROM}:-2", "start.path|step"),
    start("a start from a text", "--from=text.txt", "text.txt"),
    start("a start from a text at a step", "--from=text.txt:2", "text.txt"),
    start("a start from a folder of texts", "--from=parallel", "parallel", "config.json"),
    start("a start from a pipe", "--from=pipe", "pipe", steps=[fifo("pipe")]),
    start("a start from an endless file", "--from=/dev/zero", "/dev/zero"),
    start("a start from a loop of links", "--from=loop", "loop", steps=[link("loop", "loop")]),
    start("a start from S3", "--from=s3://bucket/run", "s3://"),
    start("a start from the folder that is trained", "--from=new", "new"),
    start(
        "a start from a run without checkpoints", FROM, "reversal", "checkpoint", steps=[remove("reversal/checkpoints")]
    ),
    start("a start from a damaged checkpoint", f"{FROM}:6", "reversal", "6", steps=[flip("reversal/checkpoints/6")]),
    start("a start from a run whose config is empty", FROM, "config.json", steps=[write("reversal/config.json", "")]),
    start("a start from a model of another kind", "--config.start.path=map", "start.path", "map", runs=("map",)),
    start("a start from other sizes", "--config.start.path=reversal --config.model.d_ff=9", "start.on_mismatch"),
    start(
        "a start that takes nothing",
        "--config.start.path=reversal --config.model.d_model=8"
        " --config.model.d_ff=9 --config.task.n_tokens=4 --config.start.on_mismatch=draw",
        "start.path",
    ),
    start("a pattern of no weight", f"{FROM} --config.start.weights=nothing/*", "start.weights", "nothing/*"),
    start("an empty pattern of weights", f"{FROM} --config.start.weights=", "start.weights"),
    start("a pattern without a start", "--config.start.weights=embedding/*", "start.weights", "start.path"),
    start("a mismatch without a start", "--config.start.on_mismatch=draw", "start.on_mismatch", "start.path"),
    start("a mismatch that is none", f"{FROM} --config.start.on_mismatch=drawn", "start.on_mismatch", "draw"),
    start("all of a state, in part", f"{FROM} --config.start.state=all --config.start.weights=final/*", "start.state"),
    start("the state of a file", f"{FROM_FILE} --config.start.state=all", "start.state", steps=A_FILE),
    start(
        "the state of another optimizer",
        f"{FROM} --config.start.state=all --config.optimizer.name=adamw",
        "start.state",
    ),
    start("a file at a step", f"--config.start.path={WEIGHTS}:2", "start.path", steps=A_FILE),
    start("a damaged file", FROM_FILE, WEIGHTS, steps=[*A_FILE, write(WEIGHTS, "weights")]),
    case(
        "other sizes, drawn",
        f"{TRAIN} --config.start.path=reversal --config.model.d_ff=9 --config.start.on_mismatch=draw",
        accepted("drawn at random"),
        runs=("reversal",),
    ),
    case("a file with a part of the weights", f"{TRAIN} {FROM_FILE}", accepted("exact_match"), *A_FILE),
    case(
        "a start that has changed since",
        "train @reversal --workdir=new --from=reversal",
        refused("reversal"),
        remove("reversal/checkpoints/6"),
        flip("reversal/checkpoints/4"),
        flip("reversal/checkpoints/2"),
    ),
]


# --- Keys of training ------------------------------------------------------------------------------------------------


def key(name: str, flags: str, *parts: str, run: str = "reversal") -> Case:
    return case(name, f"train @{run} --workdir=new {flags}", refused(*parts))


WSD = "--config.optimizer.schedule=wsd"
LENGTH = "train --config=configs/length.py:reverse_string --workdir=new"
TRAINING = [
    key("everything frozen", "--config.optimizer.frozen=*", "optimizer.frozen", "nothing is left"),
    key("a frozen weight that is none", "--config.optimizer.frozen=embeding/*", "optimizer.frozen", "embeding/*"),
    key("frozen by a negation alone", "--config.optimizer.frozen=!embedding/*", "optimizer.frozen"),
    *(
        key(f"layer_decay {value}", f"--config.optimizer.layer_decay={value}", "optimizer.layer_decay")
        for value in ("0", "-1", "nan")
    ),
    *(
        key(f"ema_decay {value}", f"--config.optimizer.ema_decay={value}", "optimizer.ema_decay")
        for value in ("1", "-0.1", "nan", BEYOND)
    ),
    key("wsd without steps that fall", WSD, "optimizer.decay_steps", "wsd"),
    key("wsd that falls for longer than it trains", f"{WSD} --config.optimizer.decay_steps=7", "optimizer.decay_steps"),
    key("steps that fall on another schedule", "--config.optimizer.decay_steps=3", "optimizer.decay_steps"),
    key("a schedule that is none", "--config.optimizer.schedule=wds", "optimizer.schedule", "wsd"),
    key("flash on a CPU", "--config.model.attention_implementation=flash", "flash"),
    key("an implementation that is none", "--config.model.attention_implementation=flsh", "flash"),
    key(
        "chunks of no scores",
        "--config.model.attention_implementation=chunked --config.model.attention=linear --config.model.positions=none",
        "attention_implementation",
    ),
    key(
        "chunks of a sequence cut by a mesh",
        "--config.model.attention_implementation=chunked --config.parallel.sequence=2",
        "parallel.sequence",
    ),
    key("a sequence cut on one device", "--config.parallel.sequence=2", "parallel.sequence"),
    key("a sequence cut by nothing", "--config.parallel.sequence=0", "parallel.sequence"),
    key("no pair held out", "--config.data.held_out=-1", "data.held_out", run="pairs"),
    key("more than all pairs held out", "--config.data.held_out=1.5", "data.held_out", run="pairs"),
    key("a limit below nothing", "--config.data.limit=-1", "data.limit", run="pairs"),
    key("ends of n-grams below nothing", "--config.decode.no_repeat_ngram=-1", "decode.no_repeat_ngram"),
    case(
        "a problem that is none", f"{LENGTH} --config.task.problem=bucket_srt", refused("task.problem", "bucket_sort")
    ),
    case("lengths that shrink", f"{LENGTH} --config.task.longest=3", refused("task.longest")),
    case("a range below nothing", f"{LENGTH} --config.task.position_range=-1", refused("task.position_range")),
    case("a range too short for its strings", f"{LENGTH} --config.task.position_range=9", refused("position_range")),
    case(
        "a range beyond memory",
        f"{LENGTH} --config.task.position_range=1000000000 --config.model.max_len=1000000000",
        refused("task.position_range"),
    ),
    case(
        "a range that the model has too",
        f"{LENGTH} --config.task.position_range=999 --config.model.max_len=999 --config.model.position_range=999",
        refused("task.position_range"),
    ),
    case("lengths that are never scored", f"{LENGTH} --config.task.score_every=0", refused("task.score_every")),
    case("lengths beyond the model", f"{LENGTH} --config.model.max_len=9", refused("model.max_len")),
    case("an answer that is none", f"{LENGTH} --config.task.answer=tapes", refused("task.answer", "tape")),
    case("strings of no symbol", f"{LENGTH} --config.task.max_length=0", refused("task.max_length")),
]


# --- Scores and answers ----------------------------------------------------------------------------------------------

OF_PAIRS = "evaluate --workdir=pairs"
SCORES = [
    case("scored pairs that are nowhere", f"{OF_PAIRS} --pairs=none.tsv", refused("--pairs", "none.tsv")),
    case("scored pairs that are none", f"{OF_PAIRS} --pairs=empty.tsv", refused("empty.tsv"), write("empty.tsv", "")),
    case("scored pairs of one column", f"{OF_PAIRS} --pairs=text.txt", refused("text.txt:1", "column")),
    case("scored pairs in a folder", f"{OF_PAIRS} --pairs=parallel", refused("--pairs", "parallel")),
    case("scored pairs from a pipe", f"{OF_PAIRS} --pairs=pipe", refused("--pairs", "pipe"), fifo("pipe")),
    case("scored pairs without end", f"{OF_PAIRS} --pairs=/dev/zero", refused("--pairs", "/dev/zero")),
    case(
        "scored pairs with an empty prompt",
        f"{OF_PAIRS} --pairs=bad.tsv",
        refused("bad.tsv:2"),
        write("bad.tsv", "a\tb\n\tc\n"),
    ),
    case(
        "scored pairs for a boolean map", "evaluate --workdir=map --pairs=pairs.tsv", refused("--pairs", "boolean_map")
    ),
    case("answers into a file", f"{OF_PAIRS} --output=text.txt", refused("--output", "text.txt")),
    case("answers into a bucket", f"{OF_PAIRS} --output=s3://bucket/x", refused("--output|s3://")),
    case("answers of a boolean map", "evaluate --workdir=map --output=x", refused("--output", "boolean_map")),
    case("a baseline that is nowhere", f"{OF_PAIRS} --baseline=none", refused("--baseline", "none")),
    case("a baseline of other files", f"{OF_PAIRS} --baseline=parallel", refused("--baseline", "parallel")),
    case(
        "a baseline of other prompts",
        f"{OF_PAIRS} --baseline=other",
        refused("--baseline", "other"),
        write("other/sources.txt", "one\ntwo\n"),
        write("other/hypotheses.txt", "un\ndeux\n"),
    ),
    case("scored at a step that is not there", f"{EVALUATE} --step=5", refused("5")),
    case("n-grams below nothing", f"{SHOWN} --no_repeat_ngram=-1 1", refused("no_repeat_ngram")),
    case("n-grams that are no number", f"{SHOWN} --no_repeat_ngram=x 1", refused("no_repeat_ngram")),
    case("every answer the same token", f"{SHOWN} --no_repeat_ngram=1 '1 1 1'", accepted(lines=1)),
    case("interactive, with a prompt", f"{SHOWN} --interactive 1", refused("--interactive")),
    case("interactive, with a file", f"{SHOWN} --interactive --input=prompts.txt", refused("--interactive")),
    case(
        "interactive, with a line that is no prompt",
        f"{SHOWN} --interactive",
        accepted("error: ", lines=2),
        stdin=b"1 2\n4 x\n\xff\n2\n",
    ),
    case(
        "interactive, with a run that answers nothing", "generate --workdir=map --interactive", refused("boolean_map")
    ),
    case("no company", "sweep --config=points.py --workdir=new --together=0", refused("together")),
]


# --- Pages -----------------------------------------------------------------------------------------------------------


def page(name: str, file: str, content: Any) -> Case:
    text = content if isinstance(content, str | bytes) else json.dumps(content) + "\n"
    return case(name, "compare reversal", accepted("reversal"), write(f"reversal/{file}", text))


PAGES = [
    case("a report of nothing", "report", refused("no run")),
    case("a report of a text", "report text.txt", refused("text.txt")),
    case("a report of a folder of texts", "report parallel", refused("parallel", "no run")),
    case("a report that is nowhere", "report reversl", refused("reversl")),
    case("a report from a bucket", "report s3://bucket/run", refused("s3://")),
    case(
        "a report of a config that is a list",
        "report reversal",
        refused("config.json"),
        write("reversal/config.json", "[]"),
    ),
    case(
        "a report of keys that are a list",
        "report reversal",
        refused("overrides"),
        change("reversal/config.json", "overrides", []),
    ),
    case(
        "a report of samples without rows",
        "report reversal",
        accepted("report.html"),
        write("reversal/samples.jsonl", '{"step": 6}\n'),
    ),
    case(
        "a report of rows that are a number",
        "report reversal",
        accepted("report.html"),
        write("reversal/samples.jsonl", '{"step": 6, "rows": 5}\n'),
    ),
    case(
        "a report of an inside that is a list",
        "report reversal",
        accepted("report.html"),
        write("reversal/inside.json", "[1]"),
    ),
    case(
        "a report over a folder",
        "report reversal",
        refused("report.html"),
        remove("reversal/report.html"),
        folder("reversal/report.html/x"),
    ),
    case("a comparison of nothing", "compare", refused("no run")),
    case("a comparison with a text", "compare reversal text.txt", refused("text.txt")),
    case("a comparison of texts", "compare parallel", refused("parallel", "config.json")),
    case("a comparison with itself", "compare reversal reversal", accepted("reversal")),
    case("a comparison into a picture", "compare reversal --output=x.png", refused("--output", ".html")),
    case("a comparison into nowhere", "compare reversal --output=none/x.html", refused("--output", "none/x.html")),
    case("a comparison in a format that is none", "compare reversal --format=xml", refused("--format|format")),
    page("a comparison of records that are binary", "metrics.jsonl", bytes(range(256))),
    page("a comparison of records of a word", "metrics.jsonl", {"step": "six", "loss": 2}),
    page("a comparison of records of lists", "metrics.jsonl", {"step": 6, "loss": [1], "x": {"y": 2}}),
    page("a comparison of a result that is a list", "result.json", [1]),
    page("a comparison of a result of words", "result.json", {"exact_match": "good"}),
    case("keys of a section that is none", "keys modle", refused("modle", "model")),
    case("keys of another task", "keys data --config=configs/reversal.py", refused("data")),
    case("keys in a file that is none", "keys --config=none.py", refused("none.py")),
]
