"""The names of Llama, Mistral, Qwen and Gemma in fxf and in the `transformers` library."""

from collections.abc import Mapping
from typing import Any

from fxf.errors import UserError
from fxf.interop.architecture import Architecture, linear_maps
from fxf.interop.rotary_keys import (
    GLOBAL,
    LOCAL,
    object_at,
    read_rotary,
    read_windows,
    rotary_keys,
    write_rotary,
    write_windows,
)

KEYS = (
    ("n_layers", "num_hidden_layers"),
    ("d_model", "hidden_size"),
    ("d_ff", "intermediate_size"),
    ("n_heads", "num_attention_heads"),
    ("n_kv_heads", "num_key_value_heads"),
    ("head_dim", "head_dim"),
    ("max_len", "max_position_embeddings"),
    ("activation", "hidden_act"),
    ("norm_epsilon", "rms_norm_eps"),
    ("attention_dropout", "attention_dropout"),
    ("tied_embeddings", "tie_word_embeddings"),
)
SECTION = {
    "norm": "rms",
    "norm_epsilon_in": "variance",
    "positions": "rotary",
    "attention_bias": "none",
    "feed_forward_bias": False,
    "gated": True,
}
DEFAULTS = {"attention_dropout": 0.0, "tie_word_embeddings": False, "attention_bias": False, "rope_theta": 10000.0}
IF_NULL = {
    "num_key_value_heads": lambda section: section["n_heads"],
    "head_dim": lambda section: section["d_model"] // max(section["n_heads"], 1),
}

BLOCK = "model.layers.{}"
TENSORS = {
    "embedding/table": "model.embed_tokens.weight",
    **linear_maps(
        "blocks/attention",
        f"{BLOCK}.self_attn",
        {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "o_proj"},
    ),
    **linear_maps("blocks/feed_forward", f"{BLOCK}.mlp", {"gate": "gate_proj", "up": "up_proj", "down": "down_proj"}),
    "blocks/attention_norm/scale": f"{BLOCK}.input_layernorm.weight",
    "blocks/feed_forward_norm/scale": f"{BLOCK}.post_attention_layernorm.weight",
    "norm/scale": "model.norm.weight",
    "final/kernel": "lm_head.weight",
}
NORMS_OF_HEADS = {
    "blocks/attention/query_scale": f"{BLOCK}.self_attn.q_norm.weight",
    "blocks/attention/key_scale": f"{BLOCK}.self_attn.k_norm.weight",
}
IGNORED = r"\.rotary_emb\.inv_freq$|^lm_head\.weight$"


def _read(theirs: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Returns the values of rotary positions and biases, which all these models write alike."""
    section = {
        **read_rotary(rotary_keys(theirs, where), theirs, where),
        "final_bias": bool(theirs["tie_word_embeddings"]),
    }
    return {**section, "attention_bias": "all"} if theirs["attention_bias"] else section


def _write(section: Any) -> dict[str, Any]:
    return {**write_rotary(section), "attention_bias": section.attention_bias in ("all", "output")}


def _read_llama(theirs: Mapping[str, Any], where: str) -> dict[str, Any]:
    return {**_read(theirs, where), "feed_forward_bias": theirs["mlp_bias"]}


def _read_mistral(theirs: Mapping[str, Any], where: str) -> dict[str, Any]:
    return {**_read(theirs, where), "window": theirs["sliding_window"] or 0}


def _read_qwen(theirs: Mapping[str, Any], where: str) -> dict[str, Any]:
    section, types = _read(theirs, where), theirs.get("layer_types")
    if not theirs["use_sliding_window"] or theirs["sliding_window"] is None:
        if isinstance(types, list) and LOCAL in types:
            raise UserError(f"{where}: layer_types: {LOCAL} without use_sliding_window and a sliding_window")
        return section
    if types is None and theirs["max_window_layers"] != 0:
        n_first = theirs["max_window_layers"]
        if type(n_first) is int and n_first >= theirs["num_hidden_layers"]:
            return section
        raise UserError(f"{where}: max_window_layers: fxf has windows in all blocks, so 0 here; got {n_first!r}")
    return {**section, **read_windows(theirs, where)}


def _write_qwen(section: Any) -> dict[str, Any]:
    n_first = 0 if section.window else section.n_layers
    windows = {"use_sliding_window": section.window > 0, "max_window_layers": n_first, **write_windows(section)}
    return {**_write(section), **windows}


def _read_gemma2(theirs: Mapping[str, Any], where: str) -> dict[str, Any]:
    scalar = theirs["query_pre_attn_scalar"]
    if type(scalar) not in (int, float) or not scalar > 0:
        raise UserError(f"{where}: query_pre_attn_scalar: expected a positive number, got {scalar!r}")
    caps = {"attention_softcap": "attn_logit_softcapping", "logit_softcap": "final_logit_softcapping"}
    return {
        **_read(theirs, where),
        **(read_windows(theirs, where, global_every=2) if theirs["sliding_window"] else {}),
        "query_scale": scalar**-0.5,
        **{key: theirs[name] or 0.0 for key, name in caps.items()},
    }


def _write_gemma2(section: Any) -> dict[str, Any]:
    usual_name = {"hidden_activation": "gelu_pytorch_tanh"} if section.activation == "gelu_tanh" else {}
    return {
        **_write(section),
        **write_windows(section),
        "sliding_window": section.window or section.max_len,  # the class needs one, even if no block has it
        **usual_name,
        "query_pre_attn_scalar": max(1, round(section.query_scale**-2)),
        "attn_logit_softcapping": section.attention_softcap or None,
        "final_logit_softcapping": section.logit_softcap or None,
    }


def _read_gemma3(theirs: Mapping[str, Any], where: str) -> dict[str, Any]:
    # Version 5 of the library has one set of `rope_parameters` for each kind of block. The keys of the older
    # `rope_scaling` are those of global blocks.
    sets = object_at(theirs, "rope_parameters", where)
    rope = {"rope_type": "default", **object_at(sets, GLOBAL, where), **object_at(theirs, "rope_scaling", where)}
    local = {"rope_theta": theirs["rope_local_base_freq"], **object_at(sets, LOCAL, where)}
    section = _read_gemma2({**theirs, "rope_scaling": rope}, where)
    found = read_rotary(local, {}, where)
    if "rope_factor" in found:
        raise UserError(
            f"{where}: rope_type: fxf has 'default' in {LOCAL}, got {local.get('rope_type', local.get('type'))!r}"
        )
    if not section.get("window"):  # no block is local
        return section
    if theirs.get("layer_types") is None:
        section["global_every"] = theirs["sliding_window_pattern"]
    every = section["global_every"] or theirs["num_hidden_layers"] + 1  # if all blocks are local
    return {**section, "global_every": every, "local_rope_theta": found["rope_theta"]}


def _write_gemma3(section: Any) -> dict[str, Any]:
    return {**_write_gemma2(section), "rope_local_base_freq": section.local_rope_theta or section.rope_theta}


LLAMA = Architecture(
    name="LlamaForCausalLM",
    model="transformer_lm",
    keys=KEYS,
    section=SECTION,
    config={"is_causal": True},
    tensors=TENSORS,
    defaults={**DEFAULTS, "num_key_value_heads": None, "head_dim": None, "mlp_bias": False},
    if_null=IF_NULL,
    read=_read_llama,
    write=lambda section: {**_write(section), "mlp_bias": section.feed_forward_bias},
    rotary_halves=True,
    ignored=IGNORED,
)
MISTRAL = LLAMA._replace(
    name="MistralForCausalLM",
    config={"is_causal": True, "attention_bias": False},
    defaults={**DEFAULTS, "num_key_value_heads": 8, "head_dim": None, "sliding_window": 4096},
    read=_read_mistral,
    write=lambda section: {**_write(section), "attention_bias": False, "sliding_window": section.window or None},
)
WINDOWS_OF_QWEN = {"use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 28}
QWEN2 = LLAMA._replace(
    name="Qwen2ForCausalLM",
    section={**SECTION, "attention_bias": "qkv"},
    # Queries, keys and values always have biases; the class has no key `attention_bias`.
    config={"is_causal": True, "attention_bias": False},
    defaults={**DEFAULTS, **WINDOWS_OF_QWEN, "num_key_value_heads": 32, "head_dim": None},
    read=_read_qwen,
    write=lambda section: {**_write_qwen(section), "attention_bias": False},
)
QWEN3 = LLAMA._replace(
    name="Qwen3ForCausalLM",
    section={**SECTION, "qk_norm": True},
    defaults={**DEFAULTS, **WINDOWS_OF_QWEN, "num_key_value_heads": 32, "head_dim": 128},
    tensors={**TENSORS, **NORMS_OF_HEADS},
    read=_read_qwen,
    write=_write_qwen,
)
GEMMA2 = LLAMA._replace(
    name="Gemma2ForCausalLM",
    keys=tuple((key, "hidden_activation" if key == "activation" else theirs) for key, theirs in KEYS),
    section={**SECTION, "block": "sandwich", "zero_centered_scale": True, "scaled_embeddings": True},
    config={"is_causal": True, "use_bidirectional_attention": False},
    defaults={
        **DEFAULTS,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "tie_word_embeddings": True,
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": 256,
        "sliding_window": 4096,
        "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0,
    },
    tensors={
        **TENSORS,
        "blocks/attention_post_norm/scale": f"{BLOCK}.post_attention_layernorm.weight",
        "blocks/feed_forward_norm/scale": f"{BLOCK}.pre_feedforward_layernorm.weight",
        "blocks/feed_forward_post_norm/scale": f"{BLOCK}.post_feedforward_layernorm.weight",
    },
    read=_read_gemma2,
    write=_write_gemma2,
)
GEMMA3 = GEMMA2._replace(
    name="Gemma3ForCausalLM",
    section={**GEMMA2.section, "qk_norm": True},
    config={"is_causal": True, "use_bidirectional_attention": False, "attn_logit_softcapping": None},
    defaults={
        **GEMMA2.defaults,
        "rope_theta": 1e6,
        "rope_local_base_freq": 10000.0,
        "sliding_window_pattern": 6,
        "attn_logit_softcapping": None,
        "final_logit_softcapping": None,
    },
    tensors={**GEMMA2.tensors, **NORMS_OF_HEADS},
    read=_read_gemma3,
    write=_write_gemma3,
)

# By the `model_type` of config.json.
ROTARY_DECODERS = {
    "llama": LLAMA,
    "mistral": MISTRAL,
    "qwen2": QWEN2,
    "qwen3": QWEN3,
    "gemma2": GEMMA2,
    "gemma3_text": GEMMA3,
}
