"""Damaged checkpoints, and checkpoints of other runs."""

import json
from pathlib import Path

from experiments.hostile.case import accepted, case, refused
from experiments.hostile.fixtures import BINARY, DEEP
from experiments.hostile.steps import Step, borrow, change, cut, flip, folder, link, move, remove, write
from fxf.training.checkpoint_files import digests

# fmt: off

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



def anew(folder: str, *steps: Step) -> Step:
    """Changes a checkpoint, and writes the digests of its files anew."""

    def step(box: Path) -> None:
        for change_files in steps:
            change_files(box)
        (box / folder / "digests.json").write_text(json.dumps(digests(box / folder)))

    return step


CASES = [
    *(
        case(f"digests that fit, {what}: evaluate", "evaluate --workdir=reversal", FALLS_BACK, anew(LAST, *steps))
        for what, steps in {
            "a byte changed": (flip(LAST),),
            "a file cut": (cut(LAST),),
            "no manifest": (remove(f"{LAST}/state/manifest.ocdbt"),),
            "no metadata": (remove(f"{LAST}/state/_METADATA"),),
            "no identity": (change(f"{LAST}/checkpoint.json", "identity", ...),),
            "an identity of a list": (change(f"{LAST}/checkpoint.json", "identity", []),),
            "no arrays": (change(f"{LAST}/checkpoint.json", "arrays", ...),),
            "no record": (change(f"{LAST}/checkpoint.json", "record", ...),),
            "a record of another step": (change(f"{LAST}/checkpoint.json", "record/step", 4),),
            "a step of a word": (change(f"{LAST}/checkpoint.json", "step", "6"),),
            "arrays of another step": (borrow("reversal/checkpoints/4/state", f"{LAST}/state"),),
        }.items()
    ),
    case(
        "digests that fit, arrays of another step: train", "train @reversal --workdir=half",
        accepted("resuming at step 2", "skipping"),
        anew("half/checkpoints/4", borrow("reversal/checkpoints/6/state", "half/checkpoints/4/state")),
        runs=("reversal",),
    ),
    case(
        "digests that fit, a record of other parts: train", "train @reversal --workdir=half", refused("record", "zz"),
        anew("half/checkpoints/4", change("half/checkpoints/4/checkpoint.json", "record/zz", 3)),
    ),
    case(
        "digests that fit, a byte changed: a chosen step", "evaluate --workdir=reversal --step=6",
        refused("step 6", "damaged"), anew(LAST, flip(LAST)),
    ),
    case(
        "digests that fit, a step beyond the last: train", "train @reversal --workdir=reversal", accepted("skipping"),
        remove("reversal/result.json"), move(LAST, "reversal/checkpoints/1000"),
        anew("reversal/checkpoints/1000", change("reversal/checkpoints/1000/checkpoint.json", "step", 1000)),
    ),
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
