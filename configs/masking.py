"""A masked language model, which predicts hidden words of a text: fxf's own phrase book, or any file.

fxf train --config=masking --workdir=runs/masking
fxf generate --workdir=runs/masking "The <mask> does not work."

EXPECTED has the metrics of its test.
"""

from ml_collections import ConfigDict

from fxf.runs.experiment import default_config

EXPECTED = {"": {"accuracy": 0.39, "perplexity": 13}}  # on the test part, seed 0


def get_config() -> ConfigDict:
    config = default_config(task="masking")
    config.data.tokenizer, config.data.test = "word", 0.05
    config.task.length = config.model.max_len = 32
    config.model.n_layers, config.model.d_model, config.model.d_ff, config.model.n_heads = 2, 128, 256, 4
    config.model.norm_epsilon_in = "variance"
    config.optimizer.learning_rate, config.optimizer.schedule, config.optimizer.warmup_steps = 3e-3, "cosine", 100
    config.optimizer.b2, config.optimizer.clip_norm = 0.98, 1.0
    config.train.steps, config.train.batch_size = 1500, 64
    config.train.evaluate_every = 500
    return config
