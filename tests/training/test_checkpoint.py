import functools
import json
import logging
import math
import shutil
import threading
from contextlib import closing

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fxf.base.errors import UserError
from fxf.runs.experiment import build
from fxf.training import checkpoint, checkpoint_files, processes
from fxf.training.checkpoint import CheckpointConfig, Checkpoints, load, load_several
from helpers import one_device
from small_runs import tiny_config


def state_of(step):
    return {"w": jnp.arange(1000.0) * step, "b": {"c": jnp.full((3, 5), step, jnp.int32)}}


SHAPES = jax.eval_shape(lambda: state_of(1))


RUN = {"seed": 0, "content of text.txt": "0a1b"}


def record_of(step, **metrics):
    return {"seconds": {"train": 0.5 * step}, "evaluated": metrics}


def save(folder, *steps, figures=None, **config):
    """Saves checkpoints, whose evaluations have the `figures` by step; of other steps there is none."""
    with closing(Checkpoints(folder, CheckpointConfig(**config), RUN)) as checkpoints:
        for step in steps:
            metrics = {"exact_match": figures[step]} if step in (figures or {}) else {}
            checkpoints.save(step, state_of(step), record_of(step, **metrics))
        checkpoints.wait()


def steps_in(folder):
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit())


def files_of(folder):
    return sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())


def warnings_of(caplog):
    ours = (record for record in caplog.records if record.name.startswith("fxf."))  # Orbax writes a log of its own
    return [record.getMessage() for record in ours if record.levelno >= logging.WARNING]


def test_what_is_saved_is_restored_to_the_bit(tmp_path):
    save(tmp_path, 3)
    step, state, record = load(tmp_path, SHAPES)
    assert step == 3
    assert record == record_of(3)
    jax.tree.map(np.testing.assert_array_equal, state, state_of(3))


def test_a_loop_over_blocks_and_blocks_without_one_read_each_others_checkpoints():
    looped, plain = (
        build(tiny_config(model={"n_layers": 2, "scan_blocks": scan})).state_shapes(one_device())
        for scan in (True, False)
    )
    assert jax.tree.map(lambda x: (x.shape, x.dtype, x.sharding), looped) == jax.tree.map(
        lambda x: (x.shape, x.dtype, x.sharding), plain
    )


def test_no_folder_and_an_empty_one_restore_nothing(tmp_path):
    assert load(tmp_path / "absent", SHAPES) is None
    save(tmp_path)
    assert load(tmp_path, SHAPES) is None


def test_processes_wait_for_each_other_when_a_checkpoint_is_in_its_place(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(processes, "barrier", lambda: seen.append(steps_in(tmp_path)))
    save(tmp_path, 3)
    assert seen[-1] == [3]


def test_training_goes_on_while_a_checkpoint_is_written_and_changes_none_of_its_bits(tmp_path, monkeypatch):
    may_finish = threading.Event()
    finish = Checkpoints._finish
    monkeypatch.setattr(Checkpoints, "_finish", lambda *args: may_finish.wait() and finish(*args))
    train_step = jax.jit(lambda state: jax.tree.map(lambda x: x + 1, state), donate_argnums=0)
    with closing(Checkpoints(tmp_path, CheckpointConfig(), RUN)) as checkpoints:
        state = state_of(3)
        checkpoints.save(3, state, record_of(3))
        state = jax.block_until_ready(train_step(train_step(state)))
        assert steps_in(tmp_path) == []
        may_finish.set()
        checkpoints.wait()
    jax.tree.map(np.testing.assert_array_equal, load(tmp_path, SHAPES)[1], state_of(3))
    jax.tree.map(lambda new, old: np.testing.assert_array_equal(new, old + 2), state, state_of(3))


@pytest.mark.parametrize("notice", [lambda c: c.wait(), lambda c: c.save(2, state_of(2), record_of(2))])
def test_what_kept_a_checkpoint_from_its_place_is_raised_by_what_waits_for_it(notice, tmp_path, monkeypatch):
    def fail(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint_files, "write_digests", fail)
    with closing(Checkpoints(tmp_path, CheckpointConfig(), RUN)) as checkpoints:
        checkpoints.save(1, state_of(1), record_of(1))
        with pytest.raises(OSError, match="No space left"):
            notice(checkpoints)
    assert load(tmp_path, SHAPES) is None


@pytest.mark.parametrize(
    ("best", "keep", "figures", "kept", "used"),
    [
        ("", 2, {}, [4, 5], 5),
        ("exact_match", 1, {1: 0.1, 2: 0.9, 3: 0.1, 4: 0.1, 5: 0.1}, [2, 5], 2),
        ("-exact_match", 2, {1: 3.5, 2: 1.25, 3: 2.0, 4: 1.5}, [2, 4, 5], 2),  # the last one by the clock
        ("exact_match", 1, {1: 0.5, 2: 0.5}, [2, 5], 2),  # the newer of equally good ones
        *(
            (best, 1, {1: value, 2: 0.5, 5: value}, [2, 5], 2)  # what has no value is never the best
            for value in (math.nan, math.inf, -math.inf, None)
            for best in ("exact_match", "-exact_match")
        ),
        ("exact_match", 9, {1: math.nan, 2: math.nan}, [1, 2, 3, 4, 5], 2),  # evaluated at least
    ],
)
def test_the_newest_and_the_best_are_kept_and_the_best_is_loaded(best, keep, figures, kept, used, tmp_path):
    save(tmp_path, 1, 2, 3, 4, 5, figures=figures, keep=keep, best=best)
    assert steps_in(tmp_path) == kept
    assert load(tmp_path, SHAPES)[0] == 5
    assert load(tmp_path, SHAPES, best=best)[0] == used
    json.loads((tmp_path / "5" / "checkpoint.json").read_text(), parse_constant=pytest.fail)


@pytest.mark.parametrize(
    ("saved", "last", "used"),
    [
        ([3, 6, 9, 12], 12, [6, 9, 12]),
        ([3, 4, 6, 7, 9, 10, 12], 12, [6, 9, 12]),  # others by a clock, or by signals
        ([3, 6, 9, 11], 11, [6, 9, 11]),  # the last step need be no multiple
        ([3, 6, 9, 11, 12, 14], 14, [9, 12, 14]),  # made longer
        ([3, 6, 7], 14, [3, 6]),  # on its way
        ([1, 2], 14, [2]),
    ],
)
def test_what_is_averaged_follows_from_steps_alone_and_is_kept(saved, last, used, tmp_path):
    config = CheckpointConfig(every=3, keep=1, average=3)
    checkpoints, there = Checkpoints(tmp_path, config, RUN), []
    for step in saved:
        there = sorted(checkpoints._kept([*there, step]))
    assert config.averaged(there, last)[-3:] == used


def test_as_many_as_are_averaged_are_loaded_and_others_are_removed(tmp_path):
    keys = {"every": 3, "keep": 1, "average": 2}
    save(tmp_path, 3, 4, 6, 7, **keys)
    assert steps_in(tmp_path) == [3, 6, 7]
    for last, used in ((7, [7, 6]), (9, [6, 3])):
        among = functools.partial(CheckpointConfig(**keys).averaged, last=last)
        assert [step for step, _, _ in load_several(tmp_path, SHAPES, n=2, among=among)] == used


def test_the_newest_are_loaded_newest_first_as_many_as_there_are(tmp_path):
    save(tmp_path, 1, 2, 3, keep=9)
    for n, steps in ((1, [3]), (2, [3, 2]), (7, [3, 2, 1])):
        loaded = load_several(tmp_path, SHAPES, n=n)
        assert [step for step, _, _ in loaded] == steps
        for step, state, record in loaded:
            assert record == record_of(step)
            jax.tree.map(np.testing.assert_array_equal, state, state_of(step))
    assert [part for _, part, _ in load_several(tmp_path, SHAPES, n=2, part=type)] == [type(state_of(1))] * 2
    assert load_several(tmp_path / "absent", SHAPES, n=2) == []


def test_of_the_newest_a_damaged_one_is_passed_over_with_one_warning(tmp_path, caplog):
    save(tmp_path, 1, 2, 3, keep=9)
    flip_a_bit(tmp_path / "2" / "state" / "manifest.ocdbt")
    assert [step for step, _, _ in load_several(tmp_path, SHAPES, n=2)] == [3, 1]
    (message,) = warnings_of(caplog)
    assert "skipping the damaged checkpoint of step 2: " in message


def test_a_step_that_is_not_there_is_named(tmp_path):
    save(tmp_path, 1, 2)
    with pytest.raises(UserError, match=r"no checkpoint of step 7; there are \[1, 2\]"):
        load(tmp_path, SHAPES, step=7)


def flip_a_bit(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def truncate(path):
    path.write_bytes(path.read_bytes()[:-7])


def remove(path):
    path.unlink()


@pytest.mark.parametrize("damage", [flip_a_bit, truncate, remove])
def test_damage_to_any_file_of_the_newest_falls_back_to_the_one_before_with_one_warning(damage, tmp_path, caplog):
    save(tmp_path, 1, 2)
    for name in files_of(tmp_path / "2"):
        content = (tmp_path / "2" / name).read_bytes()
        if not content and damage is not remove:
            continue
        damage(tmp_path / "2" / name)
        caplog.clear()
        step, state, _ = load(tmp_path, SHAPES)
        assert step == 1
        jax.tree.map(np.testing.assert_array_equal, state, state_of(1))
        (message,) = warnings_of(caplog)
        assert "skipping the damaged checkpoint of step 2: " in message
        assert "\n" not in message
        (tmp_path / "2" / name).write_bytes(content)
    assert load(tmp_path, SHAPES)[0] == 2


@pytest.mark.parametrize(
    ("spoil", "what"),
    [
        (lambda folder: (folder / "7").write_text(""), "Not a directory"),
        (lambda folder: shutil.copytree(folder / "1", folder / "7"), "it was saved as step 1"),
        (lambda folder: (folder / "7").mkdir(), "No such file or directory"),
    ],
)
def test_what_bears_a_number_and_is_no_checkpoint_of_that_step_is_a_damaged_one(spoil, what, tmp_path, caplog):
    save(tmp_path, 1)
    spoil(tmp_path)
    assert load(tmp_path, SHAPES)[0] == 1
    (message,) = warnings_of(caplog)
    assert "the damaged checkpoint of step 7: " in message and what in message


@pytest.mark.parametrize("name", ["0000007", "+7", "٧", "7.damaged", "7.unfinished", "-7"])
def test_a_folder_whose_name_is_no_step_is_no_checkpoint(name, tmp_path):
    save(tmp_path, 1)
    (tmp_path / name).mkdir()
    assert load(tmp_path, SHAPES)[0] == 1
    assert load(tmp_path, SHAPES, step=1)[0] == 1


def test_a_run_that_goes_on_sets_damaged_checkpoints_aside_and_saves_their_steps_again(tmp_path):
    save(tmp_path, 1, 2, 3, keep=9)
    flip_a_bit(tmp_path / "3" / "state" / "manifest.ocdbt")
    (tmp_path / "2" / "digests.json").unlink()
    checkpoints = Checkpoints(tmp_path, CheckpointConfig(keep=9), RUN)
    assert checkpoints.restore(SHAPES)[0] == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "2.damaged", "3.damaged"]
    checkpoints.save(2, state_of(2), record_of(2))
    checkpoints.wait()
    assert load(tmp_path, SHAPES)[0] == 2


def test_when_every_checkpoint_is_damaged_it_says_so_and_keeps_them(tmp_path):
    save(tmp_path, 1, 2)
    for step in (1, 2):
        flip_a_bit(tmp_path / str(step) / "state" / "manifest.ocdbt")
    checkpoints = Checkpoints(tmp_path, CheckpointConfig(), RUN)
    for attempt in (
        lambda: load(tmp_path, SHAPES),
        lambda: checkpoints.restore(SHAPES),
    ):
        with pytest.raises(UserError, match=r"every checkpoint is damaged \(steps 1, 2\)"):
            attempt()
    assert steps_in(tmp_path) == [1, 2]


def test_what_is_removed_while_it_is_read_because_the_run_goes_on_is_read_anew(tmp_path, monkeypatch, caplog):
    save(tmp_path, 1, 2)
    read = checkpoint._read

    def too_late(folder, *arguments):
        if folder.name == "2":
            save(tmp_path, 3, 4)
        return read(folder, *arguments)

    monkeypatch.setattr(checkpoint, "_read", too_late)
    assert load(tmp_path, SHAPES)[0] == 4
    assert warnings_of(caplog) == []
    with pytest.raises(UserError, match=r"no checkpoint of step 2; there are \[3, 4\]"):
        load(tmp_path, SHAPES, step=2)


def test_a_damaged_step_asked_for_is_an_error(tmp_path):
    save(tmp_path, 1, 2)
    flip_a_bit(tmp_path / "2" / "state" / "manifest.ocdbt")
    with pytest.raises(UserError, match=r"the checkpoint of step 2 is damaged: state/manifest.ocdbt differs"):
        load(tmp_path, SHAPES, step=2)


def test_what_a_save_or_a_removal_cut_short_has_left_is_not_read_and_cleared_by_the_next_run(tmp_path):
    save(tmp_path, 1)
    for name in ("2.unfinished", "3.unfinished.orbax-checkpoint-tmp"):
        (tmp_path / name / "state").mkdir(parents=True)
    assert load(tmp_path, SHAPES)[0] == 1
    save(tmp_path, 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "2"]


def test_a_checkpoint_whose_replacement_was_cut_short_is_still_there(tmp_path):
    save(tmp_path, 1)
    (tmp_path / "1").rename(tmp_path / "1.replaced")
    save(tmp_path)
    assert load(tmp_path, SHAPES)[0] == 1
    shutil.copytree(tmp_path / "1", tmp_path / "1.replaced")
    save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["1"]


PARTS = {
    "state/manifest.ocdbt": 0,
    "checkpoint.json": 0,
    "state/ocdbt.process_0/d/a": 0,
    "state/ocdbt.process_1/d/b": 1,
}
PARTS |= {"state/ocdbt.process_2/d/c": 2, "state/ocdbt.process_2/manifest.ocdbt": 2}


def test_of_several_processes_each_hashes_what_it_wrote_and_the_first_joins_their_digests(tmp_path, monkeypatch):
    for name in PARTS:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    index = threading.local()
    monkeypatch.setattr(jax, "process_count", lambda: 3)
    monkeypatch.setattr(jax, "process_index", lambda: index.value)

    def write(process):
        index.value = process
        checkpoint_files.write_digests(tmp_path)

    def damage_seen_by(process):
        index.value = process
        return checkpoint_files.damage(tmp_path, together=True)

    threads = [threading.Thread(target=write, args=(process,)) for process in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = checkpoint_files.digests(tmp_path)
    assert json.loads((tmp_path / "digests.json").read_text()) == expected
    assert expected.keys() == PARTS.keys() and [path.name for path in tmp_path.glob("digests*")] == ["digests.json"]
    for name, process in [part for part in PARTS.items() if part[0] != "checkpoint.json"]:
        before = (tmp_path / name).read_text()
        (tmp_path / name).write_text("other")
        found = [damage_seen_by(each) for each in range(3)]
        assert [name in what for what in found] == [each == process for each in range(3)]
        (tmp_path / name).write_text(before)


def test_a_damaged_checkpoint_is_passed_over_also_where_it_would_be_the_best(tmp_path):
    save(tmp_path, 1, 2, 3, figures={1: -1, 2: -2, 3: -3}, keep=3)
    (tmp_path / "1" / "digests.json").unlink()
    assert load(tmp_path, SHAPES, best="exact_match")[0] == 2


@pytest.mark.parametrize("read", [
    lambda folder, run: load(folder, SHAPES, run),
    lambda folder, run: load(folder, SHAPES, run, step=2),
    lambda folder, run: Checkpoints(folder, CheckpointConfig(), run).restore(SHAPES),
])  # fmt: skip
def test_a_checkpoint_of_another_run_is_refused_by_a_line_that_names_both(read, tmp_path):
    save(tmp_path, 1, 2)
    assert read(tmp_path, RUN)
    with pytest.raises(UserError) as error:
        read(tmp_path, {"seed": 1, "content of text.txt": "0a1b", "model.n_layers": 3})
    what = "of another run: seed (0 there, 1 here), model.n_layers (absent there, 3 here)"
    assert str(error.value).startswith(f"{tmp_path / '2'}: {what}")
    assert steps_in(tmp_path) == [1, 2]


@pytest.mark.parametrize(
    ("shapes", "what"),
    [
        ({"b": SHAPES["b"]}, "['w'] is float32[1000] there, absent here"),
        ({**SHAPES, "w": jax.ShapeDtypeStruct((7,), jnp.float32)}, "['w'] is float32[1000] there, float32[7] here"),
    ],
)
def test_a_checkpoint_of_another_model_is_an_error_that_names_the_array(shapes, what, tmp_path):
    save(tmp_path, 1)
    with pytest.raises(UserError) as error:
        load(tmp_path, shapes)
    assert str(error.value) == f"{tmp_path / '1'}: does not fit this model and optimizer: {what}"
