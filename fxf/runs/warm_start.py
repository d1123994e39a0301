"""Starting a run from weights that exist: of a run, of a safetensors file, or of a folder of transformers."""

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax

from fxf.base.config import defaults, with_values
from fxf.base.config import flatten as flat
from fxf.base.errors import UserError
from fxf.base.files import digest, file_digest, folder_at
from fxf.base.weights import VOCABULARY, Spec, flatten, leaves, matching
from fxf.data.tokenizer import TOKENIZER_FILE, TOKENIZERS, VOCAB_SIZE
from fxf.interop import huggingface, peft, weights_file
from fxf.models import MODELS
from fxf.models.lora import LORA
from fxf.reports.run_files import CHECKPOINTS, read
from fxf.runs import guests, run_folder
from fxf.runs.experiment import Experiment
from fxf.runs.loading import load_params, open_run, plain_params
from fxf.runs.source import Source, StartConfig, source_of
from fxf.training import checkpoint, checkpoint_files
from fxf.training.sharding import Layout

MAX_NAMED = 5  # weights that a line names


class Start(NamedTuple):
    """What a run starts from.

    Attributes:
      given: weights by path, on their devices; the others are drawn.
      digests: the digest of the source by the key that names it.
      origin: what config.json says of the source.
      lines: messages about what was taken.
    """

    given: Mapping[str, jax.Array] = {}
    digests: Mapping[str, str] = {}
    origin: Mapping[str, Any] = {}
    lines: tuple[str, ...] = ()


def start_of(experiment: Experiment, layout: Layout, workdir: Path) -> Start:
    """Returns what the run in `workdir` starts from. A run that has a checkpoint does not read its source again.

    Raises:
      UserError: there is no such source, or it cannot be read or does not fit.
    """
    config, spec = experiment.start, experiment.model.spec
    if not config.path:
        return Start()
    recorded = run_folder.source_digest(workdir, config.path)
    if recorded and (checkpoint.steps_in(workdir / CHECKPOINTS) or (workdir / run_folder.RESULT).exists()):
        return Start(digests=recorded)
    source = source_of(config.path)
    adapters, digests = _adapters(experiment, str(source.place) if source.kind == "folder" else None)
    found, source_digest, step = _read(source, experiment, layout)
    if not any(path.startswith(f"{LORA}/") for path in found):  # new adapters, which change nothing yet, are drawn
        spec = {name: part for name, part in spec.items() if name != LORA}
    given, lines = chosen(config, spec, found)
    given |= adapters
    shardings = flatten(layout.weights(experiment.model.spec))
    given = {path: jax.device_put(value, shardings[path]) for path, value in given.items()}
    place = str(source.place) if source.kind == "run" else os.path.abspath(source.place)
    summary = f"{workdir}: starts from {source.place}{'' if step is None else f' at step {step}'}: {len(given)} weights"
    if source.kind != "file" and (source.place / TOKENIZER_FILE).exists():
        summary += " and the tokenizer"
    elif TOKENIZER_FILE in experiment.task.files:
        lines = (*lines, f"{source.place} has no {TOKENIZER_FILE}: the tokens are those of data.tokenizer")
    origin = {"start": {"path": place, "step": step}}
    return Start(given, {run_folder.SOURCE: source_digest, **digests}, origin, (summary, *lines))


def _adapters(experiment: Experiment, base: str | None) -> tuple[dict[str, Any], dict[str, str]]:
    """Returns the adapters that `start.adapters` names by path, and their digest; `base` is as in `peft.save`."""
    if not experiment.start.adapters:
        return {}, {}
    if not experiment.lora.rank:
        raise UserError("start.adapters: without lora.rank the model has no adapters; set it to theirs")
    folder = folder_at(experiment.start.adapters, "start.adapters")
    found = peft.load(folder, experiment.model_config, experiment.lora, experiment.model.spec, base)
    return found, {run_folder.ADAPTERS: file_digest(folder / peft.TENSORS_FILE)}


def chosen(config: StartConfig, spec: Spec, found: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Returns the weights found that the `start` section takes, and lines that name the others.

    Raises:
      UserError: a pattern matches no weight of model or source, a weight is missing, extra or of another shape and
        `on_mismatch` is "stop", or no weight is left.
    """
    expected = {path: weight.shape for path, weight in leaves(spec)}
    there = {path: value.shape for path, value in found.items()}
    wanted = matching(config.weights, expected | there, "start.weights")
    given = {path: found[path] for path in wanted if there.get(path) == expected.get(path)}
    extra = [path for path in wanted if path not in expected]
    differing = [f"{path} is absent there" for path in wanted if path not in there]
    for path in (path for path in wanted if path in expected and path in there and path not in given):
        differing.append(f"{path} has shape {list(there[path])} there, {list(expected[path])} here")
    differing += [f"{path} is not a weight of this model" for path in extra]
    if differing and config.on_mismatch == "stop":
        hint = "start.on_mismatch=draw draws the whole of such weights at random, start.weights names those to take"
        raise UserError(f"start.path: {config.path}: {_some(differing)}; {hint}")
    if not given:
        raise UserError(f"start.path: {config.path}: none of its weights is taken: {_some(differing)}")
    others = {"drawn at random": [path for path in expected if path not in given], "left out": extra}
    return given, tuple(f"{what}: {_some(paths)}" for what, paths in others.items() if paths)


def _some(texts: list[str]) -> str:
    more = f" and {len(texts) - MAX_NAMED} more" if len(texts) > MAX_NAMED else ""
    return f"{', '.join(texts[:MAX_NAMED])}{more}"


def _read(source: Source, experiment: Experiment, layout: Layout) -> tuple[dict[str, Any], str, int | None]:
    """Returns the weights of a source by path, its digest, and the step of a run."""
    if source.kind == "file":
        return dict(weights_file.read_weights(source.place)), file_digest(source.place), None
    if source.kind == "run":
        with guests.restoring_imports():  # it may have other files of the same names
            trained, identity = open_run(source.place)
        steps, params = load_params(trained, layout, source.place, identity, source.step)
        if experiment.model.plain is experiment.model or (trained.lora.rank and trained.lora != experiment.lora):
            params = plain_params(trained, layout, params)
        texts = [(source.place / CHECKPOINTS / str(n) / checkpoint_files.DIGESTS).read_text() for n in steps]
        return flatten(params), digest("\n".join(texts).encode()), steps[0]
    loaded = huggingface.load(source.place, layout.weights)
    spec, found = dict(leaves(loaded.model.spec)), flatten(loaded.params)
    learned_here = experiment.config.get("data", {}).get("tokenizer") in TOKENIZERS
    for path, weight in leaves(experiment.model.spec) if not learned_here else ():
        # The vocabulary may be padded with rows that are no token of the folder's tokenizer.
        if path in found and weight.axes == spec[path].axes and VOCABULARY in weight.axes:
            axis = weight.axes.index(VOCABULARY)
            n_rows = min(weight.shape[axis], found[path].shape[axis])
            found[path] = jax.lax.slice_in_dim(found[path], 0, n_rows, axis=axis)
    names = [path for path in sorted(source.place.iterdir()) if path.suffix in (".json", ".safetensors")]
    return found, digest("\n".join(f"{path.name} {file_digest(path)}" for path in names).encode()), None


def config_from(
    config: Mapping[str, Any], path: str, workdir: Path, overrides: Mapping[str, Any] = {}
) -> dict[str, Any]:
    """Returns a config whose run starts from `path`, with the model and the tokenizer of the source.

    If the run in `workdir` has begun from the same source, they are taken from its folder. Parts of the user's own that
    the config names, by module:name, stay. Where one of them is the model, or `model.name` is overridden, the model's
    keys that the source lacks have the values of a config with that model, else their defaults.

    Args:
      overrides: the keys that the user has given, with their values; those of `model` also change the source's, such
        as one of `model.layers.NAME`.

    Raises:
      UserError: there is no such source, or a key that the user has given names another tokenizer.
    """
    model, data = _sections_of(Source("run", workdir) if run_folder.source_digest(workdir, path) else source_of(path))
    changed = {**config, "start": {**config.get("start", {}), "path": path}}
    if known := config.get("data"):
        taken = {key: value for key, value in data.items() if key in known}
        for key, value in taken.items():
            if f"data.{key}" in overrides and known[key] != value:
                what = f"a run that starts from {path} has its tokenizer, here {value!r}; got {known[key]!r}"
                raise UserError(f"data.{key}: {what}; leave it out, or start from a file of `fxf export`")
        changed["data"] = {**known, **taken}
    if model:
        ours = dict(flat(config["model"], "model."))
        own = {key: value for key, value in ours.items() if isinstance(value, str) and ":" in value}
        if own.keys() - {"model.name"}:  # layers of the user's own come with their keys
            own |= {key: value for key, value in ours.items() if key.startswith("model.layers.")}
        own |= {key: value for key, value in overrides.items() if key.startswith("model.")}
        name = own.get("model.name", model["name"])
        known = defaults(MODELS[name].config) if name in MODELS else {}
        if name != model["name"]:
            model = {key: value for key, value in model.items() if key in known}
            known |= config["model"]
        changed = with_values({**changed, "model": {**known, **model}}, own)
    return changed


def _sections_of(source: Source) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the `model` section of a source, and the keys of `data` that name its tokenizer, if it has them."""
    if source.kind == "file":
        return {}, {}
    if source.kind == "run":
        config = read(source.place).config
        return config["model"], {k: v for k, v in config.get("data", {}).items() if k in ("tokenizer", "vocab_size")}
    model, path = dataclasses.asdict(huggingface.section_of(source.place)), source.place / TOKENIZER_FILE
    return model, {"tokenizer": str(path), "vocab_size": VOCAB_SIZE} if path.exists() else {}
