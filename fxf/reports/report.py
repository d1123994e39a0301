"""report.html: the page of one run, from the files of its folder."""

import json
import shlex
from pathlib import Path
from typing import Any

from fxf.base.config import flatten
from fxf.base.errors import shortened
from fxf.base.files import write_atomically
from fxf.reports.figures import better_of, figure, is_score
from fxf.reports.page import MOST_CHARACTERS, page, thinned
from fxf.reports.run_files import FROM, NO_VALUE, Record, RunFiles, is_no_value, read

REPORT, SCRIPTS = "report.html", ("inside.js", "report.js")
MOST_STEPS = 40  # whose samples the page holds
FIRST_CHARTS = ("loss", "exact_match", "bleu", "learning_rate", "gradient_norm", "tokens_per_second")
PLAIN_TILES = ("parameters", "seed")
NOT_TILES = ("tokens_per_second", "compile_seconds", "evaluate_seconds", "wall_seconds", "goodput")


def write(folder: Path) -> Path:
    """Writes the page of the run in `folder` there, and returns its path.

    Raises:
      UserError: there is no run.
    """
    run, path = read(folder), folder / REPORT
    write_atomically(path, page(f"{folder.name}: {run.state}", contents(run), SCRIPTS))
    return path


def contents(run: RunFiles) -> dict[str, Any]:
    """Returns what the page shows, as JSON."""
    record, overrides = run.record, run.record.get("overrides", {})
    expected_of = f"Expected is what {record.get('config_file')} reached without overrides."
    return {
        "title": f"{run.folder.name} · {run.task}",
        "state": run.state,
        "said": run.said,
        "headline": _tiles(run),
        "expectedOf": expected_of if record.get("expected") else "",
        "charts": _charts(run),
        "axes": axes(run),
        "samples": _samples(run),
        "marked": figure(main_figure(run)[0]).unit != "of 100",  # a translation may differ and be right
        "inside": run.inside or None,
        "config": [[key, value, key in overrides] for key, value in flatten(run.config)],
        "command": command(record),
        "about": _about(record),
        "result": [[name, NO_VALUE if is_no_value(value) else value] for name, value in run.result.items()],
    }


def _tiles(run: RunFiles) -> list[dict[str, Any]]:
    """Returns the tiles on top, the expected ones first."""
    found, expected, said = run.figures(), run.record.get("expected", {}), run.record.get("better", {})
    better = {name: better_of(name, said) for name in found}
    names = [name for name in found if name not in (*expected, *NOT_TILES) and (better[name] or name in said)]
    names = [*(name for name in found if name in expected), *names, *(name for name in PLAIN_TILES if name in found)]
    values = {name: NO_VALUE if found[name] is None else found[name] for name in names}
    return [
        {**figure(name)._asdict(), "better": better[name], "value": values[name], "expected": expected.get(name)}
        for name in names
    ]


def main_figure(run: RunFiles) -> tuple[str, float | None]:
    """Returns what a run is judged by, and its value: what checkpoint.best names, else the first score, else the loss.

    A run without any figure has none, "" and None.
    """
    found, better = run.figures(), run.record.get("better", {})
    scores = [name for name in found if is_score(name) and better_of(name, better)]
    names = [run.config.get("checkpoint", {}).get("best", "").removeprefix("-"), *scores, "train_loss"]
    return next(((name, found[name]) for name in names if name in found), ("", None))


def _charts(run: RunFiles) -> list[dict[str, Any]]:
    """Returns a chart of each figure of metrics.jsonl; all losses share one."""
    curves, said = run.curves(), run.record.get("better", {})
    shared: dict[str, list[str]] = {}
    for name in curves:
        shared.setdefault("loss" if name.endswith("loss") else name, []).append(name)
    found = []
    for name in sorted(shared, key=lambda n: FIRST_CHARTS.index(n) if n in FIRST_CHARTS else len(FIRST_CHARTS)):
        of, lines = figure(name), [{"name": figure(n).label, "points": thinned(curves[n])} for n in shared[name]]
        title = "loss" if len(lines) > 1 else lines[0]["name"]
        better = better_of(name, said) or of.better
        found.append({"name": name, "title": title, "unit": of.unit, "better": better, "lines": lines})
    return found


def axes(run: RunFiles) -> dict[str, list[list[float]]]:
    """Returns some of the points (step, tokens) and (step, seconds) of training."""
    return {name: thinned([(step, round(value, 2)) for step, value in of]) for name, of in run.axes().items()}


def _samples(run: RunFiles) -> list[dict[str, Any]]:
    """Returns the samples of some steps, the last one among them."""
    found = []
    for record in run.samples[:: -(len(run.samples) // MOST_STEPS + 1)][::-1]:
        rows = [[shortened(c, MOST_CHARACTERS) if isinstance(c, str) else c for c in row] for row in record["rows"]]
        found.append({"step": record["step"], "test": bool(record.get("test")), "rows": rows})
    return found


def command(record: Record, source: str | None = None) -> str:
    """Returns the command that repeats a run, or the code, if a config made in Python was trained.

    With a `source` it starts from that, wherever the run started.
    """
    config_file = record.get("config_file")
    if not config_file:
        start = f", start={source!r}" if source else ""
        return f'fxf.train(json.load(open("config.json"))["config"], "runs/again"{start})'
    overrides = record.get("overrides", {})
    changed = [f"--config.{key}={value}" for key, value in overrides.items() if not source or key != "start.path"]
    begun = [f"--from={found}"] if (found := source or record.get(FROM)) else []
    return shlex.join(["fxf", "train", f"--config={config_file}", *begun, *changed, "--workdir=runs/again"])


def _about(record: Record) -> list[list[str]]:
    names = ("git_commit", "code", "device", "machine", "identity")
    rows = [[name.replace("_", " "), str(record[name])] for name in names if record.get(name)]
    rows += [[f"version of {name}", version] for name, version in record.get("versions", {}).items()]
    rows += [[f"digest of {name}", value] for name, value in record.get("digests", {}).items()]
    return rows + [["went on", json.dumps(change)] for change in record.get("changes", [])]
