"""A model whose trained and saved weights are others than those that it computes with."""

from collections.abc import Callable

from fxf.base.weights import Params, Spec
from fxf.models.model import Model


def reparametrized(model: Model, spec: Spec, to_plain: Callable[[Params], Params]) -> Model:
    """Returns the model whose weights are those of `spec`; it computes what `model` does with `to_plain(params)`.

    Training, saving and resuming see the weights of `spec`. All else sees the plain ones, which are made once.

    Args:
      to_plain: a pure function from params of `spec` to params of `model`, which JAX differentiates.
    """

    def all_the_way(params: Params) -> Params:
        return model.to_plain(to_plain(params))

    return model._replace(spec=spec, to_plain=all_the_way, plain_spec=model.plain.spec)
