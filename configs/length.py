"""Length generalization (arXiv 2207.02098, 2305.16843): at most 40 symbols in training, up to 100 in scoring.

fxf train --config=length:reverse_string --workdir=runs/length
fxf train --config=length:parity_tape --workdir=runs/parity

The argument is one of the fifteen problems of Delétang et al., reverse_string by default: a decoder of two blocks
writes the answer. It learns to reverse strings of up to 40 symbols (exact_match 1, seed 0), and hardly any longer one
(exact_match at most 0).
With `_tape` behind it, an encoder of five blocks fills in the answer, all at once, as in the papers: dropout 0.1,
batches of 128 strings of one length, Adam at 1e-3, the mean accuracy of symbols over all lengths from 41 on. The
papers train longer than these 10,000 steps, and score strings of up to 500 symbols, not 100.
"""

from ml_collections import ConfigDict

from fxf.runs.experiment import default_config
from fxf.tasks.length.problems import PROBLEMS

TAPE = "_tape"
ARGUMENTS = (*PROBLEMS, *(f"{problem}{TAPE}" for problem in PROBLEMS))


def get_config(argument: str = "reverse_string") -> ConfigDict:
    if argument not in ARGUMENTS:
        raise ValueError(f"unknown argument '{argument}'; one of {', '.join(ARGUMENTS)}")
    problem, on_tape = argument.removesuffix(TAPE), argument.endswith(TAPE)
    config = default_config("length", "masked_lm" if on_tape else "transformer_lm")
    config.task.problem, config.task.answer = problem, "tape" if on_tape else "generated"
    config.model.d_model, config.model.d_ff = 64, 256
    config.optimizer.learning_rate, config.optimizer.clip_norm = 1e-3 if on_tape else 4e-3, 1.0
    if on_tape:
        config.task.same_length, config.task.score_every = True, 1
        config.model.n_layers, config.model.n_heads, config.model.dropout = 5, 8, 0.1
        config.train.steps, config.train.batch_size, config.log.every = 10_000, 128, 500
    else:
        config.model.n_layers, config.model.n_heads, config.model.positions = 2, 4, "rotary"
        config.optimizer.schedule, config.optimizer.warmup_steps, config.optimizer.b2 = "cosine", 50, 0.98
        config.train.steps, config.train.batch_size = 2000, 64
    return config
