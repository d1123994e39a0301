"""Memories that decay: gated linear recurrences and the gated delta rule, in chunks of tokens.

Each head has a matrix S, the memory. A token with key k, value v, log decay g and query q does

    S ← e^g S        u = v, or by the delta rule u = β (v - k S)        S ← S + k ⊗ u        and reads q S.

Without β this is the recurrence of a state space (Dao and Gu 2024, arXiv 2405.21060, "SSD"); with β the memory first
loses what it has at k (Yang et al. 2024, "Gated Delta Networks", arXiv 2412.06464).

A chunk of C tokens is computed by matrix products. When token t reads what token c has added, that has decayed by
D[t, c] = exp(g[c+1] + … + g[t]), and the memory before the chunk by d[t] = exp(g[1] + … + g[t]). So a chunk reads
(Q Kᵀ ⊙ D) U + d ⊙ Q S. By the delta rule U + L U = β (V - d ⊙ K S), where L is β K Kᵀ ⊙ D below the diagonal. The
inverse of I + L does not depend on the memory, so all chunks compute it at once; only the memory needs a loop over
chunks. A chunk of one token, as in decoding, is the recurrence above.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp

from fxf.layers.layer import Context
from fxf.layers.linear import as_float32

CHUNK = 64  # tokens; a power of two


def fading_memory(
    q_RTGK: jax.Array,
    k_RTGK: jax.Array,
    v_RTGEO: jax.Array,
    log_decay_RTGE: jax.Array,
    beta_RTGE: jax.Array | None = None,
    memory_RGEKO: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Returns what each token reads, [R, T, G, E, O], and the memory after all tokens, in float32 (or float64).

    Args:
      q_RTGK, k_RTGK: queries and keys; each of their G heads serves E heads of values.
      log_decay_RTGE: g, at most 0. -inf forgets all earlier tokens.
      beta_RTGE: β of the delta rule, from 0 (write nothing) to 1 (replace what the memory has at k), or up to 2; None
        for a plain recurrence.
      memory_RGEKO: the memory before the tokens; None for an empty one.
    """
    length, chunk = q_RTGK.shape[1], 1
    while chunk < min(CHUNK, length):
        chunk *= 2
    q_NRGTK, k_NRGTK = _chunked(q_RTGK, chunk, 3), _chunked(k_RTGK, chunk, 3)
    u_NRGETO, decay_NRGET = _chunked(v_RTGEO, chunk, 4), jnp.exp(_chunked(log_decay_RTGE, chunk, 4))
    fading_NRGETC = fading(decay_NRGET.reshape(-1, chunk)).reshape(*decay_NRGET.shape, chunk)
    from_start_NRGET = fading_NRGETC[..., 0] * decay_NRGET[..., :1]
    scores_NRGETC = jnp.einsum("NRGTK,NRGCK->NRGTC", q_NRGTK, k_NRGTK)[:, :, :, None] * fading_NRGETC
    erased_NRGETK = None
    if beta_RTGE is not None:
        inverse_NRGETC = _corrections(k_NRGTK, _chunked(beta_RTGE, chunk, 4), fading_NRGETC)
        u_NRGETO = jnp.einsum("NRGETC,NRGECO->NRGETO", inverse_NRGETC, u_NRGETO)
        erased_NRGETK = jnp.einsum("NRGETC,NRGCK->NRGETK", inverse_NRGETC * from_start_NRGET[..., None, :], k_NRGTK)

    def one_chunk(memory_RGEKO: jax.Array, part: Any) -> tuple[jax.Array, jax.Array]:
        q_RGTK, k_RGTK, u_RGETO, scores_RGETC, from_start_RGET, to_end_RGET, erased_RGETK = part
        if erased_RGETK is not None:
            u_RGETO = u_RGETO - jnp.einsum("RGETK,RGEKO->RGETO", erased_RGETK, memory_RGEKO)
        earlier_RGETO = jnp.einsum("RGTK,RGEKO->RGETO", q_RGTK, memory_RGEKO) * from_start_RGET[..., None]
        read_RGETO = earlier_RGETO + jnp.einsum("RGETC,RGECO->RGETO", scores_RGETC, u_RGETO)
        added_RGEKO = jnp.einsum("RGTK,RGETO->RGEKO", k_RGTK, u_RGETO * to_end_RGET[..., None])
        return memory_RGEKO * from_start_RGET[..., -1:, None] + added_RGEKO, read_RGETO

    if memory_RGEKO is None:
        shape = (q_RTGK.shape[0], *v_RTGEO.shape[2:4], q_RTGK.shape[-1], v_RTGEO.shape[-1])
        memory_RGEKO = jnp.zeros(shape, u_NRGETO.dtype)
    parts = (q_NRGTK, k_NRGTK, u_NRGETO, scores_NRGETC, from_start_NRGET, fading_NRGETC[..., -1, :], erased_NRGETK)
    if len(u_NRGETO) == 1:
        after_RGEKO, read_RGETO = one_chunk(memory_RGEKO, jax.tree.map(lambda x: x[0], parts))
        read_NRGETO = read_RGETO[None]
    else:
        after_RGEKO, read_NRGETO = jax.lax.scan(one_chunk, memory_RGEKO, parts)
    read_RTGEO = jnp.moveaxis(read_NRGETO, (0, 4), (1, 2)).reshape(len(q_RTGK), -1, *v_RTGEO.shape[2:])
    return read_RTGEO[:, :length], after_RGEKO


def _chunked(x_RT: jax.Array, chunk: int, axis: int) -> jax.Array:
    """Cuts [R, T, …] into N chunks [N, R, …], with tokens on this axis; zeros, which change nothing, pad the last."""
    n_chunks, length = -(-x_RT.shape[1] // chunk), x_RT.shape[1]
    filled = jnp.pad(as_float32(x_RT), [(0, 0), (0, n_chunks * chunk - length), *[(0, 0)] * (x_RT.ndim - 2)])
    return jnp.moveaxis(filled.reshape(len(x_RT), n_chunks, chunk, *x_RT.shape[2:]), (1, 2), (0, axis))


def _corrections(k_NRGTK: jax.Array, beta_NRGET: jax.Array, fading_NRGETC: jax.Array) -> jax.Array:
    """Returns (I + L)⁻¹ β, which maps a chunk's values to what the delta rule adds to an empty memory."""
    products_NRGETC = jnp.einsum("NRGTK,NRGCK->NRGTC", k_NRGTK, k_NRGTK)[:, :, :, None] * fading_NRGETC
    lower_NRGETC = jnp.tril(beta_NRGET[..., None] * products_NRGETC, -1)
    inverse_NTC = inverse_plus_one(lower_NRGETC.reshape(-1, *lower_NRGETC.shape[-2:]))
    return inverse_NTC.reshape(lower_NRGETC.shape) * beta_NRGET[..., None, :]


def fading(decay_NT: jax.Array) -> jax.Array:
    """Returns D [N, T, C] from factors e^g [N, T]: the product of those after c up to t, and 0 where c is after t.

    It recurses on halves. Quotients of products, or differences of sums of g, would lose digits after a strong decay.
    T is a power of two.
    """
    n = decay_NT.shape[-1]
    if n == 1:
        return jnp.ones_like(decay_NT)[..., None]
    half = n // 2
    first, last = jnp.split(fading(jnp.concatenate([decay_NT[:, :half], decay_NT[:, half:]])), 2)
    from_middle, to_middle = last[:, :, :1] * decay_NT[:, half, None, None], first[:, -1:]
    return jnp.block([[first, jnp.zeros_like(first)], [from_middle * to_middle, last]])


@jax.custom_jvp
def inverse_plus_one(lower_NTC: jax.Array) -> jax.Array:
    """Returns (I + L)⁻¹ of matrices L that are 0 on and above the diagonal, [N, T, C]; T = C is a power of two.

    [[A, 0], [B, D]]⁻¹ = [[A⁻¹, 0], [-D⁻¹ B A⁻¹, D⁻¹]], where A⁻¹ and D⁻¹ are computed together. This is as stable as
    solving row by row, unlike a series of powers of L, and needs only products. These have full float32 precision, also
    on hardware that rounds factors by default, because an error at one token is passed on to all later ones.
    """
    n = lower_NTC.shape[-1]
    if n <= 2:  # L² = 0
        return jnp.eye(n, dtype=lower_NTC.dtype)[None] - lower_NTC
    half = n // 2
    halves = jnp.concatenate([lower_NTC[:, :half, :half], lower_NTC[:, half:, half:]])
    first, last = jnp.split(inverse_plus_one(halves), 2)
    below = -_exact(_exact(last, lower_NTC[:, half:, :half]), first)
    return jnp.block([[first, jnp.zeros_like(first)], [below, last]])


@inverse_plus_one.defjvp
def _inverse_plus_one_jvp(primals: Any, tangents: Any) -> tuple[jax.Array, jax.Array]:
    """Takes two products instead of differentiating the recursion."""
    inverse_NTC = inverse_plus_one(*primals)
    return inverse_NTC, -_exact(_exact(inverse_NTC, tangents[0]), inverse_NTC)


def _exact(left: jax.Array, right: jax.Array) -> jax.Array:
    return jnp.matmul(left, right, precision=jax.lax.Precision.HIGHEST)


def log_decays(context: Context, log_decay_RTGE: jax.Array) -> jax.Array:
    """Returns the log decays, but -inf (forget all) at the first token of each document, and 0 at padding."""
    documents = context.places.documents
    if documents is None:
        return log_decay_RTGE
    newest = jax.lax.cummax(jnp.where(documents > 0, jnp.arange(documents.shape[1])[None], 0), axis=1)  # not padding
    latest = jnp.take_along_axis(documents, newest, 1)
    first = documents != jnp.concatenate([documents[:, :1], latest[:, :-1]], 1)
    forgets = jnp.where(first[..., None, None], -jnp.inf, log_decay_RTGE)
    return jnp.where(context.real[..., None, None], forgets, 0)


def rates(key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
    """Returns log A with A uniform from 1 to 16, the rates at which heads forget; an initializer (Dao and Gu 2024)."""
    return jnp.log(jax.random.uniform(key, shape, dtype, 1, 16))


def step_biases(key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
    """Returns biases whose softplus is from 0.001 to 0.1, uniform in its logarithm; an initializer."""
    steps = jnp.exp(jax.random.uniform(key, shape, dtype, math.log(1e-3), math.log(0.1)))
    return steps + jnp.log(-jnp.expm1(-steps))
