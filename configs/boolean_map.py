"""Random boolean maps (seed 002, "transfomer bilayer code"): ten mappings at once, each by a model of its own.

fxf train --config=boolean_map --workdir=runs/boolean_map

Expect squared_error below 1e-11, the largest of the ten, and solved 1, in 1 second of training and 3 of compilation.
The seed stops at 1e-4. Its procedure is kept: its init, plain gradient descent at its rate, its 4,400 steps. The loss
here is the mean over mappings and positions where the seed's is the sum over one mapping's positions, so the rate is
the seed's times both numbers; each model then moves as it would alone.
"""

from ml_collections import ConfigDict

from fxf.runs.experiment import default_config

MAPPINGS = 10


def get_config() -> ConfigDict:
    config = default_config(task="boolean_map")
    config.model.copies = config.train.batch_size = MAPPINGS
    config.train.steps = 4400
    config.optimizer.name, config.optimizer.learning_rate = "sgd", 1.5e-2 * MAPPINGS * config.task.positions
    config.log.every = 1100
    return config
