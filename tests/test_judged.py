"""The table of judged ideas, and the config on which they were judged."""

from statistics import fmean
from types import SimpleNamespace

import pytest

import fxf
from experiments.ideas.__main__ import FAILED, KEPT, PAGE, PAIRS, SAYS, kept, table, tables
from experiments.runner import ROOT, filled
from fxf.base.config import differing_keys
from fxf.base.files import read_json
from fxf.sweeps.evidence import evidence
from fxf.sweeps.settle import Settled
from fxf.sweeps.verdict import Pair, Verdict

IDEAS = {path.stem for path in (ROOT / "configs/ideas").glob("*.py")}


@pytest.mark.thorough
def test_every_idea_has_a_row_and_a_config_that_differs_from_the_base_in_its_model_alone():
    assert set(SAYS) == IDEAS
    base = fxf.read_config("judged:reversal").to_dict()
    for idea in IDEAS:
        differing = differing_keys(base, fxf.read_config(f"judged:reversal-{idea}").to_dict())
        assert differing and all(key.startswith("model.") for key in differing), idea


def test_the_table_of_the_page_is_that_of_the_kept_trials():
    assert PAGE.read_text() == filled(PAGE, tables())
    assert table(kept()).count("\n| ") >= len(IDEAS)


def test_the_page_names_the_verdicts_that_change_at_the_bases_better_rate():
    base = dict(kept()["text-canon"]["checks"])[0.024]
    changed = {}
    for idea in SAYS:
        found = kept()[f"text-{idea}"]
        firsts, others = zip(*found["figures_of_pairs"], strict=True)
        now = evidence([*zip(base, others, strict=True)]).mean
        if now != {"better": -1, "worse": 1}.get(found["verdict"], 0):
            changed.setdefault(now, []).append(idea)
    assert changed == {1: ["layer_scale", "ngpt", "squared_relu", "talking_heads"]}
    said = " ".join(PAGE.read_text().split())
    lower = f"At 0.024 its loss is {fmean(firsts) - fmean(base):.3f} lower."
    assert f"{lower} Against that baseline, layer scale, nGPT, squared ReLU and talking heads are worse" in said


@pytest.mark.parametrize("path", sorted(KEPT.glob("*.json")), ids=lambda path: path.stem)
def test_a_kept_verdict_follows_from_its_pairs(path):
    found = read_json(path, "a kept result")
    pairs = [Pair((i, i), *figures, 0.0) for i, figures in enumerate(found["figures_of_pairs"])]
    settled = {arm: Settled(**of_arm) for arm, of_arm in found["settled"].items()}
    plan = SimpleNamespace(better=found["better"], failed=FAILED[path.stem.partition("-")[0]])
    checks = dict(found["checks"])
    again = Verdict(plan, settled, pairs, found["stopped"], checks)
    assert again.rate_decides or {*again.rates_beside()} == {*checks}
    assert len(pairs) == PAIRS * all(of_arm.bracketed for of_arm in settled.values())
    assert tuple(found["failed"].values()) == again.evidence.failed
    assert (found["verdict"], found["headline"]) == (again.verdict, again.headline)
    assert (found["effect"], found["low"], found["high"]) == pytest.approx(again.effect)
