"""Sizes that no machine holds, each in a process of its own, as a user starts it."""

from experiments.hostile.case import accepted, case, refused
from experiments.hostile.fixtures import EVALUATE, SHOWN

# fmt: off

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
    """Returns the flags that a size needs besides."""
    return {
        "task.max_length=1000000000": "--config.model.max_len=2147483647",
        "task.length=1000000000": "--config.model.max_len=1000000000",
    }.get(size, "")


CASES = [
    *(
        case(
            f"{size}: train", f"train @{run} --config.{size} {extra(size)} --workdir=new".replace("  ", " "),
            refused(size.split("=")[0] + "|model.max_len"), own_process=True, seconds=10,
        )
        for size, run in HUGE.items()
    ),
    *(
        case(
            f"{size}: describe", f"describe @{run} --config.{size} {extra(size)}".strip(), accepted("total"),
            own_process=True, seconds=10,
        )
        for size, run in HUGE.items()
        if (size.startswith("model") and "max_len" not in size) or "batch" in size
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
