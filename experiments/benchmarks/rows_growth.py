"""Rows of growth: how a step grows with one size of a small model."""

import functools
from collections.abc import Iterator
from typing import Any

from rows import Row, Rows, Settings, Way
from rows_training import Fxf, lm, random_tokens, sizes_of

from fxf.training.optimizer import OptimizerConfig
from fxf.training.step import TrainConfig

LENGTHS, DEPTHS, WIDTHS, VOCABULARIES = (128, 512, 2048, 8192), (2, 8, 24, 48), (64, 256, 1024), (256, 4096, 65536)
LONG = (2048, 4096, 8192)  # with attention in chunks


def growth(settings: Settings) -> Iterator[Row]:
    """How a step grows with length, depth (blocks scanned), width and vocabulary; the note has the plan's memory."""
    settings = settings._replace(steps=1)
    axes: dict[str, list[tuple[Any, ...]]] = {
        "length": [(2, 64, 2, n, 65) for n in LENGTHS],
        "length in chunks": [(2, 64, 2, n, 65) for n in LONG],
        "depth": [(n, 64, 2, 64, 65) for n in DEPTHS],
        "width": [(2, n, 2, 64, 65) for n in WIDTHS],
        "vocabulary": [(2, 64, 2, 64, n) for n in VOCABULARIES],
    }
    for axis, all_sizes in axes.items():
        for sizes in all_sizes[:1] if settings.quick else all_sizes:
            made = sizes_of(*sizes)
            field = {"depth": "n_layers", "width": "d_model", "vocabulary": "vocab_size"}.get(axis, "length")
            options: dict[str, Any] = {"scan_blocks": axis == "depth"}
            if axis == "length in chunks":
                options["attention_implementation"] = "chunked"
            ways = {"fxf": functools.partial(_growing, made, options, settings.steps)}
            what = f"growth, {axis} {getattr(made, field):,}"
            yield Row(what, "tokens/s", made.length * settings.steps, ways, lambda facts: facts["fxf"])


def _growing(sizes: Any, options: dict[str, Any], steps: int) -> Way:
    batch = random_tokens(1, sizes.length, sizes.vocab_size)
    ours = Fxf(lm(sizes, **options), batch, OptimizerConfig(), TrainConfig())
    return Way(lambda: ours.run(steps), lambda: f"plan {ours.planned_bytes() / 2**20:.0f} MiB")


ROWS: dict[str, Rows] = {"growth": growth}
