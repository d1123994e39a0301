"""The kept results that the figures of the pages come from."""

import csv
import functools
import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import fxf
from fxf.errors import UserError
from fxf.files import read_json

Row = dict[str, Any]


class Program(NamedTuple):
    """A program in a file of `experiments/results/compile`, as `fxf compile` printed it.

    Attributes:
      what: training step, prefill or decoding step.
      where: the topology and the mesh.
      memory, traffic, roofline, bound, share: what a device holds, the figures of a step, and the share of the peak in
        percent; all empty if the program does not fit.
    """

    what: str
    where: str
    memory: str = ""
    traffic: str = ""
    roofline: str = ""
    bound: str = ""
    share: str = ""


TABLES = ("again", "bench", "rest", "earlier")  # of `make bench` on one machine; a row is that of the first that has it


class Kept:
    """The results in a checkout, each read once."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @functools.cached_property
    def older(self) -> dict[str, Row]:
        """Returns the figures whose runs were not kept, by name."""
        return self._json("older.json")

    def bench(self, name: str = "bench") -> Row:
        """Returns versions, commit, machine and `rows` of a table of `make bench`."""
        return self._json(f"bench/{name}.json")

    def bench_row(self, what: str, *names: str) -> dict[str, float]:
        """Returns the median of each way of the first row of that name in some tables, by default in `TABLES`."""
        rows = (row for name in names or TABLES for row in self.bench(name)["rows"])
        row = next(row for row in rows if row["row"] == what and "error" not in row)
        return {way: each["median"] for way, each in row["figures"].items()}

    @functools.cached_property
    def maxtext(self) -> Row:
        """Returns versions and `rows` of `experiments/benchmarks/peer_maxtext.py`."""
        return self._json("compile/maxtext.json")

    def _json(self, name: str) -> Row:
        return read_json(self.root / "experiments/results" / name, "a kept result")

    def verdicts(self, name: str) -> Any:
        """Returns a file of `experiments/results/verdicts`: what it holds as JSON, and its text otherwise."""
        text = (self.root / "experiments/results/verdicts" / name).read_text()
        return json.loads(text) if name.endswith(".json") else text

    def trial(self, name: str) -> Row:
        """Returns the verdict of a trial that is kept in a folder of `experiments/results`."""
        return self._json(f"{name}/verdict.json")

    def result(self, name: str) -> Row:
        """Returns the figures of a run in `experiments/results`, or older ones of a config whose run is not kept."""
        runs, own = self.older["configs"]["runs"], name.removeprefix("configs/")
        if own in runs and not (self.root / "experiments/results" / name).exists():
            return runs[own]
        return self._json(f"{name}/result.json")

    def seeds(self, name: str) -> list[Row]:
        """Returns the figures of the runs of a config in `experiments/results`, one for each seed that is kept."""
        folders = sorted((self.root / "experiments/results" / name).glob("seed_*"))
        return [self.result(f"{name}/{folder.name}") for folder in folders]

    def tuned(self, name: str) -> list[Row]:
        """Returns the runs by which a config was tuned: what each changed, and the figures of its last validation."""
        lines = (self.root / "experiments/results" / name / "tuning.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def made_by(self, folder: str) -> Row:
        """Returns the commit, date, versions and machine of the results in a folder; what nobody noted is unknown."""
        if folder.endswith("/bench"):
            bench = self.bench()
            return {"git_commit": bench["commit"], "date": bench["started"][:10], **bench}
        path, plan = (self.root / folder / name for name in ("made_by.json", "plan.json"))
        if plan.exists():  # a trial says it itself
            said = read_json(plan, "a trial's plan")
            return {**said, "date": said["budgets"][0]["time"][:10]}
        if not path.exists() and Path(folder).name in self.older["configs"]["runs"]:
            older = self.older["configs"]
            return {**older, "git_commit": older["commit"], "versions": "unknown", "older": True}
        return read_json(path, "a note of what made results")

    def table(self, study: str) -> list[Row]:
        """Returns the runs of a study; what reads as a number is one."""
        return self._csv(f"studies/{study}")

    def measured(self, name: str) -> list[Row]:
        """Returns the rows of a table in `experiments/results`."""
        return self._csv(f"results/{name}")

    def _csv(self, folder: str) -> list[Row]:
        path = self.root / "experiments" / folder / "table.csv"
        try:
            rows = csv.DictReader(path.read_text().splitlines())
        except UnicodeDecodeError as error:
            raise UserError(f"{path}: no table: {error}") from None
        return [{name: _value(cell) for name, cell in row.items()} for row in rows]

    def programs(self, name: str) -> list[Program]:
        """Returns the programs in a file of `experiments/results/compile`."""
        return [_program(block) for block in self.output(name).strip().split("\n\n")[1:]]

    def output(self, name: str) -> str:
        """Returns a file of `experiments/results/compile`."""
        return (self.root / "experiments/results/compile" / name).read_text()

    @staticmethod
    @functools.cache
    def config(name: str) -> Any:
        """Returns a config that comes with fxf."""
        return fxf.read_config(name)


def _value(cell: str) -> Any:
    try:
        return int(cell) if re.fullmatch(r"-?\d+", cell) else float(cell)
    except ValueError:
        return cell


def _program(block: str) -> Program:
    head, *lines = block.splitlines()
    what, _, where = head.partition(" on ")
    what = what.split(",")[0]
    said = {line[2:17].strip(): line[17:] for line in lines if re.match(r"  \w", line)}
    if "memory" not in said:
        return Program(what, where)
    roofline, bound, share = re.findall(r"^(.*?), bound by (\w+) .*allows (\S+) % of peak", said["roofline"])[0]
    traffic = said["traffic"].removesuffix(" to memory")
    return Program(what, where, said["memory"].split(" of ")[0], traffic, roofline, bound, share)
