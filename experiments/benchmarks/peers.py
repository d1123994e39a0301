"""The models in plain PyTorch that fxf is compared with."""

import math
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional


class Sizes(NamedTuple):
    """Sizes of a GPT, d_ff = 4 d_model; `gpt2` with GPT-2's biases and its approximation of GELU."""

    vocab_size: int
    length: int
    n_layers: int
    n_heads: int
    d_model: int
    gpt2: bool = False


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
    """nanoGPT's model: learned positions, the output tied to the table of tokens."""

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
        """Returns the mean loss of the tokens x [B, T] whose next ones are y [B, T]."""
        h = self.blocks(self.table(x) + self.positions.weight[: x.shape[1]])
        return functional.cross_entropy((self.norm(h) @ self.table.weight.T).flatten(0, 1), y.flatten())


def adamw(model: nn.Module, rate: float, betas: tuple[float, float], decay: float) -> torch.optim.AdamW:
    """Returns fused AdamW that decays matrices alone."""
    weights = list(model.parameters())
    groups = [
        {"params": [w for w in weights if w.dim() == 2], "weight_decay": decay},
        {"params": [w for w in weights if w.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=rate, betas=betas, fused=True)
