"""Sink logits: the softmax of each head has one more logit, so that a head may read next to nothing.

OpenAI 2025, "gpt-oss-120b & gpt-oss-20b Model Card", arXiv 2508.10925: one trained logit per head. A logit fixed at 0
makes the softmax off by one: Miller 2023, "Attention Is Off By One". Without them first tokens become the sink:
Xiao et al. 2023, "Efficient Streaming Language Models with Attention Sinks", arXiv 2309.17453.

fxf train --config=ideas/sink_logits --workdir=runs/sink_logits

Reversal: exact_match 1.00 after 600 steps and a loss of 0.003; 0.99 and 0.009 with plain attention.
It takes about 20 seconds of processor time. The results are those of seed 0.
"""

from ml_collections import ConfigDict

import fxf


def get_config() -> ConfigDict:
    config = fxf.read_config("reversal:short")
    config.model.attention = "sink"  # SinkLogits of fxf/layers/attention.py
    return config
