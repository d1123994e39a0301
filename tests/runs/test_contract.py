"""A batch from which no model can learn ends in one line."""

import numpy as np
import pytest

from fxf.base.errors import UserError
from fxf.runs import contract

GOOD = {name: np.tile(np.arange(12) % 11, (5, 1)) for name in ("inputs", "targets")} | {"weights": np.ones((5, 12))}


def changed(name, value):
    return GOOD | {name: value}


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (changed("inputs", GOOD["inputs"] + 2), "inputs: expected tokens 0 … 10, got 11"),
        (changed("inputs", GOOD["inputs"] - 1), "inputs: expected tokens 0 … 10, got -1"),
        (changed("weights", 0 * GOOD["weights"]), "weights: expected finite numbers with a sum above 0, got the sum 0"),
        (changed("weights", np.nan * GOOD["weights"]), "weights: expected finite numbers .* got the sum nan"),
    ],
)
def test_a_batch_from_which_no_model_can_learn(batch, message):
    with pytest.raises(UserError, match=f"^batch: {message}"):
        contract.require_first_batch("batch", batch, 11)


def test_a_target_without_weight_may_be_any_number():
    weights = GOOD["weights"].copy()
    weights[:, 3] = 0
    targets = np.where(weights > 0, GOOD["targets"], -100)
    contract.require_first_batch("batch", GOOD | {"weights": weights, "targets": targets}, 11)
