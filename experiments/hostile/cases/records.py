"""Records that runs and trials keep."""

import json
from typing import Any

from experiments.hostile.case import Case, accepted, case, refused
from experiments.hostile.fixtures import BAD_JSON
from experiments.hostile.steps import change, fifo, folder, remove, write

# fmt: off

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


CASES = [
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
