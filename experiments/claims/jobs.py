"""What is measured for the claims: one job is a process, and makes one file of figures."""

import contextlib
from pathlib import Path
from typing import Any

from experiments.claims import debated, ours
from experiments.claims.arms import ARMS, measure
from experiments.seeds.pages import SEEDS, look_at
from fxf.config import one_of

JOBS = [*ARMS, *SEEDS, "ours"]


def jobs_of(name: str) -> list[str]:
    """Returns the jobs that a claim needs, or the job of that name; none for no name.

    Raises:
      UserError: there is neither.
    """
    paired = {claim.name: claim for claim in debated.CLAIMS}
    if name in paired:
        return [arm.split("/")[0] for arm in (paired[name].first, paired[name].second)]
    return [one_of(name, [*JOBS, *paired], "--only")] if name else []


def do(job: str, folder: Path) -> dict[str, Any]:
    """Measures what a job is about, and returns its figures."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{job}.txt").open("a") as log, contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
        if job in ARMS:
            return measure(job, folder / job)
        if job == "ours":
            return {"figures": {name: look(folder) for name, look in ours.MEASURES.items()}}
        (folder / "seeds").mkdir(exist_ok=True)
        return {"figures": {row.claim.name: row.gives for row in look_at(SEEDS[job], folder / "seeds")}}
