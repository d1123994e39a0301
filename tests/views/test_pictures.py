"""Pictures of attention for trackers: one square for each pair of tokens, darker for more, a scale for each head."""

from types import SimpleNamespace

import numpy as np

from fxf.views import whole_run as module
from fxf.views.whole_run import DARK, WHITE, pictures


def attention(name, row_name="query"):
    heads = [{"values": [100.0, 0.0, 25.0, 50.0]}, {"values": [1.0, 2.0, 0.0, 0.0]}]
    return {"name": name, "rowName": row_name, "rows": ["a", "b"], "columns": ["a", "b"], "heads": heads}


def test_each_layer_of_the_first_example_is_a_picture_with_its_heads_side_by_side(monkeypatch, tmp_path):
    maps = [attention("positions", "position"), attention("block_0/attention, the first 2 of 9 heads")]
    inside = {"examples": [{"maps": maps}, {"maps": [attention("block_1/attention")]}]}
    monkeypatch.setattr(module, "read", lambda folder: SimpleNamespace(inside=inside))
    ((tag, picture),) = pictures(tmp_path).items()
    assert tag == "attention/block_0/attention"
    assert picture.dtype == np.uint8 and picture.shape[1] == 2 * picture.shape[0]
    size = picture.shape[0]
    centres = [[picture[size // 4, size // 4], picture[size // 4, 3 * size // 4]],
               [picture[size // 4, size + size // 4], picture[size // 4, size + 3 * size // 4]]]  # fmt: skip
    np.testing.assert_array_equal(centres, [[DARK, WHITE], [((WHITE + DARK) / 2).round(), DARK]])


def test_a_run_whose_page_shows_nothing_inside_has_no_pictures(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "read", lambda folder: SimpleNamespace(inside={}))
    assert pictures(tmp_path) == {}
