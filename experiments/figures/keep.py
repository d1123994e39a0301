"""Trains the runs whose figures the pages give, and keeps their files in experiments/results/configs.

python -m experiments.figures.keep --data=FOLDER                        # all that are not kept yet
python -m experiments.figures.keep --only=reversal,documents            # some, by the beginning of their name

A kept run has config.json, result.json, metrics.jsonl, the lines of its log without texts, and made_by.json with
commit, date, versions and machine. FOLDER has tinyshakespeare/input.txt, goethe/faust.txt and the folder multi30k/tok;
without it their runs are left out. A run of Multi30k takes about an hour.
"""

import fxf.machine.listen  # noqa: F401  First of all.

import contextlib
import io
import json
import re
import shutil
import time
from pathlib import Path
from typing import Any

from absl import flags

from fxf.files import folder_at, write_atomically
from fxf.runs import cli

RESULTS = Path(__file__).parents[1] / "results/configs"
WORKDIR = flags.DEFINE_string("workdir", "runs/kept", "the folder of the runs")
ONLY = flags.DEFINE_list("only", [""], "beginnings of names")
DATA = flags.DEFINE_string("data", "", "the folder of texts that do not come with fxf")

SHAKESPEARE, FAUST, MULTI30K = "tinyshakespeare/input.txt", "goethe/faust.txt", "multi30k/tok"
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in ("reversal", "time_series", "boolean_map", "characters", "masking", "documents")},
    "documents_characters": ("documents:characters", {}),
    "translation": ("translation", {}),
    **{f"reversal_example{n}/seed_0": (f"reversal:example{n}", {}) for n in range(3)},
    "length": ("length", {}),
    "characters_fast": ("characters:fast", {"data.path": SHAKESPEARE}),
    "characters_primer": ("characters:primer", {"data.path": FAUST}),
    **{f"multi30k_de/seed_{n}": ("translation:multi30k_de", {"data.path": MULTI30K, "seed": n}) for n in range(3)},
    "characters_nanogpt_cpu": ("characters:nanogpt_cpu", {"data.path": SHAKESPEARE}),
}


def main(arguments: list[str]) -> None:
    cli.refuse_arguments(arguments)
    from fxf.runs.programs import Kept

    kept, workdir = Kept(), folder_at(WORKDIR.value, "--workdir")
    for name, (config, changes) in RUNS.items():
        chosen = any(name.startswith(beginning) for beginning in ONLY.value)
        if not chosen or (RESULTS / name).exists() or ("data.path" in changes and not DATA.value):
            continue
        start = time.perf_counter()
        with contextlib.chdir(DATA.value) if "data.path" in changes else contextlib.nullcontext():
            log = train(config, changes, workdir.absolute() / name, kept)
        keep(workdir / name, RESULTS / name, log)
        print(f"{name}  {time.perf_counter() - start:.0f} s", flush=True)


def train(config: str, changes: dict[str, Any], folder: Path, kept: Any) -> str:
    """Trains a run, and returns what it prints."""
    import fxf
    from fxf.runs import command_line, run
    from fxf.training.log import Clock

    changes = {"log.tensorboard": False, **changes}
    made = fxf.read_config(config)
    made.update_from_flattened_dict(changes)
    clock, log = Clock(time.perf_counter()), io.StringIO()
    with contextlib.redirect_stdout(log):
        origin = command_line.origin_of(config, changes)
        cli.print_figures(run.train(made.to_dict(), folder, clock, origin, kept=kept))
    return log.getvalue()


def keep(run_folder: Path, to: Path, log: str) -> None:
    """Copies the small files of a finished run, and writes what made it."""
    to.mkdir(parents=True, exist_ok=True)
    for name in ("config.json", "result.json", "metrics.jsonl"):
        shutil.copy(run_folder / name, to / name)
    lines = [line for line in log.splitlines() if re.match(r"(step|task|[a-z_]+) +\d|task ", line)]
    write_atomically(to / "train.log", "".join(f"{line}\n" for line in lines))
    origin = json.loads((to / "config.json").read_text())
    made = {name: origin[name] for name in ("code", "versions", "git_commit", "device", "machine")}
    write_atomically(to / "made_by.json", json.dumps({**made, "date": time.strftime("%F")}, indent=1) + "\n")


if __name__ == "__main__":
    cli.run(main)
