"""The verdicts of the studies of expressive attention, blocks, characters and positions follow from their rows."""

import math
import re

import pytest

from experiments.studies.blocks import result as blocks
from experiments.studies.cells import RATE, best, mean_of, steps_to
from experiments.studies.characters import result as characters
from experiments.studies.expressive import result as expressive
from experiments.studies.positions import result as positions


def verdicts(text):
    """Returns, for each line of a conclusion that has a verdict, whether the claim holds."""
    return ["**holds**" in line for line in text.splitlines() if "**holds**" in line or "**does not hold**" in line]


def test_a_kind_is_taken_at_the_rate_with_the_highest_mean_and_at_the_lowest_of_equal_ones():
    shares = {0.1: (0.2, 0.9), 0.2: (0.6, 0.7), 0.4: (0.7, 0.6)}
    rows = [{"kind": "a", RATE: rate, "share": share} for rate in (0.4, 0.1, 0.2) for share in shares[rate]]
    rows += [{"kind": "b", RATE: 0.1, "share": 0.3}, {"kind": "b", RATE: 0.2}]  # the last has no result
    found = best(rows, ("kind",), mean_of("share"))
    assert {kind: cell.rate for (kind,), cell in found.items()} == {"a": 0.2, "b": 0.1}
    assert found["a",].values("share") == [0.6, 0.7]


def test_steps_count_to_the_first_record_that_reaches_the_bound():
    records = [
        {"step": 3, "loss": 2.0},
        {"step": 5, "share": 0.98},
        {"step": 7, "share": 0.99},
        {"step": 9, "share": 1.0},
    ]
    assert steps_to(records, "share") == 7
    assert steps_to(records[:2], "share") is None


def test_the_plateau_is_the_loss_of_a_guess_among_numbers_of_the_right_parity():
    guess = math.log(3)
    losses = [(2, math.log(6)), (5, guess + 0.049), (7, guess - 0.049), (9, guess + 0.051), (12, 0.0)]
    records = [{"step": step, "loss": loss} for step, loss in losses] + [{"step": 12, "exact_match": 1.0}]
    assert expressive.at_plateau(records, 6) == 3 + 2
    assert expressive.at_plateau([{"step": 4, "loss": math.log(2.5)}], 5) == 0  # odd sums say nothing there


def sums(softmax, expressive_of_base, loss=0.0):
    """Returns rows of two seeds for each base, positions and kind, with these exact matches."""
    rows = []
    for base in (5, 10, 16):
        for place in ("p", "q"):
            for kind, share in (("softmax", softmax), ("expressive", expressive_of_base[base])):
                names = {"task.base": base, "model.positions": place, "model.attention": kind, RATE: 0.1}
                for seed in range(2):
                    point = f"{base}{place}{kind}{seed}"
                    rows.append({"point": point, **names, "seed": seed, "exact_match": share, "train_loss": loss})
    return rows


@pytest.mark.parametrize(
    ("softmax", "of_base", "base_of_loss", "expected"),
    [
        (0.5, {5: 0.5, 10: 0.6, 16: 1.0}, 2, [True, True, True, False]),
        (1.0, {5: 1.0, 10: 1.0, 16: 0.97}, 2, [False, False, False, False]),
        (1.0, {5: 1.0, 10: 1.0, 16: 0.1}, 8, [False, False, False, True]),
    ],
)
def test_the_claims_of_expressive_attention_turn_with_the_rows(monkeypatch, softmax, of_base, base_of_loss, expected):
    rows = sums(softmax, of_base, math.log(base_of_loss))
    monkeypatch.setattr(expressive, "records", lambda study: {row["point"]: [] for row in rows})
    assert verdicts(expressive.text(rows)) == expected


def forms(shares):
    """Returns rows of two seeds with the exact match of each (depth, form, warm-up); 1 if it is not given."""
    return [
        {
            **{"point": "", "model.n_layers": depth, "model.block": kind, "optimizer.warmup_steps": warmup, RATE: 0.1},
            **{"seed": seed, "exact_match": shares.get((depth, kind, warmup), 1.0), "train_loss": 0.0},
        }
        for depth in (2, 12)
        for kind in blocks.KINDS
        for warmup in (0, 100)
        for seed in range(2)
    ]


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ({(12, "post_norm", 0): 0.75}, [True, True, True, True, True]),
        ({}, [False, True, False, True, True]),
        ({(12, "pre_norm", 0): 0.9, (12, "post_norm", 0): 0.7}, [True, False, True, False, True]),
        ({(12, "post_norm", 0): 0.7, (2, "post_norm", 0): 0.75}, [True, True, False, True, True]),
        ({(2, "idea", 0): 0.9, (2, "idea", 100): 0.97}, [False, True, False, True, False]),
    ],
)
def test_the_claims_of_blocks_turn_with_the_rows(monkeypatch, shares, expected):
    monkeypatch.setattr(blocks, "records", lambda study: {"": []})
    assert verdicts(blocks.text(forms(shares))) == expected


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, [True, True, True, True]),
        ({"alibi": 2.19}, [True, False, True, True]),
        ({"rotary": 2.3, "learned": 2.21}, [False, True, False, True]),
        ({"none": 2.4, "learned": 2.5}, [True, True, True, False]),
    ],
)
def test_the_claims_of_characters_turn_with_the_rows(changed, expected):
    bits = {"none": 3.0, "learned": 2.5, "sinusoidal": 2.3, "sinusoidal_trained": 2.2, "alibi": 2.1, "rotary": 2.0}
    rows = [
        {"model.positions": kind, RATE: rate, "seed": seed, "bits_per_character": of_kind + rate}
        for kind, of_kind in {**bits, **changed}.items()
        for rate in (0.1, 0.2)
        for seed in range(3)
    ]
    assert verdicts(characters.text(rows)) == expected


def lengths(shares):
    """Returns rows of two seeds of each kind of positions; by default 1 at training lengths and 0 at longer ones."""
    kinds = [("none", 0, 1.0), ("rotary", 0, 1.0), ("sinusoidal", 0, 1.0)]
    kinds += [("rotary", 128, 1.0), ("sinusoidal", 128, 1.0), ("rotary", 0, 3.0), ("sinusoidal", 0, 3.0)]
    rows = []
    for key in kinds:
        far = {f"exact_match_{n}": shares.get((*key, n), 0.0) for n in positions.LENGTHS}
        names = dict(zip(positions.NAMES, key, strict=True))
        row = {"point": "", **names, RATE: 0.1, "exact_match": shares.get((*key, 10), 1.0), **far}
        rows += [row, row]
    return rows


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ({}, ["holds", "does not hold", "does not hold"]),
        ({("none", 0, 1.0, 20): 0.02}, ["does not hold", "does not hold", "does not hold"]),
        ({("none", 0, 1.0, 10): 0.5, ("none", 0, 1.0, 20): 0.4}, ["holds", "does not hold", "does not hold"]),
        ({(kind, 0, 1.0, 10): 0.5 for kind in ("none", "rotary")}, ["is undecided", "does not hold", "does not hold"]),
        ({("rotary", 128, 1.0, 15): 0.25}, ["holds", "holds", "does not hold"]),
        (
            {("rotary", 128, 1.0, 15): 0.25, ("sinusoidal", 128, 1.0, 10): 0.8},
            ["holds", "is undecided", "does not hold"],
        ),
        ({("rotary", 0, 3.0, 15): 0.1, ("sinusoidal", 0, 3.0, 15): 0.03}, ["holds", "does not hold", "holds"]),
    ],
)
def test_the_claims_of_positions_turn_with_the_rows(monkeypatch, shares, expected):
    monkeypatch.setattr(positions, "records", lambda study: {"": []})
    said = positions.text(lengths(shares))
    assert re.findall(r"claim \*\*(.*?)\*\*", said) == expected
