"""A translator in CTranslate2 (Klein et al. 2020), in float32, with fxf's weights."""

import tempfile
from collections.abc import Sequence
from typing import Any

import ctranslate2
import jax
import jax.numpy as jnp
import numpy as np
from ctranslate2.specs import transformer_spec

from fxf.base.weights import Params
from fxf.data.tokenizer import BOS, EOS, UNK
from fxf.layers.positions import interleaved
from fxf.models.encoder_decoder import EncoderDecoderConfig


class CTranslator:
    """CTranslate2's beam search. It takes tokens as strings: here, the ids of fxf's tokens."""

    def __init__(self, config: EncoderDecoderConfig, params: Params, threads: int, batches: int = 1) -> None:
        """Reads the weights.

        Args:
          batches: number of batches translated in parallel, each with its share of the threads.
        """
        spec = _spec(config, jax.tree.map(np.asarray, params))
        shares = {"inter_threads": batches, "intra_threads": max(threads // batches, 1)}
        with tempfile.TemporaryDirectory() as folder:
            spec.validate()
            spec.optimize()
            spec.save(folder)
            self.translator = ctranslate2.Translator(folder, compute_type="float32", **shares)

    def beam_search(
        self, sources: Sequence[Sequence[int]], *, width: int, max_tokens: int, least: int = 1, at_once: int = 0
    ) -> list[list[int]]:
        """Returns the tokens of the best hypothesis for each source, without the end token.

        Args:
          least: minimum number of tokens before the end token.
          at_once: sentences per batch, of similar lengths; 0 for all.
        """
        strings = [[str(token) for token in source] for source in sources]
        options = {"beam_size": width, "max_decoding_length": max_tokens, "min_decoding_length": least}
        found = self.translator.translate_batch(strings, max_batch_size=at_once, **options)
        return [[int(token) for token in result.hypotheses[0]] for result in found]


def _spec(config: EncoderDecoderConfig, params: Params) -> Any:
    spec = transformer_spec.TransformerSpec.from_config(
        config.n_layers, config.n_heads, pre_norm=True, no_final_norm=not config.final_norm
    )
    table = params["embedding"]["table"]
    for name, part in (("encoder", spec.encoder), ("decoder", spec.decoder)):
        embeddings = part.embeddings[0] if isinstance(part.embeddings, list) else part.embeddings
        embeddings.weight = table
        part.scale_embeddings = True  # times the square root of the width
        part.position_encodings.encodings = np.array(interleaved(jnp.arange(config.max_len), config.d_model))
        if config.final_norm:
            _norm(part.layer_norm, params[name]["norm"])
        for i, layer in enumerate(part.layer):
            _block(layer, params[name]["blocks"][str(i)])
    spec.decoder.projection.weight = table
    vocabulary = [str(token) for token in range(len(table))]
    spec.register_source_vocabulary(vocabulary)
    spec.register_target_vocabulary(vocabulary)
    spec.config.decoder_start_token, spec.config.eos_token, spec.config.unk_token = str(BOS), str(EOS), str(UNK)
    spec.config.layer_norm_epsilon = config.norm_epsilon
    return spec


def _block(layer: Any, block: Params) -> None:
    """Gives a layer the weights of one block."""
    _attention(layer.self_attention, block["attention"], [("query", "key", "value")])
    _norm(layer.self_attention.layer_norm, block["attention_norm"])
    if "cross_attention" in block:
        _attention(layer.attention, block["cross_attention"], [("query",), ("key", "value")])
        _norm(layer.attention.layer_norm, block["cross_attention_norm"])
    _linear(layer.ffn.linear_0, block["feed_forward"]["up"], block["feed_forward"]["up_bias"])
    _linear(layer.ffn.linear_1, block["feed_forward"]["down"], block["feed_forward"]["down_bias"])
    _norm(layer.ffn.layer_norm, block["feed_forward_norm"])


def _attention(attention: Any, weights: Params, groups: list[tuple[str, ...]]) -> None:
    """Gives an attention layer its weights; each group of matrices becomes one."""
    for linear, names in zip(attention.linear, groups, strict=False):
        matrices = [weights[name].reshape(len(weights[name]), -1) for name in names]
        biases = [weights[f"{name}_bias"].ravel() for name in names]
        _linear(linear, np.concatenate(matrices, 1), np.concatenate(biases))
    output = weights["output"]
    _linear(attention.linear[-1], output.reshape(-1, output.shape[-1]), weights["output_bias"])


def _linear(linear: Any, matrix: np.ndarray, bias: np.ndarray) -> None:
    linear.weight, linear.bias = np.ascontiguousarray(matrix.T), bias


def _norm(norm: Any, weights: Params) -> None:
    norm.gamma, norm.beta = weights["scale"], weights["bias"]
