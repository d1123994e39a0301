"""Published ideas on one tuned base, in runs of seconds: the two tasks of docs/ideas.md.

fxf train --config=judged:text --workdir=runs/text
fxf try --config=judged:text --other=judged:text-fire --match=flops --workdir=runs/text-fire

argument        what
text            characters of the phrase book, windows of 32
reversal        reversal of 1 to 5 of 10 symbols
text-NAME       the base with the idea of configs/ideas/NAME.py; likewise reversal-NAME

The base has three pre-norm blocks of width 32, rotary positions and GELU. An idea for positions replaces rotary ones.
"""

from typing import Any

from ml_collections import ConfigDict

import fxf

ONE = "attention+feed_forward"
TASKS = ("text", "reversal")


IDEAS: dict[str, dict[str, Any]] = {
    "canon": {"block": "ideas.canon:Canon"},
    "cope": {"attention": "ideas.cope:Cope", "positions": "none"},
    "differential": {"attention": "ideas.differential:Differential"},
    "fire": {"attention": "ideas.fire:Fire", "positions": "none", "layers": {"attention": {"threshold": 8.0}}},
    "forgetting": {
        "attention": "ideas.forgetting:Forgetting",
        "positions": "none",
        "layers": {"attention": {"start": 4.0}},
    },
    "gated_attention": {"attention": "ideas.gated_attention:GatedAttention"},
    "hyper_connections": {"block": "ideas.hyper_connections:HyperConnections"},
    "layer_scale": {"block": "ideas.layer_scale:LayerScale"},
    "looped": {"n_layers": 1, "blocks": f"3@({ONE})"},
    "mixture_of_depths": {"blocks": f"{ONE}, ideas.mixture_of_depths:Depths({ONE}), {ONE}"},
    "multi_token": {"name": "ideas.multi_token:MODEL", "ahead": 2, "ahead_weight": 1.0},
    "ngpt": {
        **{"name": "ideas.ngpt:MODEL", "block": "ideas.ngpt:Sphere", "feed_forward": "ideas.ngpt:UnitDense"},
        **{"activation": "silu", "gated": True, "d_ff": 86, "feed_forward_bias": False, "attention_bias": "none"},
        **{"qk_norm": True, "final_norm": False, "final_bias": False},
    },
    "parallel": {"block": "ideas.parallel:Parallel"},
    "product_keys": {
        "blocks": f"{ONE}, attention+ideas.product_keys:ProductKeys, {ONE}",
        "layers": {"ProductKeys": {"halves": 16, "half_dim": 8}},
    },
    "sigmoid": {"attention": "ideas.sigmoid:Sigmoid"},
    "sink_logits": {"attention": "sink"},
    "squared_relu": {"activation": "ideas.squared_relu:squared_relu"},
    "stick_breaking": {"attention": "ideas.stick_breaking:StickBreaking", "positions": "none"},
    "t5_bias": {"attention": "ideas.t5_bias:T5Bias", "positions": "none"},
    "talking_heads": {"attention": "ideas.talking_heads:TalkingHeads"},
    "unet": {"blocks": f"ideas.unet:Down({ONE}), {ONE}, ideas.unet:Up({ONE})"},
    "value_residual": {"attention": "ideas.value_residual:ValueResidual"},
    "xpos": {"attention": "ideas.xpos:XPos"},
    "z_loss": {
        **{"name": "ideas.z_loss:MODEL", "block": "ideas.z_loss:StochasticDepth", "z_loss": 1e-4},
        "layers": {"StochasticDepth": {"survival": 0.9}},
    },
}

ARGUMENTS = TASKS  # and each with an idea


def get_config(argument: str = "text") -> ConfigDict:
    task, _, idea = argument.partition("-")
    if task not in TASKS or (idea and idea not in IDEAS):
        raise ValueError(
            f"unknown argument '{argument}'; expected {' or '.join(TASKS)}, or TASK-IDEA with one of {', '.join(IDEAS)}"
        )
    config = fxf.read_config("characters" if task == "text" else "reversal")
    model, optimizer = config.model, config.optimizer
    model.n_layers, model.d_model, model.d_ff, model.n_heads = 3, 32, 128, 4
    model.positions, model.activation = "rotary", "gelu"
    optimizer.schedule, optimizer.warmup_steps, optimizer.b2, optimizer.clip_norm = "cosine", 20, 0.98, 1.0
    optimizer.learning_rate = 1.2e-2 if task == "text" else 8e-3
    if task == "text":
        config.data.test, config.task.length, model.max_len = 0.01, 32, 32
        config.train.steps, config.train.batch_size = 200, 8
    else:
        config.task.n_tokens, config.task.max_length, config.task.longer, config.task.examples = 10, 5, 0, 500
        config.train.steps, config.train.batch_size, model.max_len = 400, 16, 12
    config.checkpoint.every, config.train.evaluate_every = 0, 0
    config.log.tensorboard = config.log.report = False
    with config.unlocked():
        model.update(IDEAS[idea] if idea else {})
    return config
