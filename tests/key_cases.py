"""For each key of every section another value, and the config under which the key is read."""

from typing import Any, NamedTuple

from fxf.config import flatten


class Case(NamedTuple):
    """Another value for a key, the other keys under which it is read, and how the value is refused if it must be."""

    value: Any
    under: tuple[tuple[str, Any], ...] = ()
    refusal: str = ""


def case(value, /, refusal="", **sections):
    """Returns a case under the changes of `sections`, for example model={"n_layers": 2}."""
    return Case(value, tuple(flatten(sections)), refusal)


NAME = {name: case("another", refusal=rf"^{name}\.name: expected one of") for name in ("task", "model")}

TRANSFORMER = {
    "model.name": NAME["model"],
    "model.n_layers": case(2),
    "model.d_model": case(12),
    "model.d_ff": case(5),
    "model.n_heads": case(2),
    "model.n_kv_heads": case(1),
    "model.head_dim": case(5),
    "model.base_width": case(12, model={"head_dim": 2}),
    "model.max_len": case(19),
    "model.dropout": case(0.5),
    "model.embedding_dropout": case(0.5),
    "model.attention_dropout": case(0.5),
    "model.embedding_norm": case(True),
    "model.block": case("post_norm"),
    "model.final_norm": case(False),
    "model.norm_epsilon": case(0.1),
    "model.norm_epsilon_in": case("variance", model={"norm_epsilon": 0.1}),
    "model.norm": case("rms"),
    "model.zero_centered_scale": case(True),
    "model.positions": case("sinusoidal", model={"positions": "sinusoidal_concatenated"}),
    "model.position_range": case(29, model={"positions": "sinusoidal"}),
    "model.position_gap": case(2, model={"positions": "sinusoidal", "position_range": 37}),
    "model.position_stretch": case(3.0, model={"positions": "sinusoidal"}),
    "model.attention": case("expressive"),
    "model.attention_implementation": case(
        "flash",
        refusal="flash needs an NVIDIA GPU or a TPU; the device here is cpu",
        model={"dtype": "bfloat16", "d_model": 24},
    ),
    "model.feature_map": case("relu", model={"attention": "linear"}),
    "model.blocks": case("feed_forward+attention"),
    "model.rope_theta": case(10.0, model={"positions": "rotary", "d_model": 12}),
    "model.rope_factor": case(4.0, model={"positions": "rotary"}),
    "model.rope_trained_len": case(100, model={"positions": "rotary", "rope_factor": 9.0, "d_model": 12}),
    "model.window": case(2),
    "model.global_every": case(2, model={"window": 2, "n_layers": 2}),
    "model.local_rope_theta": case(
        3.0, model={"window": 2, "n_layers": 2, "global_every": 2, "positions": "rotary", "d_model": 12}
    ),
    "model.qk_norm": case(True),
    "model.qk_norm_joint": case(True, model={"qk_norm": True}),
    "model.feed_forward": case("another", refusal=r"^model\.feed_forward: expected one of dense"),
    "model.activation": case("silu"),
    "model.gated": case(True),
    "model.feed_forward_bias": case(False),
    "model.final_bias": case(False),
    "model.logit_softcap": case(0.3),
    "model.attention_softcap": case(0.01),
    "model.query_scale": case(3.0),
    "model.attention_bias": case("all"),
    "model.init": case("gpt2"),
    "model.scan_blocks": case(True, model={"n_layers": 3}),
    "model.remat": case("full"),
    "model.dtype": case("bfloat16"),
}
PAIRS, BAD_PAIRS = ({"name": "pairs", "path": path, "columns": "en,fr"} for path in ("pairs.txt", "bad.txt"))
JSON_LINES = {"format": "json_lines", "path": "lines.jsonl", "validation": 0.3}
DOCUMENTS = {"format": "files", "separator": "\n", "validation": 0.3}
PARALLEL = {"name": "parallel", "path": "a", "train": "x", "validation": "y", "test": "y"}

# The keys of each model and of each task, and among those of a task the common ones that are shown with it. A key that
# several models or tasks have is shown with the first, and with another one where code of its own reads it.
CASES: dict[str, dict[str, Case]] = {
    "transformer_lm": {
        **TRANSFORMER,
        "model.tied_embeddings": case(True),
        "model.scaled_embeddings": case(True),
        "model.head": case("transform"),
        "model.logits_bias": case(True, model={"tied_embeddings": True}),
    },
    "masked_lm": {"model.name": NAME["model"], "model.segments": case(2)},
    "encoder_decoder": {
        **{
            key: TRANSFORMER[key]
            for key in ("model.name", "model.n_layers", "model.final_norm", "model.init", "model.window")
        },
        "model.embeddings": case("shared"),
        "model.cross_norm": case("source"),
        "model.logits_bias": case(True, model={"embeddings": "shared"}),
    },
    "bilayer": {
        "model.name": NAME["model"],
        "model.n_layers": case(2),
        "model.max_len": case(7),
        "model.expand": case(3),
        "model.copies": case(2),
    },
    "reversal": {
        "task.name": NAME["task"],
        "task.n_tokens": case(7),
        "task.min_length": case(2),
        "task.max_length": case(4),
        "task.longer": case(2),
        "task.longer_every": case(2, task={"longer": 3}),
        "task.mirrored": case(True, model={"positions": "rotary", "d_model": 12}),
        "task.examples": case(11, task={"n_tokens": 47, "examples": 13}),
        "task.metrics": case("ter"),
        "start.adapters": case("adapters", start={"path": "params.safetensors"}, lora={"rank": 2}),
        "lora.rank": case(2),
        "lora.alpha": case(3.0, lora={"rank": 2}),
        "lora.rank_stabilized": case(True, lora={"rank": 2}),
        "lora.weights": case("*/query", lora={"rank": 2}),
        "optimizer.layer_decay": case(0.5),
        "optimizer.frozen": case("embedding/*"),
        "train.batch_size": case(6),
        "train.microbatches": case(2, model={"dropout": 0.5}, optimizer={"name": "sgd"}),
        "train.label_smoothing": case(0.3),
        "train.dropout_bits": case("device", model={"dropout": 0.5}),
        "decode.temperature": case(2.0),
        "decode.top_k": case(2, decode={"temperature": 2.0}),
        "decode.top_p": case(0.3, decode={"temperature": 2.0}),
        "decode.no_repeat_ngram": case(1),
        "decode.beam_width": case(3),
        "decode.length_penalty": case(0.0, decode={"beam_width": 2}),
        "decode.early_stop": case(False, decode={"beam_width": 2}),
    },
    "time_series": {
        "task.name": NAME["task"],
        "task.base": case(5),
        "task.delay": case(2),
        "task.length": case(6),
        "task.examples": case(3),
    },
    "boolean_map": {
        "task.name": NAME["task"],
        "task.positions": case(3),
        "task.dim": case(3),
        "seed": case(1),
        "start.path": case("params.safetensors"),
        "start.state": case("all", start={"path": "params.safetensors"}),
        "start.weights": case("*,!*/bias", start={"path": "params.safetensors"}),
        "start.on_mismatch": case("draw", start={"path": "more.safetensors"}),
        "optimizer.name": case("nadamw"),
        "optimizer.learning_rate": case(0.3),
        "optimizer.schedule": case("linear"),
        "optimizer.warmup_steps": case(2),
        "optimizer.final_learning_rate": case(0.05, optimizer={"schedule": "linear"}),
        "optimizer.b1": case(0.3),
        "optimizer.b2": case(0.3),
        "optimizer.eps": case(0.1),
        "optimizer.momentum": case(0.5, optimizer={"name": "sgd"}),
        "optimizer.weight_decay": case(0.1, optimizer={"name": "adamw"}),
        "optimizer.clip_norm": case(0.1, optimizer={"name": "sgd"}),
        "optimizer.decay_steps": case(2, optimizer={"schedule": "wsd", "decay_steps": 1}),
        "optimizer.ema_decay": case(0.5),
        "train.steps": case(4),
        "train.evaluate_every": case(1),
        "train.skip_nonfinite": case(1),
        # What they do on several devices is in tests/training/test_sharding.py.
        "parallel.kind": case("pmap", refusal="'pmap' cuts neither weights nor sequences", parallel={"tensor": 2}),
        "parallel.data": case(2, refusal="parallel.data 2 .* needs 2 devices"),
        "parallel.fsdp": case(2, refusal="parallel.fsdp 2 .* does not divide the number of devices here, 1"),
        "parallel.expert": case(2, refusal="parallel.expert 2 .* does not divide the number of devices here, 1"),
        "parallel.sequence": case(2, refusal="parallel.sequence 2 .* does not divide the number of devices here, 1"),
        "parallel.tensor": case(2, refusal="parallel.tensor 2: 2 does not divide the number of devices here, 1"),
        "parallel.processes": case(2, refusal="parallel.coordinator: expected host:port of the first process, got ''"),
        "parallel.coordinator": case("there:1234", refusal="only read if parallel.processes is above 1"),
        "parallel.process": case(1, refusal="only read if parallel.processes is above 1"),
        "train.patience": case(1, train={"evaluate_every": 1}, checkpoint={"best": "solved"}),
        "checkpoint.every": case(2),
        "checkpoint.minutes": case(1e-9, train={"steps": 3}),
        "checkpoint.keep": case(1, checkpoint={"every": 1}),
        "checkpoint.best": case("solved", train={"evaluate_every": 1}),
        "checkpoint.average": case(2, checkpoint={"every": 1}),
        "log.every": case(1),
        "log.tensorboard": case(True),
        "log.trackers": case("another", refusal=r"log\.trackers: expected one of"),
        "log.report": case(True),
    },
    "language_model": {
        "task.name": NAME["task"],
        "task.length": case(7),
        "task.bos": case(False),
        "task.score": case("last"),
        "task.document_mask": case(False, data=DOCUMENTS),
        "data.path": case("other.txt"),
        "data.validation": case(0.3),
        "data.test": case(0.3),
        "data.lower_case": case(True),
        "data.tokenizer": case("word"),
        "data.vocab_size": case(9),
        "data.format": case("json_lines", data={"path": "lines.jsonl", "validation": 0.3}),
        "data.separator": case("\n", data={"format": "files", "separator": " "}),
        "data.field": case("title", data=JSON_LINES),
        "data.split": case("test", refusal="data.format 'json_lines' does not read it", data=JSON_LINES),
        "data.prepared": case("there", data=JSON_LINES),
    },
    "length": {
        "task.name": NAME["task"],
        "task.problem": case("bucket_sort"),
        "task.answer": case("tape"),
        "task.max_length": case(4),
        "task.longest": case(6),
        "task.score_every": case(2),
        "task.position_range": case(41, model={"positions": "sinusoidal", "d_model": 12, "max_len": 41}),
        "task.same_length": case(True),
        "task.examples": case(5),
    },
    "masking": {"task.name": NAME["task"], "task.length": case(7), "task.share": case(0.5)},
    "translation": {
        "task.name": NAME["task"],
        "task.tokenized": case(True),
        "task.examples": case(2),
        "data.name": case("another", refusal=r"^data\.name: expected one of"),
        "data.path": case("b", data=PARALLEL),
        "data.columns": case("fr,en", data=PAIRS),
        "data.source": case("de", data=PARALLEL),
        "data.target": case("de", data=PARALLEL),
        "data.train": case("z", data=PARALLEL),
        "data.validation": case("z", data=PARALLEL),
        "data.test": case("z", data=PARALLEL),
        "data.held_out": case(0.4, data=PAIRS),
        "data.limit": case(2),
        "data.lower_case": case(True, data=PAIRS),
        "data.unpunctuated": case(0.9, data=PAIRS),
        "data.tokenizer": case("character", data={"max_length": 41}, model={"max_len": 41}),
        "data.vocab_size": case(11),
        "data.max_length": case(5, data={"on_error": "skip"}),
        "data.on_error": case(
            "stop", data={**BAD_PAIRS, "on_error": "skip"}, refusal="^bad.txt:1: expected 2 tab-separated columns"
        ),
        "data.batch_tokens": case(11),
        "data.shapes": case(1),
    },
}

TINY_MODEL = {"n_layers": 1, "d_model": 6, "d_ff": 7, "n_heads": 3, "max_len": 17}
TINY: dict[str, dict[str, Any]] = {
    "reversal": {"task": {"n_tokens": 5, "max_length": 3}, "model": TINY_MODEL},
    "time_series": {"task": {"base": 3, "length": 5}, "model": TINY_MODEL},
    "length": {"task": {"max_length": 3, "longest": 5, "score_every": 1, "examples": 9}, "model": TINY_MODEL},
    "boolean_map": {"model": {"n_layers": 1}, "optimizer": {"learning_rate": 0.1}},
    "language_model": {"task": {"length": 8}, "data": {"path": "text.txt"}, "model": TINY_MODEL},
    "masking": {"task": {"length": 8}, "data": {"path": "text.txt"}, "model": TINY_MODEL},
    "translation": {"data": {"name": "six", "tokenizer": "word", "max_length": 17}, "model": TINY_MODEL},
}
COMMON = {"train": {"steps": 3, "batch_size": 4}, "log": {"every": 3, "tensorboard": False, "report": False}}
