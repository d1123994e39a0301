"""Experiments of one process share compiled programs that differ only in the values of their arguments."""

import json
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from fxf.base.config import arguments
from fxf.base.files import digest
from fxf.base.random_keys import random_key
from fxf.runs.experiment import Experiment
from fxf.training.optimizer import optimizer_section

# The programs of experiments, by `program_key`.
Kept = dict[str, dict[Any, dict[Any, Any]]]


def share(experiment: Experiment, kept: Kept | None, use: str = "") -> Experiment:
    """Returns the experiment with the programs in `kept` that are the same as its own; else `kept` gets its own.

    Args:
      use: what the programs are for; those of another use are others.
    """
    if kept is None:
        return experiment
    return experiment._replace(programs=kept.setdefault(use + program_key(experiment), experiment.programs))


def program_key(experiment: Experiment) -> str:
    """Returns a digest that two experiments have in common only if they compile the same programs on the same devices.

    What a task computes inside a program is compared by its trace, because it may depend on the seed.
    """
    task, traced = experiment.task, b""
    if not task.has("batches"):
        jaxpr = jax.make_jaxpr(task.batch)(random_key(0), np.int32(0))
        traced = b"".join([str(jaxpr).encode(), *(np.asarray(constant).tobytes() for constant in jaxpr.consts)])
    read = [without_numbers(experiment.config), task.vocab_size, task.end_token, sorted(task.digests().items())]
    return digest(json.dumps(read, sort_keys=True).encode() + traced)


def without_numbers(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a config without the keys on which no compiled program depends.

    These are the values of `Hyperparameters`, which a program reads as arguments, and the keys that say when a run is
    scored and saved, and what it writes.
    """
    train = {**config["train"], **{name: config["train"][name] > 0 for name in ("label_smoothing", "skip_nonfinite")}}
    train |= dict.fromkeys(("evaluate_every", "patience"))
    log = {"every": config["log"]["every"]}  # the most steps of a call
    optimizer = {**config["optimizer"], **dict.fromkeys(arguments(optimizer_section(config["optimizer"])))}
    return {**config, "seed": None, "checkpoint": None, "log": log, "train": train, "optimizer": optimizer}
