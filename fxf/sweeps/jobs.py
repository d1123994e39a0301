"""The runs of a trial: what those that have ended have left, and the training of the others."""

from collections.abc import Sequence
from pathlib import Path

from fxf.base.config import differences
from fxf.base.errors import UserError
from fxf.base.status import stage
from fxf.reports.run_files import DIVERGED, is_run, read
from fxf.sweeps.crew import Crew, Job
from fxf.sweeps.plan import Arm

SECONDS = "wall_seconds"


def job_of(arm: Arm, seed: int, folder: Path) -> Job:
    return Job(arm.config | {"seed": seed}, folder, arm.origin)


def ended(job: Job) -> dict[str, float | None] | None:
    """Returns the figures of a run that has ended, or None if it has not; of one that diverged none.

    Raises:
      UserError: the folder holds a run of another config.
    """
    if not is_run(folder := job.folder):
        return None
    run = read(folder)
    if differing := differences(run.config, job.config):
        raise UserError(f"{folder}: holds another run: {differing}; move it away, or use another --workdir")
    if run.state == DIVERGED:
        return {}
    return run.figures() if run.result else None


def figure_of(job: Job, name: str) -> float | None:
    """Returns a figure of an ended run; None if the run diverged or the figure is no number.

    Raises:
      UserError: the result has no such figure.
    """
    figures = ended(job)
    if figures and name not in figures:
        raise UserError(f"{job.folder}: no {name} in its result (there are {', '.join(figures)})")
    return figures.get(name) if figures else None


def train_all(crew: Crew, jobs: Sequence[Job]) -> bool:
    """Trains the runs that have not ended, and returns whether all have, in time.

    Raises:
      UserError: a run failed otherwise than by diverging.
      Interrupted: a signal asked to stop; the steps of the runs are saved.
    """
    left = [job for job in jobs if ended(job) is None]
    with stage("training runs", len(left)) as progress:
        for number, (job, error) in enumerate(crew.train(left), 1):
            if error:
                raise UserError(f"{job.folder}: {error}")
            progress(number)
    return all(ended(job) is not None for job in left)
