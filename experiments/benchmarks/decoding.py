"""Speed of cached greedy decoding, and of computing the whole sequence again for each token, in one run.

python experiments/benchmarks/decoding.py

It decodes greedily in three ways, with the model of seed 004's examples (d_model 128, 2 layers, 2 heads):
  cached      `fxf.decoding.steps`: prefill, then one cached step per token, in one compiled loop for the batch
  compiled    a full forward pass of the batch for each token, compiled once for the maximum length
  notebook    the way of seed 004: a full forward pass for each token of each sequence, one operation at a time
"""

import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags

from fxf.decoding.decoder import make_decoder
from fxf.models.model import Model
from fxf.models.transformer_lm import TransformerLMConfig, transformer_lm
from fxf.weights import Params, initialize

LENGTH = flags.DEFINE_integer("length", 128, "tokens to generate after a prompt of one token")
BATCH = flags.DEFINE_integer("batch", 16, "number of sequences")
REPEATS = flags.DEFINE_integer("repeats", 5, "runs of the cached and the compiled way; the median counts")
VOCAB_SIZE = 11
NO_END = -1  # no token has this number, so every way generates the full length


def cached(model: Model, params: Params, prompts: np.ndarray, length: int) -> Callable[[], np.ndarray]:
    decode = make_decoder(model, NO_END)
    read = {"tokens": prompts, "lengths": np.ones(len(prompts), np.int32)}
    return lambda: decode(params, read, length)[0][:, 0]


def compiled(model: Model, params: Params, prompts: np.ndarray, length: int) -> Callable[[], np.ndarray]:
    @jax.jit
    def next_tokens(tokens_BT: jax.Array, n: jax.Array) -> jax.Array:
        logits_BTV = model.apply(params, {"inputs": tokens_BT})
        return tokens_BT.at[:, n].set(jnp.argmax(logits_BTV[:, n - 1], axis=-1))

    def run() -> np.ndarray:
        tokens = jnp.zeros((len(prompts), length + 2), jnp.int32).at[:, 1].set(prompts[:, 0])
        for n in range(2, length + 2):
            tokens = next_tokens(tokens, n)
        return np.asarray(tokens)[:, 2:]

    return run


def notebook(model: Model, params: Params, length: int) -> float:
    """Returns tokens/s of one forward pass per token and sequence, one operation at a time.

    Operations compile at each new length, so the second pass of each length is timed. Only every eighth length is
    measured.
    """

    def next_token(tokens: jax.Array) -> jax.Array:
        return jnp.argmax(model.apply(params, {"inputs": tokens})[0, -1])

    times = []
    for n in range(2, length + 2, 8):
        tokens = jnp.zeros((1, n), jnp.int32)
        next_token(tokens).block_until_ready()
        start = time.perf_counter()
        next_token(tokens).block_until_ready()
        times.append(time.perf_counter() - start)
    return 1 / float(np.mean(times))


def seconds(run: Callable[[], np.ndarray], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def main(_: list[str]) -> None:
    length, batch = LENGTH.value, BATCH.value
    config = TransformerLMConfig(n_layers=2, d_model=128, d_ff=256, n_heads=2, max_len=length + 2)
    model = transformer_lm(config, VOCAB_SIZE)
    params = jax.jit(lambda key: initialize(model.spec, key))(jax.random.key(0))
    prompts = np.random.default_rng(0).integers(1, VOCAB_SIZE, (batch, 1)).astype(np.int32)

    outputs, rates = {}, {}
    for name, way in {"cached": cached, "compiled": compiled}.items():
        run = way(model, params, prompts, length)
        outputs[name] = run()  # compiles
        rates[name] = batch * length / seconds(run, REPEATS.value)
    rates["notebook"] = notebook(model, params, length)
    for name, rate in rates.items():
        print(f"{name:10}{rate:12,.1f} tokens/s   cached is {rates['cached'] / rate:8.1f} x")
    print(f"cached and compiled agree on {(outputs['cached'] == outputs['compiled']).mean():.1%} of the tokens")


if __name__ == "__main__":
    app.run(main)
