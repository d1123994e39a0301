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
MOST_STEPS = 40  # steps with samples on the page
FIRST_CHARTS = ("loss", "exact_match", "bleu", "learning_rate", "gradient_norm", "tokens_per_second")
PLAIN_TILES = ("parameters", "seed")
NOT_TILES = ("tokens_per_second", "compile_seconds", "evaluate_seconds", "wall_seconds", "goodput")


def write(folder: Path) -> Path:
    """Writes the page of the run in `folder` to that folder, and returns its path.

    Raises:
      UserError: there is no run.
    """
    run, path = read(folder), folder / REPORT
    write_atomically(path, page(f"{folder.absolute().name}: {run.state}", contents(run), SCRIPTS))
    return path


def contents(run: RunFiles) -> dict[str, Any]:
    """Returns the data of the page."""
    record, overrides = run.record, run.record.get("overrides", {})
    expected_of = f"Expected is what {record.get('config_file')} reached without overrides."
    return {
        "title": f"{run.folder.absolute().name} · {run.task}",
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
    """Returns the tiles at the top of the page, first those of metrics with an expected value."""
    figures, expected, task = run.figures(), run.record.get("expected", {}), run.record.get("better", {})
    better = {name: better_of(name, task) for name in figures}
    names = [name for name in figures if name not in (*expected, *NOT_TILES) and (better[name] or name in task)]
    names = [*(name for name in figures if name in expected), *names, *(x for x in PLAIN_TILES if x in figures)]
    values = {name: NO_VALUE if figures[name] is None else figures[name] for name in names}
    return [
        {**figure(name)._asdict(), "better": better[name], "value": values[name], "expected": expected.get(name)}
        for name in names
    ]


def main_figure(run: RunFiles) -> tuple[str, float | None]:
    """Returns the name and value of a run's main metric: that of checkpoint.best, or the first score, or the loss.

    A run without any of them has "" and None.
    """
    figures, better = run.figures(), run.record.get("better", {})
    scores = [name for name in figures if is_score(name) and better_of(name, better)]
    names = [run.config.get("checkpoint", {}).get("best", "").removeprefix("-"), *scores, "train_loss"]
    return next(((name, figures[name]) for name in names if name in figures), ("", None))


def _charts(run: RunFiles) -> list[dict[str, Any]]:
    """Returns a chart of each metric of metrics.jsonl; all losses share one chart."""
    curves, task = run.curves(), run.record.get("better", {})
    shared: dict[str, list[str]] = {}
    for name in curves:
        shared.setdefault("loss" if name.endswith("loss") else name, []).append(name)
    charts = []
    for name in sorted(shared, key=lambda n: FIRST_CHARTS.index(n) if n in FIRST_CHARTS else len(FIRST_CHARTS)):
        known, lines = figure(name), [{"name": figure(n).label, "points": thinned(curves[n])} for n in shared[name]]
        title = "loss" if len(lines) > 1 else lines[0]["name"]
        better = better_of(name, task) or known.better
        charts.append({"name": name, "title": title, "unit": known.unit, "better": better, "lines": lines})
    return charts


def axes(run: RunFiles) -> dict[str, list[list[float]]]:
    """Returns the points (step, tokens) and (step, seconds) of training, thinned."""
    return {name: thinned([(step, round(value, 2)) for step, value in axis]) for name, axis in run.axes().items()}


def _samples(run: RunFiles) -> list[dict[str, Any]]:
    """Returns the samples of at most MOST_STEPS steps, the last one among them."""
    samples = []
    for record in run.samples[:: -(len(run.samples) // MOST_STEPS + 1)][::-1]:
        rows = [[shortened(c, MOST_CHARACTERS) if isinstance(c, str) else c for c in row] for row in record["rows"]]
        samples.append({"step": record["step"], "test": bool(record.get("test")), "rows": rows})
    return samples


def command(record: Record, source: str | None = None) -> str:
    """Returns the command that repeats a run, or Python code if its config was made in Python.

    With a `source`, the new run starts from its weights, wherever the old one started.
    """
    config_file = record.get("config_file")
    if not config_file:
        argument = f", start={source!r}" if source else ""
        return f'fxf.train(json.load(open("config.json"))["config"], "runs/again"{argument})'
    overrides, left_out = record.get("overrides", {}), ("start.",) if source else ()
    changed = [f"--config.{key}={value}" for key, value in overrides.items() if not key.startswith(left_out)]
    start = [f"--from={path}"] if (path := source or record.get(FROM)) else []
    return shlex.join(["fxf", "train", f"--config={config_file}", *start, *changed, "--workdir=runs/again"])


def _about(record: Record) -> list[list[str]]:
    names = ("git_commit", "code", "device", "machine", "identity")
    rows = [[name.replace("_", " "), str(record[name])] for name in names if record.get(name)]
    rows += [[f"version of {name}", version] for name, version in record.get("versions", {}).items()]
    rows += [[f"digest of {name}", value] for name, value in record.get("digests", {}).items()]
    return rows + [["resumed", json.dumps(change)] for change in record.get("changes", [])]
