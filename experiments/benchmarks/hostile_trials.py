"""Hostile trials, positions and widths, claims and figures, and records of runs."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hostile_box import (
    BAD_JSON,
    BINARY,
    ROOT,
    Case,
    Step,
    accepted,
    append,
    borrow,
    case,
    change,
    failed,
    fifo,
    folder,
    mode,
    refused,
    refused_at_last,
    remove,
    rewrite,
    write,
)

# fmt: off


# --- Trials ----------------------------------------------------------------------------------------------------------

TRY = "try @reversal --workdir=new"
CHANGED = "--change=model.activation=silu"
AGAIN = "try @reversal --workdir=trial --change=model.activation=silu --seeds=2"
PLAN = "trial/plan.json"
ACTIVATION = "from fxf.layers.feed_forward import ACTIVATIONS\n\nACTIVATIONS['mine'] = {}\n"


def trial(name: str, flags: str, *parts: str, steps: Any = (), **options: Any) -> Case:
    return case(f"a trial: {name}", f"{TRY} {flags}", refused(*parts), *steps, **options)


def functions(name: str, text: str | bytes, *parts: str, flags: str = "") -> Case:
    return trial(f"functions: {name}", f"--functions=mine.py {flags}", *parts, steps=[write("mine.py", text)])


def again(name: str, *steps: Step, parts: tuple[str, ...] = ("plan.json",), **options: Any) -> Case:
    """Returns a case that goes on with a trial of two pairs, after a change of its folder."""
    return case(f"a trial again: {name}", AGAIN, refused_at_last(*parts), *steps, runs=("trial",), **options)


def loss(value: Any) -> Any:
    """Returns a change of a result to another exact match."""
    return change("trial/first-0/result.json", "exact_match", value)


TRIALS = [
    trial("of nothing", "", "--change", "--null"),
    trial("null, with a change", f"--null {CHANGED}", "--change"),
    trial("null, with another config", "--null --other=points.py", "--other"),
    trial("null, with functions", "--null --functions=points.py", "--functions"),
    trial("a change of no key", "--change=model.n_layer=2", "model.n_layer", "n_layers"),
    trial("a change of no section", "--change=modle.n_layers=2", "modle"),
    trial("a change without a value", "--change=model.n_layers", "--change", "KEY=VALUE"),
    trial("a change of nothing", "--change=", "--change"),
    trial("a change to a word", "--change=model.n_layers=two", "model.n_layers", "int"),
    trial("a change of a section", "--change=model=3", "model"),
    trial("a change of the seed", "--change=seed=1", "seed", "--null"),
    trial("a change to what it is", "--change=model.n_layers=1", "same"),
    trial("a change given twice", "--change=model.n_layers=2 --change=model.n_layers=3", "twice"),
    trial("a change that cannot be", "--change=model.n_heads=5", "other config", "model.n_heads"),
    trial("both configs cannot be", f"{CHANGED} --config.model.n_heads=5", "first config", "model.n_heads"),
    trial("another config that is nowhere", "--other=none.py", "none.py"),
    trial("another config that is a folder", "--other=configs", "configs"),
    trial("another config without a key", "--other=configs/boolean_map.py", "--other", "unknown key"),
    trial("a metric of no config", f"{CHANGED} --metric=exact_mach", "--metric", "exact_match"),
    trial("a metric of nothing", f"{CHANGED} --metric=-", "--metric"),
    trial("a metric with a direction twice", f"{CHANGED} --metric=--exact_match", "--metric"),
    trial("a metric of control bytes", f"{CHANGED} --metric='a\x1b[2J'", "--metric"),
    *(trial(f"a level of {x}", f"{CHANGED} --level={x}", "--level") for x in ("0", "1", "-1", "nan", "inf", "1e-400")),
    *(trial(f"{x} seeds", f"{CHANGED} --seeds={x}", "--seeds|budget") for x in ("0", "1", "-3", "two", "2.5")),
    *(trial(f"{x} minutes", f"{CHANGED} --minutes={x}", "minutes") for x in ("0", "-1", "nan", "inf", "1e400")),
    trial("processes of its own", f"{CHANGED} --config.parallel.processes=2", "parallel"),
    case("a trial: without a folder", f"try @reversal {CHANGED}", refused("--workdir")),
    case("a trial: in a bucket", f"try @reversal {CHANGED} --workdir=s3://bucket/x", refused("s3://")),
    case("a trial: its folder a file", f"try @reversal {CHANGED} --workdir=text.txt", refused("text.txt")),
    case("a trial: its folder a run", f"try @reversal {CHANGED} --workdir=reversal", refused("reversal", "run")),
    case(
        "a trial: a folder that may not be written", f"try @reversal {CHANGED} --workdir=shut/new",
        refused("plan.json|shut"), folder("shut"), mode("shut", 0o500), unprivileged=True,
    ),
    trial("words for flags", f"{CHANGED} model.n_layers=2", "model.n_layers=2"),
    functions("none", "", "registers nothing"),
    functions("binary", BINARY, "mine.py"),
    functions("a syntax error", "def f(:\n", "mine.py:1"),
    functions("it raises", ACTIVATION.format("abs") + "1 / 0\n", "mine.py:4", "ZeroDivisionError"),
    functions("it exits", "raise SystemExit(0)", "mine.py"),
    functions("one of fxf's", ACTIVATION.replace("mine", "relu").format("abs"), "relu", "registered already"),
    functions(
        "two of a kind, none named", ACTIVATION.format("abs") + "ACTIVATIONS['more'] = abs\n", "mine.py", "--change",
    ),
    functions("a number", ACTIVATION.format("3"), "mine.py|activation"),
    functions("of two arguments", ACTIVATION.format("lambda x, y: x"), "mine.py", "of (x)"),
    functions("of another shape", ACTIVATION.format("lambda x: x[..., :-1]"), "other config", "loss"),
    case(
        "a trial: functions that give no numbers", f"{TRY} --functions=mine.py --seeds=2", accepted("diverged"),
        write("mine.py", ACTIVATION.format("lambda x: x * float('nan')")),
    ),
    trial("functions in a folder", "--functions=configs", "configs"),
    trial("functions in a pipe", "--functions=pipe", "pipe", steps=[fifo("pipe")]),
    trial("functions that are nowhere", "--functions=none.py", "none.py"),
    case(
        "a trial: a budget for one pair", f"{TRY} {CHANGED} --minutes=1e-9", accepted("minutes are spent"),
    ),
    case(
        "a trial: two seeds, which never suffice", f"{TRY} {CHANGED} --seeds=2 --level=1e-300",
        accepted("at least", "no difference found"),
    ),
    case("a trial again: as it was", AGAIN, accepted("all 2 seeds"), runs=("trial",)),
    *(again(f"a plan that is {what}", write(PLAN, content)) for what, content in BAD_JSON.items()),
    again("a plan in a folder", remove(PLAN), folder(PLAN)),
    again("a plan in a pipe", fifo(PLAN)),
    again("budgets that are none", change(PLAN, "budgets", ...)),
    again("no budgets", change(PLAN, "budgets", [])),
    again("budgets that are numbers", change(PLAN, "budgets", [3])),
    again("a plan without its arms", change(PLAN, "arms", ...)),
    again("arms that are a list", change(PLAN, "arms", [])),
    again("the plan of another metric", change(PLAN, "metric", "train_loss"), parts=("metric",)),
    again("the plan of another level", change(PLAN, "level", 0.5), parts=("level",)),
    again("the plan of another arm", change(PLAN, "arms/first/model/d_ff", 9), parts=("model.d_ff",)),
    again("the plan of other code", change(PLAN, "code", "0" * 16), parts=("code",)),
    *(
        again(f"a result that is {what}", write("trial/first-0/result.json", text), parts=("first-0/result.json",))
        for what, text in BAD_JSON.items()
    ),
    again("a result without its figure", loss(...), parts=("first-0/result.json", "exact_match")),
    again("a result of a word", loss("good"), parts=("first-0/result.json", "exact_match")),
    again("a result of a truth", loss(True), parts=("first-0/result.json", "exact_match")),
    *(
        case(
            f"a trial again: a result of {name}", AGAIN, accepted("diverged: 1"), loss(value), runs=("trial",),
        )
        for name, value in {"a huge number": 10**400, "no number": float("nan")}.items()
    ),
    again(
        "a result without seconds", change("trial/first-0/result.json", "wall_seconds", ...),
        parts=("first-0/result.json", "wall_seconds"),
    ),
    again("a run of another seed", borrow("seed1", "trial/first-0"), parts=("first-0", "another run")),
    again("a run of the other arm", borrow("trial/other-0", "trial/first-0"), parts=("first-0", "another run")),
    *(
        again(
            f"a divergence that is {what}", remove("trial/first-0/result.json"),
            write("trial/first-0/diverged.json", text), parts=("first-0/diverged.json",),
        )
        for what, text in {**BAD_JSON, "no time": "{}", "a word": '{"seconds": "x"}'}.items()
    ),
    again(
        "a config that is empty", write("trial/other-1/config.json", ""), parts=("other-1", "config.json"),
        writes="^trial/(table|verdict)",
    ),
    again("a verdict in a folder", remove("trial/verdict.json"), folder("trial/verdict.json"), parts=("verdict",)),
    case(
        "a trial again: of another text", "try @characters --workdir=new --seeds=2 --change=model.activation=silu",
        refused_at_last("plan.json", "content"), borrow("trial_of_text", "new"), borrow("other.txt", "text.txt"),
    ),
]


# --- Positions and widths --------------------------------------------------------------------------------------------

EVEN = "--config.model.d_model=8"  # so that heads have an even width
WALKS, TURNS = (f"{EVEN} --config.model.positions={kind}" for kind in ("walks", "turns"))
MIRRORED = "--config.task.mirrored=true"
BEAM = "--config.decode.beam_width=3"
TEXTS = "--config.data.format=files --config.data.path=parallel --config.data.validation=0.2 --config.data.test=0.2"


def model(name: str, flags: str, *parts: str, run: str = "reversal") -> Case:
    return case(name, f"train @{run} --workdir=new {flags}", refused(*parts))


def trains(name: str, flags: str, run: str = "reversal", said: str = "seconds") -> Case:
    return case(name, f"train @{run} --workdir=new {flags}", accepted(said))


POSITIONS = [
    model("mirrored, but nothing reads positions", f"{MIRRORED} --config.model.positions=none", "task.mirrored"),
    model("mirrored, but walks make positions", f"{MIRRORED} {WALKS}", "task.mirrored", "walks"),
    model("mirrored, but turns make positions", f"{MIRRORED} {TURNS}", "task.mirrored", "turns"),
    model("mirrored, but training draws", f"{MIRRORED} --config.model.position_range=20", "task.mirrored"),
    model("mirrored, of another task", MIRRORED, "task.mirrored", run="series"),
    trains("mirrored, with a window alone", f"{MIRRORED} --config.model.positions=none --config.model.window=2"),
    trains("mirrored, stretched, with a beam", f"{MIRRORED} {EVEN} --config.model.positions=rotary {BEAM}"
           " --config.model.position_stretch=3"),
    trains("mirrored, in a table, with a beam", f"{MIRRORED} --config.model.positions=learned {BEAM}"),
    *(model(f"{n} walks", f"{WALKS} --config.model.n_walks={n}", "n_walks") for n in ("0", "-1", "1.5", "nan", "1e9")),
    trains("more walks than there can be", f"{WALKS} --config.model.n_walks=2000000000 {BEAM}"),
    trains("one walk, for all heads", f"{WALKS} --config.model.n_walks=1 --config.model.window=2 {BEAM}"),
    model("walks without their kind", "--config.model.n_walks=7", "n_walks"),
    model("walks of turns", f"{TURNS} --config.model.n_walks=7", "n_walks"),
    model("walks, heads of odd width", "--config.model.positions=walks", "even"),
    model("walks, grouped heads", f"{WALKS} --config.model.n_kv_heads=1", "n_kv_heads"),
    model("walks in a range", f"{WALKS} --config.model.position_range=99", "position_range"),
    model("turns, stretched", f"{TURNS} --config.model.position_stretch=2", "position_stretch"),
    model("walks, with a gap", f"{WALKS} --config.model.position_gap=2", "position_gap"),
    model("walks of linear attention", f"{WALKS} --config.model.attention=linear", "attention|positions"),
    model("walks of flash", f"{WALKS} --config.model.attention_implementation=flash --config.model.window=2", "flash"),
    model("turns that settle before the start", f"{TURNS} --config.model.turns_settle_at=-1", "turns_settle_at"),
    model("turns that settle without turns", "--config.model.turns_settle_at=3", "turns_settle_at"),
    model("walks in documents", f"{WALKS} {TEXTS}", "task.document_mask", run="characters"),
    model("turns in documents", f"{TURNS} {TEXTS}", "task.document_mask", run="characters"),
    trains("walks over documents", f"{WALKS} {TEXTS} --config.task.document_mask=false", "characters"),
    trains("walks of an encoder and a decoder", f"{WALKS} {BEAM} --config.model.window=3", "six"),
    trains("turns of an encoder and a decoder", f"{TURNS} {BEAM}", "six"),
    trains("walks of a model of blanks", WALKS, "masking"),
    model("positions of a bilayer", "--config.model.positions=walks", "model.positions", run="primer"),
    model("a base without a width of heads", f"{EVEN} --config.model.base_width=4", "base_width", "head_dim"),
    *(
        model(f"a base of {n}", f"{EVEN} --config.model.head_dim=4 --config.model.base_width={n}", "base_width|d_ff")
        for n in ("-1", "3", "0.5", "nan", "99999999999")
    ),
    model("a base of a model without", "--config.model.base_width=4", "base_width", run="map"),
    *(
        model(
            f"a base with {name}",
            f"{EVEN} --config.model.d_ff=8 --config.model.head_dim=4 --config.model.base_width=4"
            f" --config.optimizer.name={name}",
            "optimizer.",
        )
        for name in ("sgd", "lamb", "adafactor")
    ),
    trains(
        "a base wider than the model",
        f"{EVEN} --config.model.d_ff=8 --config.model.head_dim=4 --config.model.base_width=16",
    ),
]


# --- Claims and figures ----------------------------------------------------------------------------------------------

RESULTS = "experiments/results"
CLAIM = f"{RESULTS}/claims/swiglu.json"
PAGE = "claims --only=none"
OPTIONS: dict[str, Any] = {"own_process": True, "writes": r"\.md$|since\.json$|^configs|^experiments"}


def checkout(box: Path) -> None:
    """Puts the pages and the kept results of the checkout into the folder."""
    for name in ("configs", "experiments"):
        (box / name).unlink()
        shutil.copytree(ROOT / name, box / name, ignore=shutil.ignore_patterns("__pycache__", "benchmarks"))
    shutil.copytree(ROOT / "docs", box / "docs")
    for path in ROOT.glob("*.md"):
        shutil.copy(path, box / path.name)


def figures(name: str, *steps: Step, parts: tuple[str, ...], make: Callable[..., Any] = failed) -> Case:
    return case(f"figures: {name}", "figures", make(*parts), checkout, *steps, **OPTIONS)


def claims(name: str, *steps: Step, parts: tuple[str, ...], command: str = PAGE) -> Case:
    return case(f"claims: {name}", command, refused(*parts), checkout, *steps, **OPTIONS)


def claim(name: str, keys: str, value: Any) -> Case:
    return claims(name, change(CLAIM, keys, value), parts=("swiglu",))


KEPT = [
    case("figures: as they are", "figures", accepted(lines=0), checkout, **OPTIONS),
    *(
        figures(f"a result that is {what}", write(f"{RESULTS}/anki/result.json", text), parts=("anki",), make=refused)
        for what, text in BAD_JSON.items()
    ),
    figures("a result that is gone", remove(f"{RESULTS}/anki/result.json"), parts=("anki",), make=refused),
    figures("a result without a figure", change(f"{RESULTS}/anki/result.json", "bleu", ...), parts=("README.md",),
            make=refused),
    figures("a result of a word", change(f"{RESULTS}/anki/result.json", "bleu", "x"), parts=("README.md",),
            make=refused),
    figures("older figures that are a list", write(f"{RESULTS}/older.json", "[]"), parts=("older.json",), make=refused),
    figures("a table without rows", rewrite(
        "experiments/studies/blocks/table.csv", lambda text: text.splitlines()[0] + "\n"
    ), parts=("blocks",), make=refused),
    figures("a table without a column", rewrite(
        "experiments/studies/blocks/table.csv", lambda text: text.replace("exact_match", "exact", 1)
    ), parts=("blocks",), make=refused),
    figures("a table that is binary", write("experiments/studies/blocks/table.csv", BINARY), parts=("blocks",),
            make=refused),
    figures("a page that is gone", remove("README.md"), parts=("README.md",), make=refused),
    figures("a page that is binary", write("docs/trials.md", BINARY), parts=("docs/trials.md",), make=refused),
    figures("a figure that somebody typed", append("docs/trials.md", "\nIt takes 17.3 seconds.\n"), parts=("17.3",)),
    case("figures: of words", "figures all", refused("all"), checkout, **OPTIONS),
    case("claims: as they are", PAGE, accepted("CLAIMS.md"), checkout, **OPTIONS),
    *(claims(f"figures that are {what}", write(CLAIM, text), parts=("swiglu",)) for what, text in BAD_JSON.items()),
    claim("no runs", "runs", []),
    claim("runs that are a number", "runs", 3),
    claim("a run that is a number", "runs", [3]),
    claim("a run of a word", "runs", [{"test_loss": "good"}] * 8),
    claim("made by a number", "made_by", 3),
    claim("one run fewer", "runs", [{"test_loss": 1.0}]),
    claims("a claim that is none", parts=("swiglo", "swiglu"), command="claims --only=swiglo"),
    claims("no worker", parts=("--workers",), command="claims --only=none --workers=0"),
    claims("into a bucket", parts=("s3://",), command="claims --only=none --workdir=s3://bucket/x"),
    claims("with words", parts=("swiglu",), command="claims swiglu"),
]


# --- Records of runs -------------------------------------------------------------------------------------------------

HUGE = 10**400  # no float holds it
RECORDS_OF = {
    "no numbers": {"step": 6, "loss": float("nan"), "exact_match": float("inf")},
    "a huge number": {"step": 6, "loss": HUGE},
    "a huge step": {"step": HUGE, "loss": 1.0},
    "a step below nothing": {"step": -3, "loss": 1.0},
    "a step that is true": {"step": True, "loss": 1.0},
    "names with tags": {"step": 6, "</script><script>alert(1)</script>": 1.0},
    "names with line ends": {"step": 6, "a\nb\x1b[2J": 1.0},
    "an empty name": {"step": 6, "": 1.0},
    "many names": {"step": 6, **{f"n{i}": float(i) for i in range(3000)}},
    "lists in lists": {"step": 6, "loss": [[[]]]},
    "lone surrogates": {"step": 6, "\ud800": 1.0},
}


def shown(command: str, name: str, file: str, content: Any) -> Case:
    text = content if isinstance(content, str | bytes) else json.dumps(content) + "\n"
    said = "report.html" if command == "report" else "reversal"
    return case(f"{command}: {name}", f"{command} reversal", accepted(said), write(f"reversal/{file}", text))


def keys(command: str, name: str, path: str, value: Any, *parts: str) -> Case:
    end = refused(*parts) if parts else accepted("reversal")
    return case(f"{command}: {name}", f"{command} reversal", end, change("reversal/config.json", path, value))


RECORDS = [
    *(
        shown(command, f"records of {name}", "metrics.jsonl", record)
        for command in ("report", "compare")
        for name, record in RECORDS_OF.items()
    ),
    *(
        shown(command, f"a result of {name}", "result.json", record)
        for command in ("report", "compare")
        for name, record in RECORDS_OF.items()
    ),
    *(
        shown("report", f"records that are {name}", "metrics.jsonl", content)
        for name, content in {
            **BAD_JSON, "steps backwards": '{"step": 6, "loss": 1}\n{"step": 2, "loss": 2}\n{"step": 6, "loss": 3}\n',
            "cut short": '{"step": 2, "loss": 2}\n{"step": 4, "lo', "without end lines": '{"step": 2}{"step": 4}',
        }.items()
    ),
    *(
        case(
            f"report: {name} in the place of a folder", "report reversal", accepted("report.html"),
            remove(f"reversal/{name}"), folder(f"reversal/{name}"),
        )
        for name in ("metrics.jsonl", "samples.jsonl", "result.json")
    ),
    case(
        "report: records in a pipe", "report reversal", accepted("report.html"), remove("reversal/metrics.jsonl"),
        fifo("reversal/metrics.jsonl"),
    ),
    shown("report", "samples of tags", "samples.jsonl", {"step": 6, "rows": [["</script>", None, "<b>"]]}),
    shown("report", "samples at no step", "samples.jsonl", {"step": "x", "rows": [["a", "b", "c"]]}),
    shown("report", "an inside of nothing", "inside.json", {"step": 6, "weights": [], "examples": []}),
    shown("report", "an inside of words", "inside.json", {"step": 6, "weights": ["x"], "examples": [3]}),
    keys("report", "steps of a word", "config/train/steps", "six"),
    keys("report", "steps without end", "config/train/steps", HUGE),
    keys("report", "a task of a number", "config/task", 3, "config.json"),
    keys("report", "a task without a name", "config/task/name", ...),
    keys("report", "versions that are a list", "versions", [], "versions"),
    keys("report", "expected figures of words", "expected", {"exact_match": "good"}),
    keys("report", "expected figures that are a list", "expected", [1], "expected"),
    keys("report", "a model that is a word", "config/model", "small"),
    keys("compare", "a seed of a list", "config/seed", [1, 2]),
    keys("compare", "sections of numbers", "config/optimizer", 7),
    keys("compare", "names with tags", "config/task/name", "<script>"),
]
