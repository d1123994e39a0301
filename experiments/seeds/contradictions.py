"""Where the seeds contradict themselves or each other, and which way fxf goes."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import fxf
from experiments.seeds.claims import Claim, Found, Seed
from experiments.seeds.statements import FOUND, HEADER, Contradiction, statements
from experiments.seeds.trained import largest, table
from fxf.layers.attention import ATTENTIONS
from fxf.layers.attention_kinds import softmax
from fxf.layers.cache import KeysValues
from fxf.layers.intermediates import intermediates
from fxf.layers.mask import Mask
from fxf.layers.positions import alibi_slopes, concatenated, interleaved, sinusoids
from fxf.models.encoder_decoder import PRESETS
from fxf.runs.experiment import build, default_config
from fxf.tasks.time_series import period
from fxf.training.optimizer import OptimizerConfig, make_optimizer
from fxf.weights import Weight, flatten


def _claim(found: Contradiction) -> Claim:
    where, says = f"{found.seed}, {found.section}", f"{found.one}; but {found.other}"
    return Claim(found.name, where, found.what, says, found.rule)


def _of_attention() -> dict[str, float | str]:
    """Returns the figures of scores, of masks and of the loss's rows."""
    config = fxf.layer_config(d_model=16, n_heads=1)
    q_BHTK, v_BGCK = jnp.ones((1, 1, 1, 16)), jnp.zeros((1, 1, 2, 16)).at[0, 0, 0, 0].set(1)
    keys_BGCK = jnp.zeros((1, 1, 2, 16)).at[0, 0, 0].set(1)  # the first key is the query, the second is zero
    mask = Mask(jnp.zeros((1, 1, 1, 2)))
    share = float(ATTENTIONS["softmax"].attend(config, q_BHTK, KeysValues(keys_BGCK, v_BGCK), mask, None)[0, 0, 0, 0])
    model = fxf.model(
        "transformer_lm", vocab_size=7, n_layers=1, d_model=12, d_ff=20, n_heads=3, max_len=5, init="uniform"
    )
    params, apply = fxf.initialize(model), jax.jit(model.apply)
    tokens_BT = jax.random.randint(jax.random.key(0), (3, 5), 0, 7)
    logits = apply(params, {"inputs": tokens_BT})
    later_BT = tokens_BT.at[:, 3:].set(6)
    weights = intermediates(model.apply, params, {"inputs": tokens_BT})["block_0/attention/weights"]
    large = softmax(jnp.full((1, 1, 4, 4), 100.0), jnp.where(jnp.tri(4) > 0, 0, -jnp.inf)[None, None])
    return {
        "scale": round(float(np.log(share / (1 - share))), 3),
        "slice": f"{logits.shape[0]} x {logits.shape[1]}",
        "future": largest((apply(params, {"inputs": later_BT}) - logits)[:, :3]),
        "product_mask": largest(np.triu(weights, 1)),
        "overflow": float(large[0, 0, 3].sum()),
    }


def _of_bilayers() -> dict[str, float]:
    """Returns the figures of seed 002's bilayer."""
    model = fxf.model("bilayer", vocab_size=2, n_layers=1)
    params = jax.tree.map(jnp.ones_like, fxf.initialize(model))
    output = jax.jit(model.apply)(params, {"inputs": jnp.zeros((1, 5, 2))})
    return {"norm": sum("norm" in name for name in flatten(model.spec)), "sign": float(jnp.sign(output[0, 0, 0]))}


def _of_positions() -> dict[str, float | str]:
    """Returns the figures of tables of positions and of slopes."""
    table_MD, from_1 = sinusoids(jax.random.key(0), (4, 8), jnp.float32), np.arange(1, 11)[:, None]
    angles = 1 / 10000 ** (np.arange(8) // 2 * 2 / 8)
    row = np.where(np.arange(8) % 2 == 0, np.sin(angles), np.cos(angles))
    sines = np.sin(from_1 / 10000 ** (2 * np.arange(1, 33) / 64))
    one, two, three = (float(x) for x in table_MD[:3, 0])
    return {
        "alibi": " ".join(map(str, alibi_slopes(2))),
        "table": largest(table_MD[0] - row),
        "linear_map": abs(two / one - three / two),
        "concatenated": largest(concatenated(jnp.arange(10), 64)[:, :32] - sines),
        "start": f"{float(interleaved(jnp.arange(1), 8)[0, 0]):.0f} and {one:.4f}",
    }


def _of_runs() -> dict[str, float | str]:
    """Returns the figures of configs, batches and steps."""
    spec = {"w": Weight((1,), ("embed",), jax.nn.initializers.zeros)}
    optimizer = make_optimizer(OptimizerConfig(name="sgd", learning_rate=0.5), 10, spec)
    params, gradient = {"w": jnp.array([3.0])}, {"w": jnp.array([1.0])}
    updates, _ = optimizer.update(gradient, optimizer.init(params), params)
    config = default_config("reversal")
    config.train.batch_size = 64
    task = build(config.to_dict()).task
    assert task.batch is not None
    lengths_B = np.asarray(task.batch(jax.random.key(0), jnp.zeros((), jnp.int32))["weights"]).sum(1)
    return {
        "update": -float(updates["w"][0]),
        "block": config.model.block,
        "lower": str(default_config("language_model").data.lower_case),
        "lengths": len(set(lengths_B.tolist())),
        "cross_norm": PRESETS["wolfram"]["cross_norm"],
        "epsilon": sum(preset["norm_epsilon_in"] == "variance" for preset in PRESETS.values()),
        "period_2": period(9, 2),
        "period_8": period(9, 8),
    }


def look(folder: Path) -> Found:
    """Measures which way fxf goes; trains nothing."""
    del folder
    figures = _of_attention() | _of_bilayers() | _of_positions() | _of_runs()
    return Found(figures, [table("The statements, and which one fxf follows", HEADER, statements())])


SECTIONS = tuple(dict.fromkeys(found.section for found in FOUND))
CLAIMS = tuple(map(_claim, FOUND))
SEED = Seed("contradictions", "Where the seeds contradict themselves, and what fxf follows", SECTIONS, CLAIMS, look)
