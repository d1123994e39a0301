"""Writes a trained run's weights, or its whole model, for use outside fxf.

fxf export --workdir=runs/reversal --format=safetensors
fxf export --workdir=runs/reversal --format=jax --output=model.npz
fxf export --workdir=runs/translation --format=huggingface

safetensors: the weights by path, in RUN/params.safetensors. jax: the model as programs that run without fxf, in
RUN/model.npz; fxf/interop/export.py shows how. huggingface: a folder for `from_pretrained` of `transformers`, in
RUN/huggingface, with the tokenizer if there is one; the model must make all the choices of GPT-2, BERT, Marian, Llama,
Mistral, Qwen 2, Qwen 3, Gemma 2 or Gemma 3.
"""

from pathlib import Path
from typing import Any

from absl import flags

from fxf.errors import UserError
from fxf.files import is_remote
from fxf.machine.status import stage
from fxf.runs import cli

OUTPUTS = {"safetensors": "params.safetensors", "jax": "model.npz", "huggingface": "huggingface"}
PARTS = ("metrics.jsonl", "checkpoints", "result.json", "lock")  # of a run folder

CONFIG, WORKDIR = cli.define_config_file(), cli.define_workdir()
FORMAT = flags.DEFINE_string("format", None, f"one of {', '.join(OUTPUTS)}")
OUTPUT = flags.DEFINE_string("output", None, "file or folder to write; by default one in the run folder")
STEP = flags.DEFINE_integer("step", None, "checkpoint to export; by default the one that the run's result used")


def main(arguments: list[str]) -> None:
    cli.refuse_arguments(arguments)
    from fxf.config import one_of
    from fxf.runs import run

    workdir = cli.require_workdir(WORKDIR)
    if FORMAT.value is None:
        raise UserError(f"--format: missing; one of {', '.join(OUTPUTS)}")
    name = one_of(FORMAT.value, OUTPUTS, "--format")
    if is_remote(workdir) and not OUTPUT.value:
        raise UserError(f"--output: missing; {workdir} is exported to a local file or folder")
    output = Path(OUTPUT.value) if OUTPUT.value else workdir / OUTPUTS[name]
    # The export must not overwrite a part of a run.
    if output.suffix != Path(OUTPUTS[name]).suffix and name != "huggingface":
        raise UserError(f"--output: expected a name that ends in {Path(OUTPUTS[name]).suffix}, got {output}")
    if name == "huggingface" and any((output / part).exists() for part in PARTS):
        raise UserError(f"--output: {output} is a run folder; expected a folder of its own")
    experiment, _, params = run.load(workdir, STEP.value, config_file=CONFIG.value)
    with stage(f"writing {output}"):
        _write(name, output, experiment, params)
    print(output)


def _write(name: str, output: Path, experiment: Any, params: Any) -> None:
    if name == "safetensors":
        from fxf.interop.weights_file import save_weights

        save_weights(output, params)
    elif name == "jax":
        from fxf.interop.export import export_model

        batch = {key: x for key, x in experiment.batch_shapes().items() if key not in ("targets", "weights")}
        export_model(output, experiment.model, params, batch, experiment.max_len)
    else:
        from fxf.config import registered_section
        from fxf.interop import huggingface
        from fxf.interop.tokenizer_json import tokens_of
        from fxf.models import MODELS

        values = experiment.config["model"]
        config: Any = registered_section(MODELS[values["name"]].config, values, "model")
        task = experiment.task
        huggingface.save(output, config, params, **tokens_of(task, config.name))
        if config.name == "encoder_decoder":
            huggingface.limit_answers(output, task.longest)
