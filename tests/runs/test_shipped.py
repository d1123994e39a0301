"""Configs that come with fxf, by name."""

import pytest

from fxf.errors import UserError
from fxf.runs.configs import folder, located, names
from small_runs import script


def test_every_config_has_the_name_of_its_file():
    assert {"reversal", "translation", "studies/positions"} <= set(names())
    assert located("reversal:example0") == (f"{folder()}/reversal.py", ["example0"])
    assert located("studies/positions") == (f"{folder()}/studies/positions.py", [])


@pytest.mark.parametrize("config", ["reversl", "/nowhere/reversal", "", ":x", "absent.py"])
def test_what_is_no_name_and_no_file_is_one_line(config):
    with pytest.raises(UserError, match=r"^--config: no file "):
        located(config)


def test_a_file_is_meant_before_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reversal").write_text("")
    assert located("reversal:x") == ("reversal", ["x"])


def test_a_verb_reads_a_config_by_its_name():
    listed = script("keys", "model", "--config=reversal:example0")
    assert (listed.returncode, listed.stderr) == (0, "")
