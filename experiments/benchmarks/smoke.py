"""Smoke-tests every config and argument in configs/, two at a time: one line each, and exit code 1 if one fails.

    python -m experiments.benchmarks.smoke                # all of them: make smoke
    python -m experiments.benchmarks.smoke reversal length # some, by the beginning of their name

A config whose text does not come with fxf gets a made-up one. Compilation is quick and programs are slow, as in the
tests.
"""

import contextlib
import io
import json
import multiprocessing
import os
import random
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from fxf.base.errors import UserError
from fxf.runs import configs, guests

# Configs that start from a run, by the beginning of their name, and the config of that run.
STARTS = {"objectives/": "reversal:example0", "choices": "completions"}
LINES, DOCUMENTS = 300, 9000  # lines of a made-up text; one document in a thousand is for validation
# Quick compilation in the processes that train, which share compiled programs.
QUICK = {
    "XLA_FLAGS": "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1",
    "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    "JAX_TRACEBACK_IN_LOCATIONS_LIMIT": "0",
}


def names() -> list[str]:
    """Returns NAME or NAME:ARGUMENT of each config."""
    found = []
    for name in configs.names():
        module = guests.load(configs.folder() / f"{name}.py")
        found += [f"{name}:{argument}" for argument in getattr(module, "ARGUMENTS", ())] or [name]
    return found


def base_of(name: str) -> str:
    """Returns the config of the run that this config starts from, "" for none."""
    return next((base for start, base in STARTS.items() if name.startswith(start)), "")


def make_texts(folder: Path) -> dict[str, str]:
    """Writes made-up texts, and returns the path of each by the name of the config that needs it."""
    draw = random.Random(0)
    words = ["".join(draw.choices("abcdefgh", k=draw.randint(1, 5))) for _ in range(99)]
    lines = [" ".join(draw.choices(words, k=draw.randint(3, 9))) for _ in range(LINES)]
    fields = ("text", "prompt", "completion", "chosen", "rejected")
    documents = [json.dumps(dict.fromkeys(fields, f"{i} {line}")) for i in range(DOCUMENTS // LINES) for line in lines]
    files = {"pairs.txt": [f"{line}\t{line[::-1]}" for line in lines], "documents.jsonl": documents}
    for part in ("train", "val", "test_2016_flickr"):
        files |= {f"{part}.lc.norm.tok.{language}": lines for language in ("en", "de", "fr")}
    for part, n in (("train", 9), ("test", 30)):  # in SCAN's format, with as many actions
        files[f"tasks_{part}_length.txt"] = [f"IN: {line} OUT:{n * ' walk'}" for line in lines]
    for name, content in files.items():
        (folder / name).write_text("\n".join([*content, ""]))
    of_folder = [f"translation:multi30k_{pair}" for pair in ("de", "fr", "deen")] + ["studies/scan"]
    of_lines = dict.fromkeys(("documents:json_lines", "completions:json_lines", "choices"), "documents.jsonl")
    others = {"translation:anki": "pairs.txt", **of_lines}
    return {**dict.fromkeys(of_folder, str(folder)), **{name: str(folder / file) for name, file in others.items()}}


def smoke(name: str, path: str, folder: Path) -> str:
    """Trains a config in its folder; returns an error message, or ""."""
    from fxf.base.config import with_values
    from fxf.runs import inside, run
    from fxf.runs.configs import read_config
    from fxf.runs.smoke import smoke_changes

    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            config: dict[str, Any] = read_config(name).to_dict()
            if path:
                config["data"]["path"] = path
            config = with_values(config, smoke_changes(config))
            run.train(config, folder, {"config_file": name, "overrides": {}})
            inside.EXAMPLES = 1  # each compiles programs of its own
            inside.write(folder)
        except UserError as error:
            return str(error)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
    return ""


def main() -> int:
    """Prints a line for each config, and returns the exit code."""
    chosen = [name for name in names() if name.startswith(tuple(sys.argv[1:]) or "")]
    failed, began, context = 0, time.perf_counter(), multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="fxf-smoke-") as where:
        os.environ |= {**QUICK, "JAX_COMPILATION_CACHE_DIR": f"{where}/programs"}
        paths = make_texts(Path(where))
        bases = {base: Path(where) / "bases" / base for base in sorted({*map(base_of, chosen)} - {""})}
        failed += sum(bool(smoke(base, "", folder)) for base, folder in bases.items())
        with ProcessPoolExecutor(2, context) as pool:
            runs = {
                pool.submit(smoke, full, paths.get(name, ""), Path(where) / "runs" / str(i)): name
                for i, name in enumerate(chosen)
                for full in [f"{name}:{bases[base_of(name)]}" if base_of(name) else name]
            }
            for future in as_completed(runs):
                wrong = future.result()
                failed += bool(wrong)
                print(f"{time.perf_counter() - began:6.1f} s  {runs[future]}  {wrong or 'works'}", flush=True)
    print(f"{len(chosen)} configs, {failed} failed, {time.perf_counter() - began:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
