"""Weights to start from."""

from typing import Any

from experiments.hostile.case import Case, accepted, case, refused
from experiments.hostile.fixtures import TRAIN, WEIGHTS
from experiments.hostile.steps import borrow, fifo, flip, link, remove, write

# fmt: off

def start(name: str, flags: str, *parts: str, steps: Any = (), **options: Any) -> Case:
    return case(name, f"{TRAIN} {flags}", refused(*parts), *steps, **{"runs": ("reversal",), **options})


FROM = "--from=reversal"
FROM_FILE = f"--config.start.path={WEIGHTS}"
A_FILE = (borrow(WEIGHTS, WEIGHTS),)
CASES = [
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
