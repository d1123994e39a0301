"""Study: which problems does a decoder solve at 500 symbols after training on at most 40, by walks along the tokens?

fxf train --config=studies/length --config.task.problem=duplicate_string --workdir=runs/walks
fxf sweep --config=studies/length --workdir=runs/studies/length --workers=2 --together=5

task.problem is a problem of Delétang et al. 2022. All problems have the same settings.
"""

from collections.abc import Callable

from ml_collections import ConfigDict

from fxf.layers.config import TransformerConfig
from fxf.runs.experiment import default_config
from fxf.sweeps.points import grid
from fxf.tasks.length.problems import PROBLEMS

# The problems of the claim, which has five seeds of each; the others have one.
CLAIMED = (
    *("reverse_string", "duplicate_string", "odds_first", "stack_manipulation"),
    *("parity", "even_pairs", "missing_duplicate", "cycle_navigation"),
)


def get_config() -> ConfigDict:
    config = default_config("length")
    config.task.problem = "reverse_string"
    config.task.max_length, config.task.longest, config.task.score_every, config.task.examples = 40, 500, 500, 100
    config.model.positions, config.model.n_walks, config.model.window, config.model.max_len = "walks", 144, 8, 1502
    config.model.n_layers, config.model.d_model, config.model.d_ff = 2, 64, 256
    config.model.n_heads, config.model.head_dim = 12, 8
    config.model.norm, config.model.activation = "rms", "gelu"
    config.optimizer.learning_rate, config.optimizer.schedule, config.optimizer.warmup_steps = 3e-3, "cosine", 50
    config.optimizer.b2, config.optimizer.clip_norm = 0.98, 1.0
    config.train.steps, config.train.batch_size = 800, 16
    config.log.tensorboard = False
    return config


def sweep(add: Callable[..., None]) -> None:
    for problem in CLAIMED:
        for point in grid({"seed": range(5)}):
            add(**{"task.problem": problem}, **point)
    for problem in PROBLEMS:
        if problem not in CLAIMED:
            add(**{"task.problem": problem})
    for problem in CLAIMED:
        add(**{"task.problem": problem, "model.positions": "rotary", "model.n_walks": TransformerConfig.n_walks})
