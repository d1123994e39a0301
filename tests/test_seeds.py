"""The seeds: rules reject altered results, and claims without training hold. The run itself is long."""

import pytest

from experiments.seeds import __main__ as command
from experiments.seeds import contradictions, seed_000, seed_001, seed_002, seed_003, seed_004
from experiments.seeds.systems import SEEDS
from small_runs import ROOT


def altered(rule):
    """Returns a result slightly outside of what the rule accepts."""
    if isinstance(rule.value, str):
        return f"{rule.value}0"
    return {"=": rule.value + 1, "≥": 0.99 * rule.value, "≤": 1.01 * rule.value}[rule.sign]


@pytest.mark.parametrize("number", SEEDS)
def test_claims_have_one_name_each_and_their_rules_flag_an_altered_value(number):
    claims = SEEDS[number].claims
    assert len({claim.name for claim in claims}) == len(claims)
    for rule in (claim.rule for claim in claims):
        assert rule.accepts(rule.value)
        for figure in (altered(rule), float("nan"), "", None if rule.sign == "=" else "1"):
            assert not rule.accepts(figure)


def test_other_code_trains_again(tmp_path, monkeypatch):
    folders = []
    monkeypatch.setattr(command, "finished", lambda jobs, kept: folders.extend(job.arguments for job in jobs) or ())
    for digest in "ab":
        monkeypatch.setattr(command, "code_digest", lambda digest=digest: digest, raising=False)
        command.main(command.Namespace(workdir=str(tmp_path), only=["004"]))
    assert len({*folders}) == 2


LAWS = {module.__name__[-3:]: module._laws for module in (seed_000, seed_002, seed_003, seed_004)}
LAWS["001"] = lambda: seed_001._laws() | seed_001._tokenization()
LAWS["contradictions"] = lambda: contradictions.look(ROOT)["figures"]


@pytest.mark.thorough
@pytest.mark.parametrize("number", LAWS)
def test_claims_that_need_no_training_hold(number):
    rules = {claim.name: claim.rule for claim in SEEDS[number].claims}
    assert {name: figure for name, figure in LAWS[number]().items() if not rules[name].accepts(figure)} == {}
