"""Loss and gradient of a batch, as sums over its parts."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from fxf.base import on_cpu
from fxf.base.devices import DATA, ROWS, SEQUENCE, TENSOR, over_mesh, target_devices
from fxf.base.named_arrays import OF_TRAINING
from fxf.base.random_keys import key_of_part
from fxf.base.weights import VOCABULARY, Params, map_weights
from fxf.layers.linear import copied
from fxf.layers.loss import CROSS_ENTROPY, mean, or_one
from fxf.layers.named import MOVED, TOTAL, WEIGHT, edited, names_in
from fxf.models.model import Batch, Model
from fxf.training.sharding import Layout


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
      label_smoothing: None for 0.
      layout: the devices over which the batch's tokens are sharded; None if they are not.
    """
    params, model = model.to_plain(params), model.plain
    of_features = of_readout = params
    if layout:
        of_features, of_readout = layout.gather(model, params, pad=model.loss.of_logits)
        model, batch = layout.with_mesh(model), layout.shard(batch)
    features = model.features(of_features, batch, rng=rng)
    options = _loss_options(model, params, features, layout) if layout else {}
    narrow = model.dtype != model.weights_dtype
    is_cast = map_weights(lambda _, weight: narrow and VOCABULARY in weight.axes, model.spec)

    def sums_of_readout(params: Params, *arrays: jax.Array) -> tuple[jax.Array, jax.Array]:
        # Cast once, not for each group of logits.
        copies = jax.tree.map(lambda cast, p: p.astype(model.dtype) if cast else p, is_cast, params)

        @over_mesh(None)  # on each device it reads rows of its own
        def readout(x: jax.Array) -> jax.Array:
            read = jax.tree.map(lambda cast, p, copy: copied(p, copy) if cast else p, is_cast, params, copies)
            return model.readout(read, x)

        return jax.tree.map(jnp.asarray, model.loss.sums(readout, *arrays, label_smoothing, **options))

    if layout and layout.mesh.size > 1:
        sums_of_readout = over_mesh(layout.mesh)(sums_of_readout)
    arrays = (features, batch.get("targets", batch["weights"]), batch["weights"])
    may_compare_rows = model.width is None and model.loss != CROSS_ENTROPY
    if layout is None or layout.parts * layout.mesh.shape[SEQUENCE] == 1 or may_compare_rows:
        return sums_of_readout(of_readout, *arrays)
    # The loss computes logits group by group. Each device has groups of its own tokens and a copy of the weights, so no
    # group waits for other devices; one sum over the devices follows.
    parts = [layout.shards_of_tokens(x) for x in layout.shard(arrays)]
    copies = jax.tree.map(lambda p: jnp.broadcast_to(p[None], (len(parts[0]), *p.shape)), of_readout)
    return jax.tree.map(jnp.sum, jax.vmap(sums_of_readout, spmd_axis_name=(*ROWS, SEQUENCE))(copies, *parts))


def _loss_options(model: Model, params: Params, features: jax.Array, layout: Layout) -> dict[str, int]:
    """Returns the number of a row's logits without padding, and how many logits to compute at once."""
    if not model.loss.of_logits or not layout.pads:
        return {}
    *rows, vocab_size = jax.eval_shape(model.readout, params, features).shape
    if layout.mesh.shape[TENSOR] == 1:
        return {"vocab_size": vocab_size}
    # `tensor` shards each row's logits, so each group of rows would wait for a sum over the devices.
    return {"vocab_size": vocab_size, "at_once": math.prod(rows) * layout.padded_vocabulary(vocab_size)}


def objective_and_gradient(
    model: Model,
    params: Params,
    batch: Batch,
    rng: jax.Array | None = None,
    *,
    label_smoothing: jax.Array | float | None = None,
    microbatches: int = 1,
    layout: Layout | None = None,
    asked: Sequence[str] | None = None,
) -> tuple[jax.Array, jax.Array, Params, dict[str, jax.Array]]:
    """Returns (loss_sum, weight_sum, gradient, metrics). Sums of a batch's parts add up to the batch's.

    The gradient is that of loss_sum, and of weight_sum times each term of the model (`fxf.layers.named.term`). So
    gradient / weight_sum is that of the objective, the mean loss plus the terms. If the batch has no weight, the
    gradient is that of the terms alone. The metrics are terms and figures.

    A row's dropout does not depend on the parts if `rng` is a key of `random_key` and a part has an even number of
    elements: a word of random bits serves two of them.

    Args:
      microbatches: number of equal parts, computed one after the other in the same memory. A CPU may cut them further.
      layout: the devices that hold the params, and over which the rows of each part are sharded. Under `jax.pmap` the
        batch is one device's part, and sums run over all devices.
      asked: the model's `terms_and_figures`; None finds them, by tracing the loss once more.
    """
    axis, layout = (DATA, None) if layout is not None and layout.pmap else (None, layout)
    n_parts = microbatches * parts_in_cache(model, batch["weights"].shape, microbatches, layout)
    asked = terms_and_figures(model, params, batch, rng) if asked is None else asked
    loss = functools.partial(batch_loss, model, label_smoothing=label_smoothing, layout=layout)
    if asked:
        return _with_terms(edited(loss, read=asked), params, batch, rng, n_parts, axis)
    of_part = functools.partial(jax.value_and_grad(loss, has_aux=True), params)
    sums, gradient = _sum_over_parts(of_part, batch, rng, n_parts, axis)
    return *sums, gradient, {}


def _sum_over_parts(
    of_part: Callable[[Batch, Any], Any], batch: Batch, rng: jax.Array | None, n_parts: int, axis: str | None
) -> Any:
    """Returns the sum of `of_part(part, its key)` over the parts of a batch, and over the devices of a mapped axis."""
    if axis:
        return jax.lax.psum(_sum_over_parts(of_part, batch, rng, n_parts, None), axis)
    if n_parts == 1:
        return of_part(batch, rng)

    def add(total: Any, one: Any) -> tuple[Any, None]:
        i, part = one
        return jax.tree.map(jnp.add, total, of_part(part, None if rng is None else key_of_part(rng, i))), None

    parts = {name: x.reshape(n_parts, -1, *x.shape[1:]) for name, x in batch.items()}
    first = {name: jax.ShapeDtypeStruct(x.shape[1:], x.dtype) for name, x in parts.items()}
    start = jax.tree.map(jnp.zeros_like, jax.eval_shape(of_part, first, rng))
    return jax.lax.scan(add, start, (jnp.arange(n_parts), parts))[0]


def terms_and_figures(model: Model, params: Params, batch: Batch, rng: jax.Array | None) -> tuple[str, ...]:
    """Returns the full names of the terms and figures of a model in training; the arguments may be shapes."""
    shapes = jax.eval_shape(lambda *args: args, params, batch, rng)
    found = names_in(functools.partial(batch_loss, model), *shapes)
    return tuple(name for name in found if name.startswith(OF_TRAINING))


def metric_names(asked: Sequence[str]) -> list[str]:
    """Returns the names of the metrics that show these terms and figures."""
    return [name.removesuffix(TOTAL) for name in asked if not name.endswith(WEIGHT) and not name.startswith(MOVED)]


def _with_terms(
    read: Callable[..., Any], params: Params, batch: Batch, rng: jax.Array | None, n_parts: int, axis: str | None
) -> tuple[jax.Array, jax.Array, Params, dict[str, jax.Array]]:
    """Returns what `objective_and_gradient` does, for a loss with terms and figures, which `read` returns with it.

    The gradient of a part needs the weights of the terms in the whole batch. With several parts, these are computed
    first, which is cheap unless the weight of a term depends on features.
    """

    def weights(part: Batch, rng: jax.Array | None) -> Any:
        (_, weight_sum), found = read(params, part, rng)
        return weight_sum, {name: x for name, x in _summed(found).items() if name.endswith(WEIGHT)}

    whole = _sum_over_parts(weights, batch, rng, n_parts, axis) if n_parts > 1 or axis else None

    def objective(params: Params, part: Batch, rng: jax.Array | None) -> tuple[jax.Array, Any]:
        (loss_sum, weight_sum), found = read(params, part, rng)
        sums = _summed(found)
        of_batch, of_terms = whole if whole is not None else (weight_sum, sums)
        terms = sum(_terms(sums, of_terms).values(), jnp.zeros(()))
        return loss_sum + jax.lax.stop_gradient(or_one(of_batch)) * terms, (loss_sum, weight_sum, sums)

    def of_part(part: Batch, rng: jax.Array | None) -> Any:
        gradient, (loss_sum, weight_sum, sums) = jax.grad(objective, has_aux=True)(params, part, rng)
        return loss_sum, weight_sum, gradient, sums

    loss_sum, weight_sum, gradient, sums = _sum_over_parts(of_part, batch, rng, n_parts, axis)
    n_sums = n_parts * (jax.lax.psum(1, axis) if axis else 1)
    shown = _terms(sums, sums) | {name: x / n_sums for name, x in sums.items() if x.ndim == 0}
    return loss_sum, weight_sum, gradient, {name: shown[name] for name in metric_names(tuple(sums))}


def _summed(found: dict[str, jax.Array]) -> dict[str, jax.Array]:
    """Returns, for each name, the totals and the weights of its n terms, [n], or the mean of its figures, [].

    Under `vmap` a term has several totals, which may share one weight.
    """
    summed = {}
    for name, x in found.items():
        if name.endswith(WEIGHT):
            n_shared = found[name.removesuffix(WEIGHT) + TOTAL].size // x.size
            summed[name] = n_shared * x.reshape(len(x), -1).sum(1)
        else:
            summed[name] = x.reshape(len(x), -1).sum(1) if name.endswith(TOTAL) else x.mean()
    return summed


def _terms(sums: dict[str, jax.Array], weights: dict[str, jax.Array]) -> dict[str, jax.Array]:
    """Returns the value of each term: the sum of total / weight over those of its name."""
    names = [name.removesuffix(TOTAL) for name in sums if name.endswith(TOTAL)]
    return {name: mean(sums[name + TOTAL], weights[name + WEIGHT]).sum() for name in names}


def parts_in_cache(model: Model, shape: tuple[int, ...], microbatches: int, layout: Layout | None) -> int:
    """Returns into how many parts a CPU splits each microbatch; `shape` is that of the batch's weights."""
    here = target_devices()[0].platform == "cpu" and (layout is None or layout.mesh.size == 1)
    if not here or model.width is None:
        return 1
    return on_cpu.n_parts(shape[0] // microbatches, math.prod(shape[1:]) * model.width)
