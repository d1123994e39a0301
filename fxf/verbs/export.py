"""Writes a trained run's weights for use outside fxf.

fxf export --workdir=runs/reversal --format=safetensors
fxf export --workdir=runs/translation --format=huggingface
fxf export --workdir=runs/tuned --format=peft

safetensors: the weights by path, in RUN/params.safetensors. huggingface: a folder for `from_pretrained` of
`transformers`, in RUN/huggingface, with the tokenizer if there is one; the config must match a class there
(docs/python.md). Both merge the adapters of a run with lora.rank into its weights.
peft: only the adapters, as a folder for `PeftModel.from_pretrained` of `peft`, in RUN/peft; the config must match a
class of `transformers` too.
"""

from argparse import Namespace
from pathlib import Path
from typing import Any

from fxf.base.config import fields_of, one_of
from fxf.base.errors import UserError
from fxf.base.files import is_remote, new_folder
from fxf.base.status import stage
from fxf.reports.run_files import Record, is_run, read
from fxf.verbs.flags import Parser, add_run, place, require_workdir

OUTPUTS = {"safetensors": "params.safetensors", "huggingface": "huggingface", "peft": "peft"}


def flags(parser: Parser) -> None:
    add_run(parser)
    parser.flag("format", doc=f"one of {', '.join(OUTPUTS)}; by default safetensors if --output ends in .safetensors")
    parser.flag("output", place, doc="file or folder to write; by default one in the run folder")


def main(args: Namespace) -> None:
    from fxf.runs import run

    workdir, name = require_workdir(args), args.format or Path(args.output or "").suffix[1:]
    one_of(name, OUTPUTS, "--format")
    if is_remote(workdir) and not args.output:
        raise UserError(f"--output: missing; {workdir} is exported to a local file or folder")
    output = Path(args.output) if args.output else workdir / OUTPUTS[name]
    if name != "safetensors":
        new_folder(output, "--output")
    elif output.suffix != ".safetensors":
        raise UserError(f"--output: expected a name that ends in .safetensors, got {output}")
    if (output / "checkpoints").exists():  # the export would overwrite its config.json
        raise UserError(f"--output: {output} is a run folder; expected a folder of its own")
    experiment, _, params = run.load(workdir, args.step, as_trained=name == "peft")
    if name == "peft" and not experiment.lora.rank:
        raise UserError(f"--format: {workdir} has no adapters; with lora.rank training makes some")
    with stage(f"writing {output}"):
        _write(name, output, experiment, params, read(workdir).record)
    print(output)


def _write(name: str, output: Path, experiment: Any, params: Any, record: Record) -> None:
    if name == "safetensors":
        from fxf.interop.weights_file import save_weights

        save_weights(output, params)
    elif name == "peft":
        from fxf.interop import peft

        peft.save(output, experiment.model_config, experiment.lora, params, base_of(record))
    else:
        from fxf.interop import huggingface
        from fxf.interop.tokenizer_json import tokens_of

        config, task = section_of(experiment, params), experiment.task
        longest = task.longest if config.name == "encoder_decoder" else None
        huggingface.save(output, config, params, **tokens_of(task, config.name), longest=longest)


def section_of(experiment: Any, params: Any) -> Any:
    """Returns the `model` section to export: of a user's model that computes the same as fxf's decoder, the decoder's.

    An objective, such as a distillation, changes a model in training alone. Their logits of random tokens are compared.
    """
    import jax
    import numpy as np

    from fxf.base.weights import leaves
    from fxf.models import MODELS

    own, n_tokens = experiment.model_config, experiment.task.vocab_size
    if (name := MODELS[own.name].in_place_of) != "transformer_lm":
        return own
    known, make, _ = MODELS[name]
    section = known(**{**{key: value for key, value in vars(own).items() if key in fields_of(known)}, "name": name})
    models = experiment.model, make(section, n_tokens)
    shapes, of_decoder = ({path: weight.shape for path, weight in leaves(model.spec)} for model in models)
    if shapes != of_decoder:
        return own
    batch = {"inputs": np.random.default_rng(0).integers(0, n_tokens, (2, min(own.max_len or 64, 64)))}
    ours, theirs = (np.float64(jax.jit(model.apply)(params, batch)) for model in models)
    return section if np.abs(ours - theirs).max() <= 1e-5 * np.abs(theirs).max() else own


def base_of(record: Record) -> str | None:
    """Returns the folder of transformers that a run started from; None for other sources, or if the folder is gone."""
    path = Path(record.get("start", {}).get("path", ""))  # absolute, where the config's may be that of another folder
    return str(path) if path.is_absolute() and path.is_dir() and not is_run(path) else None
