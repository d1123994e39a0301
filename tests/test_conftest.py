"""What the tests promise of themselves: the same cases each time, and no test skipped where all must run."""

import importlib

from hypothesis import given, settings
from hypothesis import strategies as st


def drawn_cases():
    cases = []

    @settings(derandomize=True, max_examples=100)
    @given(st.integers(0, 10**9))
    def draw(number):
        cases.append(number)

    draw()
    return cases


def test_the_cases_of_a_property_do_not_depend_on_what_was_imported_before(tmp_path, monkeypatch):
    first = drawn_cases()
    assert len(set(first)) > 50
    (tmp_path / "full_of_numbers.py").write_text(f"NUMBERS = {[7919 * i for i in range(300)]}\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("full_of_numbers")
    assert drawn_cases() == first
