"""Trains every point of a config's `sweep(add)` as a separate run, then writes a table.

fxf sweep --config=reversal:example0 --workdir=runs/sweep --workers=2
fxf sweep --config=reversal:example0 --workdir=runs/sweep --dry_run

`--config.KEY=VALUE` changes every point. Each point has a run folder below --workdir, named by the keys that the point
changes; its log.txt has the output of the run. If a point fails, the others go on. The same command again resumes the
points without a result. At the end, table.csv in the sweep's folder has all metrics; the exit code is 1 if a point has
no result. `fxf compare` of the folder shows metrics and curves side by side.

Points train one after another in this process, or in --workers that share the cores. A process imports once, and
compiles once for all points that differ only in arguments of the compiled program: seed, learning rates, weight decay
and label smoothing. Each point gives the same bits as alone, or with PJRT_NPROC=1 in the environment if --workers have
fewer threads each.

--dry_run prints the commands of the points without a result, one per line, for example for a job array on a cluster.
Later the same command with --workers=0 writes the table of the finished points.
"""

import os
import shlex
import sys
from argparse import Namespace

from fxf.base.errors import UserError, one_line
from fxf.base.files import is_remote
from fxf.base.status import stage
from fxf.verbs.flags import THIS_FXF, Parser, add_config, config_and_origin, require_workdir, whole


def flags(parser: Parser) -> None:
    add_config(parser)
    parser.flag("workdir", doc="folder of the sweep, with a run folder for each point")
    parser.flag("workers", whole(0), 1, "points that run at the same time; 0 only writes the table")
    parser.switch("dry_run", "only print the commands of the points without a result")


def main(args: Namespace) -> None:
    import jax

    from fxf.reports import best
    from fxf.reports.compare import comparison, runs_of
    from fxf.reports.run_files import CONFIG, is_run
    from fxf.runs.configs import origin_of, read_sweep
    from fxf.runs.run_folder import read_result
    from fxf.sweeps.crew import Crew, Job, last_line
    from fxf.sweeps.plan import PLAN
    from fxf.sweeps.points import check, make_points, write_table

    if args.workers != 1 or args.dry_run:
        jax.config.update("jax_platforms", "cpu")  # this process only checks configs; the points use accelerators
        # By default each process would preallocate most of an accelerator's memory.
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    config, origin = config_and_origin(args)
    workdir, (config_file, overrides) = require_workdir(args), (origin["config_file"], origin["overrides"])
    if (workdir / CONFIG).exists() or (workdir / PLAN).exists():
        what = "is the folder of a run, a model or a trial; expected that of a sweep, or a new path for one"
        raise UserError(f"--workdir: {workdir} {what}")
    if is_remote(workdir):
        raise UserError(f"--workdir: {workdir}: a sweep writes its logs and tables into a local folder")
    points = make_points(config, read_sweep(config_file), overrides)
    left = check(points, workdir)
    if args.dry_run:
        for point in left:
            keys = [f"--config.{key}={value}" for key, value in {**overrides, **point.changes}.items()]
            start = [*THIS_FXF, "train", f"--config={config_file}"]
            print(shlex.join([*start, *keys, f"--workdir={workdir / point.name}"]))
        return
    if any(point.config["parallel"]["processes"] != 1 for point in points):
        raise UserError("parallel.processes: a point of a sweep trains in one process; leave it at 1, or see --dry_run")
    print(f"{len(points)} points, {len(points) - len(left)} finished already", flush=True)
    jobs = [
        Job(point.config, workdir / point.name, origin_of(config_file, {**overrides, **point.changes}))
        for point in (left if args.workers else [])
    ]
    missing = [point.name for point in left]
    with Crew(args.workers) as crew, stage("training the points", len(jobs)) as progress:
        for number, (job, error) in enumerate(crew.train(jobs), 1):
            progress(number)
            if not error and read_result(job.folder) is not None:  # a failed point may have one of fewer steps
                missing.remove(job.folder.name)
            outcome = last_line(job.folder) if job.folder.name in missing else "finished"
            print(one_line(f"{number}/{len(jobs)}  {job.folder.name}  {outcome}"), flush=True)
    print(write_table(points, workdir))
    if any(map(is_run, workdir.iterdir())):
        print(*best.lines(comparison(runs_of([workdir]))), sep="\n", file=sys.stderr)
    for name in missing:
        print(one_line(f"{workdir / name}: no result; {last_line(workdir / name)}"), file=sys.stderr)
    if missing:
        sys.exit(1)
