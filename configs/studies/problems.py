"""Length generalization (arXiv 2207.02098, 2305.16843): at most 40 symbols in training, up to 100 in scoring.

fxf train --config=studies/problems:reverse_string --workdir=runs/length

The argument is one of the fifteen problems of Delétang et al., reverse_string by default: a decoder of two blocks
writes the answer. It learns to reverse strings of up to 40 symbols (exact_match 1, seed 0), and none of 60
(exact_match_60 0). In the config studies/problems_tape an encoder fills in the answer, as in the papers.

The task is `problems:LENGTH` of this file; its code is in the folder deletang.
"""

from deletang.problems import PROBLEMS
from deletang.task import LengthConfig, length
from ml_collections import ConfigDict

from fxf.base.config import one_of
from fxf.runs.experiment import default_config
from fxf.tasks import RegisteredTask

LENGTH = RegisteredTask({"task": LengthConfig}, length, ("transformer_lm", "masked_lm"))
ARGUMENTS = tuple(PROBLEMS)


def get_config(argument: str = "reverse_string") -> ConfigDict:
    one_of(argument, ARGUMENTS, "argument")
    config = default_config("problems:LENGTH")
    config.task.problem = argument
    config.model.n_layers, config.model.n_heads, config.model.positions = 2, 4, "rotary"
    config.model.d_model, config.model.d_ff = 64, 256
    config.optimizer.learning_rate, config.optimizer.b2, config.optimizer.clip_norm = 4e-3, 0.98, 1.0
    config.optimizer.schedule, config.optimizer.warmup_steps = "cosine", 50
    config.train.steps, config.train.batch_size = 2000, 64
    return config
