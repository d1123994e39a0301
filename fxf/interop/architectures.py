"""The names of GPT-2, BERT and Marian in fxf and in the `transformers` library, and all models by name."""

import jax.numpy as jnp

from fxf.interop.architecture import Architecture, linear_maps, norms
from fxf.interop.rotary_decoders import ROTARY_DECODERS
from fxf.layers.position_kinds import halves

_GPT2_BLOCK = "transformer.h.{}"
GPT2 = Architecture(
    name="GPT2LMHeadModel",
    model="transformer_lm",
    keys=(
        ("n_layers", "n_layer"),
        ("d_model", "n_embd"),
        ("d_ff", "n_inner"),
        ("n_heads", "n_head"),
        ("max_len", "n_positions"),
        ("activation", "activation_function"),
        ("norm_epsilon", "layer_norm_epsilon"),
        ("dropout", "resid_pdrop"),
        ("embedding_dropout", "embd_pdrop"),
        ("attention_dropout", "attn_pdrop"),
    ),
    section={
        "norm_epsilon_in": "variance",
        "positions": "learned",
        "attention_bias": "all",
        "tied_embeddings": True,
    },
    config={
        "is_causal": True,
        "tie_word_embeddings": True,
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "add_cross_attention": False,
    },
    tensors={
        "embedding/table": "transformer.wte.weight",
        "embedding/positions": "transformer.wpe.weight",
        **linear_maps("blocks/attention", f"{_GPT2_BLOCK}.attn", dict.fromkeys(("query", "key", "value"), "c_attn")),
        **linear_maps("blocks/attention", f"{_GPT2_BLOCK}.attn", {"output": "c_proj"}),
        **linear_maps("blocks/feed_forward", f"{_GPT2_BLOCK}.mlp", {"up": "c_fc", "down": "c_proj"}),
        **norms("blocks", _GPT2_BLOCK, {"attention_norm": "ln_1", "feed_forward_norm": "ln_2"}),
        "norm/scale": "transformer.ln_f.weight",
        "norm/bias": "transformer.ln_f.bias",
    },
    if_null={"n_inner": lambda section: 4 * section["d_model"]},
    transposed=False,
    renamed=((r"^(?=(wte|wpe|ln_f|h)\.)", "transformer."),),
    ignored=r"\.attn\.(masked_)?bias$|^lm_head\.weight$",
)

_BERT_BLOCK = "bert.encoder.layer.{}"
_BERT_HEAD = "cls.predictions.transform"
BERT = Architecture(
    name="BertForMaskedLM",
    model="masked_lm",
    keys=(
        ("n_layers", "num_hidden_layers"),
        ("d_model", "hidden_size"),
        ("d_ff", "intermediate_size"),
        ("n_heads", "num_attention_heads"),
        ("max_len", "max_position_embeddings"),
        ("segments", "type_vocab_size"),
        ("activation", "hidden_act"),
        ("norm_epsilon", "layer_norm_eps"),
        ("dropout", "hidden_dropout_prob"),
        ("embedding_dropout", "hidden_dropout_prob"),
        ("attention_dropout", "attention_probs_dropout_prob"),
    ),
    section={
        "block": "post_norm",
        "final_norm": False,
        "embedding_norm": True,
        "norm_epsilon_in": "variance",
        "positions": "learned",
        "attention_bias": "all",
        "tied_embeddings": True,
        "logits_bias": True,
        "head": "transform",
    },
    config={
        "tie_word_embeddings": True,
        "is_decoder": False,
        "add_cross_attention": False,
        "position_embedding_type": "absolute",
    },
    tensors={
        "embedding/table": "bert.embeddings.word_embeddings.weight",
        "embedding/positions": "bert.embeddings.position_embeddings.weight",
        "embedding/segments": "bert.embeddings.token_type_embeddings.weight",
        **norms("embedding", "bert.embeddings", {"norm": "LayerNorm"}),
        **linear_maps("blocks/attention", f"{_BERT_BLOCK}.attention.self", {n: n for n in ("query", "key", "value")}),
        **linear_maps("blocks/attention", f"{_BERT_BLOCK}.attention.output", {"output": "dense"}),
        **norms("blocks", f"{_BERT_BLOCK}.attention.output", {"attention_norm": "LayerNorm"}),
        **linear_maps("blocks/feed_forward", _BERT_BLOCK, {"up": "intermediate.dense", "down": "output.dense"}),
        **norms("blocks", f"{_BERT_BLOCK}.output", {"feed_forward_norm": "LayerNorm"}),
        "transform/kernel": f"{_BERT_HEAD}.dense.weight",
        "transform/bias": f"{_BERT_HEAD}.dense.bias",
        **norms("transform", _BERT_HEAD, {"norm": "LayerNorm"}),
        "embedding/logits_bias": "cls.predictions.bias",
    },
    renamed=((r"LayerNorm\.gamma$", "LayerNorm.weight"), (r"LayerNorm\.beta$", "LayerNorm.bias")),
    ignored=r"^cls\.predictions\.decoder\.|^cls\.seq_relationship\.|^bert\.pooler\.|\.position_ids$",
)

_HEADS = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "out_proj"}


def _marian_blocks(stack: str, attentions: dict[str, str]) -> dict[str, str]:
    """Returns the tensors of the encoder or decoder; `attentions` maps fxf's names to those of `transformers`."""
    blocks, layer = f"{stack}/blocks", f"model.{stack}.layers.{{}}"
    norm_names = {f"{name}_norm": f"{theirs}_layer_norm" for name, theirs in attentions.items()}
    tensors = norms(blocks, layer, {**norm_names, "feed_forward_norm": "final_layer_norm"})
    for name, theirs in attentions.items():
        tensors |= linear_maps(f"{blocks}/{name}", f"{layer}.{theirs}", _HEADS)
    return tensors | linear_maps(f"{blocks}/feed_forward", layer, {"up": "fc1", "down": "fc2"})


MARIAN = Architecture(
    name="MarianMTModel",
    model="encoder_decoder",
    keys=(
        ("n_layers", "encoder_layers"),
        ("n_layers", "decoder_layers"),
        ("d_model", "d_model"),
        ("d_ff", "encoder_ffn_dim"),
        ("d_ff", "decoder_ffn_dim"),
        ("n_heads", "encoder_attention_heads"),
        ("n_heads", "decoder_attention_heads"),
        ("max_len", "max_position_embeddings"),
        ("activation", "activation_function"),
        ("dropout", "dropout"),
        ("embedding_dropout", "dropout"),
        ("attention_dropout", "attention_dropout"),
    ),
    section={
        "block": "post_norm",
        "final_norm": False,
        "norm_epsilon": 1e-5,
        "norm_epsilon_in": "variance",
        "positions": "sinusoidal_halves",
        "attention_bias": "all",
        "embeddings": "shared",
        "logits_bias": True,
    },
    config={
        "is_causal": True,
        "tie_word_embeddings": True,
        "share_encoder_decoder_embeddings": True,
        "scale_embedding": True,
        "normalize_before": False,
        "normalize_embedding": False,
        "add_final_layer_norm": False,
        "static_position_embeddings": True,
        "activation_dropout": 0.0,
        "is_encoder_decoder": True,
    },
    tensors={
        "embedding/table": "model.shared.weight",
        "embedding/logits_bias": "final_logits_bias",
        **_marian_blocks("encoder", {"attention": "self_attn"}),
        **_marian_blocks("decoder", {"attention": "self_attn", "cross_attention": "encoder_attn"}),
    },
    rows=("final_logits_bias",),
    ignored=r"\.embed_tokens\.weight$|\.embed_positions\.weight$|^lm_head\.weight$",
    computed={r"\.embed_positions\.weight$": lambda shape: halves(jnp.arange(shape[0]), shape[-1])},
)

# By the `model_type` of config.json.
ARCHITECTURES = {"gpt2": GPT2, "bert": BERT, "marian": MARIAN, **ROTARY_DECODERS}
