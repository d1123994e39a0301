"""CLAIMS.md: a row for each claim, from kept results."""

import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

from experiments.claims import debated, larger, ours, seeds
from experiments.claims.claim import Outcome, Paired, Single
from experiments.kept import Kept, Row
from experiments.seeds.claims import shown
from fxf.errors import UserError
from fxf.files import read_json
from fxf.pages.text_tables import to_markdown

KEPT = "experiments/results/claims"
HEADER = ("claim", "source", "rule", "measured", "verdict", "command", "run")
COUNTED = {
    "holds": "hold",
    "does not hold": "do not hold",
    "undecided": "are undecided",
    "not run here": "were not run here",
}
NOT_RUN = Outcome("", "not run here")
Claim = Paired | Single

SECTIONS: dict[str, tuple[str, tuple[Claim, ...]]] = {
    "Claims that people argue about": (
        "Each is tested on pairs of small runs with the same seed (`experiments/claims/arms.py` has their configs, "
        "`debated.py` the rules, which were committed before the runs). `measured` has mean ± standard deviation of "
        "both arms over the seeds, and the effect: by how much the first is better, with an interval that holds the "
        "true mean with probability 0.95, however many pairs one looks at. The models are tiny and train for "
        "seconds, at one learning rate: what does not hold here may hold at a paper's size, and the other way round.",
        debated.CLAIMS,
    ),
    "The seeds": (
        "The telling claims of the five seeds. A rule that is not the seed's own figure says why. `make seeds` has all "
        "rows, with pages.",
        seeds.CLAIMS,
    ),
    "Errors of the seeds": (
        "Statements of the seeds that cannot both hold, each with a figure that shows which one fxf follows "
        "([all of them](docs/seeds.md#contradictions)).",
        seeds.CONTRADICTIONS,
    ),
    "Positions that tokens make": (
        "Turns and walks were made for sequences longer than in training. These rows ask what they cost elsewhere, in "
        "the same way as the rows above.",
        debated.NO_HARM,
    ),
    "Ours": ("What README and the pages say of fxf, measured in small; the tests check more.", ours.CLAIMS),
    "Larger ones": (
        "Published figures and our studies, from kept results. `run` has the commit and date of the results, and how "
        "many commits have followed when this page was written. The commands of runs also need `--workdir=FOLDER`.",
        larger.CLAIMS,
    ),
}


def page(root: Path) -> str:
    """Returns CLAIMS.md as the kept results of a checkout have it."""
    kept, results = Kept(root), read(root)
    rows = {title: [_row(claim, kept, results) for claim in claims] for title, (_, claims) in SECTIONS.items()}
    counts = Counter(row["verdict"].split(" at ")[0] for each in rows.values() for row in each)
    total = ", ".join(f"{counts[verdict]} {words}" for verdict, words in COUNTED.items() if counts[verdict])
    parts = [
        "# Claims\n",
        f"{sum(counts.values())} claims: {total}. `make claims` measures again what a laptop can, and writes this page "
        "from `experiments/results/`. A claim that does not hold stays.\n",
    ]
    for title, (about, _) in SECTIONS.items():
        parts += [f"## {title}\n", f"{about}\n", to_markdown(rows[title], HEADER)]
    return "\n".join(parts)


def read(root: Path) -> dict[str, Any]:
    """Returns the kept results of claims by the name of their file."""
    return {path.stem: read_json(path, "a kept result") for path in sorted((root / KEPT).glob("*.json"))}


def _row(claim: Claim, kept: Kept, results: dict[str, Any]) -> Row:
    command = claim.command if isinstance(claim, Single) else f"python -m experiments.claims --only={claim.name}"
    try:
        source: Any = kept if isinstance(claim, Single) and claim.folder else results
        outcome = claim.outcome(source)
        run = made_by(claim, kept, results)
    except (KeyError, FileNotFoundError):
        outcome, run = NOT_RUN, ""
    except (TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{claim.name}: its kept results are damaged: {error}") from error
    cells = (claim.says, claim.source, claim.rule, outcome.measured, outcome.verdict, command, run)
    return dict(zip(HEADER, cells, strict=True))


def made_by(claim: Claim, kept: Kept, results: dict[str, Any]) -> str:
    """Returns the commit and date of a claim's results."""
    if isinstance(claim, Single) and claim.folder:
        made = kept.made_by(claim.folder)
        since = results.get("since", {}).get(claim.folder)
        return _commit(made) + (f", {shown(since)} commits since" if since is not None else "")
    if isinstance(claim, Paired):
        arms = (arm.split("/")[0] for arm in (claim.first, claim.second))
        return " and ".join(dict.fromkeys(_commit(results[arm]["made_by"]) for arm in arms))
    return _commit(results[_file_of(claim)]["made_by"])


def _file_of(claim: Single) -> str:
    """Returns the name of the file with the figures of a claim of the seeds or of ours."""
    return "ours" if claim in ours.CLAIMS else claim.name.split("_")[0]


def _commit(made: Row) -> str:
    return f"{made['git_commit'][:7]} {made['date']}" + (" (older)" if made.get("older") else "")


def since(root: Path) -> dict[str, int]:
    """Returns how many commits have followed those of the larger results, by their folder."""
    kept, found = Kept(root), {}
    for claim in larger.CLAIMS:
        try:
            commit = kept.made_by(claim.folder)["git_commit"].split("+")[0]
        except FileNotFoundError:
            continue
        count = ["git", "rev-list", "--count", f"{commit}..HEAD"]
        done = subprocess.run(count, cwd=root, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            found[claim.folder] = int(done.stdout)
    return found
