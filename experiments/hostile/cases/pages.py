"""Files of a finished run that its pages are made from."""

import json
from typing import Any

from experiments.hostile.case import Case, accepted, case, refused
from experiments.hostile.steps import change, folder, remove, write

# fmt: off

def page(name: str, file: str, content: Any) -> Case:
    text = content if isinstance(content, str | bytes) else json.dumps(content) + "\n"
    return case(name, "compare reversal", accepted("reversal"), write(f"reversal/{file}", text))


CASES = [
    case("a report of nothing", "report", refused("no run")),
    case("a report of a text", "report text.txt", refused("text.txt")),
    case("a report of a folder of texts", "report parallel", refused("parallel", "no run")),
    case("a report that is nowhere", "report reversl", refused("reversl")),
    case("a report from a bucket", "report s3://bucket/run", refused("s3://")),
    case(
        "a report of a config that is a list",
        "report reversal",
        refused("config.json"),
        write("reversal/config.json", "[]"),
    ),
    case(
        "a report of keys that are a list",
        "report reversal",
        refused("overrides"),
        change("reversal/config.json", "overrides", []),
    ),
    case(
        "a report of samples without rows",
        "report reversal",
        accepted("report.html"),
        write("reversal/samples.jsonl", '{"step": 6}\n'),
    ),
    case(
        "a report of rows that are a number",
        "report reversal",
        accepted("report.html"),
        write("reversal/samples.jsonl", '{"step": 6, "rows": 5}\n'),
    ),
    case(
        "a report of an inside that is a list",
        "report reversal",
        accepted("report.html"),
        write("reversal/inside.json", "[1]"),
    ),
    case(
        "a report over a folder",
        "report reversal",
        refused("report.html"),
        remove("reversal/report.html"),
        folder("reversal/report.html/x"),
    ),
    case("a comparison of nothing", "compare", refused("no run")),
    case("a comparison with a text", "compare reversal text.txt", refused("text.txt")),
    case("a comparison of texts", "compare parallel", refused("parallel", "config.json")),
    case("a comparison with itself", "compare reversal reversal", accepted("reversal")),
    case("a comparison into a picture", "compare reversal --output=x.png", refused("--output", ".html")),
    case("a comparison into nowhere", "compare reversal --output=none/x.html", refused("--output", "none/x.html")),
    case("a comparison in a format that is none", "compare reversal --format=xml", refused("--format|format")),
    page("a comparison of records that are binary", "metrics.jsonl", bytes(range(256))),
    page("a comparison of records of a word", "metrics.jsonl", {"step": "six", "loss": 2}),
    page("a comparison of records of lists", "metrics.jsonl", {"step": 6, "loss": [1], "x": {"y": 2}}),
    page("a comparison of a result that is a list", "result.json", [1]),
    page("a comparison of a result of words", "result.json", {"exact_match": "good"}),
    case("keys of a section that is none", "keys modle", refused("modle", "model")),
    case("keys of another task", "keys data --config=configs/reversal.py", refused("data")),
    case("keys in a file that is none", "keys --config=none.py", refused("none.py")),
]
