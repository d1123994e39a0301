"""Weights of other libraries and of safetensors files."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from experiments.hostile.case import accepted, case, refused
from experiments.hostile.fixtures import BINARY, DEEP, WEIGHTS
from experiments.hostile.steps import Step, borrow, cut, fifo, folder, move, remove, write

# fmt: off

def gpt2(change_tensors: Any = None, config: dict[str, Any] | None = None, file: str = "gpt2/model.safetensors") -> Any:
    """Returns a step that makes the folder of a small GPT-2 with changed tensors and config."""

    def step(box: Any) -> None:
        from safetensors.numpy import save_file

        rng = np.random.default_rng(0)
        sizes = {"wte.weight": (11, 4), "wpe.weight": (7, 4), "ln_f.weight": (4,), "ln_f.bias": (4,)}
        for i, (n, m) in {
            "attn.c_attn": (4, 12),
            "attn.c_proj": (4, 4),
            "mlp.c_fc": (4, 16),
            "mlp.c_proj": (16, 4),
        }.items():
            sizes |= {f"h.0.{i}.weight": (n, m), f"h.0.{i}.bias": (m,)}
        for i in ("ln_1", "ln_2"):
            sizes |= {f"h.0.{i}.weight": (4,), f"h.0.{i}.bias": (4,)}
        tensors = {f"transformer.{name}": rng.normal(size=shape).astype(np.float32) for name, shape in sizes.items()}
        record: dict[str, Any] = {
            "model_type": "gpt2",
            "n_layer": 1,
            "n_embd": 4,
            "n_head": 2,
            "n_positions": 7,
            "vocab_size": 11,
            "n_inner": None,
            "activation_function": "gelu_new",
            "layer_norm_epsilon": 1e-5,
            "resid_pdrop": 0.0,
            "embd_pdrop": 0.0,
            "attn_pdrop": 0.0,
            **(config or {}),
        }
        (box / file).parent.mkdir(exist_ok=True)
        (box / file).parent.joinpath("config.json").write_text(json.dumps(record))
        save_file(change_tensors(tensors) if change_tensors else tensors, box / file)

    return step


TABLE, FIRST = "transformer.wte.weight", "transformer.h.0.mlp.c_fc.weight"


def tensor(name: str, function: Any) -> Any:
    return lambda tensors: {**tensors, name: function(tensors[name])}


def with_value(value: float) -> Any:
    return tensor(FIRST, lambda x: np.where(np.arange(x.size).reshape(x.shape) == 5, np.float32(value), x))


BAD_CONFIGS: list[tuple[Any, ...]] = [
    ("model_type", "bart", "model_type", "bart"),
    ("model_type", ["gpt2"], "model_type"),
    ("vocab_size", "11", "vocab_size"),
    ("vocab_size", True, "vocab_size"),
    ("vocab_size", 12, "wte"),
    ("n_layer", 1_000_000_000, "gpt2"),
    ("n_layer", 0, "n_layer"),
    ("n_layer", 1.0, "n_layer"),
    ("n_positions", 9, "wpe"),
    ("n_embd", None, "n_embd"),
    ("activation_function", "gleu", "activation_function", "gelu"),
    ("layer_norm_epsilon", "1e-5", "layer_norm_epsilon|norm_epsilon"),
    ("layer_norm_epsilon", 1e400, "epsilon"),
    ("layer_norm_epsilon", float("nan"), "finite"),
    ("tie_word_embeddings", False, "tie_word_embeddings"),
    ("add_cross_attention", 1, "add_cross_attention"),
    ("quantization_config", {"bits": 8}, "quantization_config"),
    ("pruned_heads", {"0": [1]}, "pruned_heads"),
]
LOAD = "load_huggingface gpt2"
ST = "gpt2/model.safetensors"
def weights(function: Any) -> Step:
    """Returns a step that writes changed weights of the tiny run into a safetensors file."""

    def step(box: Path) -> None:
        from safetensors.numpy import load_file, save_file

        borrow(WEIGHTS, WEIGHTS)(box)
        save_file({name: function(x) for name, x in load_file(box / WEIGHTS).items()}, box / WEIGHTS)

    return step


CASES = [
    case("a GPT-2", LOAD, accepted("Loaded"), gpt2()),
    case(
        "a GPT-2 of whole numbers", LOAD, refused("gpt2", "int8"),
        gpt2(tensor(FIRST, lambda x: (x * 40).astype(np.int8))),
    ),
    case("a GPT-2 with a value that is no number", LOAD, refused("gpt2", "c_fc"), gpt2(with_value(np.nan))),
    case("a GPT-2 with an infinite value", LOAD, refused("gpt2", "c_fc"), gpt2(with_value(np.inf))),
    case(
        "a GPT-2 in float64 beyond float32", LOAD, refused("gpt2", "c_fc"),
        gpt2(tensor(FIRST, lambda x: x.astype(np.float64) * 1e300)),
    ),
    case("a GPT-2 in float16", LOAD, accepted("Loaded"), gpt2(tensor(FIRST, lambda x: x.astype(np.float16)))),
    case(
        "a GPT-2 with a tensor by both its names", LOAD, refused("wte.weight"),
        gpt2(lambda t: {**t, "wte.weight": t[TABLE] + 1}),
    ),
    case(
        "a GPT-2 with another output", LOAD, refused("lm_head"), gpt2(lambda t: {**t, "lm_head.weight": t[TABLE] + 1}),
    ),
    case(
        "a GPT-2 that lacks a tensor", LOAD, refused("c_fc"),
        gpt2(lambda t: {k: v for k, v in t.items() if k != FIRST}),
    ),
    case(
        "a GPT-2 with a tensor of its own", LOAD, refused("adapter"),
        gpt2(lambda t: {**t, "transformer.h.0.adapter": t[TABLE]}),
    ),
    case("a GPT-2 with a tensor turned round", LOAD, refused("c_fc"), gpt2(tensor(FIRST, lambda x: x.T.copy()))),
    case("a GPT-2 with a name of two lines", LOAD, refused("a\\nb"), gpt2(lambda t: {**t, "a\nb\x1b[31m": t[TABLE]})),
    *(
        case(f"a GPT-2 whose config says {key} {value!r}", LOAD, refused(*parts), gpt2(config={key: value}))
        for key, value, *parts in BAD_CONFIGS
    ),
    *(
        case(f"a GPT-2 whose {what}", LOAD, refused("gpt2", *parts), gpt2(), step)
        for what, step, *parts in [
            ("config is empty", write("gpt2/config.json", ""), "config.json"),
            ("config is a list", write("gpt2/config.json", "[]"), "config.json"),
            ("config is deep", write("gpt2/config.json", DEEP), "config.json"),
            ("config is binary", write("gpt2/config.json", BINARY), "config.json"),
            ("config is a pipe", fifo("gpt2/config.json"), "config.json"),
            ("config is missing", remove("gpt2/config.json"), "config.json"),
            ("tensors are missing", remove(ST), "model.safetensors"),
            ("tensors are in pieces", move(ST, "gpt2/model-00001-of-00002.safetensors"), "model.safetensors"),
            ("tensors are empty", write(ST, ""), "model.safetensors"),
            ("tensors are cut", cut("gpt2"), "model.safetensors"),
            ("tensors are a folder", folder(ST), "model.safetensors"),
            ("tensors are a pipe", fifo(ST), "model.safetensors"),
            ("tensors' header has no end", write(ST, b"\xff" * 8 + b"{}"), "model.safetensors"),
            ("tensors are text", write(ST, "weights"), "model.safetensors"),
            ("tensors are not fetched", write(ST, "version https://git-lfs.github.com/spec/v1\n"), "git lfs pull"),
        ]
    ),
    case(
        "weights of another run", "load_weights weights.safetensors", refused("weights.safetensors"),
        weights(lambda x: np.ascontiguousarray(x[..., :2])), runs=("reversal",),
    ),
    case(
        "weights of which one is not a number", "load_weights weights.safetensors", refused("weights.safetensors"),
        weights(lambda x: x * np.float32(np.nan)), runs=("reversal",),
    ),
    case(
        "weights of whole numbers", "load_weights weights.safetensors", refused("weights.safetensors"),
        weights(lambda x: x.astype(np.int32)), runs=("reversal",),
    ),
    case(
        "weights in float64", "load_weights weights.safetensors", accepted("dict"),
        weights(lambda x: x.astype(np.float64)), runs=("reversal",),
    ),
]
