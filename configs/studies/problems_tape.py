"""Length generalization as in the papers (arXiv 2207.02098, 2305.16843): an encoder fills in the answer, all at once.

fxf train --config=studies/problems_tape --config.task.problem=parity --workdir=runs/parity

An encoder of five blocks with dropout 0.1, batches of 128 strings of one length, Adam at 1e-3, the mean accuracy of
symbols over all lengths from 41 on. The papers train longer than these 10,000 steps, and score strings of up to 500
symbols, not 100. The config studies/problems has a decoder, which writes the answer.
"""

from ml_collections import ConfigDict

from fxf.runs.experiment import default_config


def get_config() -> ConfigDict:
    config = default_config("problems:LENGTH", "masked_lm")
    config.task.problem, config.task.answer = "reverse_string", "tape"
    config.task.same_length, config.task.score_every = True, 1
    config.model.n_layers, config.model.n_heads, config.model.dropout = 5, 8, 0.1
    config.model.d_model, config.model.d_ff = 64, 256
    config.optimizer.learning_rate, config.optimizer.clip_norm = 1e-3, 1.0
    config.train.steps, config.train.batch_size, config.log.every = 10_000, 128, 500
    return config
