"""Search for the mesh, rematerialization and batch size that train a config fastest, by the estimated step time."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from fxf.base.config import with_values
from fxf.base.errors import UserError
from fxf.base.memory import gib
from fxf.compile.roofline import Figures, spent
from fxf.compile.topologies import HOST

BATCHES = (1, 2, 4)  # times the config's batch size
REMATS = ("none", "dots", "full")  # the fastest first


class Trial(NamedTuple):
    """Changes of a config by key, and the costs of its training step, or why the config is refused."""

    changes: dict[str, Any]
    figures: Figures

    @property
    def rate(self) -> float:
        """Sequences per second; 0 if the step does not fit."""
        return self.figures["sequences"] / spent(self.figures) if self.figures["fits"] else 0.0


def search(config: Mapping[str, Any], n_devices: int, measure: Callable[[dict[str, Any]], Figures]) -> Iterator[Trial]:
    """Yields a trial for each mesh of all devices and each batch size.

    The axes `fsdp` and `tensor` are powers of two, and `tensor` stays within a host. Rematerialization costs time, so
    more of it is tried only if the batch does not fit otherwise. A larger batch is not tried if a smaller one does not
    fit.

    Args:
      config: the nested config.
      measure: returns the costs of a config's training step, and its `sequences`.
    """
    sizes = [2**i for i in range(n_devices.bit_length()) if n_devices % 2**i == 0]
    kinds: list[dict[str, Any]] = [{"model.remat": kind} for kind in REMATS] if "remat" in config["model"] else [{}]
    for tensor, fsdp in itertools.product(sizes, reversed(sizes)):  # most fsdp first: it saves most memory
        if tensor > HOST or n_devices % (fsdp * tensor):
            continue
        mesh = {"parallel.data": n_devices // (fsdp * tensor), "parallel.fsdp": fsdp, "parallel.tensor": tensor}
        left = kinds
        for times in BATCHES:
            for remat in left:
                changes = {**mesh, **remat, "train.batch_size": times * config["train"]["batch_size"]}
                try:
                    trial = Trial(changes, measure(with_values(config, changes)))
                except UserError as error:
                    trial = Trial(changes, {"fits": False, "refused": str(error)})
                yield trial
                if trial.rate or "refused" in trial.figures:
                    break
            if not trial.rate:
                break
            left = left[left.index(remat) :]


def line(trial: Trial) -> str:
    """Returns a trial as a line."""
    changes = " ".join(f"{key.split('.')[1]}={value}" for key, value in trial.changes.items())
    step = trial.figures
    if not step["fits"]:
        return f"{changes}: {step.get('refused', 'does not fit')}"
    held, share = gib(step["bytes"]["total"]), f"{100 * step['share_of_peak']:.1f} % of peak"
    return f"{changes}: {trial.rate:,.1f} sequences a second, {share}, {held}"
