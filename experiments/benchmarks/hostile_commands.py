"""Hostile command lines: keys, values, flags, environments, remote paths, sizes."""

from typing import Any

from hostile_box import (
    BEYOND,
    EVALUATE,
    LONG,
    NEAR_ZERO,
    SHOWN,
    TRAIN,
    TRAIN_PAIRS,
    TRAIN_TEXT,
    Case,
    accepted,
    case,
    refused,
    refused_at_last,
    remove,
    unread,
)

# fmt: off


# --- Keys and values -------------------------------------------------------------------------------------------------


def keys(name: str, flags: str, *parts: str, run: str = "reversal", **options: Any) -> Case:
    return case(name, f"train @{run} --workdir=new {flags}", refused(*parts), **options)


KEYS = [
    keys("dashes forgotten", "config.model.n_layers=4", "config.model.n_layers=4"),
    keys("a letter forgotten", "--config.model.n_layer=3", "model.n_layer", "n_layers"),
    keys("a letter of the section forgotten", "--config.modle.n_layers=3", "modle", "model"),
    keys("the section forgotten", "--config.n_layers=3", "n_layers", "model.n_layers"),
    keys("capitals", "--config.model.N_LAYERS=3", "N_LAYERS", "n_layers"),
    keys("a hyphen", "--config.model.n-layers=3", "n-layers", "n_layers"),
    keys("a key of a key", "--config.model.n_layers.x=3", "n_layers"),
    keys("a method's name", "--config.model.items=3", "items"),
    keys("an attribute's name", "--config.__class__=3", "__class__"),
    keys("a section that this task lacks", "--config.data.path=text.txt", "data"),
    keys("a section for a value", "--config.model=3", "model"),
    keys("nothing for a value", "--config.model.n_layers=", "n_layers"),
    keys("no value", "--config.seed", "seed"),
    keys("a key of another optimizer", "--config.optimizer.momentum=0.9", "optimizer.momentum"),
    keys(
        "a key of another schedule", "--config.optimizer.schedule=constant --config.optimizer.final_learning_rate=0.1",
        "final_learning_rate",
    ),
    keys("a key of another model", "--config.model.segments=2", "segments"),
    keys("the same key twice", "--config.seed=1 --config.seed=2", "config.seed"),
    keys("the run folder twice", "--workdir=other", "--workdir"),
    keys("a key with a line end", "'--config.model.a\nb=3'", "a\\nb"),
]

VALUES = [
    *(
        keys(f"{value} for {key}", f"--config.{key}={value}", key.split(".")[-1])
        for key, values in {
            "optimizer.learning_rate": ("inf", "nan", "1e400", "0", "-1e-3", NEAR_ZERO, BEYOND),
            "optimizer.eps": ("inf", "-0.0"),
            "optimizer.clip_norm": ("inf", "nan"),
            "optimizer.b2": ("1", "nan"),
            "optimizer.weight_decay": ("inf", BEYOND),
            "model.norm_epsilon": ("inf", NEAR_ZERO),
            "model.dropout": ("1", "-0.1", "nan"),
            "model.n_layers": ("2.5", "four", "True", "0", "-1", "1e3"),
            "model.n_heads": ("4",),
            "model.positions": ("rope", "sinusodal"),
            "model.window": ("-1",),
            "task.n_tokens": ("2147483648",),
            "train.steps": ("9223372036854775808", "0"),
            "seed": ("-1", "4294967296", "1.0"),
            "checkpoint.keep": ("0",),
            "checkpoint.best": ("loss",),
            "train.patience": ("3",),
            "log.tensorboard": ("2",),
            "log.every": ("0",),
            "parallel.data": ("2",),
            "parallel.tensor": ("2",),
            "parallel.coordinator": ("localhost:1",),
            "decode.temperature": ("inf", NEAR_ZERO),
            "decode.top_p": ("0", "2"),
            "decode.length_penalty": ("inf",),
        }.items()
        for value in values
    ),
    keys("warm-up as long as the training", "--config.optimizer.warmup_steps=6", "warmup_steps"),
    keys("a model for another task", "--config.model.name=masked_lm", "model"),
    keys("the same port for no one", "--config.parallel.processes=2", "parallel.coordinator"),
]


# --- Flags -----------------------------------------------------------------------------------------------------------

FLAGS = [
    case("an argument of evaluate", "evaluate --workdir=reversal step=4", refused("step=4")),
    case("an argument of describe", "describe @reversal config.model.n_layers=4", refused("config.model.n_layers=4")),
    case(
        "an argument of sweep", "sweep --config=points.py --workdir=new --dry_run config.seed=1",
        refused("config.seed=1"),
    ),
    case("an argument of export", "export --workdir=reversal --format=jax step=4", refused("step=4")),
    case(
        "a weights file over the run's config",
        "export --workdir=reversal --format=safetensors --output=reversal/config.json", refused("config.json"),
    ),
    case(
        "a weights file over the run's result", "export --workdir=reversal --format=jax --output=reversal/result.json",
        refused("result.json"),
    ),
    case(
        "a picture over a file that is none",
        "probe --workdir=reversal --name=embedding/positions --output=text.txt '1 2'", refused("text.txt", ".png"),
    ),
    case(
        "a picture in a folder that is not there",
        "probe --workdir=reversal --name=params/embedding/table --output=none/x.png '1 2'", refused("none/x.png"),
    ),
    case(
        "a weights file in a folder that is not there",
        "export --workdir=reversal --format=safetensors --output=none/x", refused("none/x"),
    ),
    case(
        "a folder for a weights file", "export --workdir=reversal --format=jax --output=parallel", refused("parallel"),
    ),
    case(
        "a folder of transformers over a run without records", "export --workdir=reversal --format=huggingface"
        " --output=half", refused("half"), remove("half/metrics.jsonl"),
    ),
    case("a smoke run of the root", "train @reversal --workdir=/ --smoke", refused("--workdir")),
    case("no point by its number", "sweep --config=points.py --workdir=new --points=", refused("--points")),
    case(
        "points by number, in a dry run", "sweep --config=points.py --workdir=new --points=1 --dry_run",
        refused("--dry_run"),
    ),
    case("a search of decoding", "compile @reversal --topology=h100:1 --search --rows=2", refused("--rows")),
    case("a comparison of a name too long", f"compare {LONG}", refused("too long")),
    case(
        "a file for a folder", "export --workdir=reversal --format=huggingface --output=text.txt",
        refused("text.txt|model."),
    ),
    case("a format misspelt", "export --workdir=reversal --format=safetensor", refused("--format", "safetensors")),
    case("a format forgotten", "export --workdir=reversal", refused("--format")),
    case("a head without a name", "probe --workdir=reversal --head=0 '1 2'", refused("--head")),
    case(
        "a head beyond the last", "probe --workdir=reversal --name=block_0/attention/weights --head=2 '1 2'",
        refused("head: expected less than 2"),
    ),
    case("a picture without a name", "probe --workdir=reversal --output=x.png '1 2'", refused("--output")),
    case("a lens and a name", "probe --workdir=reversal --lens --name=embedding/positions '1 2'", refused("--lens")),
    case(
        "a name that is near", "probe --workdir=reversal --name=block_0/attention/weight '1 2'",
        refused("--name", "block_0/attention/weights"),
    ),
    case("three texts", "probe --workdir=reversal '1 2' 2 1", refused("3 arguments")),
    case("a lens where there are no blocks", "probe --workdir=map --lens '1 2'", refused("boolean_map")),
    case("a seed below 0", f"{SHOWN} --seed=-1 1", refused("seed")),
    case("no hypothesis", f"{SHOWN} --n_best=0 1", refused("n_best")),
    case("more hypotheses than the beam", f"{SHOWN} --beam_width=2 --n_best=3 1", refused("n_best", "beam_width")),
    case("fewer than no tokens", f"{SHOWN} --max_tokens=-1 1", refused("max_tokens")),
    case("more tokens than positions", f"{SHOWN} --max_tokens=1000000000 1", refused("max_len", "11")),
    case("a beam that draws", f"{SHOWN} --beam_width=2 --temperature=1 1", refused("temperature")),
    case("a seed that nothing draws with", f"{SHOWN} --seed=3 1", refused("seed")),
    case("a temperature that is none", f"{SHOWN} --temperature=nan 1", refused("temperature")),
    case("an infinite temperature", f"{SHOWN} --temperature=inf 1", refused("temperature")),
    case("a temperature next to nothing", f"{SHOWN} --temperature={NEAR_ZERO} 1", refused("temperature")),
    case("prompts twice", f"{SHOWN} --input=prompts.txt 1", refused("--input")),
    case("no file of prompts", f"{SHOWN} --input=prompt.txt", refused("--input", "prompt.txt")),
    case("a flag misspelt", f"{SHOWN} --beam_with=2 1", refused("beam_with", "beam_width")),
    case("a file of flags that is not there", f"{SHOWN} --flagfile=none 1", refused("none")),
    case("slurm's flags without it", "sweep --config=points.py --workdir=new --minutes=3", refused("--minutes")),
    case("fewer than no workers", "sweep --config=points.py --workdir=new --workers=-1", refused("workers")),
    case(
        "an axis that no point changes", "sweep --config=points.py --workdir=sweep --workers=0 --x=model.n_layers",
        refused("--x"),
    ),
    case(
        "an axis that no result has", "sweep --config=points.py --workdir=sweep --workers=0 --y=exact_mach",
        refused("--y", "exact_match"), writes=r"^sweep/table",
    ),
]


# --- Environments ----------------------------------------------------------------------------------------------------

ENVIRONMENTS = [
    case("a device that is not here", TRAIN, refused("cuda"), env={"JAX_PLATFORMS": "cuda"}),
    case("a device that is not here: evaluate", EVALUATE, refused("tpu"), env={"JAX_PLATFORMS": "tpu"}),
    case("a device that is none", "describe @reversal", refused("quantum"), env={"JAX_PLATFORMS": "quantum"}),
    case("devices in no number", TRAIN, refused("JAX_NUM_CPU_DEVICES"), env={"JAX_NUM_CPU_DEVICES": "two"}),
    case("a flag that XLA lacks", TRAIN, refused("XLA_FLAGS"), env={"XLA_FLAGS": "--xla_no_such_flag=1"}),
    case("no home", EVALUATE, accepted("exact_match"), env={"HOME": None}),
    case("a home that is not there", EVALUATE, accepted("exact_match"), env={"HOME": "/nowhere"}),
    case("prepared data in a file", TRAIN_PAIRS, refused("text.txt"), env={"TFDS_DATA_DIR": "text.txt"}),
    case(
        "prepared data where nothing can be written", TRAIN_PAIRS, refused("/proc"),
        env={"TFDS_DATA_DIR": "/proc/data"},
    ),
    case(
        "a language without letters", "train @six --workdir=new", accepted("bleu"),
        env={"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ),
    case(
        "an output of ASCII", "generate --workdir=six 'good morning'", accepted(lines=1),
        env={"PYTHONIOENCODING": "ascii"},
    ),
    case("no git", TRAIN, accepted("exact_match"), env={"PATH": "/nowhere"}),
    case(
        "a plotting backend that is none",
        "probe --workdir=reversal --name=block_0/attention/weights --output=x.png '1 2'", accepted("x.png"),
        env={"MPLBACKEND": "quantum"},
    ),
    case("no asserts", EVALUATE, accepted("exact_match"), env={"PYTHONOPTIMIZE": "2"}),
    case("stdout closed", EVALUATE, refused("stdout|standard output"), stdout="closed"),
    case("stdout on a full disk: evaluate", EVALUATE, refused("stdout|standard output"), stdout="full"),
    case(
        "stdout on a full disk: train", TRAIN, refused_at_last("stdout|standard output"), stdout="full",
        writes="^new",
    ),
    case("stdout on a full disk: help", "train --help", refused("stdout|standard output"), stdout="full"),
    case(
        "a pipe that nobody reads: generate", "generate --workdir=reversal 1 2 3", unread(),
        stdout="broken pipe",
    ),
    case(
        "a pipe that nobody reads: describe", "describe @reversal", unread(),
        stdout="broken pipe",
    ),
    case(
        "a pipe that nobody reads: probe", "probe --workdir=reversal --lens '1 2'", unread(),
        stdout="broken pipe",
    ),
    case(
        "flags in a real process", "train @reversal --config.model.n_layer=3 --workdir=new", refused("model.n_layer"),
        own_process=True,
    ),
]


# --- Remote paths ----------------------------------------------------------------------------------------------------

REMOTE = [
    *(
        case(f"{path} for {what}", command.replace("PATH", path), refused(path.split(":")[0]), runs=("reversal",))
        for path in ("s3://bucket/run", "http://example.org/run", "gs://bucket/run")
        for what, command in {
            "a run: train": "train @reversal --workdir=PATH",
            "a run: evaluate": "evaluate --workdir=PATH",
        }.items()
    ),
    case("a scheme with capitals", "train @reversal --workdir=S3://bucket/run", refused("S3://|s3://")),
    case("a scheme of files", "train @reversal --workdir=file:///tmp/run", refused("file:")),
    case("a scheme with one slash", "train @reversal --workdir=gs:/bucket/run", refused("gs:/")),
    case("s3:// for a run: generate", "generate --workdir=s3://bucket/run 1", refused("s3://")),
    case("s3:// for a run: probe", "probe --workdir=s3://bucket/run 1", refused("s3://")),
    case("s3:// for a run: export", "export --workdir=s3://bucket/run --format=jax", refused("s3://")),
    case("s3:// for a sweep", "sweep --config=points.py --workdir=s3://bucket/sweep", refused("s3://")),
    case("s3:// for a text", f"{TRAIN_TEXT} --config.data.path=s3://bucket/text", refused("s3:/")),
    case(
        "s3:// for weights", "export --workdir=reversal --format=safetensors --output=s3://bucket/x", refused("s3:/"),
    ),
    case(
        "s3:// for a picture",
        "probe --workdir=reversal --name=block_0/attention/weights --output=s3://bucket/x.png '1 2'", refused("s3:/"),
    ),
]


# --- Sizes: each in a process of its own, as a user starts it --------------------------------------------------------

HUGE = {
    "model.d_model=1000000": "reversal",
    "model.d_model=1000000000": "reversal",
    "model.d_ff=1000000000": "reversal",
    "model.n_layers=1000000": "reversal",
    "model.max_len=1000000000": "reversal",
    "model.max_len=1000000000000000000": "reversal",
    "train.batch_size=1000000000": "reversal",
    "task.max_length=1000000000": "reversal",
    "task.n_tokens=1000000000": "reversal",
    "task.length=1000000000": "characters",
    "task.base=1000000000": "series",
    "task.dim=1000000": "map",
}


def extra(size: str) -> str:
    """Returns the flags that a size needs besides."""
    return {
        "task.max_length=1000000000": "--config.model.max_len=2147483647",
        "task.length=1000000000": "--config.model.max_len=1000000000",
    }.get(size, "")


SIZES = [
    *(
        case(
            f"{size}: train", f"train @{run} --config.{size} {extra(size)} --workdir=new".replace("  ", " "),
            refused(size.split("=")[0] + "|model.max_len"), own_process=True, seconds=10,
        )
        for size, run in HUGE.items()
    ),
    *(
        case(
            f"{size}: describe", f"describe @{run} --config.{size} {extra(size)}".strip(), accepted("total"),
            own_process=True, seconds=10,
        )
        for size, run in HUGE.items()
        if (size.startswith("model") and "max_len" not in size) or "batch" in size
    ),
    case(
        "a beam of 1,000,000,000", f"{SHOWN} --beam_width=1000000000 1", refused("beam_width"), own_process=True,
        seconds=10,
    ),
    case(
        "a beam of 1,000,000,000: evaluate", f"{EVALUATE} --beam_width=1000000000", refused("beam_width"),
        own_process=True, seconds=10,
    ),
    case(
        "a width of 1,000,000,000: describe in time",
        "describe --config=configs/reversal.py --config.model.d_model=1000000000", accepted("total"), seconds=5,
    ),
]
