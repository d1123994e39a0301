"""The tour of docs/ is a script whose assertions hold, and a notebook."""

import runpy

import jax
import pytest

from small_runs import ROOT

TOUR = ROOT / "docs/tour.py"


@pytest.mark.thorough  # every time the tests of layers/ and models/ have these formulas
def test_every_formula_of_the_tour_equals_fxf(capsys):
    with jax.numpy_rank_promotion("allow"):
        names = runpy.run_path(str(TOUR))
    assert names["answer"] == [1, 2, 3, 4]
    assert capsys.readouterr().out.endswith("[9, 10] → [1, 2, 3, 4]\n")
