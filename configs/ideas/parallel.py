"""Parallel block: attention and feed-forward layer read the same normalized stream, x + A(N x) + F(N x).

Wang and Komatsuzaki 2021 (GPT-J); Chowdhery et al. 2022 (PaLM), arXiv 2204.02311.

fxf train --config=ideas/parallel --workdir=runs/parallel

All reversals are right (exact_match 1). It takes seconds, mostly for compilation.
"""

from typing import Any

from ml_collections import ConfigDict

import fxf
from fxf.base.weights import Params, Spec
from fxf.layers.block import Block
from fxf.layers.layer import Context
from fxf.layers.normalization import normalization_spec, normalize


class Parallel(Block):
    """X + Σ F(N X) over all layers F, with one norm N."""

    norms = ()

    def spec(self) -> Spec:
        return {**super().spec(), "norm": normalization_spec(self.config)}

    def apply(self, params: Params, x: Any, context: Context) -> tuple[Any, Context]:
        total, normalized = x, normalize(self.config, params["norm"], x)
        for name in self.layers:
            y, context = self.layer(params, name, normalized, context)
            total = total + self.dropout(name, y, context)
        return total, context


def get_config() -> ConfigDict:
    config = fxf.read_config("reversal:example0")
    config.model.block = "parallel:Parallel"
    return config
