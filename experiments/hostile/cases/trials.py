"""Trials of two configs."""

from typing import Any

from experiments.hostile.case import Case, accepted, case, refused, refused_at_last
from experiments.hostile.fixtures import BAD_JSON, BINARY
from experiments.hostile.steps import Step, borrow, change, fifo, folder, mode, remove, write

# fmt: off

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


CASES = [
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
