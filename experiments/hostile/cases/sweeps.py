"""Sweeps of config files."""

from experiments.hostile.case import Case, accepted, case, failed, refused
from experiments.hostile.fixtures import BAD_JSON, POINTS
from experiments.hostile.steps import borrow, change, folder, write

# fmt: off

def sweeps(name: str, body: str, *parts: str) -> Case:
    text = POINTS.split("def sweep")[0] + (f"def sweep(add):\n    {body}\n" if body else "")
    return case(
               f"a sweep: {name}", "sweep --config=mine.py --workdir=new --dry_run", refused(*parts),
               write("mine.py", text),
           )


CASES = [
    sweeps("no point", "pass", "no point"),
    sweeps("no function", "", "sweep"),
    sweeps("the same point twice", "add(seed=1); add(seed=1)", "point 2", "point 1"),
    sweeps(
        "a value that is not a number, twice",
        "add(**{'optimizer.b1': float('nan')}); add(**{'optimizer.b1': float('nan')})", "b1",
    ),
    sweeps("a list for a value", "add(seed=[1, 2])", "seed"),
    sweeps("a dict for a value", "add(seed={})", "seed"),
    sweeps("an array of two", "import numpy; add(seed=numpy.arange(2))", "seed"),
    sweeps("a string for a number", "add(seed='1')", "seed"),
    sweeps("true for a number", "add(seed=True)", "seed"),
    sweeps("an unknown key", "add(**{'model.n_layer': 1})", "model.n_layer", "model.n_layers"),
    sweeps("an argument without a name", "add(1)", "mine.py"),
    sweeps("it raises", "add(seed=1); raise RuntimeError('no')", "mine.py", "RuntimeError"),
    sweeps("it exits", "raise SystemExit(0)", "mine.py"),
    sweeps(
        "values of different lengths",
        "from fxf.sweeps.points import zipped; zipped({'seed': [1], 'train.steps': [1, 2]})", "zipped",
    ),
    sweeps("a key that is set for all", "[add(**{'train.steps': n}) for n in (0, 1)]", "train.steps"),
    case(
        "a sweep: a key that the command line sets too",
        "sweep --config=points.py --config.seed=3 --workdir=new --dry_run", refused("seed"),
    ),
    case(
        "a sweep: a point's folder a file", "sweep --config=points.py --workdir=new", refused("new/seed=0", "a file"),
        write("new/seed=0", "x"),
    ),
    case(
        "a table: one that cannot be written", "sweep --config=points.py --workdir=sweep --workers=0",
        refused("table.csv"), folder("sweep/table.csv"),
    ),
    case(
        "a sweep: a figure that no result has", "sweep --config=points.py --workdir=sweep --workers=0 --y=exact",
        refused("--y", "exact_match"),
    ),
    case(
        "points in this process: a wrong value",
        "sweep --config=points.py --workdir=new --points=2 --config.model.n_heads=7", refused("point 2", "n_heads: 7"),
    ),
    case(
        "points in this process: a flag that they do not read",
        "sweep --config=points.py --workdir=new --points=1 --together=2", refused("--together", "--points"),
    ),
    case("a sweep: its folder a file", "sweep --config=points.py --workdir=text.txt --workers=0", refused("text.txt")),
    case(
        "a sweep: a point's folder holds another run", "sweep --config=points.py --workdir=sweep --workers=0",
        refused("seed=0", "another run"), borrow("seed1", "sweep/seed=0"),
    ),
    *(
        case(
            f"a table: a result that is {what}", "sweep --config=points.py --workdir=sweep --workers=0",
            failed("seed=1/result.json"), write("sweep/seed=1/result.json", content), writes="^sweep/(table|plot)",
        )
        for what, content in BAD_JSON.items()
    ),
    case(
        "a table: a result that names other keys", "sweep --config=points.py --workdir=sweep --workers=0",
        accepted("sweep/table.csv"), change("sweep/seed=1/result.json", "point", "seed=7"),
        change("sweep/seed=1/result.json", "status", "<script>"), change("sweep/seed=1/result.json", "seed", 7),
        writes="^sweep/(table|plot)",
    ),
]
