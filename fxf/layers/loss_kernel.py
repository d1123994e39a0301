"""The cross-entropy of rows of logits and its gradient in one GPU kernel, written in Pallas for Triton."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

# With 1,024 threads a row, a multiprocessor has two rows: few enough to be in the GPU's cache for the second pass.
MOST_THREADS = 1024


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def loss_by_kernel(
    mesh: Any, vocab_size: int, smoothing: Any, logits_NV: jax.Array, targets_N: jax.Array, weights_N: jax.Array
) -> jax.Array:
    """Returns the sum of -ω y over N rows, as `fxf.layers.loss.cross_entropy` describes it.

    The kernel that reads the logits writes the gradient over them; XLA would read them twice more.

    Args:
      mesh: devices, each of which calls the kernel for its part of an axis mapped with `spmd_axis_name`; or None.
      vocab_size: logits beyond it are padding.
    """
    return _forward(mesh, vocab_size, smoothing, logits_NV, targets_N, weights_N)[0]


def _forward(mesh: Any, vocab_size: int, smoothing: Any, logits_NV: Any, targets_N: Any, weights_N: Any) -> Any:
    from jax.experimental import pallas as pl  # imported here, because only a GPU needs it
    from jax.experimental.pallas import triton

    n_rows, n_columns = logits_NV.shape
    n_threads = min(MOST_THREADS, max(32, pl.next_power_of_2(pl.cdiv(n_columns, 8))))
    n_chunks = pl.cdiv(n_columns, 8 * n_threads)

    def kernel(*refs: Any) -> None:
        logits_ref, targets_ref, weights_ref, share_ref, gradient_ref, losses_ref = refs
        row = pl.program_id(0)
        target, weight, share = targets_ref[row], weights_ref[row], share_ref[0]
        column = jnp.clip(target, 0, n_columns - 1)  # a target of weight 0 may be outside the vocabulary
        target_logit = logits_ref[row, column].astype(jnp.float32)  # before the gradient overwrites it

        def read(i: Any) -> tuple[jax.Array, jax.Array]:
            """Returns the columns of a chunk, 8 for each thread, and the logits there."""
            columns = (i * n_threads + jnp.arange(n_threads)[:, None]) * 8 + jnp.arange(8)[None]
            x = triton.load(logits_ref.at[row, columns], mask=columns < n_columns, other=-jnp.inf)
            return columns, jnp.where(columns < vocab_size, x.astype(jnp.float32), -jnp.inf)

        def add(i: Any, sums: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
            """Adds to each thread's pair (m, s), which stands for s · exp m, and to its sum of logits."""
            (m, s, plain), (columns, x) = sums, read(i)
            most = jnp.maximum(m, x.max(1))
            s = s * jnp.exp(m - most) + jnp.exp(x - most[:, None]).sum(1)
            return most, s, plain + jnp.where(columns < vocab_size, x, 0).sum(1)

        def write(i: Any, _: Any) -> None:
            columns, x = read(i)
            wanted = (1 - share) * (columns == target) + share / vocab_size * (columns < vocab_size)
            gradient = weight * (jnp.exp(x - log_sum) - wanted)
            triton.store(gradient_ref.at[row, columns], gradient.astype(gradient_ref.dtype), mask=columns < n_columns)

        zeros = jnp.zeros(n_threads, jnp.float32)
        m, s, plain = jax.lax.fori_loop(0, n_chunks, add, (zeros + jnp.finfo(jnp.float32).min, zeros, zeros))
        log_sum = m.max() + jnp.log((s * jnp.exp(m - m.max())).sum())
        wanted = (1 - share) * target_logit
        if smoothing is not None:  # 0 times -inf is NaN
            wanted += share / vocab_size * plain.sum()
        losses_ref[row] = weight * (log_sum - wanted)
        jax.lax.fori_loop(0, n_chunks, write, None)

    call = pl.pallas_call(
        kernel,
        grid=(n_rows,),
        out_shape=tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (logits_NV, weights_N)),
        input_output_aliases={0: 0},
        compiler_params=triton.CompilerParams(num_warps=n_threads // 32),
        cost_estimate=pl.CostEstimate(
            flops=0, transcendentals=2 * logits_NV.size, bytes_accessed=2 * logits_NV.size * logits_NV.dtype.itemsize
        ),
        metadata={"flops": "0"},  # so the compiled program says that it has no products
        name="cross_entropy",
    )
    if mesh is not None:
        call = jax.shard_map(call, mesh=mesh, in_specs=PartitionSpec(), out_specs=PartitionSpec(), check_vma=False)
    share_1 = jnp.full(1, 0 if smoothing is None else smoothing, jnp.float32)
    gradient_NV, losses_N = call(logits_NV, targets_N, weights_N, share_1)
    return losses_N.sum(), gradient_NV


def _backward(_: Any, __: int, gradient_NV: jax.Array, cotangent: jax.Array) -> tuple:
    return None, (gradient_NV * cotangent).astype(gradient_NV.dtype), None, None


loss_by_kernel.defvjp(_forward, _backward)
