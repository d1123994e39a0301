"""What is saved with a state, and what steps add to it."""

import json
import math

import numpy as np
import pytest

from fxf.base.errors import UserError
from fxf.base.files import to_json
from fxf.training.record import Record, after, record_of


def test_a_saved_record_is_the_record_and_json_also_where_nothing_has_a_value():
    record = Record(step=3, train_loss=0.5, best=(-math.inf, 2), data={"row": 1}, tokens=7)
    assert record_of(vars(record)) == record_of(json.loads(to_json(vars(record)), parse_constant=pytest.fail)) == record


def test_the_sums_of_steps_are_the_same_in_any_parts():
    values = np.random.default_rng(3).lognormal(0, 5, 17).astype(np.float32)

    def summed(*parts):
        record = Record()
        for part in parts:
            history = dict.fromkeys(("loss_sum", "weight_sum", "gradient_norm"), part)
            record = after(record, {name: part.copy() for name in history}, 0.5, 0)
        return record.unlogged["loss_sum"], record.tokens, record.unlogged["steps"]

    assert summed(values) == summed(values[:5], values[5:16], values[16:])


def test_a_saved_record_with_other_parts_is_refused():
    saved = vars(Record())
    for other, name in (({**saved, "more": 1}, "more"), ({k: v for k, v in saved.items() if k != "data"}, "data")):
        with pytest.raises(UserError, match=f"^the checkpoint's record has another '{name}'"):
            record_of(other)
