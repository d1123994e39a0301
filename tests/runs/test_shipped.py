"""Configs that come with fxf, by name."""

from fxf.runs.configs import folder, located, names


def test_every_config_has_the_name_of_its_file():
    assert {"reversal", "translation", "studies/positions"} <= set(names())
    assert located("reversal:example0") == (f"{folder()}/reversal.py", ["example0"])
    assert located("studies/positions") == (f"{folder()}/studies/positions.py", [])


def test_a_file_is_meant_before_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reversal").write_text("")
    assert located("reversal:x") == ("reversal", ["x"])
