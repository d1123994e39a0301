"""Low-rank adapters: only they train, and the weights that they are added to stay frozen (Hu et al. 2021, LoRA)."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
from flax.traverse_util import unflatten_dict

from fxf.base.config import key
from fxf.base.errors import UserError
from fxf.base.weights import EXPERT, Params, Spec, Weight, axes_of_matrix, fan_in, flatten, map_weights, matching, stack
from fxf.models.model import Model, reparametrized

LORA = "lora"  # the subtree of the adapters, and the section
RANK = "rank"  # the axis between the two factors


@dataclasses.dataclass(frozen=True)
class LoraConfig:
    """The `lora` section: adapters that train instead of the weights."""

    rank: int = key(0, "rank of the adapters, which train alone; 0: no adapters, the weights train", minimum=0)
    alpha: float = key(16.0, "an adapter is alpha / rank times the product of its factors", above=0, when="rank")
    rank_stabilized: bool = key(False, "divide alpha by the square root of the rank (Kalajdzievski 2023)", when="rank")
    weights: str = key(
        "*/query,*/value", "patterns of the matrices with an adapter, such as blocks/*,!*norm*,!*bias", when="rank"
    )

    @property
    def scale(self) -> float:
        """The factor of the product a · b."""
        return self.alpha / (math.sqrt(self.rank) if self.rank_stabilized else self.rank)


def lora(model: Model, config: LoraConfig) -> Model:
    """Returns the model with adapters, or `model` itself if their rank is 0.

    The weight W [in, out] at `path` becomes W + scale · a · b. W keeps its path, with learning rate 0. The factors are
    `lora/<path>/a` [in, rank], drawn with variance 1 / in, and `lora/<path>/b` [rank, out], which starts at zero, so
    that training starts from the model. A factor has the axes of its side of W, such as [heads, head_dim]. Each expert
    of a mixture has its own factors.

    Raises:
      UserError: a pattern of `lora.weights` matches no weight, or one that is not the matrix of a linear map.
    """
    if not config.rank:
        return model
    weights = flatten(model.spec)
    chosen = {path: weights[path] for path in matching(config.weights, weights, "lora.weights")}

    def to_plain(params: Params) -> Params:
        plain, factors = flatten({name: params[name] for name in model.spec}), flatten(params[LORA])
        for path, weight in chosen.items():
            product = functools.partial(jnp.tensordot, axes=1, precision="highest")
            product = jax.vmap(product) if weight.axes[0] == EXPERT else product
            plain[path] = plain[path] + config.scale * product(factors[f"{path}/a"], factors[f"{path}/b"])
        return map_weights(lambda path, _: plain[path], model.spec)  # the spec also has layers without weights

    factors = {path: _factors(path, weight, config.rank) for path, weight in chosen.items()}
    frozen = map_weights(lambda _, weight: dataclasses.replace(weight, rate=0.0), model.spec)
    return reparametrized(model, {**frozen, LORA: unflatten_dict(factors, sep="/")}, to_plain)


def _factors(path: str, weight: Weight, rank: int) -> Spec:
    """Returns the factors of a matrix, or those of the matrix of each expert."""
    axes = axes_of_matrix(weight)
    if axes is None:
        what = f"{path} {list(weight.shape)} is not a matrix between vectors"
        raise UserError(f"lora.weights: {what}; leave it out by !{path}")
    if weight.axes[0] == EXPERT:
        of_expert = dataclasses.replace(weight, shape=weight.shape[1:], axes=weight.axes[1:])
        return stack(_factors(path, of_expert, rank), weight.shape[0], EXPERT)
    n = len(axes[0])
    first = Weight((*weight.shape[:n], rank), (*weight.axes[:n], RANK), fan_in(n))
    return {"a": first, "b": second_factor(weight, rank)}


def second_factor(weight: Weight, rank: int) -> Weight:
    """Returns the second factor [rank, ...] of a matrix, whose other axes are the matrix's output axes."""
    axes = axes_of_matrix(weight)
    assert axes is not None
    n = len(axes[0])
    return Weight((rank, *weight.shape[n:]), (RANK, *weight.axes[n:]), jax.nn.initializers.zeros)
