"""Trackers receive what a run records, and what they do wrong leaves the run as it is."""

from unittest import mock

import pytest

from fxf.training.trackers import TRACKERS, Trackers
from small_runs import no_file_larger_than


@pytest.fixture
def received(monkeypatch):
    """A tracker named recording, and the list of what it receives."""

    class Recording:
        def __init__(self, folder, resumed_at):
            found.append(("made", folder.name, resumed_at))

        def __getattr__(self, name):
            return lambda *arguments: found.append((name, *arguments))

    found = []
    monkeypatch.setitem(TRACKERS, "recording", Recording)
    return found


def test_a_tracker_is_told_config_figures_by_group_and_the_step_that_a_run_goes_on_from(received, tmp_path):
    records, figures = (
        [],
        {"loss": 0.5, "steps_per_second": 7, "mfu": 0.25, "device_bytes": 3, "samples": ["no number"]},
    )
    with Trackers(lambda step, values: records.append((step, sorted(values)))) as trackers:
        trackers.open(["recording"], tmp_path, 3)
        trackers.config({"seed": 0})
        trackers.scalars(4, "train", figures)
        trackers.scalars(4, "validation", {"exact_match": 1.0})
        trackers.scalars(6, "test", {"test_loss": 0.25})
    assert received == [
        ("made", tmp_path.name, 3),
        ("config", {"seed": 0}),
        ("scalars", 4, {"train/loss": 0.5, "speed/steps_per_second": 7, "speed/mfu": 0.25, "memory/device_bytes": 3}),
        ("scalars", 4, {"validation/exact_match": 1.0}),
        ("scalars", 6, {"test/loss": 0.25}),
        ("close",),
    ]
    assert records == [(4, ["device_bytes", "loss", "mfu", "steps_per_second"]), (4, ["exact_match"])]


@pytest.mark.parametrize("at", ["__init__", "scalars", "close"])
def test_a_tracker_that_fails_gets_a_warning_and_the_run_goes_on(at, received, monkeypatch, tmp_path, caplog):
    failing = mock.Mock(side_effect=RuntimeError("no\nnetwork"))
    monkeypatch.setattr(TRACKERS["recording"], at, lambda *_: failing(), raising=False)
    with Trackers() as trackers:
        trackers.open(["recording"], tmp_path, 0)
        for step in (1, 2):
            trackers.scalars(step, "train", {"loss": 0.5})
    (warning,) = caplog.records
    assert warning.getMessage() == "warning: tracker recording failed and gets no more records: no network"


def test_an_exception_of_the_callback_goes_on_to_the_caller():
    def stop(step, figures):
        raise KeyError(step)

    with pytest.raises(KeyError), Trackers(stop) as trackers:
        trackers.scalars(1, "train", {"loss": 0.5})


def events(folder):
    """Yields the events of a folder of TensorBoard, in order."""
    from tensorboardX.proto import event_pb2

    for path in sorted((folder / "tensorboard").iterdir()):
        data = path.read_bytes()
        while data:  # a record: length (8 bytes), its checksum (4), the event, its checksum (4)
            length = int.from_bytes(data[:8], "little")
            yield event_pb2.Event.FromString(data[12 : 12 + length])
            data = data[16 + length :]


def test_tensorboard_has_config_curves_and_a_session_for_each_part_of_a_run(tmp_path):
    for resumed_at in (0, 3):
        with Trackers() as trackers:
            trackers.open(["tensorboard"], tmp_path, resumed_at)
            trackers.config({"seed": 0})
            trackers.scalars(resumed_at + 1, "train", {"loss": 0.25, "note": "no number"})
    found = [event for event in events(tmp_path) if event.HasField("summary")]
    assert [(event.step, event.summary.value[0].tag.split("/text_summary")[0]) for event in found] == [
        (step, tag) for start in (0, 3) for step, tag in [(0, "config"), (start + 1, "train/loss")]
    ]
    assert found[1].summary.value[0].simple_value == 0.25
    assert [event.step for event in events(tmp_path) if event.HasField("session_log")] == [1, 4]


def test_tensorboard_without_room_is_given_up_in_one_warning(tmp_path, caplog):
    with Trackers() as trackers:
        trackers.open(["tensorboard"], tmp_path, 0)
        with no_file_larger_than(0):
            for step in (1, 2):
                trackers.scalars(step, "train", {"loss": 0.5})
    (warning,) = caplog.records
    assert "tracker tensorboard failed and gets no more records: " in warning.getMessage()
