"""Compares GPT-2's training step as compiled for TPUs by fxf and by MaxText, counted by the same rules.

PYTHONPATH=. python experiments/benchmarks/peer_maxtext.py [--topology=v5e:2x4]

Both run in one separate environment, so that one compiler makes all programs: Python 3.12 with maxtext, jax[tpu],
ml_collections and what MaxText imports. The model is GPT-2 with 124M weights, in bfloat16, with 32 sequences of 1,024
tokens per device, flash attention and AdamW, under each pair of corresponding rematerialization policies. It writes
experiments/results/compile/maxtext.json.
"""

import argparse
import contextlib
import importlib.metadata
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from fxf.compile import costs, hlo
from fxf.compile.topologies import LIBTPU, topology
from fxf.runs.code_version import made_by

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "experiments/results/compile/maxtext.json"
# What the forward pass stores, by fxf's model.remat and MaxText's remat_policy.
KEPT_ACTIVATIONS = {
    "all that the backward pass reads": ("none", "minimal_with_context"),
    "the input of each block": ("full", "full"),
}
SLICES = {"v5e:2x4": "v5e-8", "v5e:16x16": "v5e-256", "v5p:4x4x4": "v5p-128"}  # MaxText's names
VERSIONS = ("maxtext", "jax", "jaxlib", "libtpu", "flax", "optax")
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
    "scan_layers": False,
    "packing": False,
    "dataset_type": "synthetic",
    "enable_checkpointing": False,
    "base_output_directory": "/tmp/maxtext",
    "run_name": "compiled",
    "compile_topology_num_slices": 1,
}


def compiled_step(keys: dict[str, Any]) -> Any:
    """Returns MaxText's compiled step with these keys."""
    from maxtext.trainers.pre_train import train_compile

    made, compile_it = [], train_compile.jit_and_compile

    def kept(*given: Any) -> Any:
        made.append(compile_it(*given))
        return made[0]

    train_compile.jit_and_compile = kept
    base = Path(train_compile.__file__).parents[2] / "configs/base.yml"
    with contextlib.redirect_stdout(sys.stderr):
        train_compile.main(["", str(base), *(f"{key}={value}" for key, value in keys.items())])
    return made[0]


def figures(compiled: Any, name: str) -> dict[str, Any]:
    """Returns bytes per device, operations, memory traffic and bytes sent, counted as for fxf's own programs."""
    target, plan = topology(name), compiled.memory_analysis()
    kernels = costs.kernels(hlo.read(compiled.as_text()).entry, len(target.devices), target.hardware.on_chip)
    held = plan.argument_size_in_bytes + plan.output_size_in_bytes - plan.alias_size_in_bytes
    sent = sum(
        kernel.times * link[0]
        for kernel in kernels
        for each in kernel.collectives
        for link in target.traffic(each, target.devices).values()
    )
    return {
        "memory": held + plan.temp_size_in_bytes + plan.generated_code_size_in_bytes,
        "flops": int(costs.total(kernels, lambda k: k.work.flops)),
        "traffic": int(costs.total(kernels, lambda k: k.n_bytes)),
        "sent": sent,
        "uncounted": sorted({kernel.uncounted for kernel in kernels} - {""}),
    }


def of_maxtext(name: str, policy: str) -> dict[str, Any]:
    """Returns the costs of MaxText's step, which another process compiles."""
    command = [sys.executable, __file__, f"--topology={name}", f"--maxtext={policy}"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, **LIBTPU})
    return dict(json.loads(done.stdout.splitlines()[-1]))


def of_fxf(name: str, remat: str) -> dict[str, Any]:
    """Returns the costs of fxf's step, as `fxf compile` reports them."""
    n_rows = 32 * len(topology(name).devices)
    flags = [f"--topology={name}", "--vocab_size=50257", f"--config.train.batch_size={n_rows}", "--program=training"]
    command = [sys.executable, "-m", "fxf", "compile", "--config=characters:gpt2", *flags, "--json"]
    command.append(f"--config.model.remat={remat}")
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    said = json.loads(done.stdout.splitlines()[-1])
    return {
        "memory": said["bytes"]["total"],
        "flops": said["flops"],
        "traffic": said["memory_traffic"],
        "sent": sum(each["sent"] for each in said["collectives"]),
        "uncounted": said["uncounted"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topology", default="v5e:2x4", choices=SLICES)
    parser.add_argument("--maxtext", metavar="POLICY", help="print only the costs of MaxText's step, as JSON")
    options = parser.parse_args()
    name = options.topology
    if options.maxtext:
        keys = {**GPT2, "compile_topology": SLICES[name], "remat_policy": options.maxtext}
        print(json.dumps(figures(compiled_step(keys), name)))
        return
    rows = []
    for what, (remat, policy) in KEPT_ACTIVATIONS.items():
        row = {"kept": what, "remat": remat, "remat_policy": policy}
        rows.append({**row, "fxf": of_fxf(name, remat), "MaxText": of_maxtext(name, policy)})
        print(json.dumps(rows[-1]), flush=True)
    versions = {each: importlib.metadata.version(each) for each in VERSIONS}
    made = {**made_by(), "versions": versions, "date": time.strftime("%F"), "machine": "none: nothing ran"}
    KEPT.write_text(json.dumps({**made, "topology": name, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
