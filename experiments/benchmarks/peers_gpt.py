"""A GPT in plain PyTorch, for comparison with fxf."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from experiments.benchmarks.rows import Sizes


class Block(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        d_model, biases = sizes.d_model, sizes.gpt2
        self.n_heads, self.gelu = sizes.n_heads, "tanh" if sizes.gpt2 else "none"
        self.norm1, self.norm2 = nn.LayerNorm(d_model, bias=biases), nn.LayerNorm(d_model, bias=biases)
        self.qkv = nn.Linear(d_model, 3 * d_model, bias=biases)
        self.out = nn.Linear(d_model, d_model, bias=biases)
        self.up = nn.Linear(d_model, 4 * d_model, bias=biases)
        self.down = nn.Linear(4 * d_model, d_model, bias=biases)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.qkv(self.norm1(x)).chunk(3, -1)
        query, key, value = (part.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for part in parts)
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate=self.gelu))


class GPT(nn.Module):
    """nanoGPT's model, with learned positions and tied embeddings."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.table = nn.Embedding(sizes.vocab_size, sizes.d_model)
        self.positions = nn.Embedding(sizes.length, sizes.d_model)
        self.blocks = nn.Sequential(*(Block(sizes) for _ in range(sizes.n_layers)))
        self.norm = nn.LayerNorm(sizes.d_model, bias=sizes.gpt2)
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                residual = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(weight, std=0.02 / math.sqrt(2 * sizes.n_layers) if residual else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(weight)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Returns the mean loss for the tokens x [B, T] and their next tokens y [B, T]."""
        h = self.blocks(self.table(x) + self.positions.weight[: x.shape[1]])
        return functional.cross_entropy((self.norm(h) @ self.table.weight.T).flatten(0, 1), y.flatten())


def adamw(model: nn.Module, rate: float, betas: tuple[float, float], decay: float) -> torch.optim.AdamW:
    """Returns fused AdamW with weight decay for matrices only."""
    weights = list(model.parameters())
    groups = [
        {"params": [w for w in weights if w.dim() == 2], "weight_decay": decay},
        {"params": [w for w in weights if w.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=rate, betas=betas, fused=True)


def _steps(model: nn.Module, loss: Callable[[], torch.Tensor], optimizer: Any, n: int) -> Callable[[], float]:
    """Returns a function that takes n steps, with gradients clipped to a norm of 1, and returns the last loss."""

    def run() -> float:
        for _ in range(n):
            optimizer.zero_grad(set_to_none=True)
            value = loss()
            value.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        return value.item()

    return run


def gpt_training(sizes: Sizes, batch: dict[str, Any], steps: int, *, mode: str) -> tuple[float, Callable[[], float]]:
    """Returns the first loss, and a function that takes some training steps of a GPT with AdamW and clipping.

    Args:
      mode: the mode of `torch.compile`; empty for eager.
    """
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    gpt = GPT(sizes).to(device)
    model: Any = torch.compile(gpt, mode=mode) if mode else gpt
    x, y = (torch.tensor(batch[name], device=device).long() for name in ("inputs", "targets"))

    def loss(model: Any) -> torch.Tensor:
        with torch.autocast(device, getattr(torch, sizes.dtype), enabled=sizes.dtype != "float32"):
            return model(x, y)

    with torch.no_grad():
        first = loss(gpt).item()
    return first, _steps(gpt, lambda: loss(model), adamw(gpt, 1e-3, (0.9, 0.99), 0.1), steps)


class NanoGPT:
    """nanoGPT's CPU recipe, from its README, on the tokens of a text."""

    LENGTH, BATCH, STEPS = 64, 12, 2000
    PEAK, FINAL, WARMUP, DECAY, BETAS = 1e-3, 1e-4, 100, 0.1, (0.9, 0.99)

    def __init__(self, vocab_size: int, train: np.ndarray, validation: np.ndarray) -> None:
        self.tokens, self.validation = (torch.tensor(part.astype(np.int64)) for part in (train, validation))
        self.sizes = Sizes(4, 128, 4, self.LENGTH, vocab_size)

    def train(self, steps: int = 0, compiled: bool = False) -> float:
        """Trains a new model, and returns its validation loss, in nats per character."""
        torch.manual_seed(0)
        model, n = GPT(self.sizes), steps or self.STEPS
        forward: Any = torch.compile(model) if compiled else model
        optimizer = adamw(model, self.PEAK, self.BETAS, self.DECAY)
        for step in range(n):
            progress = (step - self.WARMUP) / (self.STEPS - self.WARMUP)
            rate = self.FINAL + (self.PEAK - self.FINAL) * (1 + math.cos(math.pi * progress)) / 2
            for group in optimizer.param_groups:
                group["lr"] = self.PEAK * (step + 1) / (self.WARMUP + 1) if progress < 0 else rate
            starts = torch.randint(len(self.tokens) - self.LENGTH, (self.BATCH, 1))
            rows = self.tokens[starts + torch.arange(self.LENGTH + 1)]
            _steps(model, lambda rows=rows: forward(rows[:, :-1], rows[:, 1:]), optimizer, 1)()  # type: ignore[misc]
        n_rows = (len(self.validation) - 1) // self.LENGTH
        x, y = (self.validation[i : n_rows * self.LENGTH + i].view(-1, self.LENGTH) for i in (0, 1))
        with torch.no_grad():
            parts = zip(x.split(128), y.split(128), strict=True)
            return sum(model(a, b).item() * len(a) for a, b in parts) / n_rows
