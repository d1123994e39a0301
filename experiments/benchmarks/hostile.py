"""Hostile inputs to every script and loader: each must be refused in one line, or accepted and named.

python experiments/benchmarks/hostile.py [--only=CLASS or part of a name] [--workers=2] [--list] [--keep]

Each case of the files hostile_*.py beside this one runs in a folder of its own, with data files and tiny runs, one of
which is damaged.
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
import ctypes
import dataclasses
import importlib
import json
import logging
import multiprocessing
import os
import re
import resource
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import hostile_commands
import hostile_files
import hostile_results
import hostile_runs
import hostile_texts
import hostile_trials
import jax
from hostile_box import ROOT, RUNS, UNFINISHED, WEIGHTS, Case, arguments, contents, data_files, prepare
from kept_table import keep

from fxf.reports.text_table import aligned
from fxf.runs import code_version

# The modules that the scripts import; forked children have them.
IMPORTED = """
    fxf.runs.cli fxf.data.builders fxf.phrasebook fxf.interop.export fxf.interop.huggingface fxf.reports.describe
    fxf.reports.plots fxf.reports.probe fxf.runs.run fxf.sweeps.table fxf.sweeps.workers jax.export matplotlib.pyplot
    fxf.trials.arms fxf.trials.trial sacrebleu.metrics safetensors.numpy tensorboardX
"""
CASES: dict[str, list[Case]] = {
    "changed data": hostile_runs.CHANGED_DATA,
    "prompts": hostile_texts.PROMPTS,
    "values": hostile_commands.VALUES,
    "tokenizers": hostile_texts.TOKENIZERS,
    "run folders": hostile_runs.RUN_FOLDERS,
    "checkpoints": hostile_runs.CHECKPOINTS,
    "pairs": hostile_texts.PAIRS,
    "texts": hostile_texts.TEXTS,
    "weights files": hostile_files.WEIGHTS_FILES,
    "keys": hostile_commands.KEYS,
    "flags": hostile_commands.FLAGS,
    "config files": hostile_files.CONFIG_FILES,
    "sweeps": hostile_files.SWEEPS,
    "environments": hostile_commands.ENVIRONMENTS,
    "remote paths": hostile_commands.REMOTE,
    "sizes": hostile_commands.SIZES,
    "starts": hostile_results.STARTS,
    "training": hostile_results.TRAINING,
    "scores": hostile_results.SCORES,
    "pages": hostile_results.PAGES,
    "trials": hostile_trials.TRIALS,
    "positions and widths": hostile_trials.POSITIONS,
    "claims and figures": hostile_trials.KEPT,
    "records": hostile_trials.RECORDS,
}

REFUSED, ACCEPTED = "refused in one line", "accepted and named"
TRACEBACK, HANG, SILENCE, WRONG, FILES = (
    "tracebacks",
    "hangs",
    "accepted in silence",
    "wrong line",
    "files lost or left",
)
OUTCOMES = (REFUSED, ACCEPTED, TRACEBACK, HANG, SILENCE, WRONG, FILES)
MAX_LINE = 1100  # characters; nobody reads a longer line
MAX_MEMORY = 8 * 2**30  # bytes of a process's address space, which protects the machine
LOADERS = {
    "load_huggingface": "huggingface.load(arguments[1])",
    "load_weights": "weights_file.load_weights(Path(arguments[1]), run.load(Path('reversal'))[0].model.spec)",
}


@dataclass
class Ended:
    """The end of a case; the code is None if its time was up."""

    code: int | None
    out: str
    err: str
    before: dict[str, object]
    after: dict[str, object]


def script(name: str) -> str:
    """Returns the path of the script that a command names, relative to a case's folder."""
    if (ROOT / "experiments" / name).is_dir():
        return f"experiments/{name}/__main__.py"
    return f"experiments/{name}.py" if name not in LOADERS else f"../{name}.py"


def loader(name: str) -> str:
    """Returns a script that calls the function `name`, which reads weights files."""
    return (
        "from pathlib import Path\nimport sys\nfrom fxf.runs import cli, run\n"
        "from fxf.interop import huggingface, weights_file\n"
        f"cli.run(lambda given: print(type({LOADERS[name].replace('arguments', 'sys.argv')}).__name__))\n"
    )


def limits(case: Case) -> None:
    """Sets the limits of the case's process."""
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    if case.unprivileged:  # without capabilities even root may write only where the mode allows it
        ctypes.CDLL(None).capset((ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)())
    if case.stdout == "closed":
        os.close(1)


def in_child(case: Case, box: Path, argv: list[str], streams: tuple[int, int, int]) -> None:
    """Runs the script in this forked process."""
    os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    os.chdir(box)
    logging.root.handlers.clear()  # the imports have set up the log
    limits(case)
    sys.argv, sys.path[0] = argv, str((box / argv[0]).parent)
    runpy.run_path(argv[0], run_name="__main__")


def start(case: Case, box: Path, new_processes: bool) -> tuple[Callable[[], int | None], int]:
    """Starts the case; returns a function for its exit code (None before its end), and its process group."""
    name, *rest = arguments(case.command)
    argv = [script(name), *rest]
    if name in LOADERS:
        (box / argv[0]).write_text(loader(name))
    (box.parent / "stdin").write_bytes(case.stdin)
    reads, writes = os.pipe()
    os.close(reads)
    with (
        (box.parent / "stdin").open("rb") as stdin,
        (box.parent / "stdout").open("wb") as stdout,
        (box.parent / "stderr").open("wb") as stderr,
        open("/dev/full", "wb") as full,
        os.fdopen(writes, "wb") as broken,
    ):
        out = {"full": full, "broken pipe": broken}.get(case.stdout, stdout)
        if new_processes or case.env or case.stdout or case.own_process:
            environment = {**os.environ, **{k: v for k, v in case.env if v is not None}}
            for variable in (k for k, v in case.env if v is None):
                environment.pop(variable, None)
            process = subprocess.Popen(
                [sys.executable, *argv], cwd=box, env=environment, start_new_session=True,
                stdin=stdin, stdout=out, stderr=stderr, preexec_fn=lambda: limits(case),
            )  # fmt: skip
            return process.poll, process.pid
        streams = (stdin.fileno(), out.fileno(), stderr.fileno())
        child = multiprocessing.get_context("fork").Process(target=in_child, args=(case, box, argv, streams))
        child.start()
        assert child.pid
        return lambda: child.exitcode, child.pid


def stop(number: int, poll: Callable[[], int | None]) -> None:
    """Ends a process group whose time is up."""
    for sent, patience in ((signal.SIGTERM, 3.0), (signal.SIGKILL, 10.0)):
        try:
            os.killpg(number, sent)
        except ProcessLookupError:
            return
        until = time.monotonic() + patience
        while poll() is None and time.monotonic() < until:
            time.sleep(0.02)


def run_all(cases: Iterable[Case], folder: Path, workers: int, new_processes: bool) -> Iterator[tuple[Case, Ended]]:
    """Runs each case in a folder `folder/NUMBER/box`; yields the cases in the order of their ends."""
    waiting = list(enumerate(cases, 1))
    running: list[tuple[Case, Path, dict, Callable[[], int | None], int, float]] = []
    while waiting or running:
        while waiting and len(running) < workers:
            number, case = waiting.pop(0)
            box = folder / f"{number:03}" / "box"
            prepare(box, case)
            before = contents(box)
            poll, group = start(case, box, new_processes)
            running.append((case, box, before, poll, group, time.monotonic() + case.seconds))
        time.sleep(0.02)
        for entry in [*running]:
            case, box, before, poll, group, deadline = entry
            if (code := poll()) is None and time.monotonic() < deadline:
                continue
            running.remove(entry)
            if code is None:
                stop(group, poll)
            out, err = ((box.parent / name).read_text("utf-8", "backslashreplace") for name in ("stdout", "stderr"))
            yield case, Ended(code, out, err, before, contents(box))


def outcome(case: Case, ended: Ended) -> tuple[str, str]:
    """Returns the case's outcome, one of OUTCOMES, and what is wrong, or nothing."""
    expected, lines = case.expected, ended.err.splitlines()
    if ended.code is None:
        return HANG, f"no end after {case.seconds:g} s"
    if ended.code < 0 or "Traceback (most recent call last)" in ended.err:
        return TRACEBACK, f"exit code {ended.code}, {len(lines)} lines"
    missing = [part for part in expected.parts if not any(p in ended.out + ended.err for p in part.split("|"))]
    if not expected.refused:
        if ended.code:
            return WRONG, f"exit code {ended.code}, expected 0"
        if expected.lines is not None and (printed := ended.out.count("\n")) != expected.lines:
            return SILENCE, f"{printed} lines of output, expected {expected.lines}"
        return (SILENCE, f"nothing says {missing[0]!r}") if missing else (ACCEPTED, "")
    if ended.code == 0:
        return SILENCE, "exit code 0"
    n_lines = 0 if expected.code == 141 else 1
    wrong = [
        (ended.code != expected.code, f"exit code {ended.code}, expected {expected.code}"),
        (expected.alone and len(lines) != n_lines, f"{len(lines)} lines of stderr, expected {n_lines}"),
        (expected.code == 2 and not "".join(lines[-1:]).startswith("error: "), 'it does not begin with "error: "'),
        (any(not c.isprintable() for line in lines for c in line), "a character is not printable"),
        (expected.alone and len(ended.err) > MAX_LINE, f"{len(ended.err)} characters"),
        (bool(missing), f"it does not say {missing[:1]}"),
    ]
    if found := [what for is_wrong, what in wrong if is_wrong]:
        return WRONG, "; ".join(found)
    if changed := spoilt(case, ended):
        return FILES, changed
    return REFUSED, ""


def spoilt(case: Case, ended: Ended) -> str:
    """Returns the changes that a refused case made in its folder, or nothing."""
    kept = rf"(^|/)lock$|{case.writes}"
    before, after = ({p: x for p, x in c.items() if not re.search(kept, p)} for c in (ended.before, ended.after))
    new, lost = sorted(after.keys() - before.keys()), sorted(before.keys() - after.keys())
    other = sorted(path for path in before.keys() & after.keys() if before[path] != after[path])
    found = (("new", new), ("lost", lost), ("changed", other))
    return "; ".join(f"{what}: {', '.join(paths[:3])}" for what, paths in found if paths)


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
        print(f"    {case.command}\n    python experiments/benchmarks/hostile.py --only='{case.name}'")
    rows = [["class", "inputs", *OUTCOMES]]
    for kind, counted in [*counts.items(), ("all", sum(counts.values(), Counter[str]()))]:
        rows.append([kind, str(counted.total()), *(str(counted[name]) for name in OUTCOMES)])
    print("", *aligned(rows), f"{time.monotonic() - started:.0f} s", sep="\n")
    if options.keep:
        keep("hostile", rows)
    sys.exit(int(bool(wrong)))


if __name__ == "__main__":
    main()
