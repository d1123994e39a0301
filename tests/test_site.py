"""The documentation as a site, its tour and its notebook, whose cells run in order, made short."""

import json
import re
import runpy
import subprocess
import sys

import jax
import pytest

from small_runs import ROOT, new_process


def test_every_page_has_an_entry():
    listed = set(re.findall(r"\S+\.md", (ROOT / "docs/mkdocs.yml").read_text()))
    assert {f"docs/{path.name}" for path in ROOT.glob("docs/*.md")} <= listed
    assert all((ROOT / page).is_file() for page in listed)


@pytest.mark.thorough  # with libraries that are not among the requirements of the tests
def test_the_site_is_built_without_a_warning_and_loads_nothing_from_elsewhere():
    built = subprocess.run([sys.executable, "docs/site.py"], cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    pages = list((ROOT / "build/site").rglob("*.html"))
    assert len(pages) > 200
    for page in pages:
        assert not re.search(r'<(script|img)[^>]+src="https?:|<link[^>]+stylesheet[^>]+https?:', page.read_text())


TOUR = ROOT / "docs/tour.py"


@pytest.mark.thorough  # every time the tests of layers/ and models/ have these formulas
def test_every_formula_of_the_tour_equals_fxf(capsys):
    with jax.numpy_rank_promotion("allow"):
        names = runpy.run_path(str(TOUR))
    assert names["answer"] == [1, 2, 3, 4]
    assert capsys.readouterr().out.endswith("[9, 10] → [1, 2, 3, 4]\n")


NOTEBOOK = json.loads((ROOT / "docs/first_run.ipynb").read_text())
CODE = [cell for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]


@pytest.mark.thorough  # ten seconds of compiling programs whose like other tests run
def test_the_cells_run_from_data_to_a_picture(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    names = {}
    with new_process(), jax.numpy_rank_promotion("allow"):
        for cell in CODE:
            code = "".join(cell["source"]).replace("steps = 800\n", "steps = 4\n")
            exec(code.replace("20_000", "500").replace("d_model=64, d_ff=128", "d_model=8, d_ff=9"), names)
    figures, plt = names["figures"], names["plt"]
    curve, heads = (plt.figure(number).axes for number in plt.get_fignums())
    plt.close("all")
    assert figures["steps"] == 4 and curve[0].lines[0].get_xdata().tolist() == [1, 2, 3, 4]
    assert len(heads) == 4 and all(axes.images[0].get_array().shape == (15, 15) for axes in heads)
    assert (tmp_path / "runs/words/report.html").exists()


def test_it_shows_what_its_cells_have_made():
    assert [cell["execution_count"] for cell in CODE] == list(range(1, len(CODE) + 1))
    kinds = [kind for cell in CODE for output in cell["outputs"] for kind in output["data"]]
    assert kinds.count("image/png") == 2 and len(json.dumps(NOTEBOOK)) < 100_000
    (answers,) = (cell["outputs"] for cell in CODE if "run.generate" in "".join(cell["source"]))
    assert "facade edacaf" in answers[0]["data"]["text/plain"][0]
