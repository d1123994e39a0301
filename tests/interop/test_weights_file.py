import numpy as np
import pytest

from fxf.base.errors import UserError
from fxf.base.weights import flatten, leaves
from fxf.interop.weights_file import check_shapes, read_weights, save_weights
from helpers import small_model

safetensors = pytest.importorskip("safetensors.numpy")


@pytest.fixture
def saved(tmp_path):
    params = small_model(n_layers=2)[1]
    save_weights(tmp_path / "params.safetensors", params)
    return tmp_path / "params.safetensors", params


def test_params_come_back_bit_for_bit(saved):
    path, params = saved
    loaded, expected = read_weights(path), flatten(params)
    assert loaded.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(loaded[name], value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"d_ff": 12}, r"blocks/0/feed_forward/up has shape \[6, 11\]; expected \[6, 12\]"),
        ({"norm": "rms"}, "blocks/0/attention_norm/bias is not a weight of this model; did you mean"),
        ({"gated": True}, r"blocks/0/feed_forward/gate is absent; expected shape \[6, 11\]"),
    ],
)
def test_weights_of_another_model_are_refused(changes, message):
    found, expected = (dict(leaves(small_model(n_layers=2, **keys)[0].spec)) for keys in ({}, changes))
    with pytest.raises(UserError, match=f"^there: {message}"):
        check_shapes("there", *({name: w.shape for name, w in each.items()} for each in (found, expected)))
