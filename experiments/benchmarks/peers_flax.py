"""The GPT of `peers.py` in Flax, Linen and NNX, assembled of their own layers in the usual way."""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax import nnx
from flax.training.train_state import TrainState

RATE, BETAS, DECAY, CLIP = 1e-3, (0.9, 0.99), 0.1, 1.0


def _optimizer() -> optax.GradientTransformation:
    def matrices(params: Any) -> Any:
        return jax.tree.map(lambda x: x.ndim >= 2, params)

    adamw = optax.adamw(RATE, *BETAS, weight_decay=DECAY, mask=matrices)
    return optax.chain(optax.clip_by_global_norm(CLIP), adamw)


def _mean_loss(logits: jax.Array, targets: jax.Array) -> jax.Array:
    return optax.softmax_cross_entropy_with_integer_labels(logits, targets).mean()


class _LinenGPT(nn.Module):
    sizes: Any

    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        s, d, of_type = self.sizes, self.sizes.d_model, {"dtype": jnp.dtype(self.sizes.dtype)}
        choices = {"use_bias": s.gpt2, **of_type}
        table = nn.Embed(s.vocab_size, d, embedding_init=nn.initializers.normal(0.02), **of_type)
        x = table(tokens) + nn.Embed(s.length, d, **of_type)(jnp.arange(tokens.shape[1])[None])
        mask = nn.make_causal_mask(tokens)
        for _ in range(s.n_layers):
            attention = nn.MultiHeadDotProductAttention(s.n_heads, **choices)
            x = x + attention(nn.LayerNorm(**choices)(x), mask=mask)
            h = nn.Dense(4 * d, **choices)(nn.LayerNorm(**choices)(x))
            x = x + nn.Dense(d, **choices)(nn.gelu(h, approximate=s.gpt2))
        return table.attend(nn.LayerNorm(**choices)(x)).astype(jnp.float32)


def linen(sizes: Any, batch: dict[str, Any], steps: int) -> tuple[float, Callable[[], float]]:
    """Returns the first loss, and a function that takes some training steps."""
    model, inputs, targets = _LinenGPT(sizes), jnp.asarray(batch["inputs"]), jnp.asarray(batch["targets"])
    params = jax.jit(model.init)(jax.random.key(0), inputs)["params"]
    state = TrainState.create(apply_fn=model.apply, params=params, tx=_optimizer())

    def loss(p: Any) -> jax.Array:
        return _mean_loss(jnp.asarray(model.apply({"params": p}, inputs)), targets)

    @jax.jit
    def step(state: TrainState) -> tuple[TrainState, jax.Array]:
        value, gradient = jax.value_and_grad(loss)(state.params)
        return state.apply_gradients(grads=gradient), value

    def run() -> float:
        nonlocal state
        for _ in range(steps):
            state, value = step(state)
        return float(value)

    return float(jax.jit(loss)(params)), run


class _NNXBlock(nnx.Module):
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


class _NNXGPT(nnx.Module):
    def __init__(self, s: Any, rngs: nnx.Rngs) -> None:
        choices = {"dtype": jnp.dtype(s.dtype), "rngs": rngs}
        self.table = nnx.Embed(s.vocab_size, s.d_model, embedding_init=nnx.initializers.normal(0.02), **choices)
        self.positions = nnx.Embed(s.length, s.d_model, **choices)
        self.blocks = nnx.List([_NNXBlock(s, rngs) for _ in range(s.n_layers)])
        self.norm = nnx.LayerNorm(s.d_model, use_bias=s.gpt2, **choices)

    def __call__(self, tokens: jax.Array) -> jax.Array:
        x = self.table(tokens) + self.positions(jnp.arange(tokens.shape[1])[None])
        mask = nnx.make_causal_mask(tokens)
        for block in self.blocks:
            x = block(x, mask)
        return self.table.attend(self.norm(x)).astype(jnp.float32)


def nnx_(sizes: Any, batch: dict[str, Any], steps: int) -> tuple[float, Callable[[], float]]:
    """Returns the first loss, and a function that takes some training steps."""
    model, inputs, targets = _NNXGPT(sizes, nnx.Rngs(0)), jnp.asarray(batch["inputs"]), jnp.asarray(batch["targets"])
    optimizer = nnx.Optimizer(model, _optimizer(), wrt=nnx.Param)

    def loss(m: _NNXGPT) -> jax.Array:
        return _mean_loss(m(inputs), targets)

    @nnx.jit
    def step(model: _NNXGPT, optimizer: nnx.Optimizer) -> jax.Array:
        value, gradient = nnx.value_and_grad(loss)(model)
        optimizer.update(model, gradient)
        return value

    def run() -> float:
        for _ in range(steps):
            value = step(model, optimizer)
        return float(value)

    return float(nnx.jit(loss)(model)), run
