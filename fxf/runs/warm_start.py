"""Starting a run from weights that exist: of a run, of a safetensors file, or of a folder of transformers."""

import dataclasses
import logging
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fxf.config import defaults, differences
from fxf.data.tokenizer import TOKENIZER_FILE, VOCAB_SIZE, read_tokenizer
from fxf.errors import UserError, nearest
from fxf.files import digest, file_digest
from fxf.interop import huggingface, weights_file
from fxf.models import MODELS
from fxf.runs import run_folder
from fxf.runs.experiment import Experiment
from fxf.runs.loading import CHECKPOINTS, load_params, open_run
from fxf.runs.source import Source, StartConfig, source_of
from fxf.training import checkpoint, checkpoint_files
from fxf.training.sharding import Layout
from fxf.training.state import TrainState
from fxf.weights import VOCABULARY, Spec, flatten, leaves, matching

log = logging.getLogger(__name__)

MAX_NAMED = 5  # weights that a line names
NOT_FUNCTION = ("dropout", "init", "scan_blocks", "remat", "dtype", "attention_implementation", "max_len")


class Start(NamedTuple):
    """What a run starts from.

    Attributes:
      given: weights by path, on their devices; the others are drawn.
      opt_state: the optimizer's state; None for a new one.
      digests: the digest of the source by the key that names it.
      origin: what config.json says of the source.
      lines: texts that tell what was taken.
    """

    given: dict[str, jax.Array] = {}  # noqa: RUF012  nothing changes it
    opt_state: Any = None
    digests: dict[str, str] = {}  # noqa: RUF012
    origin: dict[str, Any] = {}  # noqa: RUF012
    lines: tuple[str, ...] = ()

    def state(self, experiment: Experiment, layout: Layout) -> TrainState:
        """Returns the state of step 0."""
        state = experiment.new_state(layout, self.given)
        return state if self.opt_state is None else dataclasses.replace(state, opt_state=self.opt_state)


class Found(NamedTuple):
    """What a source holds: weights by path, its digest, its `model` section if it has one, and more for a run."""

    weights: dict[str, Any]
    digest: str
    model: dict[str, Any] | None = None
    step: int | None = None
    opt_state: Any = None


def start_of(experiment: Experiment, layout: Layout, workdir: Path) -> Start:
    """Returns what the run in `workdir` starts from. A run that has a checkpoint does not read its source again.

    Raises:
      UserError: there is no such source, or it cannot be read or does not fit.
    """
    config = experiment.start
    if not config.path:
        return Start()
    recorded = run_folder.source_digest(workdir, config.path)
    if recorded and (checkpoint.steps_in(workdir / CHECKPOINTS) or (workdir / run_folder.RESULT).exists()):
        return Start(digests=recorded)
    source = source_of(config.path)
    found = READERS[source.kind](source, experiment, layout)
    given, lines = chosen(config, experiment.model.spec, found.weights)
    shardings = flatten(layout.weights(experiment.model.spec))
    step = "" if found.step is None else f" at step {found.step}"
    tokenizer = source.files is not None and TOKENIZER_FILE in experiment.task.files
    same = tokenizer and (source.place / TOKENIZER_FILE).exists()
    what = f"starts from {source.place}{step}: {len(given)} weights{' and the tokenizer' if same else ''}"
    if tokenizer and not same:
        lines = (*lines, f"{source.place} has no {TOKENIZER_FILE}: the tokens are those of data.tokenizer")
    if found.model and (other := _other_function(found.model, experiment.config["model"])):
        lines = (*lines, f"the source's model has other keys: {other}")
    return Start(
        {path: jax.device_put(value, shardings[path]) for path, value in given.items()},
        found.opt_state,
        {run_folder.SOURCE: found.digest},
        {
            "start": {
                "path": os.path.abspath(source.place) if source.kind != "run" else str(source.place),
                "step": found.step,
            }
        },
        (f"{workdir}: {what}", *lines),
    )


def chosen(config: StartConfig, spec: Spec, found: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Returns the weights that the `start` section takes of those found, and lines that name the others.

    Raises:
      UserError: a pattern matches no weight of the model, a weight is missing, extra or of another shape and
        `on_mismatch` is "stop", or no weight is left.
    """
    expected = {path: weight.shape for path, weight in leaves(spec)}
    wanted = matching(config.weights, expected, "start.weights")
    absent = [path for path in wanted if path not in found]
    reshaped = [path for path in wanted if path in found and found[path].shape != expected[path]]
    extra = [path for path in matching(config.weights, found) if path not in expected]
    differing = [
        *(f"{path} is absent there" for path in absent),
        *(f"{path} has shape {list(found[path].shape)} there, {list(expected[path])} here" for path in reshaped),
        *(f"{path} is not a weight of this model" for path in extra),
    ]
    if differing and config.on_mismatch == "stop":
        what = f"draws the whole of {_some(reshaped)} anew" if reshaped else "draws such weights at random"
        hint = f"start.on_mismatch=draw {what}, start.weights names those to take"
        raise UserError(f"start.path: {config.path}: {_some(differing)}; {hint}")
    given = {path: found[path] for path in wanted if path not in absent and path not in reshaped}
    if not given:
        raise UserError(f"start.path: {config.path}: none of its weights is taken: {_some(differing)}")
    drawn = [path for path in expected if path not in given]
    lines = [f"drawn at random: {_some(drawn)}"] if drawn else []
    return given, (*lines, *([f"left out: {_some(extra)}"] if extra else []))


def _some(texts: list[str]) -> str:
    more = f" and {len(texts) - MAX_NAMED} more" if len(texts) > MAX_NAMED else ""
    return f"{', '.join(texts[:MAX_NAMED])}{more}"


def _other_function(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """Returns the keys by which two `model` sections compute different functions of the same weights."""
    old, new = (
        {f"model.{key}": value for key, value in section.items() if not key.endswith(NOT_FUNCTION)}
        for section in (there, here)
    )
    return differences(old, new)


def _read_run(source: Source, experiment: Experiment, layout: Layout) -> Found:
    there, identity = open_run(source.place)
    opt_state = None
    if experiment.start.state == "weights":
        steps, params = load_params(there, layout, source.place, identity, source.step)
    else:
        if there.checkpoint.average > 1 and source.step is None:
            raise UserError("start.state: the source reports a mean of checkpoints; name one of them by RUN:STEP")
        _require_same_optimizer(there, experiment, layout)
        shapes, saved = there.state_shapes(layout), there.checkpoint
        found = checkpoint.load(source.place / CHECKPOINTS, shapes, identity, step=source.step, best=saved.best)
        if found is None:
            raise UserError(f"{source.place}: no checkpoint yet; train the run first")
        steps, params, opt_state = [found[0]], found[1].params, _at_the_start(found[1].opt_state)
    texts = [(source.place / CHECKPOINTS / str(step) / checkpoint_files.DIGESTS).read_text() for step in steps]
    return Found(flatten(params), digest("\n".join(texts).encode()), there.config["model"], steps[0], opt_state)


def _require_same_optimizer(there: Experiment, here: Experiment, layout: Layout) -> None:
    """Raises a UserError if the state of one optimizer is not one of the other."""
    shapes = [
        jax.tree.map(lambda leaf: (leaf.shape, str(leaf.dtype)), each.state_shapes(layout)) for each in (there, here)
    ]
    if shapes[0] != shapes[1]:
        sections = [{name: each.config[name] for name in ("model", "optimizer")} for each in (there, here)]
        what = differences(*sections) or "the shapes of weights differ"
        raise UserError(f"start.state: 'all' needs the source's weights and optimizer: {what}")


def _at_the_start(opt_state: Any) -> Any:
    """Returns an optimizer's state whose schedule begins anew. Its moments and their counts stay."""

    def is_schedule(node: Any) -> bool:
        return isinstance(node, optax.ScaleByScheduleState)

    def restarted(node: Any) -> Any:
        return node._replace(count=jnp.zeros_like(node.count)) if is_schedule(node) else node

    return jax.tree.map(restarted, opt_state, is_leaf=is_schedule)


def _read_file(source: Source, experiment: Experiment, layout: Layout) -> Found:
    _require_weights_alone(source, experiment)
    return Found(dict(weights_file.read_weights(source.place)), file_digest(source.place))


def _read_folder(source: Source, experiment: Experiment, layout: Layout) -> Found:
    """Reads a folder of transformers, whose vocabulary may have rows at its end that no token of the tokenizer has."""
    _require_weights_alone(source, experiment)
    loaded = huggingface.load(source.place, layout)
    there, found = dict(leaves(loaded.model.spec)), flatten(loaded.params)
    for path, weight in leaves(experiment.model.spec):
        if path in found and weight.axes == there[path].axes and VOCABULARY in weight.axes:
            axis = weight.axes.index(VOCABULARY)
            found[path] = jax.lax.slice_in_dim(
                found[path], 0, min(weight.shape[axis], found[path].shape[axis]), axis=axis
            )
    names = [path for path in sorted(source.place.iterdir()) if path.suffix in (".json", ".safetensors")]
    texts = [f"{path.name} {file_digest(path)}" for path in names]
    return Found(found, digest("\n".join(texts).encode()), dataclasses.asdict(loaded.config))


def _require_weights_alone(source: Source, experiment: Experiment) -> None:
    if experiment.start.state == "all":
        raise UserError(f"start.state: {source.place} has no optimizer's state; expected 'weights'")


READERS = {"run": _read_run, "file": _read_file, "folder": _read_folder}


def config_from(
    config: Mapping[str, Any], path: str, workdir: Path, overridden: Collection[str] = ()
) -> dict[str, Any]:
    """Returns a config whose run starts from `path`, with the model and the tokenizer of the source.

    If the run in `workdir` has begun from the same source, they are taken from its folder. Where `model.name` is
    overridden, the model's keys that the source lacks have the values of a config with that model, else their defaults.

    Args:
      overridden: keys that stay as they are.

    Raises:
      UserError: there is no such source, or its model has keys that the model of this name has no longer.
    """
    changes: dict[str, Any] = {"start.path": path, **_of_source(path, workdir)}
    changed = {name: dict(section) if isinstance(section, Mapping) else section for name, section in config.items()}
    theirs: dict[str, Any] = {}
    for name, value in changes.items():
        section, key = name.split(".")
        if section == "model":
            theirs[key] = value
        elif name not in overridden and key in changed.get(section, ()):
            changed[section][key] = value
    if theirs:
        given = {key: value for key, value in config["model"].items() if f"model.{key}" in overridden}
        changed["model"] = _model_section(path, config["model"], theirs, given)
    return changed


def _model_section(
    path: str, ours: Mapping[str, Any], theirs: Mapping[str, Any], given: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the `model` section of a config and of a source together, where the keys `given` stay."""
    name, of_source = given.get("name", theirs["name"]), theirs["name"]
    if ours["name"] != name:
        what = "warning: model.name: '%s' as in %s, not '%s' as in the config; --config.model.name=%s keeps it"
        log.warning(what, name, path, ours["name"], ours["name"])
    if name not in MODELS:
        return {**theirs, **given}
    known = defaults(MODELS[name].config)
    unknown = [key for key in theirs if key not in known]
    if unknown and name == of_source:
        near = nearest(unknown[0], known)
        raise UserError(f"start.path: {path}: model '{name}' has no key '{unknown[0]}' any more, as it has there{near}")
    kept = {key: value for key, value in theirs.items() if key in known}
    return {**known, **(ours if ours["name"] == name != of_source else {}), **kept, **given}


def _of_source(path: str, workdir: Path) -> dict[str, Any]:
    """Returns the keys of the source's model and tokenizer."""
    begun = run_folder.source_digest(workdir, path)
    source = Source("run", workdir) if begun else source_of(path)
    if source.kind == "file":
        return {}
    if source.kind == "folder":
        keys = {
            f"model.{key}": value for key, value in dataclasses.asdict(huggingface.section_of(source.place)).items()
        }
        return keys | _tokenizer_keys(source.place / TOKENIZER_FILE)
    config = run_folder.read_config(source.place)[0]
    keys = {f"model.{key}": value for key, value in config["model"].items()}
    data = config.get("data", {})
    return keys | {f"data.{key}": data[key] for key in ("tokenizer", "vocab_size") if key in data}


def _tokenizer_keys(path: Path) -> dict[str, Any]:
    """Returns the keys that name the tokenizer in a file, which are its kind and size if it is one of fxf."""
    if not path.exists():
        return {}
    try:
        found = read_tokenizer(path)
    except UserError:  # of another library
        return {"data.tokenizer": str(path), "data.vocab_size": VOCAB_SIZE}
    return {"data.tokenizer": found.kind, "data.vocab_size": found.vocab_size}
