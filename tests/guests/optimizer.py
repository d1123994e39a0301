"""An optimizer with a key of its own: Adan, which also averages differences of gradients (Xie et al. 2022)."""

import dataclasses

import optax

from fxf.base.config import key
from fxf.runs.experiment import default_config
from fxf.training.optimizer import OptimizerConfig, RegisteredOptimizer, plain


@dataclasses.dataclass(frozen=True)
class AdanConfig(OptimizerConfig):
    b3: float = key(0.99, "adan: decay of the mean of squares", minimum=0, below=1)


ADAN = RegisteredOptimizer(plain(optax.adan), ("b1", "b2", "eps"), AdanConfig)


def get_config():
    return default_config("reversal", optimizer="optimizer:ADAN")
