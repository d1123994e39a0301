"""Each model.attention_implementation equals the default on its devices, and is refused on others.

Here the TPU kernel is interpreted, and JAX's generic attention replaces cuDNN's: those tests check the calls to cuDNN,
which itself needs an NVIDIA GPU.
"""

import functools
from contextlib import nullcontext

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel

from closeness import assert_close, largest_of
from flash_models import B, S, T, a_batch, with_gradients
from fxf.base.devices import compiling_for
from fxf.base.errors import UserError
from fxf.base.weights import shapes
from fxf.layers import chunked_attention, cudnn_attention, flash_attention, splash_attention
from fxf.layers.attention import Attention
from fxf.layers.config import TransformerConfig
from fxf.layers.flash_attention import kernel_of
from fxf.layers.kinds import ATTENTIONS, layer_of
from fxf.layers.layer import whole_rows
from fxf.layers.positions import places_of
from fxf.models import MODELS
from fxf.models.transformer_lm import MaskedLMConfig, TransformerLMConfig, masked_lm, transformer_lm
from fxf.runs.experiment import build, default_config
from fxf.training.gradient import batch_loss
from helpers import VOCAB_SIZE, applied, attention_of, marked, places, random_params, random_tokens, refused, small

FLASH = {"d_model": 24, "dtype": "bfloat16", "positions": "rotary", "attention_implementation": "flash"}
POSITIONS = np.concatenate([np.arange(n, dtype=np.int32) for n in (4, 1, 6)]) * np.ones((B, 1), np.int32)
DOCUMENTS = {"positions": POSITIONS, "documents": np.cumsum(POSITIONS == 0, axis=1, dtype=np.int32)}


class Mixing(Attention):
    """Each query also gets the scores of the one before."""

    cached = False

    def weigh(self, params, scores_BHTC, bias_BHTC):
        return super().weigh(params, scores_BHTC + jnp.roll(scores_BHTC, 1, 2), bias_BHTC)


def use_on_cpu(monkeypatch, kernel, unrolled=False):
    """Lets this CPU run a kernel in any type; returns the arguments of each call to cuDNN's.

    Sequences are split into chunks of four queries, unrolled if `unrolled`, else in a loop; for a TPU's kernel, into
    blocks of 128.
    """
    asked, compute = [], jax.nn.dot_product_attention

    def recorded(q, k, v, **options):
        asked.append({"lengths": (q.shape[1], k.shape[1]), **options})
        return compute(q, k, v, **options)

    monkeypatch.setitem(ATTENTIONS, "mixing", Mixing)
    monkeypatch.setattr(chunked_attention, "CHUNK", 4)
    monkeypatch.setattr(chunked_attention, "UNROLLED", 3 if unrolled else 2)
    monkeypatch.setattr(TransformerConfig, "FLASH", {})
    monkeypatch.setattr(jax.nn, "dot_product_attention", recorded)
    monkeypatch.setattr(cudnn_attention, "IMPLEMENTATION", "xla")
    interpreted = functools.partial(splash_attention_kernel.make_splash_mha, interpret=True)
    monkeypatch.setattr(splash_attention_kernel, "make_splash_mha", interpreted)
    monkeypatch.setattr(splash_attention, "BLOCKS", (128,))
    monkeypatch.setitem(flash_attention.KERNELS, "cpu", splash_attention if kernel == "splash" else cudnn_attention)
    return asked


@pytest.mark.parametrize("case", marked("implementations of attention"))
def test_outputs_and_gradients_are_those_of_the_default(case, monkeypatch):
    kernel, config_class, rng = case["kernel"], MODELS[case["model"]].config, np.random.default_rng(0)
    known = ("kernel", "unrolled", "model", "length", "documents", "prefix", "gradient")
    changes = {key: value for key, value in case.items() if key not in known}
    asked = use_on_cpu(monkeypatch, kernel, case.get("unrolled", False))
    names = ("xla", "chunked" if kernel == "chunked" else "flash")
    config, _ = configs = [small(config_class, **changes, attention_implementation=name) for name in names]
    batch = a_batch(config_class, case.get("length", T)) | (DOCUMENTS if case.get("documents") else {})
    batch |= {"order": np.arange(T)[None].clip(case["prefix"])} if "prefix" in case else {}
    name, key = "attention", jax.random.key(0) if config.position_range else None
    options = {"places": places_of(config, batch, key, causal=case["model"] == "transformer_lm")}
    is_read = batch.get("input_mask", np.ones((B, 1)))[..., None]  # what padding reads is free
    if case["model"] == "encoder_decoder":
        name, side = "cross_attention", {"inputs": batch["source"], "input_mask": batch["source_mask"]}
        z = rng.normal(size=(B, S, config.d_model)).astype(np.float32)
        options["source"] = z, places_of(config, side, None, causal=False)
    kinds = [layer_of(each, name) for each in configs]
    params, x = random_params(kinds[0].spec()), rng.normal(size=(*batch["inputs"].shape, config.d_model))
    reads = [lambda x, kind=kind: applied(kind, params, x, **options) * is_read for kind in kinds]
    of_both = jax.jit(lambda x: [with_gradients(read, x) if case.get("gradient", True) else read(x) for read in reads])
    expected, found = of_both(x.astype(np.float32))
    assert_close(found, expected, largest=largest_of(expected))
    assert bool(asked) == (kernel == "cudnn") and all(size % 2 == 0 for call in asked for size in call["lengths"])


def test_attention_dropout_has_its_own_bits_in_each_chunk(monkeypatch):
    use_on_cpu(monkeypatch, "chunked")
    options = {"positions": "none", "attention_dropout": 0.5, "attention_implementation": "chunked"}
    layer, x = attention_of(small(**options)), np.ones((1, 12, 6), np.float32)
    params, same = random_params(layer.spec()), places(12, causal=False)  # so all queries see the same
    drawn = jax.jit(lambda seed: applied(layer, params, x, rng=jax.random.key(seed), places=same)[0])
    row, other = np.asarray(drawn(0)), drawn(1)
    assert (row != other).any() and (row[4:8] != row[8:12]).any()


@pytest.mark.thorough
def test_memory_of_chunks_grows_with_the_length_and_not_with_its_square():
    def planned_bytes(length, implementation):
        """Returns the memory of a gradient step without its arguments."""
        config = small(n_layers=1, max_len=length, positions="none", attention_implementation=implementation)
        model, batch = transformer_lm(config, VOCAB_SIZE), a_batch(TransformerLMConfig, length)
        step = jax.jit(jax.grad(lambda params: batch_loss(model, params, batch)[0]))
        return step.lower(shapes(model.spec)).compile().memory_analysis().temp_size_in_bytes

    half, whole = (planned_bytes(length, "chunked") for length in (2048, 4096))
    assert whole <= 2.3 * half and planned_bytes(2048, "xla") > 2 * half


def test_causal_attention_is_requested_as_such_without_an_array_of_all_pairs(monkeypatch):
    """This holds in each block, whatever the windows of the others."""
    asked = use_on_cpu(monkeypatch, "cudnn")
    changes = {"window": 3, "n_layers": 4, "global_every": 2, "remat": "full", "scan_blocks": True}
    model = transformer_lm(small(attention_implementation="flash", **changes), VOCAB_SIZE)
    jax.eval_shape(model.apply, random_params(model.spec), a_batch(TransformerLMConfig))
    windows = [*dict.fromkeys(call["local_window_size"] for call in asked)]  # a loop over blocks is traced twice
    assert windows == [(2, 0), None]
    assert all(call["is_causal"] and not {"bias", "mask"} & set(call) for call in asked)


def test_padding_and_the_bias_of_positions_are_passed_as_arrays(monkeypatch):
    asked = use_on_cpu(monkeypatch, "cudnn")
    model = masked_lm(small(MaskedLMConfig, positions="alibi", attention_implementation="flash"), VOCAB_SIZE)
    jax.eval_shape(model.apply, random_params(model.spec), a_batch(MaskedLMConfig))
    even = T + 1
    assert not asked[0]["is_causal"] and asked[0]["bias"].shape == (1, 3, even, even)
    assert asked[0]["mask"].shape == (B, 3, even, even) and asked[0]["mask"].dtype == bool


def test_a_query_that_sees_nothing_does_not_change_the_others(monkeypatch):
    """Covers padding whose window has only padding, and a row without tokens."""
    use_on_cpu(monkeypatch, "cudnn")
    flash, xla = (attention_of(small(window=2, attention_implementation=name)) for name in ("flash", "xla"))
    params, x = random_params(xla.spec()), np.random.default_rng(0).normal(size=(2, 7, 6)).astype(np.float32)
    filled = places(7, causal=False, documents=jnp.asarray(np.arange(7) < np.array([[3], [0]]), jnp.int32))
    alone = places(3, causal=False)
    of_both = lambda x: (applied(flash, params, x, places=filled), applied(xla, params, x[:1, :3], places=alone))  # noqa: E731
    padded, whole = jax.jit(of_both)(x)
    assert_close(padded[:1, :3], whole)
    assert np.isfinite(padded).all()


OF_ROWS = {
    "packed": jnp.asarray(np.sort(np.random.default_rng(1).integers(1, 10, (2, 261)))),
    "padded": jnp.asarray(np.arange(261) < np.array([[261], [70]]), jnp.int32),
}


@pytest.mark.parametrize("case", marked("splash attention"))
def test_outputs_and_gradients_of_a_tpus_kernel_are_those_of_the_default(case, monkeypatch):
    use_on_cpu(monkeypatch, "splash")
    causal, documents, length, *_ = case.values()  # two or three blocks, the last not full
    changes = {key: value for key, value in case.items() if key not in ("causal", "documents", "length")}
    layer = attention_of(small(n_heads=2, n_kv_heads=1, d_model=6, **changes))
    rows, rng = OF_ROWS[documents][:, :length] if documents else None, np.random.default_rng(0)
    where = places(length, causal, rows)
    arrays = [rng.normal(size=(2, n, length, 3)).astype(np.float32) for n in (2, 1, 1)]
    is_token = 1 if where.documents is None else (where.documents > 0)[:, None, :, None]  # what padding reads is free
    default = lambda q, *memory: layer.read({}, q, memory, layer.mask({}, where, where)) * is_token  # noqa: E731
    kernel = lambda q, *memory: splash_attention.attend(layer, {}, q, memory, where, where) * is_token  # noqa: E731
    compute = with_gradients if causal else lambda attend, *arrays: jax.jit(attend)(*arrays)
    expected, found = (compute(attend, *arrays) for attend in (default, kernel))
    assert_close(found, expected, largest=largest_of(expected))


def test_a_tpus_kernel_refuses_tokens_out_of_order(monkeypatch):
    use_on_cpu(monkeypatch, "splash")
    layer, picked = attention_of(small(attention_implementation="flash")), places(7).pick(lambda x: x[:, 2:])
    with pytest.raises(UserError, match=r"'flash' on a TPU reads tokens in the order 0, 1, …, .* set it to 'chunked'"):
        applied(layer, random_params(layer.spec()), np.ones((2, 5, 6), np.float32), places=picked)


@pytest.mark.parametrize(("window", "n_parts", "swaps"), [(4096, 8, False), (0, 8, True)])
def test_blocks_of_a_long_row_have_at_most_a_tenth_more_pairs_than_are_visible(window, n_parts, swaps):
    length = 32768
    kernel = splash_attention._kernel((length, length), True, window, 0.0, n_parts, swaps)
    sizes, blocks = kernel.kwargs["block_sizes"], np.count_nonzero(kernel.fwd_mask_info.block_mask)
    seen = np.minimum(np.arange(length) + 1, window or length).sum()
    assert seen <= blocks * sizes.block_q * sizes.block_kv <= 1.1 * seen


class Device:
    """A device, as JAX describes it."""

    def __init__(self, platform, kind="", capability=""):
        self.platform, self.device_kind, self.compute_capability = platform, kind or platform, capability


@pytest.mark.parametrize(("case", "message"), refused("flash attention on devices"))
def test_a_feature_that_the_target_devices_lack_is_named(case, message):
    device = Device(*case.pop("device").split(", "))
    with compiling_for([device]), pytest.raises(UserError, match=f"^{message}") if message else nullcontext():
        kernel_of(small(**{**FLASH, **case}))


class Custom(Attention):
    def seen(self, queries, keys, reads=None):
        return None


def test_a_kind_with_its_own_weights_is_refused_if_only_the_block_pattern_names_it():
    layer, message = Custom(small(**FLASH)), r"kernel of 'flash' has no Custom\.seen; set it to"
    with compiling_for([Device("gpu", "NVIDIA H100", "9.0")]), pytest.raises(UserError, match=message):
        jax.eval_shape(layer.apply, random_params(layer.spec()), np.ones((2, 5, 24), "bfloat16"), whole_rows(5))


def test_training_on_another_device_is_refused_and_xlas_attention_reads_the_weights():
    config = default_config("reversal")
    config.model.update(n_layers=1, n_heads=3, d_ff=8, **FLASH)
    experiment = build(config.to_dict())
    params, batch = random_params(experiment.model.spec), {"inputs": random_tokens((2, 5))}
    for use in (experiment.layout, lambda: jax.eval_shape(experiment.model.apply, params, batch)):
        with pytest.raises(UserError, match="flash needs an NVIDIA GPU or a TPU"):
            use()
    by_xla = experiment.with_model(attention_implementation="xla").model
    assert jax.eval_shape(by_xla.apply, params, batch).shape == (2, 5, experiment.task.vocab_size)
