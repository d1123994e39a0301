"""The GPT of `peers_gpt.py` in Flax NNX, from Flax's own layers, in the usual way."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx

RATE, BETAS, DECAY, CLIP = 1e-3, (0.9, 0.99), 0.1, 1.0


def _optimizer() -> optax.GradientTransformation:
    def matrices(params: Any) -> Any:
        return jax.tree.map(lambda x: x.ndim >= 2, params)

    adamw = optax.adamw(RATE, *BETAS, weight_decay=DECAY, mask=matrices)
    return optax.chain(optax.clip_by_global_norm(CLIP), adamw)


def _mean_loss(logits: jax.Array, targets: jax.Array) -> jax.Array:
    return optax.softmax_cross_entropy_with_integer_labels(logits, targets).mean()


class Block(nnx.Module):
    def __init__(self, s: Any, rngs: nnx.Rngs) -> None:
        d, choices = s.d_model, {"use_bias": s.gpt2, "dtype": jnp.dtype(s.dtype), "rngs": rngs}
        self.norm1, self.norm2 = (nnx.LayerNorm(d, **choices) for _ in range(2))
        self.attention = nnx.MultiHeadAttention(s.n_heads, d, decode=False, **choices)
        self.up = nnx.Linear(d, 4 * d, **choices)
        self.down = nnx.Linear(4 * d, d, **choices)
        self.approximate = s.gpt2

    def __call__(self, x: jax.Array, mask: jax.Array) -> jax.Array:
        x = x + self.attention(self.norm1(x), mask=mask)
        return x + self.down(nnx.gelu(self.up(self.norm2(x)), approximate=self.approximate))


class GPT(nnx.Module):
    def __init__(self, s: Any, rngs: nnx.Rngs) -> None:
        choices = {"dtype": jnp.dtype(s.dtype), "rngs": rngs}
        self.table = nnx.Embed(s.vocab_size, s.d_model, embedding_init=nnx.initializers.normal(0.02), **choices)
        self.positions = nnx.Embed(s.length, s.d_model, **choices)
        self.blocks = nnx.List([Block(s, rngs) for _ in range(s.n_layers)])
        self.norm = nnx.LayerNorm(s.d_model, use_bias=s.gpt2, **choices)

    def __call__(self, tokens: jax.Array) -> jax.Array:
        x = self.table(tokens) + self.positions(jnp.arange(tokens.shape[1])[None])
        mask = nnx.make_causal_mask(tokens)
        for block in self.blocks:
            x = block(x, mask)
        return self.table.attend(self.norm(x)).astype(jnp.float32)


def gpt_training(sizes: Any, batch: dict[str, Any], steps: int) -> tuple[float, Callable[[], float]]:
    """Returns the first loss, and a function that takes some training steps."""
    model, inputs, targets = GPT(sizes, nnx.Rngs(0)), jnp.asarray(batch["inputs"]), jnp.asarray(batch["targets"])
    optimizer = nnx.Optimizer(model, _optimizer(), wrt=nnx.Param)

    def loss(m: GPT) -> jax.Array:
        return _mean_loss(m(inputs), targets)

    @functools.partial(nnx.jit, donate_argnums=(0, 1))
    def step(model: GPT, optimizer: nnx.Optimizer) -> jax.Array:
        value, gradient = nnx.value_and_grad(loss)(model)
        optimizer.update(model, gradient)
        return value

    def run() -> float:
        for _ in range(steps):
            value: Any = step(model, optimizer)  # type: ignore[call-arg]
        return float(value)

    return float(nnx.jit(loss)(model)), run
