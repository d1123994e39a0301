"""Loss and gradient of a batch, as sums over its parts."""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp

from fxf.machine import on_cpu
from fxf.machine.devices import target_devices
from fxf.machine.random_keys import key_of_part
from fxf.models.model import Batch, Model
from fxf.training.sharding import SEQUENCE, TENSOR, Layout
from fxf.weights import Params


def batch_loss(
    model: Model,
    params: Params,
    batch: Batch,
    rng: jax.Array | None = None,
    label_smoothing: jax.Array | float | None = None,
    layout: Layout | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Returns (loss_sum, weight_sum) of a batch.

    Args:
      label_smoothing: None means 0.
      layout: the devices over which the batch's tokens are sharded; None if they are not.
    """
    params, model = model.to_plain(params), model.plain
    of_features = of_readout = params
    if layout:
        of_features, of_readout = layout.gather(model, params, pad=model.loss.of_logits)
        model, batch = layout.with_mesh(model), layout.shard_tokens(batch)
    features = model.features(of_features, batch, rng=rng)
    options = _loss_options(model, params, features, layout) if layout else {}

    def sums_of_readout(params: Params, *arrays: jax.Array) -> tuple[jax.Array, jax.Array]:
        return model.loss.sums(functools.partial(model.readout, params), *arrays, label_smoothing, **options)

    arrays = (features, batch["targets"], batch["weights"])
    if layout is None or layout.parts * layout.mesh.shape[SEQUENCE] == 1:
        return sums_of_readout(of_readout, *arrays)
    # The loss computes the logits of one group of tokens after another. Each device has groups of its own tokens and a
    # copy of the weights. So no group waits for other devices; one sum over the devices follows.
    parts = [layout.shards_of_tokens(x) for x in layout.shard_tokens(arrays)]
    copies = jax.tree.map(lambda p: jnp.broadcast_to(p[None], (len(parts[0]), *p.shape)), of_readout)
    sums = jax.vmap(sums_of_readout)(copies, *parts)
    return jax.tree.map(jnp.sum, sums)


def _loss_options(model: Model, params: Params, features: jax.Array, layout: Layout) -> dict[str, int]:
    """Returns how many of a row's logits are not padding on these devices, and how many logits are computed at once."""
    if not model.loss.of_logits or not layout.pads:
        return {}
    *rows, vocab_size = jax.eval_shape(model.readout, params, features).shape
    if layout.mesh.shape[TENSOR] == 1:
        return {"vocab_size": vocab_size}
    # A device has a part of each row's logits, so groups of rows would each wait for a sum over the devices.
    return {"vocab_size": vocab_size, "at_once": math.prod(rows) * layout.padded_vocabulary(vocab_size)}


def parts_of(x: jax.Array, parts: int) -> jax.Array:
    """Returns the rows [B, ...] as [parts, B / parts, ...]."""
    return x.reshape(parts, -1, *x.shape[1:])


def loss_and_gradient(
    model: Model,
    params: Params,
    batch: Batch,
    rng: jax.Array | None = None,
    *,
    label_smoothing: jax.Array | float | None = None,
    microbatches: int = 1,
    layout: Layout | None = None,
) -> tuple[jax.Array, jax.Array, Params]:
    """Returns (loss_sum, weight_sum, gradient of loss_sum). Sums of a batch's parts add up to the batch's.

    A row's dropout does not depend on the parts, if a part has an even number of elements and `rng` is a key of
    `random_key`.

    Args:
      microbatches: number of equal parts, computed one after the other in the same memory. A CPU may cut them further.
      layout: the devices that hold the params, and over which the rows of each part are sharded.
    """
    n_parts = microbatches * parts_in_cache(model, batch["weights"].shape, microbatches, layout)
    sums_and_gradient = jax.value_and_grad(batch_loss, argnums=1, has_aux=True)

    def of_part(part: Batch, rng: jax.Array | None) -> tuple[jax.Array, jax.Array, Params]:
        sums, gradient = sums_and_gradient(model, params, part, rng, label_smoothing, layout)
        return *sums, gradient

    def add(total: Any, one: Any) -> tuple[Any, None]:
        i, part = one
        return jax.tree.map(jnp.add, total, of_part(part, None if rng is None else key_of_part(rng, i))), None

    if n_parts == 1:
        return of_part(batch, rng)
    parts = {name: parts_of(value, n_parts) for name, value in batch.items()}
    start = (jnp.zeros(()), jnp.zeros(()), jax.tree.map(jnp.zeros_like, params))
    return jax.lax.scan(add, start, (jnp.arange(n_parts), parts))[0]


def parts_in_cache(model: Model, shape: tuple[int, ...], microbatches: int, layout: Layout | None) -> int:
    """Returns into how many parts a CPU cuts each microbatch of a batch with weights of this shape, [B, T]."""
    here = target_devices()[0].platform == "cpu" and (layout is None or layout.mesh.size == 1)
    if not here or model.width is None:
        return 1
    n_rows, n_tokens = shape
    return on_cpu.n_parts(n_rows // microbatches, n_tokens * model.width)
