"""Looped blocks: one block with one set of weights is applied several times, so depth costs no weights.

Dehghani et al. 2018, "Universal Transformers", arXiv 1807.03819; Yang et al. 2023, "Looped Transformers are Better at
Learning Learning Algorithms", arXiv 2311.12424.

fxf train --config=ideas/looped --workdir=runs/looped

Four iterations of one block, with half the weights of `reversal:example0`, learn all reversals (exact_match 1). It
takes seconds, mostly for compilation.
"""

from ml_collections import ConfigDict

import fxf


def get_config() -> ConfigDict:
    config = fxf.read_config("reversal:example0")
    config.model.n_layers, config.model.blocks = 1, "4@(attention+feed_forward)"
    return config
