import bz2
import gzip
import json

import pyarrow as pa
import pytest
from etils import epath
from pyarrow import parquet

from fxf.base.errors import UserError
from fxf.data import phrasebook
from fxf.data.documents import DocumentsConfig, part_of, read, sample, sources
from helpers import first_phrases

TEXTS = ["First one.", "Second\nof two lines", "Drei ß €", "the fourth"]


def texts(config):
    """Returns the documents of all sources."""
    return [text for source in sources(config) for text, _ in read(config, source)]


def json_lines(path, rows):
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return DocumentsConfig(path=str(path), format="json_lines")


def test_each_file_of_a_folder_is_a_document_in_the_order_of_names(tmp_path):
    for name, text in zip(("b/2.txt", "b/1.txt", "a.txt", ".hidden"), TEXTS, strict=True):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert texts(DocumentsConfig(path=str(tmp_path), format="files")) == [TEXTS[2], TEXTS[1], TEXTS[0]]


@pytest.mark.parametrize(("separator", "chunk"), [("\n\n", 3), ("<|end|>", 5), ("\n", 2**20)])
def test_a_separator_cuts_a_file_into_documents_wherever_it_is_read_in_pieces(separator, chunk, tmp_path, monkeypatch):
    monkeypatch.setattr("fxf.data.documents.CHUNK", chunk)
    path = tmp_path / "text.txt"
    whole = separator.join([*TEXTS, " \n", ""])
    path.write_bytes(b"\xef\xbb\xbf" + whole.replace("\n", "\r\n").encode())
    config = DocumentsConfig(path=str(path), format="files", separator=separator)
    assert texts(config) == [text for text in whole.split(separator) if text.strip()]


def test_a_field_of_json_lines_is_a_document_and_blank_ones_are_left_out(tmp_path):
    config = json_lines(tmp_path / "a.jsonl", [*({"text": text, "n": 1} for text in TEXTS), "", {"text": " "}])
    assert texts(config) == TEXTS


def parquet_file(path, rows, **options):
    parquet.write_table(pa.Table.from_pylist(rows), path, **options)


NESTED = [{"meta": {"text": text, "n": i}, "id": i} for i, text in enumerate(TEXTS)]


def test_files_are_read_as_they_lie_and_a_pattern_picks_them(tmp_path):
    lines = "".join(json.dumps(row) + "\n" for row in NESTED).encode()
    (tmp_path / "a.jsonl").write_bytes(b"\xef\xbb\xbf" + lines)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(b"\xef\xbb\xbf" + lines))
    (tmp_path / "in").mkdir()
    (tmp_path / "in/c.jsonl.zst").write_bytes(pa.compress(lines, "zstd", asbytes=True))
    parquet_file(tmp_path / "in/d.parquet", NESTED, row_group_size=3)
    (tmp_path / "e.txt").write_text("no JSON")
    (tmp_path / "in/d.parquet.prepared").mkdir()  # of another run
    (tmp_path / "in/d.parquet.prepared/train.tokens").write_text("no JSON")
    (tmp_path / "empty.bz2").write_bytes(bz2.compress(b""))
    skipped = b"\x50\x2a\x4d\x18\x01\0\0\0-"  # a frame of zstd without content
    (tmp_path / "g.zstd").write_bytes(skipped + (tmp_path / "in/c.jsonl.zst").read_bytes())
    for pattern, n in {
        "a.jsonl": 1,
        "*.jsonl*": 2,
        "in/*": 2,
        "i?/*.parquet": 1,
        "**/*.[jp]*": 4,
        "**/[!eg]*": 4,
        "*[zs][2t]*": 1,
        "in": 2,
    }.items():
        config = DocumentsConfig(path=str(tmp_path / pattern), format="json_lines", field="meta.text")
        assert texts(config) == TEXTS * n, pattern
        assert [place for s in sources(config) for _, place in read(config, s)][-1] <= sources(config)[-1].size


@pytest.mark.parametrize(
    ("name", "content", "keys", "message"),
    [
        (
            "a.gz",
            gzip.compress(b'{"text": "a"}\n' * 999, mtime=0)[:-9],
            {},
            r"data.path: .*a.gz: Truncated compressed stream",
        ),
        ("a.parquet", b"PAR1 cut off", {}, r"a.parquet: not a Parquet file: "),
        ("a.parquet", None, {"field": "txt"}, r"a.parquet: no column 'txt' \(data.field\); did you mean 'text'\?"),
        ("a.parquet", None, {"field": "meta.txet"}, r"a.parquet: row 1: no field 'meta.txet' .*'text'\?"),
        ("a.parquet", None, {"field": "meta"}, r"a.parquet: row 1: field 'meta': expected a text, got dict"),
        ("a.parquet", None, {"path": "*.json"}, r"data.path: .*: no file fits the pattern \*.json"),
        (
            "a.jsonl",
            b'{"meta": {"text": "a"}}',
            {"field": "meta.txt"},
            r"a.jsonl:1: no field 'meta.txt' .*'text'\?",
        ),
        ("a.jsonl", b'{"meta": "a"}', {"field": "meta.text"}, r"a.jsonl:1: no field 'meta.text' \(data.field\)$"),
    ],
)
def test_a_damaged_file_and_a_missing_column_are_one_line(name, content, keys, message, tmp_path):
    if content is None:
        parquet_file(tmp_path / name, [{"text": "a", "meta": {"text": "b"}}])
    else:
        (tmp_path / name).write_bytes(content)
    path = str(tmp_path / keys.pop("path", name))
    with pytest.raises(UserError, match=message) as caught:
        texts(DocumentsConfig(path=path, format="json_lines", **keys))
    assert "\n" not in str(caught.value)


def test_files_of_a_bucket_are_read_as_those_of_a_disk(tmp_path, monkeypatch):
    monkeypatch.setattr("fxf.data.documents.folder_at", lambda path, flag: epath.Path(path))
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(json.dumps({"text": TEXTS[2]}).encode()))
    parquet_file(tmp_path / "b.parquet", [{"text": TEXTS[0]}])
    for path in (tmp_path, tmp_path / "*"):
        config = DocumentsConfig(path=str(path), format="json_lines")
        assert texts(config) == [TEXTS[2], TEXTS[0]]
        assert all(isinstance(source.path, epath.Path) and len(source.digest()) == 32 for source in sources(config))


def test_without_a_path_the_lines_of_the_phrase_book_are_documents(monkeypatch):
    monkeypatch.setattr(phrasebook, "phrases", first_phrases)
    found = texts(DocumentsConfig(format="files", separator="\n"))
    assert found == [phrase.source for phrase in first_phrases("fr")]
    assert len(found) > 1000 and found[0] == "Our nephews have two rabbits."


def test_all_copies_of_a_document_are_in_one_part_and_the_parts_have_their_shares():
    config = DocumentsConfig(format="files", validation=0.2, test=0.3)
    parts = [part_of(config, f"text {i}") for i in range(2000)]
    assert parts == [part_of(config, f"text {i}") for i in range(2000)]
    for part, share in (("validation", 0.2), ("test", 0.3), ("train", 0.5)):
        assert parts.count(part) / 2000 == pytest.approx(share, abs=0.05)


def test_a_sample_is_of_the_training_part_and_spread_over_the_files(tmp_path, monkeypatch):
    monkeypatch.setattr("fxf.data.documents.SAMPLE", 400)
    for i in range(40):
        (tmp_path / f"{i:02}.txt").write_text(f"{i:02} " * 33)
    config = DocumentsConfig(path=str(tmp_path), format="files")
    found = list(sample(config))
    assert 3 <= len(found) <= 5
    assert max(int(text[:2]) for text in found) > 25
    assert {part_of(config, text) for text in found} == {"train"}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ('{"text": ', r"a.jsonl:2: not JSON: Expecting value"),
        ("3", r"a.jsonl:2: no field 'text' \(data.field\)"),
        ({"texts": "x"}, r"a.jsonl:2: no field 'text' \(data.field\); did you mean 'texts'\?"),
        ({"text": 3}, r"a.jsonl:2: field 'text': expected a text, got int"),
        ({"text": "\ud800"}, r"a.jsonl:2: not UTF-8: byte 0xed"),
        ('{"text": "[[[' + "[" * 99_999, r"a.jsonl:2: not JSON: "),
    ],
)
def test_a_bad_json_line_is_named(row, message, tmp_path):
    with pytest.raises(UserError, match=message):
        texts(json_lines(tmp_path / "a.jsonl", [{"text": "good"}, row]))


@pytest.mark.parametrize("separator", ["", "\n\n"])
def test_text_that_is_not_utf_8_is_named_with_its_line(separator, tmp_path):
    (tmp_path / "text.txt").write_bytes(b"one\n\ntwo\nthr\xffee\n\nfour")
    config = DocumentsConfig(path=str(tmp_path), format="files", separator=separator)
    with pytest.raises(UserError, match=r"text.txt:4: not UTF-8: byte 0xff"):
        texts(config)
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "a"}\n{"text": "\xfe"}\n')
    with pytest.raises(UserError, match=r"a.jsonl:2: not JSON: .* can't decode byte 0xfe"):
        texts(DocumentsConfig(path=str(tmp_path / "a.jsonl"), format="json_lines"))
