"""Generation: prefill, then one cached step a token, in one compiled loop."""

from typing import Any

import jax
import jax.numpy as jnp

from fxf.config import DecodeConfig
from fxf.decoding.sampling import choose
from fxf.models.model import Cache, Model
from fxf.weights import Params, unstack

# What to continue: int32 `tokens` [B, P], right-padded, of which row b holds `lengths[b]` (from 0 to P); where it is
# another than token 0, the token `first` [B] that a decoder reads in front of them; and whatever else the model's
# prefill reads, such as a `source`.
Prompts = dict[str, Any]


def generate(
    model: Model,
    params: Params,
    prompts: Prompts,
    *,
    max_tokens: int,
    end_token: int,
    decode: DecodeConfig = DecodeConfig(),
    key: jax.Array | None = None,
) -> jax.Array:
    """Continues each prompt until the end token or `max_tokens`. Call it under `jax.jit`.

    Args:
      key: needed to sample; greedy decoding reads none. Row b draws from `fold_in(key, b)`.

    Returns:
      int32 [B, max_tokens]; what follows a row's end token is filled with it.
    """
    assert model.step is not None
    step, params = model.step, unstack(params)
    batch_size = prompts["tokens"].shape[0]
    cache, last_B = prefill(model, params, prompts, max_tokens)
    row_keys_B = jax.vmap(jax.random.fold_in, (None, 0))(
        jax.random.key(0) if key is None else key, jnp.arange(batch_size)
    )

    def unfinished(carry: tuple) -> jax.Array:
        i, _, _, ended_B, _ = carry
        return (i < max_tokens) & ~ended_B.all()

    def one_token(carry: tuple) -> tuple:
        i, cache, tokens_B, ended_B, output_BN = carry
        logits_BV, cache = step(params, cache, tokens_B)
        keys_B = jax.vmap(jax.random.fold_in, (0, None))(row_keys_B, i)
        tokens_B = jnp.where(ended_B, end_token, choose(decode, logits_BV, keys_B))
        return i + 1, cache, tokens_B, ended_B | (tokens_B == end_token), output_BN.at[:, i].set(tokens_B)

    output_BN = jnp.full((batch_size, max_tokens), end_token, jnp.int32)
    start = (jnp.int32(0), cache, last_B, jnp.zeros(batch_size, bool), output_BN)
    return jax.lax.while_loop(unfinished, one_token, start)[-1]


def prefill(model: Model, params: Params, prompts: Prompts, max_tokens: int, width: int = 1) -> tuple[Cache, jax.Array]:
    """Reads the prompts into a cache with room for `max_tokens` more in each of `width` hypotheses.

    Returns:
      The cache, and each row's last token, int32 [B · width], which is left to the first step: its logits choose the
      first new token.
    """
    rest = dict(prompts)
    tokens_BP, lengths_B = (jnp.asarray(rest.pop(name)) for name in ("tokens", "lengths"))
    first_B = jnp.asarray(rest.pop("first")) if "first" in rest else jnp.zeros_like(lengths_B)
    inputs_BT = jnp.concatenate([first_B[:, None], tokens_BP], axis=1)
    last_B = jnp.take_along_axis(inputs_BT, lengths_B[:, None], axis=1)[:, 0]
    batch = {**rest, "inputs": inputs_BT[:, :-1], "lengths": lengths_B}
    assert model.prefill is not None
    cache = model.prefill(params, batch, tokens_BP.shape[1] + max_tokens)
    if width == 1:
        return cache, last_B
    return cache.select(jnp.zeros((len(last_B), width), jnp.int32)), jnp.repeat(last_B, width)
