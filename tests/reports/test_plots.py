"""The plot over the runs of a sweep: what is drawn, read from the figure."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from fxf.reports.plots import choose_x, plot_lines
from fxf.sweeps.points import grid

LAYERS, RATE = "model.n_layers", "optimizer.learning_rate"


@pytest.fixture
def drawn(monkeypatch, tmp_path):
    """Returns `drawn(rows, keys, x)`: the axes and the legend's labels of the plot of the figure `y`."""
    figures = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, path, **_: figures.append(figure))

    def draw(rows, keys, x):
        plot_lines(tmp_path / "plot.png", rows, keys, x, "y")
        labels = [text.get_text() for legend in figures[-1].legends for text in legend.get_texts()]
        return figures[-1].axes[0], labels

    return draw


def test_x_is_the_numeric_key_with_most_values_and_the_seed_last():
    rows = grid({LAYERS: [1, 2], RATE: [0.1, 0.2, 0.4], "model.block": ["a", "b", "c", "d"], "seed": range(5)})
    keys = list(rows[0])
    assert choose_x(rows, keys) == RATE
    assert choose_x(rows, ["model.block", "seed"]) == "model.block"
    assert choose_x(rows, ["seed"]) == "seed"


def test_a_line_is_the_mean_over_seeds_with_bars_from_the_lowest_to_the_highest(drawn):
    points = grid({LAYERS: [3, 1], RATE: [0.4, 0.1], "seed": [0, 1]})
    rows = [{**p, "y": 10 * p[LAYERS] + p[RATE] + p["seed"]} for p in points]
    axes, labels = drawn(rows, list(points[0]), RATE)
    assert labels == ["n_layers=3", "n_layers=1"]
    for line, layers in zip(axes.get_lines(), (3, 1), strict=True):
        assert line.get_xdata().tolist() == [0.1, 0.4]
        assert line.get_ydata() == pytest.approx([10 * layers + 0.6, 10 * layers + 0.9])
    bars = np.concatenate(axes.collections[0].get_segments())
    assert (bars[:, 1].min(), bars[:, 1].max()) == pytest.approx((30.1, 31.4))
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("learning rate", "y")
    assert "2 seeds" in axes.figure.get_suptitle()


@pytest.mark.parametrize("lost", [{"status": "diverged"}, {"y": float("nan")}])
@pytest.mark.parametrize("name", ["model.block", LAYERS])
def test_a_run_that_diverged_is_a_cross_at_the_top_and_in_no_mean(drawn, lost, name):
    rows = [{name: i, "seed": seed, "y": i + seed} for i in (1, 3) for seed in (0, 1)]
    axes, _ = drawn([*rows, {name: 3, "seed": 2, **lost}], [name, "seed"], name)
    marks, cross = axes.get_lines()
    assert (marks.get_ydata().tolist(), cross.get_marker()) == ([1.5, 3.5], "x")
    assert (cross.get_xdata().tolist(), axes.figure.get_suptitle()[-14:]) == ([3], "a run diverged")
    assert axes.get_ylim()[1] < 5
