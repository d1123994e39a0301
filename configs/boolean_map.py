"""Random boolean maps (seed 002, "transfomer bilayer code"): ten mappings at once, each with its own model.

fxf train --config=boolean_map --workdir=runs/boolean_map

It takes seconds; EXPECTED has its metrics. The seed stops at 1e-4. The init, plain
gradient descent, its rate and the 4,400 steps are the seed's. The loss here is the mean over mappings and positions;
the seed's is the sum over one mapping's positions. So the rate is the seed's times both numbers, and each model learns
as it would alone.
"""

from ml_collections import ConfigDict

from fxf.runs.experiment import default_config

EXPECTED = {"": {"squared_error": 1e-11, "solved": 1}}  # the largest of the ten errors is below

MAPPINGS = 10


def get_config() -> ConfigDict:
    config = default_config(task="primer.boolean_map:BOOLEAN_MAP")
    config.model.copies = config.train.batch_size = MAPPINGS
    config.train.steps = 4400
    config.optimizer.name, config.optimizer.learning_rate = "sgd", 1.5e-2 * MAPPINGS * config.task.positions
    config.log.every = 1100
    return config
