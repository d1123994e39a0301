"""Speed of training GPT-2 (124M) in fxf and in PyTorch on a GPU, on random tokens, in one run.

make environment PLATFORM=cuda EXTRAS=test,bench
export XLA_PYTHON_CLIENT_PREALLOCATE=false
python experiments/benchmarks/gpt2.py --config=configs/characters.py:gpt2 --peak=989

fxf trains the config's model with the config's optimizer. PyTorch trains a plain GPT of the same sizes with
`scaled_dot_product_attention`, bfloat16 by autocast, fused AdamW, the same clipping, and `torch.compile` (unless
--nocompile). Both have --vocab_size tokens and float32 weights. They take turns of a few steps. The median of each
counts, without the first turn, which compiles. The output is tokens per second and the share of the device's peak, 989
TFLOP/s for an H100 or H200 in dense bfloat16. A token counts 6 N + 12 L D T operations (Chowdhery et al. 2022), with N
weights besides those of positions.

The output names the two models. A tiny model tries it on a CPU:

python experiments/benchmarks/gpt2.py --config=configs/characters.py:gpt2 --config.model.n_layers=2 \
  --config.model.d_model=32 --config.model.d_ff=128 --config.model.n_heads=2 --config.task.length=16 \
  --config.model.attention_implementation=xla --config.train.batch_size=2 --vocab_size=101 --steps=2 --nocompile
"""

import fxf.machine.listen  # noqa: F401  First of all.

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from absl import flags
from peers import GPT, Sizes, adamw
from torch import nn

from fxf import weights
from fxf.config import section
from fxf.models.model import Batch
from fxf.models.transformer_lm import TransformerLMConfig, transformer_lm
from fxf.runs import cli
from fxf.runs.experiment import build
from fxf.tasks.task import language_model_batch
from fxf.training.optimizer import OptimizerConfig, make_optimizer
from fxf.training.parallel import ParallelConfig
from fxf.training.sharding import make_layout
from fxf.training.step import make_train_steps

CONFIG = cli.define_config()
VOCAB_SIZE = flags.DEFINE_integer("vocab_size", 50257, "vocabulary size of both models", 2)
PEAK = flags.DEFINE_float("peak", 989.0, "peak TFLOP/s of the device", 1e-3)
TURNS = flags.DEFINE_integer("turns", 7, "turns of each; the first does not count", 2)
STEPS = flags.DEFINE_integer("steps", 20, "steps in a turn", 1)
COMPILE = flags.DEFINE_boolean("compile", True, "whether to compile PyTorch's model with torch.compile")


class Fxf:
    """Training from a config, on the first device."""

    def __init__(self, config: dict[str, Any], model_config: TransformerLMConfig) -> None:
        experiment = build(config)
        model = transformer_lm(model_config, VOCAB_SIZE.value)
        optimizer = make_optimizer(
            section(OptimizerConfig, config["optimizer"], "optimizer"), experiment.train.steps, model.spec
        )
        experiment = experiment._replace(model=model, optimizer=optimizer)
        shape = (experiment.train.batch_size, model_config.max_len)

        def random_batch(key: jax.Array, step: jax.Array) -> Batch:
            del step
            return language_model_batch(jax.random.randint(key, shape, 0, VOCAB_SIZE.value), jnp.ones(shape))

        layout, self.numbers = make_layout(ParallelConfig(data=1), jax.devices()), experiment.hyperparameters()
        self.state, self.model = experiment.new_state(layout), model
        self.train_steps = make_train_steps(experiment.trainer(layout), random_batch, STEPS.value)
        device = jax.devices()[0].device_kind
        attention = model_config.attention_implementation
        self.name = f"fxf (JAX {jax.__version__}, {device}, {model_config.dtype}, attention by {attention})"

    def run(self) -> None:
        self.state, _ = self.train_steps(self.state, self.numbers, np.int32(STEPS.value))
        jax.block_until_ready(self.state)


class Torch:
    """The same model, batches and optimizer in PyTorch."""

    def __init__(self, config: dict[str, Any], model_config: TransformerLMConfig) -> None:
        torch.manual_seed(0)
        torch.set_float32_matmul_precision("high")
        c, optimizer = model_config, config["optimizer"]
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        gpt = GPT(Sizes(VOCAB_SIZE.value, c.max_len, c.n_layers, c.n_heads, c.d_model, gpt2=True)).to(self.device)
        self.n_weights = sum(weight.numel() for weight in gpt.parameters())
        self.optimizer = adamw(
            gpt, optimizer["learning_rate"], (optimizer["b1"], optimizer["b2"]), optimizer["weight_decay"]
        )
        self.model: Any = torch.compile(gpt) if COMPILE.value else gpt
        self.shape, self.clip_norm = (config["train"]["batch_size"], c.max_len + 1), optimizer["clip_norm"]
        self.bfloat16 = c.dtype == "bfloat16"
        device = torch.cuda.get_device_name() if self.device == "cuda" else "cpu"
        how = "compiled" if COMPILE.value else "not compiled"
        self.name = f"PyTorch {torch.__version__} ({device}, {c.dtype}, scaled_dot_product_attention, {how})"

    def run(self) -> None:
        for _ in range(STEPS.value):
            rows = torch.randint(VOCAB_SIZE.value, self.shape, device=self.device)
            with torch.autocast(self.device, torch.bfloat16, enabled=self.bfloat16):
                loss = self.model(rows[:, :-1], rows[:, 1:])
            loss.backward()
            if self.clip_norm:
                nn.utils.clip_grad_norm_(self.model.parameters(), self.clip_norm)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
        if self.device == "cuda":
            torch.cuda.synchronize()


def main(_: list[str]) -> None:
    config, _origin = cli.config_and_origin(CONFIG)
    config["model"]["max_len"] = config["task"]["length"]
    c = section(TransformerLMConfig, config["model"], "model")
    fxf, peer = Fxf(config, c), Torch(config, c)
    n_weights = weights.count(fxf.model.spec)
    operations = 6 * (n_weights - c.max_len * c.d_model) + 12 * c.n_layers * c.d_model * c.max_len
    tokens = config["train"]["batch_size"] * c.max_len
    print(f"{n_weights:,} weights, PyTorch's {peer.n_weights:,}; {tokens:,} tokens a step; {operations:,} FLOPs each")
    seconds: dict[str, list[float]] = {fxf.name: [], peer.name: []}
    for _turn in range(TURNS.value):
        for way in (fxf, peer):
            start = time.perf_counter()
            way.run()
            seconds[way.name].append((time.perf_counter() - start) / STEPS.value)
    rates = {name: tokens / float(np.median(turns[1:])) for name, turns in seconds.items()}
    for name, rate in rates.items():
        print(f"{rate:12,.0f} tokens/s  {rate * operations / PEAK.value / 1e12:6.1%} of {PEAK.value:g} TFLOP/s  {name}")
    print(f"fxf makes {rates[fxf.name] / rates[peer.name]:.2f} of PyTorch's tokens a second")


if __name__ == "__main__":
    cli.run(main)
