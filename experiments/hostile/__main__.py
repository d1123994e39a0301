"""Hostile inputs to every script and loader: each must be refused in one line, or accepted and named.

python -m experiments.hostile [--only=CLASS or part of a name] [--workers=2] [--list] [--keep]

Each file of cases/ is a class. A case runs in a folder of its own, with data files and tiny runs, one of which is
damaged.
  refused   means exit code 2 and exactly one line of stderr. It begins with "error: ", has the words that the case
            expects, and is printable. The folder is unchanged: nothing is lost, and no run folder is begun
  accepted  means exit code 0 and an output that has the words that the case expects
The exit code is 1 if a case has another outcome; each such case is printed with its command. A case runs in a forked
child of this process, which has imported everything, unless it depends on the environment. --processes starts a Python
for each case, as a user would. --folder=FOLDER keeps the runs and the cases' folders there, and uses older runs again.
--keep writes the table of all cases to experiments/results/hostile. --patience=5 gives each case five times its time,
for a machine that is busy with other work.
"""

import argparse
import dataclasses
import importlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import jax

from experiments.figures.kept_table import keep
from experiments.hostile.case import Case
from experiments.hostile.fixtures import ROOT, RUNS, UNFINISHED, WEIGHTS, data_files
from experiments.hostile.judge import ACCEPTED, OUTCOMES, REFUSED, outcome
from experiments.hostile.processes import run_all, start
from fxf.reports.text_table import aligned
from fxf.runs import code_version

# The modules that the scripts import; forked children have them.
IMPORTED = """
    fxf.runs.cli fxf.data.builders fxf.interop.export fxf.interop.huggingface fxf.reports.describe
    fxf.reports.plots fxf.reports.probe fxf.runs.run fxf.sweeps.table fxf.sweeps.workers jax.export matplotlib.pyplot
    fxf.trials.arms fxf.trials.trial sacrebleu.metrics safetensors.numpy tensorboardX
"""
CASES: dict[str, list[Case]] = {
    file.stem.replace("_", " "): importlib.import_module(f"experiments.hostile.cases.{file.stem}").CASES
    for file in sorted((Path(__file__).parent / "cases").glob("*.py"))
}


def make_runs(folder: Path, workers: int) -> None:
    """Trains the runs that the cases use."""
    fixtures, logs = folder / "fixtures", folder / "logs"
    made_by = fixtures / "made_by"
    if made_by.exists() and made_by.read_text() == code_version.code_digest():
        return
    shutil.rmtree(fixtures, ignore_errors=True)
    data_files(fixtures)
    logs.mkdir(exist_ok=True)
    waiting = dict(RUNS)
    running: dict[str, tuple[Callable[[], int | None], Path]] = {}
    while waiting or running:
        # The first runs alone, because others start from its config.
        while waiting and len(running) < (workers if (fixtures / "tiny.json").exists() else 1):
            name = next(iter(waiting))
            made = waiting.pop(name)
            command = f"{made if made.startswith('try ') else f'train {made}'} --workdir={name}"
            place = logs / name.replace("/", "_")
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            case = Case(name, command, expected=None)  # type: ignore[arg-type]
            # Later cases reuse the compiled programs of these runs.
            (place / "box").symlink_to(fixtures)
            running[name] = (start(case, place / "box", False)[0], place)
        time.sleep(0.02)
        for name, (poll, place) in [*running.items()]:
            if (code := poll()) is None:
                continue
            del running[name]
            if code:
                sys.exit(f"cannot make the run {name}: {(place / 'stderr').read_text()}")
            if name == "reversal":
                record = json.loads((fixtures / name / "config.json").read_text())
                (fixtures / "tiny.json").write_text(json.dumps(record["config"]))
    case = Case("weights", f"export --workdir=reversal --format=safetensors --output={WEIGHTS}", expected=None)  # type: ignore[arg-type]
    poll, _ = start(case, logs / "reversal" / "box", False)
    while poll() is None:
        time.sleep(0.02)
    for name in UNFINISHED:
        (fixtures / name / "result.json").unlink()
        shutil.rmtree(fixtures / name / "checkpoints" / "6")
    made_by.write_text(code_version.code_digest())


def set_environment(folder: Path) -> None:
    """Sets the environment of all processes; programs compile quickly, and once, which changes no outcome."""
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_disable_most_optimizations", True)
    jax.config.update("jax_compilation_cache_dir", str(folder / "cache"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    sys.dont_write_bytecode = True
    os.environ.update(
        PYTHONPATH=str(ROOT),
        PYTHONDONTWRITEBYTECODE="1",
        TFDS_DATA_DIR=str(folder / "tensorflow_datasets"),
        JAX_PLATFORMS="cpu",
        JAX_DISABLE_MOST_OPTIMIZATIONS="1",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="a class, or a part of names")
    parser.add_argument("--workers", type=int, default=2, help="cases at a time")
    parser.add_argument("--list", action="store_true", help="print the cases and end")
    parser.add_argument("--processes", action="store_true", help="start a Python for each case")
    parser.add_argument("--keep", action="store_true", help="keep the table of all cases")
    parser.add_argument("--patience", type=float, default=1.0, help="a factor of the time limits")
    parser.add_argument("--folder", type=Path, help="where to work; it is kept")
    options = parser.parse_args()
    if options.keep and options.only:
        sys.exit("--keep: keeps the table of all cases; leave --only")
    chosen = {
        dataclasses.replace(case, seconds=case.seconds * options.patience): kind
        for kind, cases in CASES.items()
        for case in cases
        if options.only == kind or (options.only not in CASES and options.only in case.name)
    }
    if options.list:
        print(*(f"{kind}: {case.name}\n    {case.command}" for case, kind in chosen.items()), sep="\n")
        return
    if not chosen:
        sys.exit(f"no case has '{options.only}' in its name; the classes are {', '.join(CASES)}")
    with tempfile.TemporaryDirectory(prefix="hostile-") as temporary:
        folder = (options.folder or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        started = time.monotonic()
        set_environment(folder)
        for module in IMPORTED.split():
            importlib.import_module(module)
        make_runs(folder, options.workers)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 1e6)  # JAX does not write its files atomically
        shutil.rmtree(folder / "cases", ignore_errors=True)
        counts, wrong = {kind: Counter[str]() for kind in chosen.values()}, []
        ended = run_all(chosen, folder / "cases", options.workers, options.processes)
        for number, (case, how) in enumerate(ended, 1):
            found, what = outcome(case, how)
            counts[chosen[case]][found] += 1
            detail = "" if found in (REFUSED, ACCEPTED) else f": {what}"
            print(f"{number}/{len(chosen)}  {chosen[case]}: {case.name}  {found}{detail}", file=sys.stderr, flush=True)
            if detail:
                wrong.append((case, found, what, how))
    for case, found, what, how in wrong:
        print(f"\n{chosen[case]}: {case.name}\n    {found}: {what}")
        print(f"    expected {'a refusal' if case.expected.refused else 'exit code 0'} with {case.expected.parts}")
        print(*(f"    | {line[:300]}" for line in (how.err or how.out).splitlines()[-3:]), sep="\n")
        print(f"    {case.command}\n    python -m experiments.hostile --only='{case.name}'")
    rows = [["class", "inputs", *OUTCOMES]]
    for kind, counted in [*counts.items(), ("all", sum(counts.values(), Counter[str]()))]:
        rows.append([kind, str(counted.total()), *(str(counted[name]) for name in OUTCOMES)])
    print("", *aligned(rows), f"{time.monotonic() - started:.0f} s", sep="\n")
    if options.keep:
        keep("hostile", rows)
    sys.exit(int(bool(wrong)))


if __name__ == "__main__":
    main()
