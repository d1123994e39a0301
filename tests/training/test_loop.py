"""What the loop refuses before it begins."""

import pytest

from fxf.errors import UserError
from fxf.training.checkpoint import CheckpointConfig
from fxf.training.log import LogConfig
from fxf.training.loop import Intervals, Record, record_of
from fxf.training.step import TrainConfig


def intervals(steps, evaluate_every=0):
    train = TrainConfig(steps=steps, evaluate_every=evaluate_every)
    return Intervals(train, CheckpointConfig(every=0), LogConfig(every=7))


@pytest.mark.parametrize(("steps", "evaluate_every", "step"), [(8, 0, 0), (7, 5, 0), (15, 0, 13)])
def test_steps_after_the_next_record_can_be_traced(steps, evaluate_every, step):
    intervals(steps, evaluate_every).require_profile(step)


@pytest.mark.parametrize(("steps", "step"), [(7, 0), (5, 0), (14, 7), (14, 14)])
def test_a_profile_without_such_steps_is_refused(steps, step):
    with pytest.raises(UserError, match=rf"^--profile: .* the last step, {steps}; make log.every smaller \(it is 7\)"):
        intervals(steps).require_profile(step)


def test_a_saved_record_is_the_record():
    record = Record(step=3, train_loss=0.5, best=(0.5, 2), data={"row": 1}, tokens=7)
    assert record_of(vars(record)) == record


@pytest.mark.parametrize(
    "change", [{"more": 1}, {"step": "3"}, {"seconds": 2.0}, {"evaluated": []}, {"skipped": None}, {"tokens": "7"}]
)
def test_a_saved_record_with_other_parts_is_refused(change):
    with pytest.raises(UserError, match=f"^the checkpoint's record has another '{next(iter(change))}'"):
        record_of(vars(Record()) | change)


def test_a_saved_record_without_a_part_is_refused():
    saved = dict(vars(Record()))
    del saved["data"]
    with pytest.raises(UserError, match="'data'"):
        record_of(saved)
