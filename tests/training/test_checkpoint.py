import logging
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fxf.config import CheckpointConfig
from fxf.errors import UserError
from fxf.training.checkpoint import Checkpoints, load, load_newest


def state_of(step):
    return {"w": jnp.arange(1000.0) * step, "b": {"c": jnp.full((3, 5), step, jnp.int32)}}


SHAPES = jax.eval_shape(lambda: state_of(1))


def record_of(step, **metrics):
    return {"seconds": {"train": 0.5 * step}, "evaluated": metrics}


def save(folder, *steps, metric=None, **config):
    checkpoints = Checkpoints(folder, CheckpointConfig(**config))
    for step in steps:
        metrics = {"exact_match": metric(step)} if metric else {}
        checkpoints.save(step, state_of(step), metrics, record_of(step, **metrics))
    checkpoints.close()


def steps_in(folder):
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit())


def files_of(folder):
    return sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())


def warnings_of(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_what_is_saved_is_restored_to_the_bit(tmp_path):
    save(tmp_path, 3)
    step, state, record = load(tmp_path, SHAPES)
    assert step == 3
    assert record == record_of(3)
    jax.tree.map(np.testing.assert_array_equal, state, state_of(3))


def test_no_folder_and_an_empty_one_restore_nothing(tmp_path):
    assert load(tmp_path / "absent", SHAPES) is None
    save(tmp_path)
    assert load(tmp_path, SHAPES) is None


def test_the_newest_are_kept(tmp_path):
    save(tmp_path, 1, 2, 3, 4, keep=2)
    assert steps_in(tmp_path) == [3, 4]
    assert load(tmp_path, SHAPES)[0] == 4
    assert load(tmp_path, SHAPES, step=3)[0] == 3


def test_the_best_is_kept_beside_the_newest_and_loaded_on_demand(tmp_path):
    save(tmp_path, 1, 2, 3, 4, 5, metric=lambda step: {2: 0.9}.get(step, 0.1), keep=1, best="exact_match")
    assert steps_in(tmp_path) == [2, 5]
    assert load(tmp_path, SHAPES)[0] == 5
    assert load(tmp_path, SHAPES, best="exact_match")[0] == 2


def test_with_a_minus_in_front_the_best_is_the_lowest(tmp_path):
    losses = {1: 3.5, 2: 1.25, 3: 2.0, 4: 1.5}
    save(tmp_path, *losses, metric=losses.get, keep=1, best="-exact_match")
    save(tmp_path, 5, keep=2, best="-exact_match")
    assert steps_in(tmp_path) == [2, 4, 5]
    assert load(tmp_path, SHAPES, best="-exact_match")[0] == 2


def test_among_equally_good_and_unscored_the_newest_good_one_is_best(tmp_path):
    save(tmp_path, 1, 2, metric=lambda step: 0.5, keep=9)
    save(tmp_path, 3, keep=9)
    assert load(tmp_path, SHAPES, best="exact_match")[0] == 2


def test_the_newest_are_loaded_newest_first_as_many_as_there_are(tmp_path):
    save(tmp_path, 1, 2, 3, keep=9)
    for n, steps in ((1, [3]), (2, [3, 2]), (7, [3, 2, 1])):
        loaded = list(load_newest(tmp_path, SHAPES, n))
        assert [step for step, _, _ in loaded] == steps
        for step, state, record in loaded:
            assert record == record_of(step)
            jax.tree.map(np.testing.assert_array_equal, state, state_of(step))
    assert list(load_newest(tmp_path / "absent", SHAPES, 2)) == []


def test_of_the_newest_a_damaged_one_is_passed_over_with_one_warning(tmp_path, caplog):
    save(tmp_path, 1, 2, 3, keep=9)
    flip_a_bit(tmp_path / "2" / "state" / "manifest.ocdbt")
    assert [step for step, _, _ in load_newest(tmp_path, SHAPES, 2)] == [3, 1]
    (message,) = warnings_of(caplog)
    assert "passing over the damaged checkpoint of step 2: " in message


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
    save(tmp_path / "intact", 1, 2, metric=lambda step: 0.5)
    for i, name in enumerate(files_of(tmp_path / "intact" / "2")):
        if name.name == "digests.json" and damage is remove:
            continue  # that is a checkpoint whose process was killed before it wrote them
        folder = tmp_path / str(i)
        shutil.copytree(tmp_path / "intact", folder)
        damage(folder / "2" / name)
        caplog.clear()
        step, state, _ = load(folder, SHAPES)
        assert step == 1
        jax.tree.map(np.testing.assert_array_equal, state, state_of(1))
        (message,) = warnings_of(caplog)
        assert "passing over the damaged checkpoint of step 2: " in message
        assert "\n" not in message


def test_a_run_that_goes_on_sets_a_damaged_checkpoint_aside(tmp_path):
    save(tmp_path, 1, 2, metric=lambda step: 0.5)
    flip_a_bit(tmp_path / "2" / "metrics" / "metrics")
    save(tmp_path, 2, metric=lambda step: 0.5)
    assert (tmp_path / "2.damaged").is_dir()
    assert load(tmp_path, SHAPES)[0] == 2


def test_when_every_checkpoint_is_damaged_it_says_so_and_keeps_them(tmp_path):
    save(tmp_path, 1, 2)
    for step in (1, 2):
        flip_a_bit(tmp_path / str(step) / "state" / "manifest.ocdbt")
    for attempt in (lambda: load(tmp_path, SHAPES), lambda: Checkpoints(tmp_path, CheckpointConfig())):
        with pytest.raises(UserError, match=r"every checkpoint is damaged \(steps 1, 2\)"):
            attempt()
    assert steps_in(tmp_path) == [1, 2]


def test_a_damaged_step_asked_for_is_an_error(tmp_path):
    save(tmp_path, 1, 2)
    flip_a_bit(tmp_path / "2" / "state" / "manifest.ocdbt")
    with pytest.raises(UserError, match=r"the checkpoint of step 2 is damaged"):
        load(tmp_path, SHAPES, step=2)


def test_a_save_cut_short_is_not_read_and_cleared_by_the_next_run(tmp_path):
    save(tmp_path, 1)
    unfinished = tmp_path / "2.orbax-checkpoint-tmp"
    (unfinished / "state").mkdir(parents=True)
    assert load(tmp_path, SHAPES)[0] == 1
    save(tmp_path, 2)
    assert not unfinished.exists()


def test_a_checkpoint_committed_before_its_digests_were_written_is_read(tmp_path):
    save(tmp_path, 1, 2)
    (tmp_path / "2" / "digests.json").rename(tmp_path / "2" / "digests.json.tmp")
    assert load(tmp_path, SHAPES)[0] == 2
    save(tmp_path, 3)
    assert [step for step, _, _ in load_newest(tmp_path, SHAPES, 3)] == [3, 2]


def test_a_checkpoint_removed_in_part_is_passed_over_also_where_it_would_be_the_best(tmp_path):
    save(tmp_path, 1, 2, 3, metric=lambda step: -step, keep=3)
    for path in (tmp_path / "1" / "digests.json", tmp_path / "1" / "_CHECKPOINT_METADATA"):
        path.unlink()
    assert load(tmp_path, SHAPES, best="exact_match")[0] == 2
    save(tmp_path, 4, metric=lambda step: -step, keep=1, best="exact_match")
    assert steps_in(tmp_path) == [2, 4]


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
