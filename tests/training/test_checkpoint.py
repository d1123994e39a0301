import functools
import json
import logging
import shutil
import threading
from contextlib import closing
from pathlib import Path
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fxf.base.errors import UserError
from fxf.training import checkpoint, checkpoint_files, processes
from fxf.training.checkpoint import CheckpointConfig, Checkpoints, load
from helpers import table


def state_of(step):
    return {"w": jnp.arange(1000.0) * step, "b": {"c": jnp.full((3, 5), step, jnp.int32)}}


SHAPES = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), state_of(1))
RUN = {"seed": 0, "content of text.txt": "0a1b"}


def record_of(step):
    return {"seconds": {"train": 0.5 * step}, "evaluated": {}}


def save(folder, *steps, **config):
    with closing(Checkpoints(folder, CheckpointConfig(**config), RUN)) as checkpoints:
        for step in steps:
            checkpoints.save(step, state_of(step), record_of(step))
        checkpoints.wait()


def loaded(folder, n=1, **options):
    """Returns the steps of the loaded checkpoints, after comparing state and record bit by bit with the saved ones."""
    found = load(folder, SHAPES, n=n, **options)
    for step, state, record in found:
        assert record == record_of(step)
        jax.tree.map(np.testing.assert_array_equal, state, state_of(step))
    return [step for step, _, _ in found]


def steps_in(folder):
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit())


def warnings_of(caplog):
    ours = (record for record in caplog.records if record.name.startswith("fxf."))  # Orbax writes its own log
    return [record.getMessage() for record in ours if record.levelno >= logging.WARNING]


def test_checkpoints_are_loaded_newest_first_up_to_the_requested_number(tmp_path):
    assert loaded(tmp_path / "absent") == []
    save(tmp_path)
    assert loaded(tmp_path) == []
    save(tmp_path, 1, 2, 3, keep=9)
    assert [loaded(tmp_path, n) for n in (1, 2, 7)] == [[3], [3, 2], [3, 2, 1]]
    assert [part for _, part, _ in load(tmp_path, SHAPES, n=2, part=type)] == [dict] * 2
    assert loaded(tmp_path, step=2) == loaded(tmp_path, step=2.0) == [2]  # pandas has steps as floats
    with pytest.raises(UserError, match=r"no checkpoint of step 7; there are \[1, 2, 3\]"):
        loaded(tmp_path, step=7)


def test_processes_wait_for_each_other_when_a_checkpoint_is_complete(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(processes, "barrier", lambda: seen.append(steps_in(tmp_path)))
    save(tmp_path, 3)
    assert seen[-1] == [3]


def test_training_goes_on_while_a_checkpoint_is_written_and_changes_none_of_its_bits(tmp_path, monkeypatch):
    may_finish, finish = threading.Event(), Checkpoints._finish
    monkeypatch.setattr(Checkpoints, "_finish", lambda *args: may_finish.wait() and finish(*args))
    train_step = jax.jit(lambda state: jax.tree.map(lambda x: x + 1, state), donate_argnums=0)
    with closing(Checkpoints(tmp_path, CheckpointConfig(), RUN)) as checkpoints:
        state = state_of(3)
        checkpoints.save(3, state, record_of(3))
        state = jax.block_until_ready(train_step(train_step(state)))
        assert steps_in(tmp_path) == []
        may_finish.set()
        checkpoints.wait()
    assert loaded(tmp_path) == [3]
    jax.tree.map(lambda new, old: np.testing.assert_array_equal(new, old + 2), state, state_of(3))


def test_an_error_of_a_save_is_raised_by_the_call_that_waits_for_it(tmp_path, monkeypatch):
    full = mock.Mock(side_effect=OSError(28, "No space left on device"))
    monkeypatch.setattr(checkpoint_files, "write_digests", full)
    for notice in (lambda: checkpoints.wait(), lambda: checkpoints.save(2, state_of(2), record_of(2))):
        with closing(Checkpoints(tmp_path, CheckpointConfig(), RUN)) as checkpoints:
            checkpoints.save(1, state_of(1), record_of(1))
            with pytest.raises(OSError, match="No space left"):
                notice()
    assert loaded(tmp_path) == []


def kept_and_used(folder, steps, last, evaluated=None, **keys):
    """Returns the steps kept after saves at these steps, and those that a finished run uses."""
    config, there = CheckpointConfig(**keys), []
    for step in steps:
        (folder / str(step)).mkdir()
        record = {"evaluated": {"exact_match": (evaluated or {})[step]} if step in (evaluated or {}) else {}}
        (folder / str(step) / "checkpoint.json").write_text(json.dumps({"record": record}))
        there = sorted(config.kept(folder, [*there, step]))
    return there, config.used(folder, there, last)[-(keys.get("average") or 1) :]


@pytest.mark.parametrize(("case", "kept"), table("kept checkpoints"))
def test_the_newest_and_the_best_are_kept_and_the_best_is_used(case, kept, tmp_path):
    used, figures = case.pop("used"), {step: x and float(x) for step, x in case.pop("figures").items()}
    assert kept_and_used(tmp_path, range(1, 6), 5, figures, **case) == ([*map(int, kept.split())], [used])


@pytest.mark.parametrize(("run", "used"), table("averaged checkpoints"))
def test_the_averaged_checkpoints_follow_from_steps_alone_and_are_kept(run, used, tmp_path):
    assert kept_and_used(tmp_path, *run.values(), every=3, keep=1, average=3)[1] == [*map(int, used.split())]


def test_as_many_as_are_averaged_are_loaded_and_others_are_removed(tmp_path):
    keys = {"every": 3, "keep": 1, "average": 2}
    save(tmp_path, 3, 4, 6, 7, **keys)
    assert steps_in(tmp_path) == [3, 6, 7]
    for last, steps in ((7, [7, 6]), (9, [6, 3])):
        assert loaded(tmp_path, 2, used=functools.partial(CheckpointConfig(**keys).used, last=last)) == steps


def flip_a_bit(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("best", ["", "exact_match"])
@pytest.mark.parametrize("damage", [flip_a_bit, Path.unlink])
def test_a_checkpoint_with_any_damaged_file_is_skipped_with_one_warning(damage, best, tmp_path, caplog):
    used = functools.partial(CheckpointConfig(best=best).used, last=2)
    save(tmp_path, 1, 2)
    for path in [path for path in (tmp_path / "2").rglob("*") if path.is_file()]:
        content = path.read_bytes()
        if not content and damage is not Path.unlink:
            continue
        damage(path)
        caplog.clear()
        assert loaded(tmp_path, used=used) == [1]
        (message,) = warnings_of(caplog)
        assert "skipping the damaged checkpoint of step 2: " in message and "\n" not in message
        path.write_bytes(content)
    assert loaded(tmp_path) == [2]


def test_a_numbered_folder_without_that_steps_checkpoint_counts_as_damaged(tmp_path, caplog):
    save(tmp_path, 8)
    (tmp_path / "5").write_text("")
    shutil.copytree(tmp_path / "8", tmp_path / "6")
    (tmp_path / "7").mkdir()
    assert loaded(tmp_path, 2) == [8]
    whats = ("No such file or directory", "it was saved as step 8", "Not a directory")
    for step, what, message in zip((7, 6, 5), whats, warnings_of(caplog), strict=True):
        assert f"the damaged checkpoint of step {step}: " in message and what in message


def test_remains_of_an_interrupted_save_or_removal_are_ignored_and_later_cleared(tmp_path):
    save(tmp_path, 1)
    no_steps = ["0000007", "+7", "٧", "7.damaged", "-7"]
    for name in (*no_steps, "2.unfinished", "3.unfinished.orbax-checkpoint-tmp"):
        (tmp_path / name / "state").mkdir(parents=True)
    assert loaded(tmp_path, 9) == loaded(tmp_path, step=1) == [1]
    save(tmp_path, 2)
    assert {path.name for path in tmp_path.iterdir()} == {"1", "2", *no_steps}


def test_a_resumed_run_sets_damaged_checkpoints_aside_and_saves_their_steps_again(tmp_path):
    save(tmp_path, 1, 2, 3, keep=9)
    flip_a_bit(tmp_path / "3" / "state" / "manifest.ocdbt")
    (tmp_path / "2" / "digests.json").unlink()
    checkpoints = Checkpoints(tmp_path, CheckpointConfig(keep=9), RUN)
    assert checkpoints.restore(SHAPES)[0] == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "2.damaged", "3.damaged"]
    checkpoints.save(2, state_of(2), record_of(2))
    checkpoints.wait()
    assert loaded(tmp_path) == [2]


def test_if_every_checkpoint_is_damaged_a_run_does_not_resume_and_sets_none_aside(tmp_path):
    save(tmp_path, 1, 2)
    for step in (1, 2):
        flip_a_bit(tmp_path / str(step) / "state" / "manifest.ocdbt")
    with pytest.raises(UserError, match=r"every checkpoint is damaged \(steps 1, 2\)"):
        Checkpoints(tmp_path, CheckpointConfig(), RUN).restore(SHAPES)
    assert steps_in(tmp_path) == [1, 2]


def test_a_checkpoint_removed_during_reading_by_its_run_is_replaced_by_a_newer_one(tmp_path, monkeypatch, caplog):
    save(tmp_path, 1, 2)
    read = checkpoint._read

    def too_late(folder, *arguments):
        if folder.name == "2":
            save(tmp_path, 3, 4)
        return read(folder, *arguments)

    monkeypatch.setattr(checkpoint, "_read", too_late)
    assert (loaded(tmp_path), warnings_of(caplog)) == ([4], [])
    with pytest.raises(UserError, match=r"no checkpoint of step 2; there are \[3, 4\]"):
        loaded(tmp_path, step=2)


def test_a_checkpoint_of_another_run_is_refused_by_a_line_that_names_both(tmp_path):
    save(tmp_path, 1, 2)
    other = {"seed": 1, "content of text.txt": "0a1b", "model.n_layers": 3}
    what = "of another run: seed (0 there, 1 here), model.n_layers (absent there, 3 here)"
    for read in (
        lambda: load(tmp_path, SHAPES, other),
        lambda: Checkpoints(tmp_path, CheckpointConfig(), other).restore(SHAPES),
    ):
        with pytest.raises(UserError) as error:
            read()
        assert str(error.value).startswith(f"{tmp_path / '2'}: {what}")
    assert steps_in(tmp_path) == [1, 2]


def test_a_checkpoint_of_another_model_is_an_error_that_names_the_array(tmp_path):
    save(tmp_path, 1)
    for there, here in (({}, "absent"), ({"w": SHAPES["w"].update(shape=(7,))}, "float32[7]")):
        with pytest.raises(UserError) as error:
            load(tmp_path, {"b": SHAPES["b"], **there})
        what = f"does not fit this model and optimizer: ['w'] is float32[1000] there, {here} here"
        assert str(error.value) == f"{tmp_path / '1'}: {what}"


def test_a_state_that_cannot_be_saved_is_refused_before_training(tmp_path):
    with pytest.raises(UserError, match=r"^\['b'\]: no checkpoint holds an array without elements"):
        Checkpoints(tmp_path, CheckpointConfig(), RUN).restore({**SHAPES, "b": jax.ShapeDtypeStruct((0, 3), jnp.int32)})
