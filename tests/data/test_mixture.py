"""Documents from several sources by weight: configs, metrics and batches."""

import json
import math

import numpy as np
import pyarrow
import pytest

from fxf.base.errors import UserError
from fxf.data.documents import DocumentsConfig
from fxf.data.mixture import sources_of
from fxf.tasks.language_model import LanguageModelConfig, language_model
from fxf.tasks.task import Evaluator, RunInfo
from fxf.training.step import TrainConfig
from helpers import refused, table

PATH = "wiki.jsonl.zst:3, code/*.zst:1"
CODE = {"path": "code/*.zst", "field": "content"}
SOURCES = {"wiki": {"path": "wiki.jsonl.zst", "weight": 3}, "code": CODE}


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    """The files of the sources; the text of "code" is in another field."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "code").mkdir()
    texts = {"wiki": [f"Text {i} of words ß" for i in range(90)], "code/part": [f"x{i} = {i * i};" for i in range(40)]}
    for name, rows in texts.items():
        lines = "".join(json.dumps({"content": row, "text": row}) + "\n" for row in rows)
        (tmp_path / f"{name}.jsonl.zst").write_bytes(pyarrow.compress(lines.encode(), "zstd", asbytes=True))


def test_a_path_with_weights_and_sections_of_sources_mean_the_same():
    def parts(**keys):
        return sources_of(DocumentsConfig(format="json_lines", **keys))

    assert [*parts(path=PATH).items()] == [*parts(sources={**SOURCES, "code": {"path": "code/*.zst"}}).items()]
    for case, _ in table("shares of the sources of a path"):
        assert {name: part.share for name, part in parts(path=case["path"]).items()} == case["shares"]
    assert parts(path="odd:1")[""].config.path == "odd:1"
    other = parts(field="content", sources={"a": {"path": "a", "format": "files"}})["a"]
    assert other.config.field == "text"  # files have no fields


@pytest.mark.parametrize(("keys", "message"), refused("sources of a mixture"))
def test_a_wrong_source_is_named(keys, message):
    with pytest.raises(UserError, match=message):
        sources_of(DocumentsConfig(**{"format": "json_lines", **keys}))


def task_of(**keys):
    run = RunInfo(TrainConfig(batch_size=8), DocumentsConfig(format="json_lines", validation=0.2, **keys), seed=2)
    return language_model(LanguageModelConfig(length=7), run)


def test_a_source_that_is_prepared_serves_other_mixtures_with_the_same_tokens(monkeypatch):
    alone = task_of(path="wiki.jsonl.zst", tokenizer="byte")
    both, other = (task_of(tokenizer="byte", sources={**SOURCES, "code": {**CODE, "weight": n}}) for n in (1, 5))
    folders = {name: each.folder for name, each in both.prepared.items()}
    monkeypatch.setattr("fxf.data.prepared.prepare", None)
    assert {name: each.folder for name, each in other.prepared.items()} == folders
    assert alone.prepared[""].folder == folders["wiki"]
    differing = {name for name, value in both.digests().items() if value != other.digests()[name]}
    assert differing == {"data.sources.wiki.share", "data.sources.code.share"}
    assert both.scored_data() != other.scored_data()
    sizes = [both.figures()[f"{part}_{n}"] for n in ("documents", "tokens") for part in ("training", "validation")]
    assert sizes == [105, 25, 1829, 385]  # 130 documents of 2,084 bytes, each with a token at its end


def test_one_tokenizer_is_trained_by_the_shares_and_kept(monkeypatch):
    task = task_of(sources=SOURCES, tokenizer="bpe", vocab_size=300)
    monkeypatch.setattr("fxf.data.documents.sample", None)
    again = task_of(sources=SOURCES, tokenizer="bpe", vocab_size=300)
    assert again.tokenizer.to_json() == task.tokenizer.to_json()
    asked = []
    monkeypatch.setattr("fxf.data.documents.sample", lambda config, share: asked.append((config.path, share)) or ["a"])
    for path in (PATH, f"{PATH}2"):
        task_of(path=path, vocab_size=301)
    assert asked[:2] == [("code/*.zst", 0.25), ("wiki.jsonl.zst", 0.75)]
    assert [share for _, share in asked[2:]] == [0.8, 0.2]


@pytest.mark.parametrize("in_nats", [True, False])
def test_metrics_of_a_mixture_weigh_its_sources_by_their_shares(in_nats):
    task = task_of(sources=SOURCES, tokenizer="byte")
    semicolon = task.tokenizer.encode(";")[0]

    def loss(batch):  # 2 nats per token of code, which alone has semicolons, and 1 elsewhere
        n = batch["weights"].sum()
        return n * (2 if semicolon in batch["targets"] else 1), n

    evaluator = Evaluator(None, loss, lambda batch: np.eye(task.vocab_size)[batch["targets"]], in_nats)
    figures = task.validate(evaluator)
    assert (figures["validation_loss/wiki"], figures["validation_loss/code"]) == (1, 2)
    assert figures["validation_loss"] == pytest.approx(0.75 * 1 + 0.25 * 2)
    if not in_nats:
        assert (figures["accuracy"], figures["accuracy/wiki"]) == (1, 1)
        return
    sizes = [task.prepared[name].counts["validation"] for name in ("wiki", "code")]
    for unit in ("character", "byte"):
        wiki, code = (size[f"{unit}s"] / size["tokens"] for size in sizes)
        assert figures[f"bits_per_{unit}"] == pytest.approx(1.25 / math.log(2) / (0.75 * wiki + 0.25 * code))
        assert figures[f"bits_per_{unit}/code"] == pytest.approx(2 / math.log(2) / code)
    assert {name.removeprefix("-") for name in task.metrics} < {*figures}
