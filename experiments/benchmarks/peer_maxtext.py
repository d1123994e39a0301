"""The training step that MaxText compiles for a TPU, read as `fxf compile` reads its own.

PYTHONPATH=. python experiments/benchmarks/peer_maxtext.py v5e:2x4 FILE.json [KEY=VALUE ...]

It needs an environment of its own, in which MaxText and fxf both run, so that one compiler makes both programs:
Python 3.12, maxtext, jax[tpu], ml_collections and what MaxText imports. The model is GPT-2's 124M with 32 sequences of
1,024 tokens a device, as in `fxf compile --config=characters:gpt2`; KEY=VALUE are MaxText's own keys, and change it.
It adds {name: figures} to the file, by the keys that were given.
"""

import contextlib
import importlib.metadata
import json
import sys
from pathlib import Path
from typing import Any

from fxf.machine import costs, hlo
from fxf.machine.topologies import topology

# MaxText's form of GPT-2: learned positions, layer norms and products with biases, tied embeddings, AdamW.
GPT2: dict[str, Any] = {
    "decoder_block": "gpt3",
    "base_emb_dim": 768,
    "base_num_query_heads": 12,
    "base_num_kv_heads": 12,
    "head_dim": 64,
    "base_mlp_dim": 3072,
    "base_num_decoder_layers": 12,
    "vocab_size": 50_304,
    "mlp_activations": "['gelu']",
    "trainable_position_size": 1024,
    "max_target_length": 1024,
    "per_device_batch_size": 32,
    "logits_via_embedding": True,
    "normalize_embedding_logits": False,
    "normalization_layer_epsilon": 1e-5,
    "use_iota_embed": False,
    "fused_qkv": True,
    "enable_dropout": False,
    "opt_type": "adamw",
    "adam_b2": 0.95,
    "gradient_clipping_threshold": 1.0,
    "ici_data_parallelism": -1,
    "ici_fsdp_parallelism": 1,
    "attention": "flash",
    "remat_policy": "none",
    "scan_layers": False,
    "packing": False,
    "dataset_type": "synthetic",
    "enable_checkpointing": False,
    "base_output_directory": "/tmp/maxtext",
    "run_name": "compiled",
    "compile_topology_num_slices": 1,
}


def compiled_step(keys: dict[str, Any]) -> Any:
    """Returns the compiled step of MaxText with these keys."""
    from maxtext.trainers.pre_train import train_compile

    made, compile_it = [], train_compile.jit_and_compile
    train_compile.jit_and_compile = lambda *given: made.append(compile_it(*given)) or made[0]
    base = Path(train_compile.__file__).parents[2] / "configs/base.yml"
    with contextlib.redirect_stdout(sys.stderr):
        train_compile.main(["", str(base), *(f"{key}={value}" for key, value in keys.items())])
    return made[0]


def figures(compiled: Any, name: str) -> dict[str, Any]:
    """Returns bytes of a device, operations, traffic to memory and bytes sent, counted as for fxf's own programs."""
    target, plan = topology(name), compiled.memory_analysis()
    whole = costs.cost(hlo.read(compiled.as_text()), len(target.devices), target.hardware.on_chip)
    held = plan.argument_size_in_bytes + plan.output_size_in_bytes - plan.alias_size_in_bytes
    sent = sum(
        times * link[0]
        for _, times, here in whole.places()
        for each in here.collectives
        for link in target.traffic(each, target.devices).values()
    )
    return {
        "memory": held + plan.temp_size_in_bytes + plan.generated_code_size_in_bytes,
        "flops": int(whole.total(lambda c: c.flops)),
        "traffic": int(whole.total(lambda c: c.n_bytes)),
        "sent": sent,
        "uncounted": sorted({each for _, _, here in whole.places() for each in here.uncounted}),
    }


def main() -> None:
    name, path, *changes = sys.argv[1:]
    given = dict(each.split("=", 1) for each in changes)
    compile_for = name.replace("v5e:2x4", "v5e-8").replace("v5e:16x16", "v5e-256").replace("v5p:4x4x4", "v5p-128")
    found = figures(compiled_step({**GPT2, "compile_topology": compile_for, **given}), name)
    versions = {each: importlib.metadata.version(each) for each in ("maxtext", "jax", "libtpu")}
    file = Path(path)
    kept = json.loads(file.read_text()) if file.exists() else {}
    kept[" ".join([name, *changes])] = {**found, "versions": versions}
    file.write_text(json.dumps(kept, indent=1) + "\n")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
