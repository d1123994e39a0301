"""RNN, stack-RNN and tape-RNN, with which Delétang et al. 2022 (arXiv 2207.02098) compare transformers.

fxf train --config=studies/recurrent:stack --config.task.problem=reverse_string --workdir=runs/stack
fxf sweep --config=studies/recurrent --workdir=runs/studies/recurrent --workers=1

The argument is rnn, stack or tape: the only layer of `model.blocks`, between embedding and readout. The study of length
compares walks with them, at the same lengths, steps and scoring. The paper's tape also jumps by the length of the
input, which a decoder does not know; this one moves by single cells.

Letters of shapes, besides those of fxf: H hidden units, C cells, W numbers in a cell.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from fxf.base.config import key, one_of
from fxf.base.weights import Params, Spec, Weight, fan_in
from fxf.layers.layer import Context
from fxf.runs.configs import read_config

PROBLEMS = {"rnn": "parity", "stack": "reverse_string", "tape": "reverse_string"}
KINDS = {"rnn": "Rnn", "stack": "StackRnn", "tape": "TapeRnn"}
State = dict[str, jax.Array]


@dataclasses.dataclass(frozen=True)
class Rnn:
    """h ← tanh(W x + U h + b) (Elman 1990). It returns h, whose size is that of x."""

    d_model: int
    max_len: int
    by_document = False

    def spec(self) -> Spec:
        square = Weight((self.d_model, self.d_model), ("embed", "mlp"), fan_in())
        return {"input": square, "hidden": square, "bias": Weight((self.d_model,), ("mlp",), jax.nn.initializers.zeros)}

    def start(self, n_rows: int, n_tokens: int) -> State:
        """Returns the initial state, with room for n_tokens tokens."""
        return {"hidden": jnp.zeros((n_rows, self.d_model))}

    def step(self, params: Params, state: State, x_RD: jax.Array) -> State:
        return {"hidden": self.hidden(params, state, x_RD)}

    def hidden(self, params: Params, state: State, x_RD: jax.Array, read: Any = 0) -> jax.Array:
        return jnp.tanh(x_RD @ params["input"] + state["hidden"] @ params["hidden"] + read + params["bias"][None])

    def apply(self, params: Params, x_RTD: jax.Array, context: Context) -> tuple[jax.Array, Context]:
        n_rows, n_tokens, _ = x_RTD.shape
        n_places = n_tokens if context.cache is None else self.max_len

        def one(state: State, token: tuple[jax.Array, jax.Array]) -> tuple[State, jax.Array]:
            x_RD, is_real_R = token
            new = self.step(params, state, x_RD)
            kept = {k: jnp.where(is_real_R.reshape(-1, *(1,) * (new[k].ndim - 1)), new[k], state[k]) for k in new}
            return kept, kept["hidden"]

        real_TR = jnp.broadcast_to(context.real, x_RTD.shape[:2]).T
        state = context.cache or self.start(n_rows, n_places)
        state, h_TRH = jax.lax.scan(one, state, (jnp.moveaxis(x_RTD, 1, 0), real_TR))
        return jnp.moveaxis(h_TRH, 0, 1), context.replace(cache=None if context.cache is None else state)


@dataclasses.dataclass(frozen=True)
class StackRnn(Rnn):
    """An RNN that reads the top of a stack, and then pushes a value, pops or does neither, with soft weights.

    Joulin and Mikolov 2015 (arXiv 1503.01007): the weights a are a softmax of the hidden units, and the stack becomes
    a_push · pushed + a_pop · popped + a_stay · stack.
    """

    cell: int = key(8, "numbers in a cell", minimum=1)

    def spec(self) -> Spec:
        d, init = self.d_model, fan_in()
        read = Weight((self.cell, d), ("cell", "mlp"), init)
        write, act = Weight((d, self.cell), ("mlp", "cell"), init), Weight((d, 3), ("mlp", "action"), init)
        return {**super().spec(), "read": read, "write": write, "act": act}

    def start(self, n_rows: int, n_tokens: int) -> State:
        return {**super().start(n_rows, n_tokens), "cells": jnp.zeros((n_rows, n_tokens, self.cell))}

    def step(self, params: Params, state: State, x_RD: jax.Array) -> State:
        cells_RCW = state["cells"]
        h_RH = self.hidden(params, state, x_RD, cells_RCW[:, 0] @ params["read"])
        actions_3R11 = jnp.moveaxis(jax.nn.softmax(h_RH @ params["act"]), 1, 0)[:, :, None, None]
        ways = self.after(cells_RCW, jnp.tanh(h_RH @ params["write"]))
        return {"hidden": h_RH, "cells": sum(a * way for a, way in zip(actions_3R11, ways, strict=True))}

    def after(self, cells_RCW: jax.Array, value_RW: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Returns the cells after each action."""
        pushed = jnp.concatenate([value_RW[:, None], cells_RCW[:, :-1]], axis=1)
        popped = jnp.concatenate([cells_RCW[:, 1:], jnp.zeros_like(cells_RCW[:, :1])], axis=1)
        return pushed, popped, cells_RCW


@dataclasses.dataclass(frozen=True)
class TapeRnn(StackRnn):
    """An RNN that writes into the cell under its head, then moves left, right or not at all, with soft weights.

    The tape is a ring that turns under the head, which is at cell 0. It has room for all moves one way.
    """

    def start(self, n_rows: int, n_tokens: int) -> State:
        return super().start(n_rows, 2 * n_tokens + 1)

    def after(self, cells_RCW: jax.Array, value_RW: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        written = cells_RCW.at[:, 0].set(value_RW)
        return jnp.roll(written, 1, axis=1), jnp.roll(written, -1, axis=1), written


ARGUMENTS = ("rnn", "stack", "tape")


def get_config(argument: str = "rnn") -> ConfigDict:
    one_of(argument, ARGUMENTS, "argument")
    config = read_config("studies/problems")
    config.task.max_length, config.task.longest, config.task.score_every, config.task.examples = 40, 500, 500, 100
    config.model.blocks, config.model.positions = f"recurrent:{KINDS[argument]}()", "none"
    config.model.n_layers, config.model.d_model, config.model.max_len = 1, 256, 1502
    config.optimizer.learning_rate = 1e-3
    config.train.steps, config.train.batch_size = 800, 16
    config.log.tensorboard = False
    return config


def sweep(add: Callable[..., None]) -> None:
    for argument, problem in PROBLEMS.items():
        for rate in (1e-3, 3e-3):
            blocks = f"recurrent:{KINDS[argument]}()"
            add(**{"model.blocks": blocks, "task.problem": problem, "optimizer.learning_rate": rate})
