"""The notebook of docs/: its cells run in order, made short, and its outputs are there and small."""

import json

import jax
import pytest

from small_runs import ROOT, new_process

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
