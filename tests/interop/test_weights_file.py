import numpy as np
import pytest

from fxf.base.errors import UserError
from fxf.base.weights import flatten, leaves
from fxf.interop.weights_file import check_shapes, read_weights, save_weights, write_tensors
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


def test_a_changed_byte_is_noticed(saved):
    path, _ = saved
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"params.safetensors: damaged: its arrays differ"):
        read_weights(path)


def test_a_file_of_others_without_a_digest_is_read(saved, tmp_path):
    params = saved[1]
    write_tensors(tmp_path / "other.safetensors", {k: np.asarray(v) for k, v in flatten(params).items()}, {})
    found = read_weights(tmp_path / "other.safetensors")
    for name, value in flatten(params).items():
        np.testing.assert_array_equal(found[name], value)
