"""Runs every point of a config's `sweep(add)` as a run of its own, then writes a table and a plot.

fxf sweep --config=reversal:example0 --workdir=runs/sweep --workers=2
fxf sweep --config=reversal:example0 --workdir=runs/sweep --dry_run
fxf sweep --config=reversal:example0 --workdir=runs/sweep --slurm --workers=8 --minutes=30

`--config.KEY=VALUE` changes every point. Each point has a run folder below --workdir, which is named by the keys that
the point changes; its log.txt holds the output of the run. If a point fails, the others go on. The same command again
resumes the points that have no result. At the end the sweep's folder has table.csv, with every figure, table.md and
plot.png; the exit code is 1 if a point has no result.

With --slurm the command submits the points as an array of jobs, of which --workers run at a time, and ends. Later the
same command without --slurm and with --workers=0 writes the table and the plot of the finished points. sbatch reads
other settings, such as the account, from SBATCH_ACCOUNT and similar variables.
"""

import shlex
import sys
from pathlib import Path
from typing import Any

from absl import flags

from fxf.config import one_of
from fxf.errors import UserError, one_line
from fxf.files import is_remote
from fxf.runs import cli
from fxf.runs.command_line import read_sweep

CONFIG = cli.define_config()
WORKDIR = flags.DEFINE_string("workdir", None, "folder of the sweep, with a run folder for each point")
WORKERS = flags.DEFINE_integer("workers", 1, "points that run at the same time; 0 only writes table and plot", 0)
DRY_RUN = flags.DEFINE_boolean("dry_run", False, "only print the commands of the points without a result")
X = flags.DEFINE_string("x", None, "changed key for the plot's horizontal axis; by default the one with most values")
Y = flags.DEFINE_string("y", None, "figure for the plot's vertical axis; by default the task's first metric")
SLURM = flags.DEFINE_boolean("slurm", False, "submit the points as an array of SLURM jobs")
PARTITION = flags.DEFINE_string("partition", None, "with --slurm: partition of the jobs")
MINUTES = flags.DEFINE_integer("minutes", None, "with --slurm: time limit of each point", 1)
CPUS = flags.DEFINE_integer("cpus", None, "with --slurm: cores of each point", 1)
GPUS = flags.DEFINE_integer("gpus", None, "with --slurm: GPUs of each point", 1)


def main(arguments: list[str]) -> None:
    cli.refuse_arguments(arguments)
    import jax

    from fxf.runs import run_folder
    from fxf.sweeps.points import changed_keys, check, make_points
    from fxf.sweeps.table import report
    from fxf.sweeps.workers import Job, last_line, run_all

    for flag in (PARTITION, MINUTES, CPUS, GPUS):
        if flag.value is not None and not SLURM.value:
            raise UserError(f"--{flag.name}: only --slurm reads it")
    jax.config.update("jax_platforms", "cpu")  # this process only checks configs; accelerators are for the points

    config, origin = cli.config_and_origin(CONFIG)
    config_file, overrides = origin["config_file"], origin["overrides"]
    workdir = cli.require_workdir(WORKDIR)
    if is_remote(workdir):
        raise UserError(f"--workdir: {workdir}: a sweep writes its logs and tables into a local folder")
    points = make_points(config, read_sweep(config_file), overrides)
    if X.value:
        one_of(X.value, changed_keys(points), "--x")
    metrics = check(points, workdir, origin)
    jobs = [
        Job(_command(config_file, {**overrides, **point.changes}, workdir / point.name), workdir / point.name)
        for point in points
        if run_folder.read_result(workdir / point.name) is None
    ]
    if DRY_RUN.value:
        print("".join(f"{shlex.join(job.command)}\n" for job in jobs), end="")
        return
    print(f"{len(points)} points, {len(points) - len(jobs)} finished already", flush=True)
    if SLURM.value:
        _submit(jobs, workdir)
        return

    failures = run_all(jobs, WORKERS.value) if WORKERS.value else {}
    for path in report(points, workdir, metrics, X.value, Y.value):
        print(path)
    missing = [job for job in jobs if run_folder.read_result(job.folder) is None]
    for job in missing:
        failure = f"{job.folder}: {failures.get(job.folder, 'no result')}; {last_line(job)}"
        print(one_line(failure), file=sys.stderr)
    if missing:
        sys.exit(1)


def _command(config_file: str, changes: dict[str, Any], folder: Path) -> list[str]:
    keys = [f"--config.{key}={value}" for key, value in changes.items()]
    # Without -P, a folder fxf in the working directory would stand in for the package.
    train = [sys.executable, "-P", "-m", "fxf", "train"]
    return [*train, f"--config={config_file}", *keys, f"--workdir={folder}"]


def _submit(jobs: list[Any], workdir: Path) -> None:
    from fxf.sweeps.workers import submit

    parameters = {
        "name": workdir.name,
        "timeout_min": MINUTES.value,
        "cpus_per_task": CPUS.value,
        "gpus_per_node": GPUS.value,
        "slurm_partition": PARTITION.value,
        "slurm_array_parallelism": max(WORKERS.value, 1),
    }
    for job in submit(jobs, workdir / "slurm", parameters):
        print(job.job_id)
