"""Contradictions within and between the seeds, and fxf's choice; docs/seeds.md has both statements.

Those that a claim about one seed covers are there: periods, slopes, positions, and masks. docs/keys.md and the configs
document defaults and presets.
"""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fxf
from experiments.seeds.rules import Claim, Rule, at_least, at_most, equal
from experiments.seeds.trained import largest
from fxf.base.weights import flatten
from fxf.layers.attention import Attention
from fxf.layers.positions import sinusoids
from fxf.runs.experiment import build, default_config


def _claim(name: str, section: str, what: str, rule: Rule) -> Claim:
    return Claim(name, section, what, "two things: docs/seeds.md", rule)


CLAIMS = (
    _claim("norm", "002, transfomer bilayer code", "weights of norms in a bilayer", equal(0)),
    _claim("sign", "002, micro transformer code", "output at x = 0 with b = 1: sign of tanh", equal(-1)),
    _claim("scale", "002, 000, dot-product attention", "score of two equal keys of 16 ones", equal(4)),
    _claim("slice", "004, The code for the loss function", "outputs for 3 sequences of 5 tokens", equal("3 x 5")),
    _claim("table", "004, Positional Encoding", "largest |first row − sines and cosines of 1|", at_most(1e-06)),
    _claim("overflow", "004, Rowwise and autoregressive matrix operations", "sum of weights, scores of 100", equal(1)),
    _claim("lengths", "004, The dataset for demo purposes", "lengths in a batch of 64", at_least(2)),
    _claim("linear_map", "004, Positional Encoding", "|sin 2 / sin 1 − sin 3 / sin 2|", at_least(0.1)),
)  # fmt: skip


def _of_attention() -> dict[str, float | str]:
    """Measures scores, masks and the rows of the loss."""
    config = fxf.layer_config(d_model=16, n_heads=1)
    layer, q_BHTK, v_BGCK = Attention(config), jnp.ones((1, 1, 1, 16)), jnp.zeros((1, 1, 2, 16)).at[0, 0, 0, 0].set(1)
    keys_BGCK = jnp.zeros((1, 1, 2, 16)).at[0, 0, 0].set(1)  # the first key is the query, the second is zero
    share = float(layer.read({}, q_BHTK, (keys_BGCK, v_BGCK), jnp.zeros((1, 1, 1, 2)))[0, 0, 0, 0])
    model = fxf.model(
        "transformer_lm", vocab_size=7, n_layers=1, d_model=12, d_ff=20, n_heads=3, max_len=5, init="uniform"
    )
    tokens_BT = jax.random.randint(jax.random.key(0), (3, 5), 0, 7)
    logits = model.apply(fxf.initialize(model), {"inputs": tokens_BT})
    large = layer.weigh({}, jnp.full((1, 1, 4, 4), 100.0), jnp.where(jnp.tri(4) > 0, 0, -jnp.inf)[None, None])
    return {
        "scale": round(float(np.log(share / (1 - share))), 3),
        "slice": f"{logits.shape[0]} x {logits.shape[1]}",
        "overflow": float(large[0, 0, 3].sum()),
    }


def _of_bilayers() -> dict[str, float]:
    """Measures seed 002's bilayer."""
    fxf.read_config("boolean_map")  # the model is in its folder
    model = fxf.model("primer.bilayer:BILAYER", vocab_size=2, n_layers=1)
    params = jax.tree.map(jnp.ones_like, fxf.initialize(model))
    output = jax.jit(model.apply)(params, {"inputs": jnp.zeros((1, 5, 2))})
    return {"norm": sum("norm" in name for name in flatten(model.spec)), "sign": float(jnp.sign(output[0, 0, 0]))}


def _of_positions() -> dict[str, float]:
    """Measures a table of positions."""
    table_MD = sinusoids(jax.random.key(0), (4, 8), jnp.float32)
    angles = 1 / 10000 ** (np.arange(8) // 2 * 2 / 8)
    row = np.where(np.arange(8) % 2 == 0, np.sin(angles), np.cos(angles))
    one, two, three = (float(x) for x in table_MD[:3, 0])
    return {"table": largest(table_MD[0] - row), "linear_map": abs(two / one - three / two)}


def _lengths() -> int:
    """Returns the number of lengths in a batch of reversal."""
    config = default_config("reversal")
    config.train.batch_size = 64
    batch: Any = build(config.to_dict()).task.batch
    weights_BT = batch(jax.random.key(0), jnp.zeros((), jnp.int32))["weights"]
    return len(set(np.asarray(weights_BT).sum(1).tolist()))


def look(folder: Path) -> dict[str, Any]:
    """Measures fxf's choices; trains nothing."""
    del folder
    return {"figures": _of_attention() | _of_bilayers() | _of_positions() | {"lengths": _lengths()}}
