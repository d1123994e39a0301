"""The digest of scored data: only runs with equal digests are ranked."""

import json

import pytest
from tokenizers import Tokenizer, models, normalizers

from fxf.runs.evaluator import scored_of
from fxf.runs.experiment import build, default_config
from fxf.tasks.language_model import Documents
from fxf.tasks.task import Task
from helpers import refused

LINES = "".join(f"{i} and {i * i}\n" for i in range(90))
PAIRS = "".join(f"{i} and {i * i}\t{i} et {i * i}\t{i} und {i * i}\n" for i in range(90))
TEXT = {"data.path": "text.txt", "data.tokenizer": "character", "task.length": 5, "model.max_len": 7}
DOCUMENTS = {**TEXT, "data.path": "texts.jsonl", "data.format": "json_lines", "data.validation": 0.2}
CORPUS = {"data.name": "pairs", "data.path": "pairs.tsv", "data.columns": "en,fr,de", "data.held_out": 0.2}
CORPUS |= {"data.tokenizer": "character", "model.max_len": 40, "data.max_length": 40}
STARTS = {
    "text": ("language_model", TEXT),
    "last": ("language_model", {**TEXT, "task.score": "last"}),
    "tested": ("language_model", {**TEXT, "data.test": 0.1}),
    "documents": ("language_model", DOCUMENTS),
    "masking": ("masking", TEXT),
    "translation": ("translation", CORPUS),
    "reversal": ("reversal", {}),
    "a task that does not say it": ("language_model", DOCUMENTS),
    "a task without digests": ("language_model", DOCUMENTS),
}


def scored(name, **changes):
    task, keys = STARTS[name]
    config = default_config(task)
    config.model.update({"n_layers": 1, "d_model": 4, "n_heads": 1, "d_ff": 4})
    config.update_from_flattened_dict({**keys, **changes})
    return scored_of(build(config))


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "tfds"))
    for name, text in {"text.txt": LINES, "other.txt": LINES.replace("and", "or"), "pairs.tsv": PAIRS}.items():
        (tmp_path / name).write_text(text)
    backend = Tokenizer(models.BPE({name: i for i, name in enumerate(["</s>", *map(chr, range(128))])}, []))
    backend.add_special_tokens(["</s>"])
    backend.save("cased.json")
    backend.normalizer = normalizers.Lowercase()
    backend.save("uncased.json")
    for name, text in {"texts.jsonl": LINES, "others.jsonl": LINES.replace("and", "or")}.items():
        records = ({"text": line, "title": "a" + line} for line in text.splitlines())
        (tmp_path / name).write_text("\n".join(map(json.dumps, records)))


@pytest.mark.parametrize(
    ("name", "changes", "kept"), [(name, *case) for name in STARTS for case in refused(f"scored data of {name}")]
)
def test_the_digest_changes_only_with_what_is_scored(name, changes, kept, monkeypatch):
    if name.startswith("a task"):
        monkeypatch.setattr(Documents, "scored_data", Task.scored_data)
    if name == "a task without digests":
        monkeypatch.setattr(Documents, "digests", Task.digests)
    assert (scored(name, **changes) == scored(name)) == (kept == "same")
