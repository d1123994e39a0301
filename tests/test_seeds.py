"""The pages of the seeds: rules flag an altered figure, and rows name sections that exist. The run itself is long."""

import json
import re

import pytest

from experiments.seeds import pages
from experiments.seeds.claims import Claim, Found, Row, Rule, Seed, at_least, at_most, equal, rows
from experiments.seeds.statements import FOUND, HEADER, statements
from fxf.pages.text_tables import to_markdown
from small_runs import ROOT

CLAIMS = [(seed.number, claim) for seed in pages.SEEDS.values() for claim in seed.claims]


def altered(rule):
    """Returns a figure that differs from what the rule accepts by little."""
    if isinstance(rule.value, str):
        return f"{rule.value}0"
    if rule.sign == "=":
        return rule.value + 1
    return rule.value * (0.99 if rule.sign == "≥" else 1.01)


def seed_of(*claims):
    return Seed("009", "a seed", ("Start",), claims, lambda folder: Found({}, []))


@pytest.mark.parametrize(("seed", "claim"), CLAIMS, ids=[f"{seed}-{claim.name}" for seed, claim in CLAIMS])
def test_a_rule_accepts_its_own_value_and_flags_an_altered_one(seed, claim):
    assert claim.rule.accepts(claim.rule.value)
    for figure in (altered(claim.rule), float("nan"), "", None if claim.rule.sign == "=" else "1"):
        assert not claim.rule.accepts(figure)
        assert not Row(claim, figure).holds


@pytest.mark.parametrize("seed", pages.SEEDS.values(), ids=lambda seed: seed.number)
def test_claims_have_one_name_each_and_a_section_of_their_seed(seed):
    names = [claim.name for claim in seed.claims]
    assert len(set(names)) == len(names)
    if seed.number != "contradictions":
        assert {claim.section for claim in seed.claims} <= set(seed.sections)


def test_a_contradiction_stands_in_a_section_of_its_first_seed():
    for found in FOUND:
        first, *others = found.seed.split(", ")
        assert found.section in pages.SEEDS[first].sections and set(others) <= set(pages.SEEDS)


def test_the_page_of_the_documentation_has_the_statements():
    table = to_markdown([dict(zip(HEADER, row, strict=True)) for row in statements()], HEADER)
    assert table in (ROOT / "docs/seeds.md").read_text()


@pytest.mark.parametrize("figures", [{"a": 1}, {"a": 1, "b": 2, "c": 3}])
def test_a_figure_without_a_claim_and_a_claim_without_a_figure_are_refused(figures):
    seed = seed_of(Claim("a", "Start", "", "", equal(1)), Claim("b", "Start", "", "", equal(2)))
    with pytest.raises(ValueError, match=r"seed 009: figures and claims differ in (b|c)$"):
        rows(seed, figures)


def test_a_rule_reads_as_its_condition():
    assert [str(rule) for rule in (equal(1000), at_least(0.5), at_most(1e-5), equal("x"))] == [
        "= 1,000", "≥ 0.5", "≤ 1e-05", "= x",
    ]  # fmt: skip
    assert Rule("=", 3).accepts(3.0)


def test_a_seed_is_looked_at_once_and_its_page_shows_the_rows_that_do_not_hold(tmp_path, capsys, monkeypatch):
    looks = []

    def look(folder):
        looks.append(folder)
        return Found({"right": 2, "wrong": 7.5}, [{"kind": "text", "title": "a text", "content": "<script>"}])

    claims = (Claim("right", "Start", "a count", "two", equal(2)), Claim("wrong", "Start", "a loss", "low", at_most(7)))
    seed = Seed("009", "a seed", ("Start",), claims, look)
    monkeypatch.setattr(pages, "SEEDS", {"009": seed})
    for _ in range(2):
        assert [row.holds for row in pages.look_at(seed, tmp_path)] == [True, False]
    assert looks == [tmp_path]
    assert "009  does not hold: a loss: the seed says low; fxf gives 7.5 (≤ 7)" in capsys.readouterr().out
    page = (tmp_path / "009.html").read_text()
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page)
    assert [row[0] for row in json.loads(data)["rows"]] == ["holds", "does not hold"] and "<script>" not in data
