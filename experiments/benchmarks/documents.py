"""Measures the preparation of a corpus that does not fit in memory, and the start of a run on it.

    python -m experiments.benchmarks.documents --gigabytes=0.2,5,10 --folder=/tmp/corpus --keep

For each size in gigabytes it writes made-up documents as JSON lines, and trains a small model on them twice, each time
in its own process: the first run prepares the tokens, the second finds them. For both it reports the seconds to the
first step, and the peak of anonymous memory until then and until the end, by /proc. It removes the folder. --keep
writes the table to experiments/results/documents.
"""

import json
import random
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

from absl import app, flags

from experiments.runner import RESULTS, ROOT, keep, verb

GIGABYTES = flags.DEFINE_list("gigabytes", ["0.2"], "sizes of the text")
FOLDER = flags.DEFINE_string("folder", None, "the folder to make and remove: three times the size", required=True)
KEEP = flags.DEFINE_boolean("keep", False, "write the table to experiments/results/documents")
TOKENIZER = flags.DEFINE_string("tokenizer", "character", "data.tokenizer")
WORDS, STORE = 20_000, 2**24  # words, and bytes of the text that documents are cut from
KEYS: dict[str, Any] = {
    **{"data.validation": 1e-4, "data.vocab_size": 8000, "task.length": 256, "train.steps": 20, "log.every": 1},
    **{"train.batch_size": 16, "optimizer.warmup_steps": 5, "model.n_layers": 1, "model.d_model": 64},
    **{"model.d_ff": 128, "model.n_heads": 2, "model.max_len": 256, "model.positions": "rotary"},
}


def make_documents(path: Path, n_bytes: int) -> int:
    """Writes JSON lines of documents of 200 bytes to 8 KB, and returns their number."""
    rng, n_documents, written = random.Random(0), 0, 0
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(1, 10))) for _ in range(WORDS)]
    text = " ".join(rng.choices(words, k=STORE // 7))
    with path.open("w") as file:
        while written < n_bytes:
            start, length = rng.randrange(len(text)), int(200 * 40 ** rng.random())
            document = {"id": n_documents, "text": f"{n_documents} {text[start : start + length]}"}
            written += file.write(json.dumps(document) + "\n")
            n_documents += 1
    return n_documents


def train(path: Path, workdir: Path) -> dict[str, float]:
    """Trains a few steps in a process; returns seconds to the first step, and peak megabytes until then and overall."""
    keys = {**KEYS, "data.path": path, "data.tokenizer": TOKENIZER.value}
    options = [f"--config.{name}={value}" for name, value in keys.items()]
    words = verb("train", "--config=documents:json_lines", f"--workdir={workdir}", *options)
    began, peak, first, begun, log = time.monotonic(), 0, 0.0, 0, workdir.with_suffix(".log")
    with log.open("w") as file:
        process = subprocess.Popen(words, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT)
        while process.poll() is None:
            status = Path(f"/proc/{process.pid}/status").read_text()
            found = re.search(r"^RssAnon:\s+(\d+) kB", status, re.MULTILINE)  # absent while the process ends
            peak = max(peak, int(found[1]) // 1024 if found else 0)
            if not first and "step 1/" in log.read_text():
                first, begun = time.monotonic() - began, peak
            time.sleep(0.2)
    if process.returncode:
        raise RuntimeError(log.read_text())
    return {"s to the first step": round(first, 1), "MB until it": begun, "MB in all": peak}


def measured(gigabytes: str, folder: Path) -> dict[str, Any]:
    """Makes a corpus, prepares it, starts a run on it, and returns its row of the table."""
    folder.mkdir()
    try:
        n_documents = make_documents(folder / "corpus.jsonl", int(float(gigabytes) * 1e9))
        told = {what: train(folder / "corpus.jsonl", folder / what) for what in ("preparing", "prepared")}
        n_bytes = sum(file.stat().st_size for file in folder.rglob("*.tokens"))
    finally:
        shutil.rmtree(folder)
    figures = {f"{column}, {what}": value for what, each in told.items() for column, value in each.items()}
    row = {"gigabytes": gigabytes, "documents": n_documents, "bytes of tokens": n_bytes, **figures}
    print(json.dumps(row), flush=True)
    return row


def main(_: list[str]) -> None:
    rows = [measured(size, Path(FOLDER.value)) for size in GIGABYTES.value]
    if KEEP.value:
        keep(RESULTS / "documents", rows)


if __name__ == "__main__":
    app.run(main)
