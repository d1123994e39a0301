import dataclasses
import gzip
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from fxf.base.errors import UserError
from fxf.base.work import by_threads, n_cores
from fxf.data import documents
from fxf.data import prepared as module
from fxf.data.documents import PARTS, DocumentsConfig, part_of, read
from fxf.data.mixture import sources_of
from fxf.data.prepared import MANIFEST, prepared, tokenizer_of_documents

TEXTS = [f" Text {i}\nof {'many ' * (i % 7)}words ß.\n" for i in range(60)]


def config(tmp_path, texts=TEXTS, **keys):
    path = tmp_path / "texts.jsonl"
    if not path.exists():
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return DocumentsConfig(**{"path": str(path), "format": "json_lines", "validation": 0.2, "test": 0.2, **keys})


def prepare(config):
    return prepared(config, tokenizer_of_documents(sources_of(config), None))


@pytest.mark.parametrize("kind", ["character", "word", "bpe"])
def test_the_tokens_of_a_part_are_those_of_its_documents_in_order_and_are_not_read_again(kind, tmp_path, monkeypatch):
    keys = config(tmp_path, tokenizer=kind, vocab_size=300)
    tokenizer, found = tokenizer_of_documents(sources_of(keys), None), prepare(keys)
    for part in PARTS:
        expected, tokens = [text for text in TEXTS if part_of(keys, text) == part], found.tokens(part)
        cut = np.split(np.asarray(tokens), np.flatnonzero(tokens == tokenizer.special.eos) + 1)[:-1]
        assert [piece[:-1].tolist() for piece in cut] == [tokenizer.encode(text) for text in expected]
        size = found.counts[part]
        n_unknown = np.count_nonzero(tokens == tokenizer.special.unk)
        assert (size["documents"], size["tokens"], size["unknown"]) == (len(expected), len(tokens), n_unknown)
        assert size["characters"] == len("".join(expected)) < size["bytes"] == len("".join(expected).encode())
    others = prepared(keys, tokenizer_of_documents(sources_of(config(tmp_path, tokenizer="byte")), None))
    assert others.folder != found.folder and found.folder.parent == tmp_path / "texts.jsonl.prepared"
    for read_again in ("read", "sample", "Source.digest"):
        monkeypatch.setattr(f"fxf.data.documents.{read_again}", None)
    assert prepare(keys) == found
    for size in (2, 9999):
        os.truncate(found.folder / "test.tokens", size)
        with pytest.raises(UserError, match=r"test.tokens: expected a file of \d+ bytes"):
            found.tokens("test")


def test_changed_new_and_removed_files_cause_preparation_and_old_ones_are_found_again(tmp_path, capsys):
    folder, text = tmp_path / "texts", TEXTS[3]
    folder.mkdir()
    for i, each in enumerate(TEXTS):
        (folder / f"{i:02}.txt").write_text(each)
    keys, path = DocumentsConfig(path=str(folder), format="files", validation=0.2), folder / "03.txt"
    first, before = prepare(keys), path.stat().st_mtime_ns
    found = [first]
    for change in (
        lambda: path.write_text(text.replace("Text", "text")),
        path.unlink,
        lambda: (path.write_text(text), os.utime(path, ns=(before, before)), (folder / "new.jsonl").write_text("{}")),
    ):
        change()
        found.append(prepare(keys))
    assert len({each.digest for each in found}) == len({each.folder for each in found}) == 4
    assert capsys.readouterr().err.count("warning: data.path: new.jsonl is read as plain text") == 1
    (folder / "new.jsonl").unlink()
    assert prepare(keys) == first
    os.utime(path, ns=(1, 1))
    assert prepare(keys).digest == first.digest


@pytest.mark.parametrize(("at", "packed", "ends"), [(9, True, KeyboardInterrupt), (58, False, OSError)])
def test_a_preparation_that_was_killed_or_failed_resumes(at, packed, ends, tmp_path, monkeypatch, capsys):
    (folder := tmp_path / "texts").mkdir()
    for n in range(3):
        lines = "".join(json.dumps({"text": text}) + "\n" for text in TEXTS[n::3]).encode()
        (folder / f"{n}.jsonl").write_bytes(gzip.compress(lines) if packed else lines)
    keys = config(tmp_path, path=str(folder))
    whole = prepare(dataclasses.replace(keys, prepared=str(tmp_path / "whole")))
    for name, value in {"GROUP": 50, "JOURNAL": 1, "by_threads": map}.items():
        monkeypatch.setattr(module, name, value)
    left = iter(range(at))

    def killed(*arguments):  # after n documents
        for document in read(*arguments):
            if next(left, None) is None:
                raise ends
            yield document

    tokenizer_of_documents(sources_of(keys), None)  # is kept
    with monkeypatch.context() as patch, pytest.raises((KeyboardInterrupt, UserError)):
        patch.setattr(documents, "read", killed)
        prepare(keys)
    (unfinished,) = folder.with_suffix(".prepared").glob("*.unfinished")
    with (unfinished / "train.tokens").open("ab") as file:
        file.write(b"of a group that was not whole")
    encoded, counted = [], module._encoded
    monkeypatch.setattr(module, "_encoded", lambda *a: encoded.extend(a[-1]) or counted(*a))
    found = prepare(keys)
    assert "resumes after" in capsys.readouterr().err
    in_order = [text for n in range(3) for text in TEXTS[n::3]]
    assert encoded == in_order[-len(encoded) :] and len(TEXTS) - at <= len(encoded) < len(TEXTS)
    assert (found.digest, found.counts) == (whole.digest, whole.counts)
    for part in PARTS:
        np.testing.assert_array_equal(found.tokens(part), whole.tokens(part))
    assert not list(tmp_path.rglob("*.unfinished"))


def test_results_of_threads_keep_the_order_of_items_and_threads_the_allowed_cores(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {3, 5, 6}, raising=False)
    assert n_cores() == 3
    assert list(by_threads(lambda i: i * i, range(31), 2)) == [i * i for i in range(31)]


def test_of_several_processes_one_prepares_and_the_others_wait(tmp_path, monkeypatch):
    keys, began, made = config(tmp_path), [], module.prepare
    tokenizer = tokenizer_of_documents(sources_of(keys), None)
    monkeypatch.setattr(module, "prepare", lambda *a: (began.append(1), time.sleep(0.1), made(*a)))
    with ThreadPoolExecutor(3) as pool:
        found = [*pool.map(lambda _: prepared(keys, tokenizer), range(3))]
    assert began == [1] and found[0] == found[1] == found[2]


@pytest.mark.parametrize(("separator", "n"), [("\\n\\n", 0), ("<|end|>", 0), ("\r\n\r\n", 20), ("\n\n", 20)])
def test_a_separator_that_no_file_has_and_files_without_a_text_are_refused(separator, n, tmp_path):
    with pytest.raises(UserError, match="no document has a text"):
        prepare(config(tmp_path, [" ", "\n"]))
    (tmp_path / "a.txt").write_bytes("\r\n\r\n".join(f"text {i}" for i in range(20)).encode())
    keys = DocumentsConfig(path=str(tmp_path / "a.txt"), format="files", separator=separator, validation=0.3)
    if n:
        assert sum(size["documents"] for size in prepare(keys).counts.values()) == n
    else:
        with pytest.raises(UserError, match=r"data.separator: .* does not occur between documents of "):
            prepare(keys)
        assert not list(tmp_path.rglob(MANIFEST))


def test_files_of_equal_name_size_and_time_share_no_tokens_and_texts_stay_alone(tmp_path):
    found = []
    for name in "ab":
        (path := tmp_path / name / "texts.jsonl").parent.mkdir()
        path.write_text("".join(json.dumps({"text": f"{name} {i}"}) + "\n" for i in range(9)))
        os.utime(path, ns=(1, 1))
        keys = DocumentsConfig(format="json_lines", path=str(path), tokenizer="byte", prepared=str(tmp_path / "tokens"))
        found.append(prepare(dataclasses.replace(keys, validation=0.3)))
    assert found[0].folder != found[1].folder and found[0].digest != found[1].digest
