"""When the loop saves, what it saves with a state, and that saving changes no metric."""

import json
import math
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest

from fxf.base.errors import Interrupted, UserError
from fxf.base.files import to_json
from fxf.training import loop, processes
from fxf.training.checkpoint import CheckpointConfig
from fxf.training.log import Clock, LogConfig
from fxf.training.loop import Intervals, fit
from fxf.training.record import Record, add_steps, record_of
from fxf.training.step import TrainConfig
from helpers import table

# Numbers whose sums depend on the order in which they are added.
LOSSES, WEIGHTS = (np.random.default_rng(seed).lognormal(0, 3, 100).astype(np.float32) for seed in (7, 8))
STEPS = 23


def run_of_numbers(record=Record(), figures=None, stop_at=None, evaluate_every=0, patience=0, **checkpoint):
    """Runs the loop on a state with only the step; returns the records of the log and of the saves."""
    logged, saved, reached = [], [], []
    train = TrainConfig(steps=STEPS, evaluate_every=evaluate_every, patience=patience)
    sections = Intervals(train, CheckpointConfig(**checkpoint), LogConfig(every=9))

    def train_steps(step, n):
        names = {"loss_sum": LOSSES, "weight_sum": WEIGHTS, "gradient_norm": LOSSES}
        reached.append(step + n)
        return step + n, {name: values[step : step + n] for name, values in names.items()}

    def save(step, state, record):
        assert step == state == record["step"]
        saved.append(json.loads(to_json(record)))

    steps = SimpleNamespace(train=train_steps, learning_rate=float, position=lambda: None)
    log = mock.Mock(record=lambda step, values, group="train": logged.append({"step": step, **values}))
    saves = SimpleNamespace(save=save, wait=lambda: None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "any_of", lambda asked: reached[-1] == stop_at)
        patch.setattr(loop, "time", SimpleNamespace(monotonic=lambda: 20.0 * max(reached, default=0)))  # s a step
        try:
            fit(record.step, record, steps, lambda step: {"score": figures[step]}, saves, sections, log, Clock(0.0))
        except Interrupted:
            assert saved[-1]["step"] == stop_at < STEPS
    kept = ("step", "loss", "gradient_norm", "learning_rate")
    return [{name: row[name] for name in kept if name in row} for row in logged], saved


NOW = 1e-9  # minutes


def test_saves_by_the_clock_or_at_a_stop_and_resuming_from_them_change_no_record():
    unbroken, at_the_end = run_of_numbers(minutes=0.0, stop_at=STEPS)
    records, saved = run_of_numbers(minutes=NOW)
    assert [save["step"] for save in at_the_end] == [STEPS] and len(saved) > 5 and records == unbroken
    assert [(row["step"], row["learning_rate"]) for row in records] == [(9, 8.0), (18, 17.0), (STEPS, STEPS - 1.0)]
    assert records[1]["loss"] == pytest.approx(LOSSES[9:18].sum() / WEIGHTS[9:18].sum())
    assert all(np.diff([0, *(save["step"] for save in run_of_numbers(minutes=1.0)[1][:-1])]) >= 3)
    for save in saved[:-1]:
        after, ended = run_of_numbers(record_of(save), minutes=0.0)
        assert after == [row for row in unbroken if row["step"] > save["step"]]
        for name in ("train_loss", "tokens", "step"):
            assert ended[-1][name] == at_the_end[-1][name]
    stop_at = next(save["step"] for save in saved if save["step"] % 9)  # between two records
    before, saved = run_of_numbers(minutes=NOW, stop_at=stop_at)
    after, _ = run_of_numbers(record_of(saved[-1]), minutes=0.0)
    assert before + after == unbroken


def figures_of(scores):
    return dict(zip((5, 10, 15, 20), map(float, scores.split()), strict=False))


@pytest.mark.parametrize(("checkpoint", "steps"), table("saves of a run"))
def test_a_run_is_saved_at_its_best_validations_by_steps_and_at_the_end(checkpoint, steps):
    figures = figures_of(checkpoint.pop("scores"))
    _, saved = run_of_numbers(figures=figures, evaluate_every=5, minutes=0.0, **checkpoint)
    assert [save["step"] for save in saved] == [*map(int, steps.split())]


@pytest.mark.parametrize(("case", "best"), table("ends of a run"))
def test_training_ends_after_patience_evaluations_without_gain_also_if_resumed(case, best):
    figures, ended = figures_of(case.pop("scores")), case.pop("ended")
    keys = {"evaluate_every": 5, "patience": 2, "best": "score", "minutes": 0.0, "figures": figures, **case}
    stopped = run_of_numbers(stop_at=10, **keys)[1][-1]
    for record in (Record(), record_of(stopped)):
        last = run_of_numbers(record, **keys)[1][-1]
        assert (last["step"], str(last["best"])) == (ended, best)


def test_a_record_is_restored_from_json_also_without_values_and_one_with_other_parts_is_refused():
    record = Record(3, 0.5, best=(-math.inf, 2), data={"row": 1}, tokens=7, unlogged={"figure": math.nan})
    saved = json.loads(to_json(vars(record)), parse_constant=pytest.fail)
    assert record_of(vars(record)) == record_of(dict(saved)) == record
    for other, name in (({**saved, "more": 1}, "more"), ({k: v for k, v in saved.items() if k != "data"}, "data")):
        with pytest.raises(UserError, match=f"^the checkpoint's record has other fields .'{name}'"):
            record_of(other)


def test_the_sums_of_steps_do_not_depend_on_the_split():
    values = np.random.default_rng(3).lognormal(0, 5, 170)

    def summed(*parts):
        record = Record()
        for part in parts:
            history = dict.fromkeys(("loss_sum", "weight_sum", "gradient_norm"), part)
            record = add_steps(record, {name: part.copy() for name in history}, 0.5, 0)
        return record.unlogged["loss_sum"], record.tokens, record.unlogged["steps"]

    assert summed(values) == summed(values[:5], values[5:160], values[160:])


def test_the_step_that_ends_training_is_the_first_beyond_those_that_a_run_may_skip():
    bad = {name: np.array([1.0, np.nan, np.inf]) for name in ("loss_sum", "weight_sum", "gradient_norm")}
    with pytest.raises(UserError, match=r"^step 8: the loss is inf"):
        add_steps(Record(step=5, skipped=1), bad, 1.0, may_skip=2)
