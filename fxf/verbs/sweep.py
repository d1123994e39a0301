"""Runs every point of a config's `sweep(add)` as a run of its own, then writes a table and a plot.

fxf sweep --config=reversal:example0 --workdir=runs/sweep --workers=2
fxf sweep --config=reversal:example0 --workdir=runs/sweep --workers=2 --together=12
fxf sweep --config=reversal:example0 --workdir=runs/sweep --dry_run
fxf sweep --config=reversal:example0 --workdir=runs/sweep --slurm --workers=8 --minutes=30

`--config.KEY=VALUE` changes every point. Each point has a run folder below --workdir, which is named by the keys that
the point changes; its log.txt holds the output of the run. If a point fails, the others go on. The same command again
resumes the points that have no result. At the end the sweep's folder has table.csv, with every figure, table.md and
plot.png; the exit code is 1 if a point has no result.

With --together=N a process trains up to N points, one after another, if they differ only in numbers that a compiled
program reads as arguments: seed, learning rates, weight decay and label smoothing. Only the first of them imports and
compiles, and each has the same bits as alone.

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
from fxf.runs.command_line import origin_of, read_sweep

CONFIG = cli.define_config()
WORKDIR = flags.DEFINE_string("workdir", None, "folder of the sweep, with a run folder for each point")
WORKERS = flags.DEFINE_integer("workers", 1, "points that run at the same time; 0 only writes table and plot", 0)
TOGETHER = flags.DEFINE_integer("together", 1, "points that share a process and its compiled programs", 1)
POINTS = flags.DEFINE_list("points", None, "only train these points, by number from 1, in this process")
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

    from fxf.pages import best
    from fxf.runs import run_folder
    from fxf.sweeps.points import changed_keys, check, make_points
    from fxf.sweeps.table import report, require_figure
    from fxf.sweeps.workers import last_line, run_all

    for flag in (PARTITION, MINUTES, CPUS, GPUS):
        if flag.value is not None and not SLURM.value:
            raise UserError(f"--{flag.name}: only --slurm reads it")
    if POINTS.value is None:
        jax.config.update("jax_platforms", "cpu")  # this process only checks configs; accelerators are for the points
    config, origin = cli.config_and_origin(CONFIG)
    config_file, overrides = origin["config_file"], origin["overrides"]
    workdir = cli.require_workdir(WORKDIR)
    if is_remote(workdir):
        raise UserError(f"--workdir: {workdir}: a sweep writes its logs and tables into a local folder")
    points = make_points(config, read_sweep(config_file), overrides)
    if POINTS.value is not None:
        _train(points, workdir, origin)
        return
    if X.value:
        one_of(X.value, changed_keys(points), "--x")
    if Y.value:
        require_figure(Y.value, points, workdir)
    metrics = check(points, workdir)
    without_result = [i for i, point in enumerate(points) if run_folder.read_result(workdir / point.name) is None]
    jobs = _jobs(points, without_result, config_file, overrides, workdir)
    if DRY_RUN.value:
        print("".join(f"{shlex.join(job.command)}\n" for job in jobs), end="")
        return
    print(f"{len(points)} points, {len(points) - len(without_result)} finished already", flush=True)
    if SLURM.value:
        _submit(jobs, workdir)
        return

    failures = run_all(jobs, WORKERS.value) if WORKERS.value else {}
    try:
        for path in report(points, workdir, metrics, X.value, Y.value):
            print(path)
        if found := best.comparison_in(workdir):
            for line in best.lines(found):
                print(line, file=sys.stderr)
    finally:
        folders = [workdir / points[i].name for i in without_result]
        missing = [folder for folder in folders if run_folder.read_result(folder) is None]
        for folder in missing:
            print(one_line(f"{folder}: {failures.get(folder, 'no result')}; {last_line(folder)}"), file=sys.stderr)
    if missing:
        sys.exit(1)


def _train(points: list[Any], workdir: Path, origin: dict[str, Any]) -> None:
    """Trains the points of --points in this process; exits with 1 if one fails."""
    from fxf.sweeps.points import check
    from fxf.sweeps.together import train_together

    for other in (DRY_RUN, SLURM, WORKERS, TOGETHER, X, Y):
        if other.present:
            raise UserError(f"--{other.name}: --points trains in this process; give one of them")
    numbers = _numbers(POINTS.value or [], len(points))
    chosen = [points[number - 1] for number in numbers]
    check(chosen, workdir, numbers)
    config_file, overrides = origin["config_file"], origin["overrides"]
    if train_together(chosen, workdir, lambda point: origin_of(config_file, {**overrides, **point.changes})):
        sys.exit(1)


def _numbers(texts: list[str], n_points: int) -> list[int]:
    from fxf.tasks.prompts import is_number

    for text in texts:
        if not is_number(text, 1, n_points):
            raise UserError(f"--points: expected numbers from 1 to {n_points}, got '{text}'")
    return list(map(int, texts))


def _jobs(
    points: list[Any], chosen: list[int], config_file: str, overrides: dict[str, Any], workdir: Path
) -> list[Any]:
    """Returns the processes that train the points with these indices, up to --together of them each."""
    if TOGETHER.value > 1 and any(points[i].config["parallel"]["processes"] != 1 for i in chosen):
        raise UserError("--together: points share one process; leave parallel.processes at 1")
    from fxf.sweeps.points import alike
    from fxf.sweeps.workers import Job, this_fxf

    def command(verb: str, changes: dict[str, Any], *flags: str) -> list[str]:
        keys = [f"--config.{key}={value}" for key, value in changes.items()]
        return [*this_fxf(), verb, f"--config={config_file}", *keys, *flags]

    jobs = []
    for group in alike([points[i] for i in chosen], TOGETHER.value):
        some = [points[chosen[i]] for i in group]
        if len(some) == 1:
            folder = workdir / some[0].name
            jobs.append(Job(command("train", {**overrides, **some[0].changes}, f"--workdir={folder}"), folder))
            continue
        numbers = [str(chosen[i] + 1) for i in group]
        name = f"together/{numbers[0]}-{numbers[-1]}"
        sweep = command("sweep", overrides, f"--workdir={workdir}", f"--points={','.join(numbers)}")
        jobs.append(Job(sweep, workdir / name, tuple(workdir / point.name for point in some)))
    return jobs


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
