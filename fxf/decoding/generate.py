"""Generation: prefill, then one cached step a token, in one compiled loop."""

import jax
import jax.numpy as jnp

from fxf.decoding.sampling import Sampling, choose
from fxf.models.model import Model
from fxf.weights import Params


def generate(
    model: Model,
    params: Params,
    prompts_BP: jax.Array,
    lengths_B: jax.Array,
    *,
    max_tokens: int,
    end_token: int,
    sampling: Sampling = Sampling(),
    key: jax.Array | None = None,
) -> jax.Array:
    """Continues each prompt until the end token or `max_tokens`. Call it under `jax.jit`.

    Args:
      prompts_BP: int32 prompts, right-padded.
      lengths_B: tokens in each prompt, from 0 (nothing but the 0 in front that a language model reads) to P.
      key: needed to sample; greedy decoding reads none. Row b draws from `fold_in(key, b)`.

    Returns:
      int32 [B, max_tokens]; what follows a row's end token is filled with it.
    """
    batch_size, longest = prompts_BP.shape
    inputs_BT = jnp.pad(prompts_BP, ((0, 0), (1, 0)))
    # The last input of each row is left to the first step, whose logits choose the first new token.
    last_B = jnp.take_along_axis(inputs_BT, lengths_B[:, None], axis=1)[:, 0]
    cache = model.prefill(params, {"inputs": inputs_BT[:, :-1], "lengths": lengths_B}, longest + max_tokens)
    row_keys_B = jax.vmap(jax.random.fold_in, (None, 0))(
        jax.random.key(0) if key is None else key, jnp.arange(batch_size)
    )

    def unfinished(carry: tuple) -> jax.Array:
        i, _, _, ended_B, _ = carry
        return (i < max_tokens) & ~ended_B.all()

    def one_token(carry: tuple) -> tuple:
        i, cache, tokens_B, ended_B, output_BN = carry
        logits_BV, cache = model.step(params, cache, tokens_B)
        keys_B = jax.vmap(jax.random.fold_in, (0, None))(row_keys_B, i)
        tokens_B = jnp.where(ended_B, end_token, choose(sampling, logits_BV, keys_B))
        return i + 1, cache, tokens_B, ended_B | (tokens_B == end_token), output_BN.at[:, i].set(tokens_B)

    output_BN = jnp.full((batch_size, max_tokens), end_token, jnp.int32)
    start = (jnp.int32(0), cache, last_B, jnp.zeros(batch_size, bool), output_BN)
    return jax.lax.while_loop(unfinished, one_token, start)[-1]
