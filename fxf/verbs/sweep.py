"""Runs every point of a config's `sweep(add)` as a run of its own, then writes a table and a plot.

fxf sweep --config=reversal:example0 --workdir=runs/sweep --workers=2
fxf sweep --config=reversal:example0 --workdir=runs/sweep --workers=2 --together=12
fxf sweep --config=reversal:example0 --workdir=runs/sweep --dry_run

`--config.KEY=VALUE` changes every point. Each point has a run folder below --workdir, which is named by the keys that
the point changes; its log.txt holds the output of the run. If a point fails, the others go on. The same command again
resumes the points that have no result. At the end the sweep's folder has table.csv, with every figure, table.md and
plot.png; the exit code is 1 if a point has no result.

With --together=N a process trains up to N points, one after another, if they differ only in numbers that a compiled
program reads as arguments: seed, learning rates, weight decay and label smoothing. Only the first of them imports and
compiles, and each has the same bits as alone.

--dry_run prints the commands of the points without a result, one a line, as for an array of jobs of a cluster. Later
the same command with --workers=0 writes the table and the plot of the finished points.
"""

import shlex
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

from fxf.errors import UserError, one_line
from fxf.files import is_remote
from fxf.verbs.flags import Parser, add_config, config_and_origin, require_workdir, whole


def flags(parser: Parser) -> None:
    add_config(parser)
    parser.flag("workdir", doc="folder of the sweep, with a run folder for each point")
    parser.flag("workers", whole(0), 1, "points that run at the same time; 0 only writes table and plot")
    parser.flag("together", whole(1), 1, "points that share a process and its compiled programs")
    parser.flag("points", doc="only train these points, by number from 1 with commas between, in this process")
    parser.switch("dry_run", "only print the commands of the points without a result")


def main(args: Namespace) -> None:
    import jax

    from fxf.reports import best
    from fxf.runs import run_folder
    from fxf.runs.configs import read_sweep
    from fxf.sweeps.points import check, make_points
    from fxf.sweeps.table import report
    from fxf.sweeps.workers import last_line, run_all

    if args.points is None:
        jax.config.update("jax_platforms", "cpu")  # this process only checks configs; accelerators are for the points
    config, origin = config_and_origin(args)
    workdir = require_workdir(args)
    if is_remote(workdir):
        raise UserError(f"--workdir: {workdir}: a sweep writes its logs and tables into a local folder")
    points = make_points(config, read_sweep(origin["config_file"]), origin["overrides"])
    if args.points is not None:
        _train(points, workdir, origin, args)
        return
    metrics = check(points, workdir)
    without_result = [i for i, point in enumerate(points) if run_folder.read_result(workdir / point.name) is None]
    jobs = _jobs(points, without_result, origin, workdir, args.together)
    if args.dry_run:
        print("".join(f"{shlex.join(job.command)}\n" for job in jobs), end="")
        return
    print(f"{len(points)} points, {len(points) - len(without_result)} finished already", flush=True)
    failures = run_all(jobs, args.workers) if args.workers else {}
    try:
        print(*report(points, workdir, metrics), sep="\n")
        if found := best.comparison_in(workdir):
            print(*best.lines(found), sep="\n", file=sys.stderr)
    finally:
        folders = [workdir / points[i].name for i in without_result]
        missing = [folder for folder in folders if run_folder.read_result(folder) is None]
        for folder in missing:
            print(one_line(f"{folder}: {failures.get(folder, 'no result')}; {last_line(folder)}"), file=sys.stderr)
    if missing:
        sys.exit(1)


def _train(points: list[Any], workdir: Path, origin: dict[str, Any], args: Namespace) -> None:
    """Trains the points of --points in this process; exits with 1 if one fails."""
    from fxf.runs.configs import origin_of
    from fxf.sweeps.points import check
    from fxf.sweeps.together import train_together

    for text in (texts := args.points.split(",")):
        if not (text.isdecimal() and 1 <= int(text) <= len(points)):
            raise UserError(f"--points: expected numbers from 1 to {len(points)}, got '{text}'")
    chosen = [points[number - 1] for number in map(int, texts)]
    check(chosen, workdir, [int(text) for text in texts])
    config_file, overrides = origin["config_file"], origin["overrides"]
    if train_together(chosen, workdir, lambda point: origin_of(config_file, {**overrides, **point.changes})):
        sys.exit(1)


def _jobs(points: list[Any], chosen: list[int], origin: dict[str, Any], workdir: Path, together: int) -> list[Any]:
    """Returns the processes that train the points with these indices, up to `together` of them each."""
    if together > 1 and any(points[i].config["parallel"]["processes"] != 1 for i in chosen):
        raise UserError("--together: points share one process; leave parallel.processes at 1")
    from fxf.sweeps.points import alike
    from fxf.sweeps.workers import Job, this_fxf

    def command(verb: str, changes: dict[str, Any], *flags: str) -> list[str]:
        keys = [f"--config.{key}={value}" for key, value in changes.items()]
        return [*this_fxf(), verb, f"--config={origin['config_file']}", *keys, *flags]

    jobs = []
    for group in alike([points[i] for i in chosen], together):
        some = [points[chosen[i]] for i in group]
        if len(some) == 1:
            folder, changes = workdir / some[0].name, {**origin["overrides"], **some[0].changes}
            jobs.append(Job(command("train", changes, f"--workdir={folder}"), folder))
            continue
        numbers = [str(chosen[i] + 1) for i in group]
        name = f"together/{numbers[0]}-{numbers[-1]}"
        sweep = command("sweep", origin["overrides"], f"--workdir={workdir}", f"--points={','.join(numbers)}")
        jobs.append(Job(sweep, workdir / name, tuple(workdir / point.name for point in some)))
    return jobs
