import jax
import numpy as np
import pytest

from fxf.errors import UserError
from fxf.interop.weights_file import load_weights, save_weights, write_tensors
from fxf.weights import flatten
from helpers import small_model

safetensors = pytest.importorskip("safetensors.numpy")


@pytest.fixture
def saved(tmp_path):
    model, params = small_model(n_layers=2)
    save_weights(tmp_path / "params.safetensors", params)
    return tmp_path / "params.safetensors", model, params


def test_params_come_back_bit_for_bit(saved):
    path, model, params = saved
    loaded = load_weights(path, model.spec)
    assert jax.tree.structure(loaded) == jax.tree.structure(params)
    jax.tree.map(np.testing.assert_array_equal, loaded, params)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"d_ff": 12}, r"blocks/0/feed_forward/up has shape \[6, 11\]; expected \[6, 12\]"),
        ({"norm": "rms"}, "blocks/0/attention_norm/bias is not a weight of this model; did you mean"),
        ({"gated": True}, r"blocks/0/feed_forward/gate is absent; expected shape \[6, 11\]"),
    ],
)
def test_weights_of_another_model_are_refused(saved, changes, message):
    with pytest.raises(UserError, match=f"params.safetensors: {message}"):
        load_weights(saved[0], small_model(n_layers=2, **changes)[0].spec)


def test_a_changed_byte_is_noticed(saved):
    path, model, _ = saved
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"params.safetensors: damaged: its arrays differ"):
        load_weights(path, model.spec)


def test_a_file_of_others_without_a_digest_is_read(saved, tmp_path):
    _, model, params = saved
    write_tensors(tmp_path / "other.safetensors", {k: np.asarray(v) for k, v in flatten(params).items()}, {})
    jax.tree.map(np.testing.assert_array_equal, load_weights(tmp_path / "other.safetensors", model.spec), params)
