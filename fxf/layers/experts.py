"""The experts of a mixture on one device, and on a mesh of which each device holds some of them.

Letters: N tokens, E experts, K experts of a token, M = N · K rows.
"""

import math

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from fxf.layers.config import TransformerConfig
from fxf.layers.feed_forward import feed_forward
from fxf.machine.devices import EXPERT, ROWS, SEQUENCE, target_mesh
from fxf.machine.on_gpu import rows_of
from fxf.weights import Params


def apply_experts(
    config: TransformerConfig, params: Params, x_RTD: jax.Array, chosen_RTK: jax.Array, weights_RTK: jax.Array
) -> jax.Array:
    """Returns for each vector the sum of its experts' outputs by their weights, [R, T, D].

    Devices of a mesh along its axis `expert` hold E / n experts each, and R / n rows. They gather the rows, and each
    adds its experts' part to all of them. Rows or experts that a mesh does not divide are left to the compiler.

    Args:
      params: the weights of a feed-forward layer, each with an axis of experts in front.
    """
    mesh, n_experts = target_mesh(), len(params["up"])

    def by_token(x_RTD: jax.Array, chosen_RTK: jax.Array, weights_RTK: jax.Array, params: Params) -> jax.Array:
        flat = [x.reshape(-1, x.shape[-1]) for x in (x_RTD, chosen_RTK, weights_RTK)]
        return _sum_of_experts(config, params, *flat).reshape(x_RTD.shape)

    def of_device(x_RTD: jax.Array, chosen_RTK: jax.Array, weights_RTK: jax.Array, params: Params) -> jax.Array:
        first = jax.lax.axis_index(EXPERT) * len(params["up"])
        x, chosen, weights = (
            jax.lax.all_gather(x, EXPERT, axis=0, tiled=True) for x in (x_RTD, chosen_RTK, weights_RTK)
        )
        return jax.lax.psum_scatter(by_token(x, chosen - first, weights, params), EXPERT, tiled=True)

    arrays = (x_RTD, chosen_RTK, weights_RTK)
    if mesh is None or not _divides(mesh, x_RTD.shape, n_experts):
        return by_token(*arrays, params)
    tokens, experts = P(ROWS, SEQUENCE), jax.tree.map(lambda _: P(EXPERT), params)
    mapped = jax.shard_map(of_device, mesh=mesh, in_specs=(tokens, tokens, tokens, experts), out_specs=tokens)
    return mapped(*arrays, params)


def _divides(mesh: Mesh, shape_RTD: tuple[int, ...], n_experts: int) -> bool:
    """Returns whether the mesh divides rows, tokens and experts."""
    n_parts = math.prod(mesh.shape[axis] for axis in ROWS)
    return not (shape_RTD[0] % n_parts or shape_RTD[1] % mesh.shape[SEQUENCE] or n_experts % mesh.shape[EXPERT])


def _sum_of_experts(
    config: TransformerConfig, params: Params, x_ND: jax.Array, chosen_NK: jax.Array, weights_NK: jax.Array
) -> jax.Array:
    """Returns for each vector the sum of its experts' outputs by their weights, [N, D], without experts not here.

    Args:
      chosen_NK: the experts of each token; those here are 0 … E - 1.
    """
    n_experts, top_k = len(params["up"]), chosen_NK.shape[1]
    chosen_M, is_here_NK = chosen_NK.reshape(-1), (chosen_NK >= 0) & (chosen_NK < n_experts)
    place_M = jnp.where(is_here_NK.reshape(-1), chosen_M, n_experts)  # those that are not here come last
    order_M = jnp.argsort(place_M, stable=True)
    experts_M = jnp.minimum(place_M[order_M], n_experts - 1)
    sizes_E = (place_M[:, None] == jnp.arange(n_experts)[None]).sum(0, dtype=jnp.int32)

    def product(x_MI: jax.Array, w_EIO: jax.Array, bias_EO: jax.Array | None) -> jax.Array:
        y_MO = jax.lax.ragged_dot(x_MI, w_EIO.astype(x_MI.dtype), sizes_E)
        return y_MO if bias_EO is None else y_MO + rows_of(bias_EO, experts_M).astype(y_MO.dtype)

    # Both moves are permutations, so that their gradients are moves too, and add nothing in an order of chance.
    rows_MD = jnp.repeat(x_ND, top_k, axis=0).at[order_M].get(unique_indices=True)
    y_MD = feed_forward(config, params, rows_MD, product)
    y_NKD = y_MD.at[jnp.argsort(order_M)].get(unique_indices=True).reshape(*chosen_NK.shape, -1)
    y_NKD = jnp.where(is_here_NK[..., None], y_NKD, 0)
    return jnp.einsum("NKD,NK->ND", y_NKD, weights_NK.astype(y_NKD.dtype))
