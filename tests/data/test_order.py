"""Orders of the examples: by seed and epoch, and by process."""

import jax
import numpy as np
import pytest

from fxf.data.batches import Batches
from fxf.data.corpus import TokenPair
from fxf.data.order import share
from fxf.data.rows import Rows, ShuffledRows
from fxf.data.text import draw_windows
from fxf.data.tokenizer import EOS, Special
from fxf.tasks.reversal import Reversal, ReversalConfig
from fxf.tasks.task import RunInfo
from fxf.training.state import run_keys
from fxf.training.step import TrainConfig

N = 61
LENGTHS = np.random.default_rng(7).integers(1, 12, (N, 2)).tolist()
PAIRS = [TokenPair([100 + i, *[7] * s, EOS], [*[8] * t, EOS]) for i, (s, t) in enumerate(LENGTHS)]


def of_pairs(seed, **more):
    return Batches(PAIRS, batch_size=9, batch_tokens=70, shapes=3, seed=seed, **more)


def rows(first):
    return Rows(np.arange(first, first + 4 * N, dtype=np.uint16), Special(), 0, 4, False)


def of_documents(seed, **more):
    return ShuffledRows(rows(5), 7, seed, **more)


def of_mixture(seed, **more):
    return ShuffledRows([rows(5), rows(1005), rows(2005)], 7, seed, **more, shares_S=(0.2, 0.7, 0.1))


RUN = RunInfo(TrainConfig(batch_size=7))
TOKENS = np.random.default_rng(1).integers(5, 23, 997).astype(np.uint8)
DRAWN = {
    "windows": lambda key: draw_windows(key, TOKENS, (7, 11)),
    "reversal": lambda key: Reversal(ReversalConfig(), RUN).batch(key, 0)["inputs"],
}


@pytest.mark.parametrize("kind", DRAWN)
def test_no_two_seeds_or_steps_share_a_batch_that_a_device_draws(kind):
    @jax.jit
    def all_batches():
        def one(seed, step):
            return DRAWN[kind](jax.random.fold_in(run_keys(seed).data, step))

        return jax.vmap(lambda seed: jax.vmap(lambda step: one(seed, step))(np.arange(5)))(np.arange(10))

    found = np.asarray(all_batches())
    assert len(np.unique(found.reshape(50, -1), axis=0)) == 50


@pytest.mark.parametrize("make", [of_pairs, of_documents, of_mixture])
@pytest.mark.parametrize("count", [2, 4])
def test_processes_read_one_after_the_other_the_rows_of_the_batches_of_one_wherever_they_begin(make, count):
    alone = make(3)
    for i, whole in [(i, alone[i]) for i in (0, 1, 5, 600)][::-1]:  # 600: behind the first block of a mixture
        shares = [make(3, process=(index, count))[i] for index in range(count)]
        for array, value in whole.items():
            joined = np.concatenate([each[array] for each in shares])
            np.testing.assert_array_equal(joined[: len(value)], value)
        assert not np.concatenate([each["weights"] for each in shares])[len(whole["weights"]) :].any()
        if make is of_pairs:  # of documents the devices divide the batch size
            assert len({each["weights"].shape for each in shares}) == 1


def test_a_share_may_be_beyond_the_batch():
    assert [list(range(5)[share(5, (i, 4))]) for i in range(4)] == [[0, 1], [2, 3], [4], []]
