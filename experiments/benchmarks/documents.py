"""A corpus that does not fit in memory: its preparation, and the start of a run on it.

    python -m experiments.benchmarks.documents --gigabytes=0.2,5,10 --folder=/tmp/corpus --keep

For each size it makes JSON lines of so many gigabytes of made-up documents, and trains a small model on them twice,
each time in a process of its own: the first prepares the tokens, the second finds them. For both it prints the seconds
to the first step, and the largest anonymous memory that the process had until then and to its end, as /proc says. It
removes the folder. --keep writes the table to experiments/results/documents.
"""

import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from absl import app, flags

from experiments.kept import keep
from fxf.reports.text_table import aligned

ROOT = Path(__file__).parents[2]
GIGABYTES = flags.DEFINE_list("gigabytes", ["0.2"], "sizes of the text")
FOLDER = flags.DEFINE_string(
    "folder", None, "the folder to make and remove; it takes three times the size of the text", required=True
)
KEEP = flags.DEFINE_boolean("keep", False, "write the table to experiments/results/documents")
TOKENIZER = flags.DEFINE_string("tokenizer", "character", "data.tokenizer")
WORDS = 20_000
STORE = 2**24  # bytes of ready text, of which documents are pieces
MODEL = {"n_layers": 1, "d_model": 64, "d_ff": 128, "n_heads": 2, "max_len": 256, "positions": "rotary"}


def make_documents(path: Path, n_bytes: int) -> int:
    """Writes JSON lines of documents of 200 bytes to 8 KB, and returns their number."""
    rng, n_documents, written = random.Random(0), 0, 0
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(1, 10))) for _ in range(WORDS)]
    text = " ".join(rng.choices(words, k=STORE // 7))
    with path.open("w") as file:
        while written < n_bytes:
            start, length = rng.randrange(len(text)), int(200 * 40 ** rng.random())
            written += file.write(
                json.dumps({"id": n_documents, "text": f"{n_documents} {text[start : start + length]}"}) + "\n"
            )
            n_documents += 1
    return n_documents


def anonymous_memory(pid: int) -> int:
    """Returns the megabytes of anonymous memory that a process has now; 0 if it has ended."""
    try:
        found = re.search(r"^RssAnon:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) // 1024 if found else 0


def cpu_seconds(pid: int) -> float:
    """Returns the seconds of all cores that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def train(path: Path, workdir: Path) -> list[float]:
    """Trains a few steps in another process.

    Returns:
      the seconds to the first step, and the largest anonymous memory in megabytes until then and to the end.
    """
    keys = {"data.path": path, "data.tokenizer": TOKENIZER.value, "data.validation": 1e-4, "data.vocab_size": 8000}
    keys |= {"task.length": 256, "train.steps": 20, "log.every": 1, "train.batch_size": 16, "optimizer.warmup_steps": 5}
    keys |= {f"model.{name}": value for name, value in MODEL.items()}
    flags_of_keys = [f"--config.{name}={value}" for name, value in keys.items()]
    command = [
        sys.executable,
        "-m",
        "fxf",
        "train",
        "--config=documents:json_lines",
        f"--workdir={workdir}",
        *flags_of_keys,
    ]
    began, peak, log = time.monotonic(), 0, workdir.with_suffix(".log")
    first, begun = 0.0, 0
    with log.open("w") as file:
        process = subprocess.Popen(command, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT)
        while process.poll() is None:
            peak = max(peak, anonymous_memory(process.pid))
            if not first and "step 1/" in log.read_text():
                first, begun = time.monotonic() - began, peak
                print(f"  first step after {first:.1f} s ({cpu_seconds(process.pid):.1f} s of CPU)")
            time.sleep(0.2)
    print(f"  {time.monotonic() - began:.1f} s, RssAnon at most {begun} MB until the first step, {peak} MB in all")
    print(*(f"  {line}" for line in log.read_text().splitlines()[-3:]), sep="\n", flush=True)
    if process.returncode:
        sys.exit(f"the run ended with exit code {process.returncode}")
    return [round(first, 1), begun, peak]


def measured(gigabytes: float, folder: Path) -> list[str]:
    """Makes a corpus, prepares it, begins a run on it, and returns the row of the table."""
    folder.mkdir()
    try:
        path, began = folder / "corpus.jsonl", time.monotonic()
        n_documents = make_documents(path, int(gigabytes * 1e9))
        print(f"{n_documents} documents, {path.stat().st_size / 1e9:.2f} GB, {time.monotonic() - began:.0f} s")
        figures: list[float] = []
        for name in ("prepares", "prepared"):
            print(name, flush=True)
            figures += train(path, folder / name)
        tokens = sum(file.stat().st_size for file in folder.rglob("*.tokens"))
        print(f"tokens on the disk: {tokens / 1e9:.2f} GB; cores: {os.cpu_count()}")
        return [f"{gigabytes:g}", *map(str, (n_documents, tokens, *figures))]
    finally:
        shutil.rmtree(folder)


def main(_: list[str]) -> None:
    columns = ("s to the first step", "MB until it", "MB in all")
    header = ["gigabytes", "documents", "bytes of tokens"]
    header += [f"{column}, {what}" for what in ("preparing", "prepared") for column in columns]
    sizes = list(map(float, GIGABYTES.value))
    rows = [measured(size, Path(FOLDER.value)) for size in sizes]
    print(*aligned([header, *rows]), sep="\n")
    if KEEP.value:
        keep("documents", [header, *rows])


if __name__ == "__main__":
    app.run(main)
