"""The data files, runs and commands that hostile cases use."""

import shlex
from collections.abc import Iterable
from pathlib import Path

from experiments.hostile.steps import write

ROOT = Path(__file__).resolve().parents[2]

TINY = """
    --config.model.n_layers=1 --config.model.d_model=6 --config.model.d_ff=7 --config.model.n_heads=2
    --config.optimizer.warmup_steps=0
"""
SHORT = """
    --config.train.steps=6 --config.train.batch_size=5 --config.checkpoint.every=2 --config.checkpoint.keep=3
    --config.log.every=3 --config.log.tensorboard=false
"""
TEXT = "--config.data.path=text.txt --config.data.test=0.1"
SENTENCES = f"--config=configs/translation.py {TINY} {SHORT} --config.data.batch_tokens=256 --config.data.shapes=1"
PAIRS = f"{SENTENCES} --config.data.name=pairs --config.data.path=pairs.tsv --config.data.vocab_size=300"
ENGLISH_FRENCH = "--config.data.columns=en,fr --config.data.max_length=40 --config.model.max_len=40"
# The flags that replace @NAME in a command, for a run that trains in a second.
FLAGS = {
    "reversal": f"--config=configs/reversal.py {TINY} {SHORT} --config.model.max_len=11 --config.task.n_tokens=3"
    " --config.task.max_length=2 --config.task.longer=0",
    "characters": f"--config=configs/characters.py {TINY} {SHORT} {TEXT} --config.task.length=8"
    " --config.model.max_len=16",
    "primer": f"--config=configs/characters.py:primer {SHORT} {TEXT} --config.task.length=9 --config.model.max_len=9",
    "masking": f"--config=configs/masking.py {TINY} {SHORT} {TEXT} --config.task.length=8 --config.model.max_len=8"
    " --config.train.evaluate_every=0",
    "pairs": f"{PAIRS} {ENGLISH_FRENCH}",
    "parallel": f"{PAIRS} --config.data.max_length=40 --config.model.max_len=40 --config.data.name=parallel"
    " --config.data.path=parallel",
    "six": f"{SENTENCES} --config.data.name=six --config.data.tokenizer=word"
    " --config.data.max_length=20 --config.model.max_len=20",
    "series": f"--config=configs/time_series.py {TINY} {SHORT} --config.task.base=3 --config.task.length=6"
    " --config.model.max_len=8",
    "map": f"--config=configs/boolean_map.py {SHORT} --config.train.batch_size=10",
}
# The runs that cases use, by folder. Each is trained once, and copied for a case that names it.
RUNS = {
    **{name: f"@{name}" for name in FLAGS if name != "parallel"},
    "seed1": "@reversal --config.seed=1",
    "fresh": "@characters --config.data.path=other.txt",
    "half": "@reversal",  # its last step and its result are removed later
    "halfway": "@characters",
    "sweep/seed=0": "--config=points.py --config.seed=0",
    "sweep/seed=1": "--config=points.py --config.seed=1",
    # Trials of two pairs.
    "trial": "try @reversal --change=model.activation=silu --seeds=2",
    "trial_of_text": "try @characters --change=model.activation=silu --seeds=2",
}
UNFINISHED = ("half", "halfway")
WEIGHTS = "weights.safetensors"  # of @reversal

_LETTERS = "the cat sat on the mat and the dog ran to the man who had a red hat on his old head\n"
_TEXT = "".join(_LETTERS[i % 7 * 3 :] + _LETTERS[: i % 5 * 4 + 9] + "\n" for i in range(12))
_SWAPPED = str.maketrans("aehtd", "eahdt")
_WORDS = [("cat", "chat"), ("dog", "chien"), ("bread", "pain"), ("wine", "vin"), ("book", "livre"), ("hat", "chapeau")]
_PAIRS = [
    (f"{start} the {en}{end}", f"{debut} le {fr}{end}")
    for start, debut in (("I see", "Je vois"), ("You want", "Tu veux"))
    for en, fr in _WORDS
    for end in (".", "!")
]
NEAR_ZERO, BEYOND = "1e-60", "1e39"  # 0 and infinite in float32
DEEP = "[" * 100_000
BINARY = bytes(range(256))
LONG = "x" * 300
BAD_JSON: dict[str, str | bytes] = {"empty": "", "a list": "[]", "null": "null", "binary": BINARY, "deep": DEEP}

# Commands that many cases use.
TRAIN = "train @reversal --workdir=new"
TRAIN_TEXT = "train @characters --workdir=new"
TRAIN_PAIRS = "train @pairs --workdir=new"
EVALUATE = "evaluate --workdir=reversal"
SHOWN = "generate --workdir=reversal"

# A config file of the tiny run, with a sweep of two seeds.
POINTS = """import json

from ml_collections import ConfigDict


def get_config():
    with open("tiny.json") as file:
        return ConfigDict(json.load(file))


def sweep(add):
    for seed in range(2):
        add(seed=seed)
"""


def tab_separated(pairs: Iterable[Iterable[str]]) -> str:
    return "".join("\t".join(columns) + "\n" for columns in pairs)


def files() -> dict[str, str]:
    """Returns the contents of the data files in every case's folder, by name."""
    sides = {"en": [en for en, _ in _PAIRS], "fr": [fr for _, fr in _PAIRS]}
    parts = {"train": slice(0, 16), "val": slice(16, 20), "test": slice(20, 24)}
    return {
        "text.txt": _TEXT,
        "other.txt": _TEXT.translate(_SWAPPED),  # of the same characters
        "pairs.tsv": tab_separated(_PAIRS),
        "prompts.txt": "1 2\n3\n",
        "points.py": POINTS,
        **{
            f"parallel/{part}.{side}": "".join(f"{line}\n" for line in lines[rows])
            for part, rows in parts.items()
            for side, lines in sides.items()
        },
    }


def data_files(box: Path) -> None:
    box.mkdir(parents=True)
    for name in ("configs", "experiments"):
        (box / name).symlink_to(ROOT / name)
    for name, text in files().items():
        write(name, text)(box)


def arguments(command: str) -> list[str]:
    """Returns the words of a command. Flags after @NAME override the flags that replace it."""
    words: list[str] = []
    expanded: dict[str, str] = {}
    for part in shlex.split(command):
        if part.startswith("@"):
            expanded |= {word.split("=")[0]: word for word in shlex.split(FLAGS[part[1:]])}
        else:
            expanded.pop(part.split("=")[0], None)
            words.append(part)
    return [words[0], *expanded.values(), *words[1:]]
