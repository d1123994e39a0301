"""A translation run: resumed within an epoch, with its own tokenizer, its errors in one line."""

import json
import os
import random
import shutil

import jax
import numpy as np
import pytest

from fxf.base.config import flatten
from fxf.runs import run
from fxf.runs.configs import read_config
from fxf.training import record
from small_runs import command, records, trained

MODEL = {"n_layers": 1, "d_model": 6, "d_ff": 7, "n_heads": 2, "max_len": 20, "dropout": 0.1}
DATA = {"name": "pairs", "columns": "en,fr", "held_out": 0.1, "max_length": 20, "shapes": 1}
DATA |= {"tokenizer": "word", "vocab_size": 30}
TRAIN = {"steps": 16, "batch_size": 8}
KEPT = {}  # the runs here have the same programs


def sections_of(path):
    """Returns the changes that make the shipped config a small run on the file of pairs `path`."""
    config = {"model": MODEL, "data": {**DATA, "path": str(path)}, "train": TRAIN}
    config |= {"checkpoint": {"every": 4, "keep": 3}, "log": {"every": 2, "tensorboard": False, "report": False}}
    return dict(flatten({**config, "optimizer": {"warmup_steps": 5}}))


def train(path, workdir):
    config = read_config("configs/translation.py")
    config.update_from_flattened_dict(sections_of(path))
    trained(config.to_dict(), workdir, kept=KEPT)


def lines(n=90):
    rng = random.Random(0)
    words = {"a": "un", "b": "deux", "c": "trois", "d": "quatre"}
    sources = sorted({" ".join(rng.choices(list(words), k=rng.randint(2, 9))) for _ in range(n)})
    return [f"{source}\t{' '.join(words[w] for w in source.split())}" for source in sources]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a file of pairs and a finished run on it."""
    folder = tmp_path_factory.mktemp("translation")
    os.environ["TFDS_DATA_DIR"] = str(folder / "tfds")
    (folder / "pairs.txt").write_text("\n".join(lines()) + "\n")
    train(folder / "pairs.txt", folder / "run")
    yield folder
    del os.environ["TFDS_DATA_DIR"]


def steps_and_losses(workdir):
    return [(row["step"], row.get("loss")) for row in records(workdir)]


def params(workdir):
    return jax.tree.map(np.asarray, run.load(workdir)[2])


class StoppedError(Exception):
    pass


def test_a_run_stopped_within_an_epoch_resumes_to_the_same_bits(folder, monkeypatch, capsys):
    """As by a crash, before the newest steps are saved; tests/runs/test_kill.py kills processes."""
    steps_per_epoch = json.loads((folder / "run" / "result.json").read_text())["steps_per_epoch"]
    assert steps_per_epoch > 5

    def stop(history, before, _):
        if before + len(history["loss_sum"]) >= steps_per_epoch + 3:
            raise StoppedError
        return 0

    stopped = folder / "stopped"
    with monkeypatch.context() as patch, pytest.raises(StoppedError):
        patch.setattr(record, "_zero_nonfinite", stop)
        train(folder / "pairs.txt", stopped)
    assert not (stopped / "result.json").exists()
    train(folder / "pairs.txt", stopped)
    assert "resuming at step" in capsys.readouterr().err
    jax.tree.map(np.testing.assert_array_equal, params(stopped), params(folder / "run"))
    assert steps_and_losses(stopped) == steps_and_losses(folder / "run")


def test_a_finished_run_prints_samples_and_figures(folder):
    result = json.loads((folder / "run" / "result.json").read_text())
    for name in ("bleu", "chrf", "bleu_lower_case", "bleu_signature", "exact_match", "examples", "padding_share"):
        assert name in result
    assert (folder / "run" / "tokenizer.json").exists()


def test_a_record_has_the_time_of_its_batches_and_on_a_cpu_no_utilization_or_device_memory(folder):
    rows = records(folder / "run")
    trained = [row for row in rows if "loss" in row]
    assert trained and all(0 < row["data_seconds_per_step"] < 1 / row["steps_per_second"] for row in trained)
    result = json.loads((folder / "run" / "result.json").read_text())
    assert not {"mfu", "device_peak_bytes", "device_bytes"} & {*result, *(name for row in rows for name in row)}


def test_a_run_translates_without_the_text_it_learned_from(folder, tmp_path):
    shutil.copytree(folder / "run", tmp_path / "run")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    config["config"]["data"]["path"] = "/nowhere/pairs.txt"
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    (tmp_path / "input.txt").write_text("a b c\n\nd\n")
    finished = command("generate", f"--workdir={tmp_path / 'run'}", f"--input={tmp_path / 'input.txt'}")
    assert finished.returncode == 0, finished.stderr
    first, blank, last = finished.stdout.split("\n")[:-1]
    assert blank == ""
    assert first and last and first != last


def test_n_best_lines_have_number_score_and_text(folder):
    finished = command("generate", f"--workdir={folder / 'run'}", "--beam_width=4", "--n_best=3", "a b", "c")
    assert finished.returncode == 0, finished.stderr
    rows = [line.split("\t") for line in finished.stdout.splitlines()]
    assert [row[0] for row in rows] == ["1"] * 3 + ["2"] * 3
    scores = [float(row[1]) for row in rows]
    assert scores[:3] == sorted(scores[:3], reverse=True)
    assert scores[3:] == sorted(scores[3:], reverse=True)
