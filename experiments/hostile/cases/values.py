"""Values of keys."""

from experiments.hostile.cases.keys import keys
from experiments.hostile.fixtures import BEYOND, NEAR_ZERO

# fmt: off

CASES = [
    *(
        keys(f"{value} for {key}", f"--config.{key}={value}", key.split(".")[-1])
        for key, values in {
            "optimizer.learning_rate": ("inf", "nan", "1e400", "0", "-1e-3", NEAR_ZERO, BEYOND),
            "optimizer.eps": ("inf", "-0.0"),
            "optimizer.clip_norm": ("inf", "nan"),
            "optimizer.b2": ("1", "nan"),
            "optimizer.weight_decay": ("inf", BEYOND),
            "model.norm_epsilon": ("inf", NEAR_ZERO),
            "model.dropout": ("1", "-0.1", "nan"),
            "model.n_layers": ("2.5", "four", "True", "0", "-1", "1e3"),
            "model.n_heads": ("4",),
            "model.positions": ("rope", "sinusodal"),
            "model.window": ("-1",),
            "task.n_tokens": ("2147483648",),
            "train.steps": ("9223372036854775808", "0"),
            "seed": ("-1", "4294967296", "1.0"),
            "checkpoint.keep": ("0",),
            "checkpoint.best": ("loss",),
            "train.patience": ("3",),
            "log.tensorboard": ("2",),
            "log.every": ("0",),
            "parallel.data": ("2",),
            "parallel.tensor": ("2",),
            "parallel.coordinator": ("localhost:1",),
            "decode.temperature": ("inf", NEAR_ZERO),
            "decode.top_p": ("0", "2"),
            "decode.length_penalty": ("inf",),
        }.items()
        for value in values
    ),
    keys("warm-up as long as the training", "--config.optimizer.warmup_steps=6", "warmup_steps"),
    keys("a model for another task", "--config.model.name=masked_lm", "model"),
    keys("the same port for no one", "--config.parallel.processes=2", "parallel.coordinator"),
]
