"""The paths of docs/architecture.md: each function is called, in the order that the page tells."""

import re
import sys

import pytest

import fxf
from fxf.runs.configs import read_config
from small_runs import ROOT, TINY, trained

PAGE = (ROOT / "docs" / "architecture.md").read_text()
SECTIONS = re.findall(r"^### (.*)\n\n((?:\d\. .*\n)+)\n", PAGE, re.MULTILINE)
PATHS = {title: re.findall(r"^\d\. `([\w/]+\.py)` `([\w.]+)`: ", text, re.MULTILINE) for title, text in SECTIONS}
SMALL = {
    **TINY,
    "task": {**TINY["task"], "longer": 0},
    "train": {"steps": 2, "batch_size": 5},
    "optimizer": {"warmup_steps": 0},
    "log": {**TINY["log"], "every": 2},
}


@pytest.fixture(scope="module")
def calls(tmp_path_factory):
    """Returns file and function of every call of our code, while a run is trained and generates."""
    found, ours = [], f"{ROOT}/"

    def profile(frame, event, _):
        if event == "call" and (code := frame.f_code).co_filename.startswith(ours):
            found.append((code.co_filename.removeprefix(ours), code.co_qualname.replace(".<locals>", "")))

    folder = tmp_path_factory.mktemp("path")
    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        config = read_config(f"{ROOT}/configs/reversal.py").to_dict()
        for name, values in SMALL.items():
            config[name] |= values
        trained(config, folder)
        fxf.load(folder).generate(["1 2"])
    finally:
        sys.setprofile(before)
    return found


@pytest.mark.thorough
@pytest.mark.parametrize("path", PATHS)
def test_the_stops_of_a_path_are_met_in_their_order(path, calls):
    rest = iter(calls)
    for stop in PATHS[path]:
        assert stop in rest, f"not met after the one before: {stop}"
