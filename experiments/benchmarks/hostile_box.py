"""Hostile cases, the folders that they run in, and the steps that damage such a folder."""

import json
import os
import re
import shlex
import shutil
import socket
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 60.0
Step = Callable[[Path], None]

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


@dataclass(frozen=True)
class Expected:
    """The expected end: exit code 2 and one line of stderr with all `parts`, or exit code 0 and output with them.

    A part may have alternatives: "a|b". `lines` is the number of lines of stdout, if it matters. `code` is 1 if a sweep
    names a failed point with the last line of its log, and 141, without a line, if nobody reads the output. Unless it
    is `alone`, other lines may precede the last one.
    """

    refused: bool
    parts: tuple[str, ...]
    lines: int | None = None
    code: int = 2
    alone: bool = True


def refused(*parts: str) -> Expected:
    return Expected(True, parts)


def failed(*parts: str) -> Expected:
    return Expected(True, parts, code=1, alone=False)


def refused_at_last(*parts: str) -> Expected:
    return Expected(True, parts, alone=False)


def unread() -> Expected:
    return Expected(True, (), code=141)


def accepted(*parts: str, lines: int | None = None) -> Expected:
    return Expected(False, parts, lines)


@dataclass(frozen=True)
class Case:
    """A command with a hostile input.

    Attributes:
      name: a name of the fault.
      command: a script of experiments/ and its arguments, with @NAME for the flags of a tiny run; or
        `load_weights FILE` or `load_huggingface FOLDER`, which read weights files.
      expected: the expected end.
      steps: changes of the folder before the command; it has the data files and the runs that the command names.
      runs: other runs that the folder must have.
      stdin: the content of standard input.
      env: changes of the environment; None removes a variable. Such a case needs its own process.
      stdout: "", or "closed", "full" or "broken pipe". Such a case needs its own process.
      own_process: whether to start a process in any case.
      unprivileged: whether to run without root's power to write read-only files.
      writes: a regular expression for the paths that a refused case may add or remove.
      seconds: the time limit.
    """

    name: str
    command: str
    expected: Expected
    steps: tuple[Step, ...] = ()
    runs: tuple[str, ...] = ()
    stdin: bytes = b""
    env: tuple[tuple[str, str | None], ...] = ()
    stdout: str = ""
    own_process: bool = False
    unprivileged: bool = False
    writes: str = r"$^"
    seconds: float = SECONDS

    def needed(self) -> list[str]:
        """Returns the runs that the case needs, by the first part of their folders."""
        words = {*re.findall(r"[\w]+", self.command), *self.runs}
        return [name for name in dict.fromkeys(name.split("/")[0] for name in RUNS) if name in words]


def case(name: str, command: str, expected: Expected, *steps: Step, **options: Any) -> Case:
    if "env" in options:
        options["env"] = tuple(options["env"].items())
    return Case(name, command, expected, steps, **options)


# Steps. Paths are relative to the case's folder.


def write(path: str, content: str | bytes) -> Step:
    def step(box: Path) -> None:
        (box / path).parent.mkdir(parents=True, exist_ok=True)
        remove(path)(box)
        (box / path).write_bytes(content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content)

    return step


def remove(path: str) -> Step:
    def step(box: Path) -> None:
        for found in box.glob(path):
            if found.is_dir() and not found.is_symlink():
                shutil.rmtree(found)
            else:
                found.unlink()

    return step


def folder(path: str) -> Step:
    def step(box: Path) -> None:
        remove(path)(box)
        (box / path).mkdir(parents=True)

    return step


def link(path: str, target: str) -> Step:
    def step(box: Path) -> None:
        remove(path)(box)
        (box / path).symlink_to(target)

    return step


def fifo(path: str) -> Step:
    def step(box: Path) -> None:
        remove(path)(box)
        os.mkfifo(box / path)

    return step


def listening(path: str) -> Step:
    """Makes a socket."""

    def step(box: Path) -> None:
        remove(path)(box)
        before = Path.cwd()
        os.chdir(box)  # a socket's path must be short
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path)
        os.chdir(before)

    return step


def mode(path: str, bits: int) -> Step:
    return lambda box: (box / path).chmod(bits)


def move(path: str, to: str) -> Step:
    def step(box: Path) -> None:
        (box / path).replace(box / to)

    return step


def borrow(path: str, to: str) -> Step:
    """Replaces a file or folder by that of another run."""

    def step(box: Path) -> None:
        source = box.parents[2] / "fixtures" / path
        remove(to)(box)
        if source.is_dir():
            shutil.copytree(source, box / to)
        else:
            shutil.copy(source, box / to)

    return step


def rewrite(path: str, function: Callable[[str], str]) -> Step:
    """Replaces the content of a text file by a function of it."""

    def step(box: Path) -> None:
        before = (box / path).read_text(encoding="utf-8")
        after = function(before)
        assert after != before, path
        (box / path).write_text(after, encoding="utf-8")

    return step


def append(path: str, text: str) -> Step:
    return rewrite(path, lambda before: before + text)


def alter(path: str, function: Callable[[Any], Any]) -> Step:
    """Replaces the content of a JSON file by a function of it."""
    return rewrite(path, lambda text: json.dumps(function(json.loads(text))))


def change(path: str, keys: str, value: Any) -> Step:
    """Sets a key of a JSON file, KEY/KEY/KEY; a value `...` removes it."""

    def changed(record: Any) -> Any:
        *sections, last = keys.split("/")
        holder = record
        for name in sections:
            holder = holder[name]
        if value is ...:
            del holder[last]
        else:
            holder[last] = value
        return record

    return alter(path, changed)


def largest(folder: Path) -> Path:
    return max((path for path in folder.rglob("*") if path.is_file()), key=lambda path: (path.stat().st_size, path))


def flip(path: str) -> Step:
    """Changes the byte in the middle of the largest file of a folder."""

    def step(box: Path) -> None:
        found = largest(box / path)
        data = bytearray(found.read_bytes())
        data[len(data) // 2] ^= 255
        found.write_bytes(data)

    return step


def cut(path: str) -> Step:
    """Halves the largest file of a folder."""

    def step(box: Path) -> None:
        found = largest(box / path)
        found.write_bytes(found.read_bytes()[: found.stat().st_size // 2])

    return step


def contents(box: Path) -> dict[str, Any]:
    """Returns the content of each path in a folder, without following links."""
    found: dict[str, Any] = {}
    for parent, folders, names in os.walk(box):
        for name in [*folders, *names]:
            path = Path(parent) / name
            info = path.lstat()
            kind = stat.S_IFMT(info.st_mode)
            is_file = stat.S_ISREG(kind)
            found[str(path.relative_to(box))] = path.read_bytes() if is_file and info.st_size < 2**24 else kind
    return found


def prepare(box: Path, case: Case) -> None:
    """Makes the case's folder."""
    data_files(box)
    borrow("tiny.json", "tiny.json")(box)
    for name in case.needed():
        borrow(name, name)(box)
    for step in case.steps:
        step(box)


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
