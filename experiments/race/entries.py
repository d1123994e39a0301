"""What races, and what `characters:fast` is without its optimizer."""

from typing import NamedTuple


class Trial(NamedTuple):
    """A change of `characters:fast`: in words, and the keys of the other config."""

    words: str
    changes: list[str]


ENTRIES = {"characters:nanogpt_cpu": 1.88, "characters:fast": 1.88, "characters:fast_160": 1.60}  # and their targets
# The optimizer is taken back to that of nanoGPT, with three rates, because its best is another than Muon's.
TRIALS = {
    f"adamw_{rate}": Trial(
        f"AdamW with a rate of {rate} for Muon", ["optimizer.name=adamw", f"optimizer.learning_rate={rate}"]
    )
    for rate in ("2e-3", "4e-3", "8e-3")
}
