"""Trackers receive what a run records, and what they do wrong leaves the run as it is."""

import shutil
import subprocess
import sys

import pytest

from fxf.runs import run
from fxf.training.trackers import TRACKERS, Trackers
from small_runs import KEPT, no_file_larger_than, tiny_config


class Recording:
    """A tracker that keeps what it receives."""

    def __init__(self, folder, resumed_at):
        self.received = [("made", folder.name, resumed_at)]
        recordings.append(self)

    def __getattr__(self, name):
        return lambda *arguments: self.received.append((name, *arguments))


recordings = []


@pytest.fixture
def recording(monkeypatch):
    monkeypatch.setitem(TRACKERS, "recording", Recording)
    recordings.clear()
    return recordings


@pytest.mark.thorough
def test_a_run_tells_its_trackers_config_figures_by_group_and_the_step_it_goes_on_from(recording, tmp_path):
    config = tiny_config(train={"evaluate_every": 3}, checkpoint={"every": 0}, log={"trackers": "recording"})
    records = []
    told = lambda step, figures: records.append((step, sorted(figures)))  # noqa: E731
    result = run.train(config, tmp_path / "run", {}, on_record=told, kept=KEPT)
    (found,) = recording
    assert found.received[0] == ("made", "run", 0) and found.received[-1] == ("close",)
    assert found.received[1][0] == "config" and found.received[1][1]["model"]["n_layers"] == 1
    scalars = [told[1:] for told in found.received if told[0] == "scalars"]
    told = [(step, sorted(values)) for step, values in scalars]
    trained = ["speed/steps_per_second", "speed/tokens_per_second"]
    trained += ["train/gradient_norm", "train/learning_rate", "train/loss"]
    validated = ["validation/cut_off", "validation/exact_match", "validation/examples"]
    tested = ["test/cut_off", "test/exact_match", "test/examples"]
    assert told == [(3, trained), (3, validated), (6, trained), (6, validated), (6, tested)]
    assert scalars[-1][1]["test/exact_match"] == result["exact_match"]
    assert [step for step, _ in records] == [3, 3, 6, 6]
    (tmp_path / "run" / "result.json").unlink()
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "6")
    run.train(config, tmp_path / "run", {}, kept=KEPT)
    assert recording[1].received[0] == ("made", "run", 3)


def test_tensorboard_imports_no_installed_pytorch_which_others_may_import_afterwards(tmp_path):
    (tmp_path / "torch.py").write_text("print('imported')")
    imports = "from pathlib import Path; from fxf.training.trackers import TensorBoard"
    code = f"{imports}; TensorBoard(Path({str(tmp_path)!r}), 0); print('made'); import torch"
    command = [sys.executable, "-c", code]
    made = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert made.stdout.split() == ["made", "imported"]


@pytest.mark.parametrize("at", ["__init__", "scalars", "close"])
def test_a_tracker_that_fails_gets_a_warning_and_the_run_goes_on(at, recording, monkeypatch, tmp_path, caplog):
    def fail(*_):
        raise RuntimeError("no\nnetwork")

    monkeypatch.setattr(Recording, at, fail, raising=False)
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
