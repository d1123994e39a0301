"""Rows of an NVIDIA GPU: what it can do, training GPT-2 small in bfloat16, and decoding with it.

--quick tries them at small sizes on any device.
"""

import os
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rows import Measured, Row, Rows, Settings, Way
from rows_training import FirstLoss, Peer, agreement, drawn, fxf_gpt, lm, lm_config, random_tokens, sizes_of

from fxf.decoding.decoder import Decoder
from fxf.errors import UserError
from fxf.interop import huggingface
from fxf.machine.devices import require_devices
from fxf.machine.hardware import Hardware, hardware_of
from fxf.machine.operations import operations
from fxf.models.transformer_lm import transformer_lm
from fxf.weights import shapes

GPT2_VOCAB_SIZE = 50257
NANOGPT_VOCAB_SIZE = 50304  # nanoGPT rounds it up to a multiple of 64; fxf does so inside a step
NO_END = -1  # no token has this number


def _require_gpu(settings: Settings) -> None:
    """Lets the processes of a row share the GPU's memory. Raises a UserError if there is none, unless `quick`."""
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    if require_devices()[0].platform != "gpu" and not settings.quick:
        raise UserError("the rows gpu_* need an NVIDIA GPU")


def products(settings: Settings) -> Iterator[Row]:
    """The product of two matrices in bfloat16, as large as one needs to reach the GPU's peak."""
    _require_gpu(settings)
    n, times = 64 if settings.quick else 8192, 20
    values = np.random.default_rng(0).normal(size=(n, n)).astype(np.float32)

    def of_xla() -> Way:
        multiply, x = jax.jit(lambda x: x @ x), jnp.asarray(values, jnp.bfloat16)
        return Way(lambda: jax.block_until_ready([multiply(x) for _ in range(times)]))

    def of_torch() -> Way:
        import torch

        device = "cuda" if torch.cuda.is_available() else "cpu"
        x = torch.tensor(values, device=device, dtype=torch.bfloat16)
        return Way(lambda: [x @ x for _ in range(times)][-1][0, 0].item())

    what = f"product of two matrices in bfloat16, {n} x {n}"
    yield Row(what, "TFLOP/s", times * 2 * n**3 / 1e12, {"XLA": of_xla, "PyTorch": of_torch})


class Gpt2:
    """Training of GPT-2 small in bfloat16, as by the config characters:gpt2, and its peers."""

    def __init__(self, settings: Settings, rows: int) -> None:
        self.settings, self.rows = settings, 2 if settings.quick else rows
        length = 64 if settings.quick else 1024
        sizes = sizes_of(1 if settings.quick else 12, 768, 12, length, GPT2_VOCAB_SIZE, gpt2=True)
        self.sizes = sizes._replace(dtype="bfloat16")
        self.batch = random_tokens(self.rows, length, GPT2_VOCAB_SIZE)

    def fxf(self, attention: str) -> Callable[[], Way]:
        def make() -> Way:
            ours = fxf_gpt(self.sizes, self.batch, attention)
            first = ours.loss(0.0)
            return Way(lambda: ours.run(self.settings.steps), lambda: FirstLoss(first))

        return make

    def peer(self, name: str) -> Callable[[], Way]:
        def make() -> Way:
            first, run = self._peer(name)()
            return Way(run, lambda: FirstLoss(first))

        return make

    def _peer(self, name: str) -> Peer:
        import peers_flax
        from peers_gpt import gpt_training

        padded, steps = self.sizes._replace(vocab_size=NANOGPT_VOCAB_SIZE), self.settings.steps
        return {
            "PyTorch": lambda: gpt_training(padded, self.batch, steps, compiled=False),
            "PyTorch compiled": lambda: gpt_training(padded, self.batch, steps, compiled=True),
            "Flax Linen": lambda: peers_flax.linen(self.sizes, self.batch, steps),
            "Flax NNX": lambda: peers_flax.nnx_(self.sizes, self.batch, steps),
        }[name]

    def peak(self, hardware: Hardware) -> Way:
        """The seconds of the model's products at the peak that the GPU's maker names."""
        model = lm(self.sizes)
        forward = jax.make_jaxpr(model.apply)(shapes(model.spec, jnp.float32), self.batch)
        flops = 3 * operations(forward.jaxpr).flops  # a gradient takes twice the operations of the forward pass
        return Way(lambda: Measured(self.settings.steps * flops / hardware.flops))

    def row(self, ways: dict[str, Callable[[], Way]]) -> Row:
        tokens = self.rows * self.sizes.length * self.settings.steps
        what = f"training step, GPT-2 small in bfloat16, {self.rows} rows of {self.sizes.length:,} tokens"
        if known := hardware_of(jax.devices()[0]):
            ways = ways | {"peak": lambda: self.peak(known)}
        return Row(what, "tokens/s", tokens, ways, lambda facts: agreement(facts, within=0.1))


def gpt2(settings: Settings) -> Iterator[Row]:
    """GPT-2 small in bfloat16 with flash attention, beside PyTorch with its own."""
    _require_gpu(settings)
    work = Gpt2(settings, 32)
    peers = {name: work.peer(name) for name in ("PyTorch", "PyTorch compiled")}
    yield work.row({"fxf": work.fxf("chunked" if settings.quick else "flash"), **peers})


def gpt2_scores(settings: Settings) -> Iterator[Row]:
    """GPT-2 small in bfloat16 with all scores of attention in memory, beside Flax."""
    _require_gpu(settings)
    work = Gpt2(settings, 8)
    yield work.row({"fxf": work.fxf("xla"), **{name: work.peer(name) for name in ("Flax Linen", "Flax NNX")}})


class Generation:
    """Greedy tokens of GPT-2 small in bfloat16 for some prompts, in fxf and in transformers."""

    def __init__(self, settings: Settings, n: int) -> None:
        self.new, length = (4, 8) if settings.quick else (128, 64)
        sizes = sizes_of(1 if settings.quick else 12, 768, 12, 1024, GPT2_VOCAB_SIZE, gpt2=True)
        self.config = lm_config(sizes._replace(dtype="bfloat16"))
        self.model = transformer_lm(self.config, GPT2_VOCAB_SIZE)
        self.prompts = random_tokens(n, length, GPT2_VOCAB_SIZE)["inputs"]

    def ours(self) -> Way:
        params, decode = drawn(self.model), Decoder(self.model, NO_END)
        prompts = {"tokens": self.prompts, "lengths": np.full(len(self.prompts), self.prompts.shape[1], np.int32)}

        def search() -> np.ndarray:
            return np.asarray(decode(params, prompts, self.new)[0][:, 0])

        return Way(search, search)

    def theirs(self) -> Way:
        import torch
        import transformers

        device = "cuda" if torch.cuda.is_available() else "cpu"
        with tempfile.TemporaryDirectory() as folder:
            huggingface.save(folder, self.config, drawn(self.model), first=0, end=0, padding=0)
            model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval().to(device)
        prompts = torch.tensor(np.pad(self.prompts, [(0, 0), (1, 0)]), device=device).long()  # fxf decodes after a 0
        options = {"max_new_tokens": self.new, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}

        @torch.inference_mode()
        def search() -> np.ndarray:
            found = model.generate(prompts, attention_mask=torch.ones_like(prompts), **options)
            return found[:, prompts.shape[1] :].cpu().numpy()

        return Way(search, search)


def generate(settings: Settings) -> Iterator[Row]:
    """128 greedy tokens after prompts of 64, beside `generate` of transformers."""
    _require_gpu(settings)

    def agree(facts: dict[str, Any]) -> str:
        ours, *_ = facts.values()
        # Later tokens depend on roundings of the first ones.
        same = min(np.mean(ours[:, 0] == theirs[:, 0]) for theirs in facts.values())
        assert same > 0.9, f"only {same:.1%} of the first tokens are the same"
        return ""

    for n in (1, 64):
        work = Generation(settings, n)
        what = f"generate, GPT-2 small in bfloat16, {n} prompts at a time"
        yield Row(what, "tokens/s", n * work.new, {"fxf": work.ours, "transformers": work.theirs}, agree)


ROWS: dict[str, Rows] = {
    "gpu_products": products,
    "gpu_gpt2": gpt2,
    "gpu_gpt2_scores": gpt2_scores,
    "gpu_generate": generate,
}
