"""Import and export of LoRA adapters in the format of the library `peft`: a config and a file of tensors.

Neither `peft` nor `torch` is needed. PEFT adds `scale · B · A` to the matrix [out, in] of a module. A and B are the
transposes of fxf's factors a [in, rank] and b [rank, out].
"""

import json
import math
import re
import tomllib
from pathlib import Path
from typing import Any

import numpy as np

from fxf.base.errors import UserError, nearest
from fxf.base.files import read_json, require_file
from fxf.base.weights import Params, Spec, axes_of_matrix, flatten, leaves
from fxf.interop.architecture import Architecture
from fxf.interop.config_json import write_config
from fxf.interop.tensors import Part, read_tensor, tensors_of, write_tensor
from fxf.interop.weights_file import as_weights, check_shapes, open_tensors, write_tensors
from fxf.layers.config import TransformerConfig
from fxf.models import MODELS
from fxf.models.lora import LORA, LoraConfig, second_factor

CONFIG_FILE, TENSORS_FILE = "adapter_config.json", "adapter_model.safetensors"
PREFIX, WEIGHT, A, B = "base_model.model.", ".weight", ".lora_A.weight", ".lora_B.weight"
TASK_TYPES = {"transformer_lm": "CAUSAL_LM", "encoder_decoder": "SEQ_2_SEQ_LM"}
EXPECTED = tomllib.loads(Path(__file__).with_name("adapters.toml").read_text(encoding="utf-8"))


def save(folder: Path, config: TransformerConfig, lora: LoraConfig, params: Params, base: str | None = None) -> None:
    """Writes the adapters of params to a folder that `PeftModel.from_pretrained` reads.

    If several adapted weights are parts of one matrix, as GPT-2's query and value, their factors are concatenated to
    one adapter, whose rank is the sum of theirs.

    Args:
      config: the `model` section.
      base: the folder of the model that the adapters were trained for, if it is one of `transformers`.

    Raises:
      UserError: `transformers` has no model like `config`, or no module for an adapted weight.
    """
    architecture, modules = _modules(config, len(params["embedding"]["table"]), base)
    values, tensors, adapters = flatten(params[LORA]), dict[str, np.ndarray](), dict[str, int]()
    for name, parts in modules.items():
        adapted = [part for part in parts if f"{part.path}/a" in values]
        if adapted:
            adapters[name] = len(adapted)
            rows = [np.asarray(values[f"{part.path}/a"]).reshape(-1, lora.rank).T for part in adapted]
            factors = _second_factors(parts, lora.rank)
            second = ({part.path: values[f"{part.path}/b"]} for part in adapted)
            columns = [_upright(architecture, write_tensor(architecture, name, factors, b)) for b in second]
            tensors |= {PREFIX + name + A: np.concatenate(rows), PREFIX + name + B: np.concatenate(columns, axis=1)}
    written = {f"{part.path}/a" for name in adapters for part in modules[name]}
    for path in (name for name in values if name.endswith("/a") and name not in written):
        what = f"PEFT adapts no module of transformers that has {path.removesuffix('/a')}"
        raise UserError(f"--format=peft: {what}; --format=huggingface writes merged weights")
    several = {name: n for name, n in adapters.items() if n > 1}
    record = {
        "peft_type": "LORA",
        "task_type": TASK_TYPES.get(architecture.model),
        "base_model_name_or_path": base,
        "r": lora.rank,
        "lora_alpha": lora.alpha,
        "use_rslora": lora.rank_stabilized,
        # A concatenated adapter keeps the scale of a single one.
        "rank_pattern": {name: n * lora.rank for name, n in several.items()},
        "alpha_pattern": {name: lora.alpha * (n**0.5 if lora.rank_stabilized else n) for name, n in several.items()},
        "target_modules": [*adapters],
        "fan_in_fan_out": not architecture.transposed,
        "lora_dropout": 0.0,
        "bias": "none",
        "inference_mode": True,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CONFIG_FILE).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    write_tensors(folder / TENSORS_FILE, tensors, {"format": "pt"})


def load(
    folder: Path, config: TransformerConfig, lora: LoraConfig, spec: Spec, base: str | None = None
) -> dict[str, np.ndarray]:
    """Returns the adapters of a folder by path, float32.

    The adapter of a matrix that holds several weights becomes one adapter for each. A scale other than that of `lora`
    is multiplied into the second factor.

    Args:
      config: the `model` section.
      spec: the weights of the model with its adapters.
      base: as in `save`.

    Raises:
      UserError: the folder cannot be read, fxf lacks the adapters' kind, or they do not match the `lora` section.
    """
    record = _read_config(folder)
    tensors = {name.removeprefix(PREFIX): x for name, x in open_tensors(folder / TENSORS_FILE).items()}
    architecture, modules = _modules(config, spec["embedding"]["table"].shape[0], base)
    adapters: dict[str, np.ndarray] = {}
    for theirs in (name.removesuffix(A) for name in list(tensors) if name.endswith(A)):
        parts = modules.get(architecture.today(theirs + WEIGHT).removesuffix(WEIGHT))
        if parts is None:
            raise UserError(f"{folder}: {theirs} is not a matrix of this model{nearest(theirs, modules)}")
        rows, columns = (as_weights(str(folder), theirs + end, tensors.pop(theirs + end)) for end in (A, B))
        if len(rows) != lora.rank:
            raise UserError(f"lora.rank: {folder}: the rank of {theirs} is {len(rows)}, got {lora.rank}")
        factors, first = _second_factors(parts, lora.rank), parts[0].weight
        axes = axes_of_matrix(first)
        assert axes is not None  # `_modules` returns only matrices
        shape_in = tuple(first.shape[i] for i in axes[0])
        n_out = sum(math.prod(factor.weight.shape[1:]) for factor in factors)
        shapes = {theirs + A: (lora.rank, math.prod(shape_in)), theirs + B: (n_out, lora.rank)}
        check_shapes(str(folder), {theirs + A: rows.shape, theirs + B: columns.shape}, shapes)
        columns = columns * np.float32(_scale(record, theirs, lora.rank) / lora.scale)
        for part, b in read_tensor(architecture, theirs, factors, _upright(architecture, columns)):
            adapters[f"{LORA}/{part.path}/a"] = rows.T.reshape(*shape_in, lora.rank)
            adapters[f"{LORA}/{part.path}/b"] = b
    if tensors:
        raise UserError(f"{folder}: {next(iter(tensors))} is not a factor of an adapter that fxf supports")
    expected = {path: weight.shape for path, weight in leaves(spec) if path.startswith(f"{LORA}/")}
    check_shapes(f"{folder}: lora.weights", {path: x.shape for path, x in adapters.items()}, expected)
    return adapters


def _modules(
    config: TransformerConfig, vocab_size: int, base: str | None
) -> tuple[Architecture, dict[str, list[Part]]]:
    """Returns the class of `transformers`, and the weights that make up the matrix of each of its modules."""
    base_config = read_json(Path(base) / "config.json", "JSON of transformers") if base else {}
    written = write_config(config, base_config.get("model_type", ""))
    spec = MODELS[written.architecture.model].make(written.section, vocab_size).spec
    return written.architecture, {
        name.removesuffix(WEIGHT): parts
        for name, parts in tensors_of(written.architecture, spec).items()
        if name.endswith(WEIGHT) and all(axes_of_matrix(part.weight) and part.expert is None for part in parts)
    }


def _second_factors(parts: list[Part], rank: int) -> list[Part]:
    """Returns the second factors under the paths of their weights, so that rotary pairs are reordered as in these."""
    return [Part(part.path, second_factor(part.weight, rank)) for part in parts]


def _upright(architecture: Architecture, tensor: np.ndarray) -> np.ndarray:
    """Transposes a second factor to or from [out, rank], if the class has matrices [in, out]."""
    return tensor if architecture.transposed else tensor.T


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG_FILE
    require_file(path)
    record = read_json(path, "adapters of PEFT")
    for key, known in EXPECTED.items():
        value = record.get(key)
        if value not in (None, [], *known):
            raise UserError(f"{path}: {key}: expected {' or '.join(map(repr, known)) or 'none'}, got {value!r}")
    return record


def _scale(record: dict[str, Any], module: str, rank: int) -> float:
    """Returns the scale of an adapter. By default alpha is 8, as in PEFT.

    A key of `alpha_pattern` is a regular expression for the end of a module's name.
    """
    patterns = (record.get("alpha_pattern") or {}).items()
    alphas = (alpha for pattern, alpha in patterns if re.fullmatch(rf"(.*\.)?({pattern})", module))
    alpha = next(alphas, record.get("lora_alpha", 8))
    return alpha / (math.sqrt(rank) if record.get("use_rslora") else rank)
