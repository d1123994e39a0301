"""Loading a run from its folder."""

import dataclasses
import functools
import logging
from pathlib import Path
from typing import Any

import jax

from fxf.base import weights
from fxf.base.config import section
from fxf.base.errors import UserError
from fxf.base.files import folder_at
from fxf.base.status import stage
from fxf.models.decode_config import DecodeConfig, changed_decode
from fxf.reports.run_files import CHECKPOINTS
from fxf.runs import guests, run_folder
from fxf.runs.experiment import Experiment, build
from fxf.training import checkpoint
from fxf.training.fine_tuning import evaluated_params
from fxf.training.sharding import Layout

log = logging.getLogger(__name__)

Place = str | Path
Changes = dict[str, Any] | None


def load(
    workdir: Place, step: int | None = None, decode: Changes = None, *, as_trained: bool = False
) -> tuple[Experiment, int, weights.Params]:
    """Returns the run's experiment, and the step and params of a checkpoint: of `step`, or the one the run reports.

    Attention is computed by XLA, so that any device can run it and attention weights can be shown.
    Params and model are plain: adapters are merged.

    Args:
      decode: keys of the `decode` section to change, by `changed_decode`.
      as_trained: whether to return the trained params and model, with their adapters.

    Raises:
      UserError: there is no run, no such checkpoint or no undamaged one, a `decode` key is wrong, or a file of
        the user is missing.
    """
    workdir = folder_at(workdir, "workdir")
    experiment, identity = open_run(workdir, decode)
    experiment = experiment.with_model(attention_implementation="xla")
    layout = experiment.layout_of_one_copy()
    steps, params = load_params(experiment, layout, workdir, identity, step)
    if step is None:
        result = run_folder.read_result(workdir, identity) or {}
        tested = result.get("best_step", result.get("steps", steps[0]))
        if tested != steps[0] and not (workdir / CHECKPOINTS / str(tested)).exists():
            gone = f"the result is of step {tested}, whose checkpoint is gone; this is step {steps[0]}"
            log.warning("warning: %s: %s", workdir, gone)
    if as_trained:
        return experiment, steps[0], params
    return experiment.with_plain_weights(), steps[0], plain_params(experiment, layout, params)


def plain_params(experiment: Experiment, layout: Layout, params: weights.Params) -> weights.Params:
    """Returns the plain weights of params in this layout."""
    model = experiment.model
    if model.plain is model:
        return params
    return jax.jit(model.to_plain, out_shardings=layout.weights(model.plain.spec))(params)


def open_run(workdir: Path, decode: Changes = None) -> tuple[Experiment, run_folder.Identity]:
    """Returns the experiment and the identity of the run in `workdir`; arguments and errors as in `load`."""
    config, identity, recorded = run_folder.read_config(workdir)
    guests.restore(workdir, recorded)
    saved = dataclasses.asdict(section(DecodeConfig, config.get("decode", {}), "decode"))
    return build({**config, "decode": changed_decode(saved, decode or {})}, workdir), identity


@stage("reading the checkpoint")
def load_params(
    experiment: Experiment, layout: Layout, workdir: Path, identity: run_folder.Identity, step: int | None = None
) -> tuple[list[int], weights.Params]:
    """Returns the steps and the params of the checkpoint of `step`, or of the best or the newest, as the config says.

    With `checkpoint.average` above 1, the params are the mean of that many checkpoints, chosen by their steps.

    Raises:
      UserError: there is no such checkpoint or no undamaged one, or it belongs to a run with another identity.
    """
    shapes, config = experiment.state_shapes(layout), experiment.checkpoint
    choice: Any = {"step": step, "used": functools.partial(config.used, last=experiment.train.steps)}
    found = checkpoint.load(workdir / CHECKPOINTS, shapes, identity, config.average, **choice, part=evaluated_params)
    if not found:
        raise UserError(f"{workdir}: no checkpoint yet; train the run first")
    steps, params, _ = zip(*found, strict=True)
    return list(steps), _mean(*params) if len(found) > 1 else params[0]


@jax.jit
def _mean(*trees: weights.Params) -> weights.Params:
    return jax.tree.map(lambda *copies: sum(copies) / len(copies), *trees)
