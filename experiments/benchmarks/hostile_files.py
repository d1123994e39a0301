"""Hostile config files, sweeps and weights files."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from hostile_box import (
    BAD_JSON,
    BINARY,
    DEEP,
    POINTS,
    WEIGHTS,
    Case,
    Step,
    accepted,
    borrow,
    case,
    change,
    cut,
    failed,
    fifo,
    folder,
    link,
    move,
    refused,
    remove,
    write,
)

# fmt: off


# --- Config files and sweeps -----------------------------------------------------------------------------------------


def config_file(name: str, text: str | bytes, *parts: str) -> Case:
    return case(
               f"a config file: {name}", "train --config=mine.py --workdir=new", refused(*parts),
               write("mine.py", text),
           )


def get_config(*lines: str) -> str:
    """Returns the text of a config file that changes the tiny config."""
    body = "".join(f"    {line}\n" for line in lines)
    return (
        f"{POINTS.split('def get_config')[0]}\ndef get_config():\n    config = _tiny()\n{body}    return config\n"
        + ("\n\ndef _tiny():\n    with open('tiny.json') as file:\n        return ConfigDict(json.load(file))\n")
    )


DEAF = """import dataclasses
from typing import Literal

from fxf.models import MODELS, RegisteredModel
from fxf.models.transformer_lm import TransformerLMConfig, transformer_lm


@dataclasses.dataclass(frozen=True)
class DeafConfig(TransformerLMConfig):
    name: Literal["deaf"] = "deaf"


def deaf(config, vocab_size):
    return transformer_lm(config, vocab_size)._replace(prefill=None, step=None)


MODELS["deaf"] = RegisteredModel(DeafConfig, deaf, in_place_of="transformer_lm")
"""
REPLACED = """from fxf.models import MODELS

MODELS["transformer_lm"] = MODELS["bilayer"]
"""

CONFIG_FILES = [
    config_file("a model that cannot generate", DEAF + get_config("config.model.name = 'deaf'"), "generat"),
    config_file("a model in the place of one of fxf's", REPLACED + get_config(), "mine.py", "transformer_lm"),
    config_file("a section lost", get_config("del config.model"), "model"),
    config_file("a section that is none", get_config("config.modle = ConfigDict()"), "modle", "model"),
    config_file(
        "a list for a number",
        get_config("del config.train['steps']", "config.train.steps = (6,)"),
        "steps",
    ),
    config_file("a seed of none", get_config("del config['seed']", "config.seed = None"), "seed"),
    config_file(
        "a placeholder",
        get_config(
            "from ml_collections import config_dict", "del config.seed", "config.seed = config_dict.placeholder(int)",
        ),
        "seed",
    ),
    config_file(
        "true for a number", get_config("del config.train['steps']", "config.train.steps = True"), "train.steps",
    ),
    config_file("a dict", "def get_config():\n    return {'seed': 0}\n", "ConfigDict"),
    config_file("nothing returned", "def get_config():\n    pass\n", "ConfigDict"),
    config_file("no function", "x = 1\n", "get_config"),
    config_file("a number for the function", "get_config = 3\n", "mine.py"),
    config_file("two arguments wanted", "def get_config(a, b):\n    pass\n", "mine.py"),
    config_file("empty", "", "get_config"),
    config_file("binary", BINARY, "mine.py"),
    config_file("UTF-16", get_config().encode("utf-16"), "mine.py"),
    config_file("NUL bytes", "x = 1\0\n", "mine.py"),
    config_file("a syntax error", "def get_config(:\n", "mine.py:1", "SyntaxError"),
    config_file("a wrong name", get_config("config.model.layers = 3"), "model.layers", "n_layers"),
    config_file("an exception", get_config("raise ValueError('so\\nnot')"), "mine.py", "ValueError", "so not|so\\nnot"),
    config_file(
        "an exception of its own imports", "import nothing_of_the_kind\n" + get_config(), "mine.py:1",
        "nothing_of_the_kind",
    ),
    config_file("endless recursion", "def get_config():\n    return get_config()\n", "mine.py:2", "RecursionError"),
    config_file("it exits with 0", get_config("raise SystemExit(0)"), "mine.py"),
    config_file("it exits with 1", get_config("import sys", "sys.exit('bye')"), "mine.py"),
    case("a config file: a folder", "train --config=configs --workdir=new", refused("configs")),
    case("a config file: a pipe", "train --config=mine.py --workdir=new", refused("mine.py"), fifo("mine.py")),
    case(
        "a config file: a loop of links", "train --config=mine.py --workdir=new", refused("mine.py"),
        link("mine.py", "mine.py"),
    ),
    case("a config file: missing", "train --config=configs/reversl.py --workdir=new", refused("configs/reversal.py")),
    case(
        "a config file: an argument for one that takes none", "train --config=configs/masking.py:large --workdir=new",
        refused("configs/masking.py"),
    ),
    case(
        "a config file: an empty argument", "train --config=configs/reversal.py: --workdir=new",
        refused("configs/reversal.py"),
    ),
    case(
        "a config file: an argument misspelt", "train --config=configs/reversal.py:exmaple0 --workdir=new",
        refused("exmaple0", "example0"),
    ),
    case("a config file: given twice", "train --config=tiny.py --config=points.py --workdir=new", refused("--config")),
]


def sweeps(name: str, body: str, *parts: str) -> Case:
    text = POINTS.split("def sweep")[0] + (f"def sweep(add):\n    {body}\n" if body else "")
    return case(
               f"a sweep: {name}", "sweep --config=mine.py --workdir=new --dry_run", refused(*parts),
               write("mine.py", text),
           )


SWEEPS = [
    sweeps("no point", "pass", "no point"),
    sweeps("no function", "", "sweep"),
    sweeps("the same point twice", "add(seed=1); add(seed=1)", "point 2", "point 1"),
    sweeps(
        "a value that is not a number, twice",
        "add(**{'optimizer.b1': float('nan')}); add(**{'optimizer.b1': float('nan')})", "b1",
    ),
    sweeps("a list for a value", "add(seed=[1, 2])", "seed"),
    sweeps("a dict for a value", "add(seed={})", "seed"),
    sweeps("an array of two", "import numpy; add(seed=numpy.arange(2))", "seed"),
    sweeps("a string for a number", "add(seed='1')", "seed"),
    sweeps("true for a number", "add(seed=True)", "seed"),
    sweeps("an unknown key", "add(**{'model.n_layer': 1})", "model.n_layer", "model.n_layers"),
    sweeps("an argument without a name", "add(1)", "mine.py"),
    sweeps("it raises", "add(seed=1); raise RuntimeError('no')", "mine.py", "RuntimeError"),
    sweeps("it exits", "raise SystemExit(0)", "mine.py"),
    sweeps(
        "values of different lengths",
        "from fxf.sweeps.points import zipped; zipped({'seed': [1], 'train.steps': [1, 2]})", "zipped",
    ),
    sweeps("a key that is set for all", "[add(**{'train.steps': n}) for n in (0, 1)]", "train.steps"),
    case(
        "a sweep: a key that the command line sets too",
        "sweep --config=points.py --config.seed=3 --workdir=new --dry_run", refused("seed"),
    ),
    case(
        "a sweep: a point's folder a file", "sweep --config=points.py --workdir=new", refused("new/seed=0", "a file"),
        write("new/seed=0", "x"),
    ),
    case(
        "a table: one that cannot be written", "sweep --config=points.py --workdir=sweep --workers=0",
        refused("table.csv"), folder("sweep/table.csv"),
    ),
    case("a sweep: its folder a file", "sweep --config=points.py --workdir=text.txt --workers=0", refused("text.txt")),
    case(
        "a sweep: a point's folder holds another run", "sweep --config=points.py --workdir=sweep --workers=0",
        refused("seed=0", "another run"), borrow("seed1", "sweep/seed=0"),
    ),
    *(
        case(
            f"a table: a result that is {what}", "sweep --config=points.py --workdir=sweep --workers=0",
            failed("seed=1/result.json"), write("sweep/seed=1/result.json", content), writes="^sweep/(table|plot)",
        )
        for what, content in BAD_JSON.items()
    ),
    case(
        "a table: a result that names other keys", "sweep --config=points.py --workdir=sweep --workers=0",
        accepted("sweep/table.csv"), change("sweep/seed=1/result.json", "point", "seed=7"),
        change("sweep/seed=1/result.json", "status", "<script>"), change("sweep/seed=1/result.json", "seed", 7),
        writes="^sweep/(table|plot)",
    ),
]


# --- Weights files ---------------------------------------------------------------------------------------------------


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


WEIGHTS_FILES = [
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
