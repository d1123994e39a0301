"""Documents in files: plain, compressed, JSON lines, Parquet, in folders and buckets."""

import bz2
import gzip
import json
import lzma

import pyarrow
import pyarrow as pa
import pytest
from etils import epath
from pyarrow import parquet

from fxf.base.errors import UserError
from fxf.data import phrasebook
from fxf.data.documents import DocumentsConfig, part_of, read, sample, sources
from fxf.data.text_files import lines_of, read_text_file
from helpers import first_phrases, refused, table

TEXTS = ["First one.", "Second\nof two lines", "Drei ß €", "the fourth"]
NESTED = [{"meta": {"text": text.replace("\n", "\r\n"), "n": 2**60}, "id": i} for i, text in enumerate(TEXTS)]
NESTED += [{"meta": {"text": text}} for text in (" ", None)] + [{"meta": None}]  # without a text


def texts(**keys):
    """Returns the documents of all sources."""
    config = DocumentsConfig(**keys)
    return [text for source in sources(config) for text, _ in read(config, source)]


def parquet_file(path, rows, schema=None, **options):
    parquet.write_table(pa.Table.from_pylist(rows, schema), path, **options)


def test_each_file_of_a_folder_is_a_document_in_the_order_of_names(tmp_path):
    for name, text in zip(("b/2.txt", "b/1.txt", "a.txt", ".hidden"), TEXTS, strict=True):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert texts(path=str(tmp_path), format="files") == [TEXTS[2], TEXTS[1], TEXTS[0]]


@pytest.mark.parametrize(("separator", "chunk"), [("\n\n", 3), ("<|end|>", 5), ("\n", 2**20)])
def test_a_separator_cuts_a_file_into_documents_wherever_it_is_read_in_pieces(separator, chunk, tmp_path, monkeypatch):
    monkeypatch.setattr("fxf.data.documents.CHUNK", chunk)
    whole = separator.join([*TEXTS, " \n", ""])
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbf" + whole.replace("\n", "\r\n").encode())
    found = texts(path=str(tmp_path / "a"), format="files", separator=separator)
    assert found == [text for text in whole.split(separator) if text.strip()]


def test_files_are_read_in_place_and_chosen_by_a_pattern(tmp_path):
    (tmp_path := tmp_path / "of [v2] *").mkdir()
    lines = "".join(f"{json.dumps(row)}\n" for row in NESTED).encode() + b"\n"
    (tmp_path / "a.jsonl").write_bytes(b"\xef\xbb\xbf" + lines)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(b"\xef\xbb\xbf" + lines))
    (tmp_path / "in/d.parquet.prepared").mkdir(parents=True)  # from another run
    (tmp_path / "in/c.jsonl.zst").write_bytes(pa.compress(lines, "zstd", asbytes=True))
    meta = pa.struct({"text": pa.string(), "n": pa.timestamp("us")})  # years beyond Python's range
    parquet_file(tmp_path / "in/.d", NESTED, pa.schema({"meta": meta}), row_group_size=3)
    (tmp_path / "e.txt").write_text("no JSON")
    for name in ("again", "d"):  # count once
        (tmp_path / f"in/{name}.parquet").symlink_to(".d")  # as in checkouts of git-annex or DVC
    (tmp_path / "in/d.parquet.prepared/train.tokens").write_text("no JSON")
    (tmp_path / "empty.bz2").write_bytes(bz2.compress(b""))
    # First a frame of zstd without content.
    (tmp_path / "g.zstd").write_bytes(b"\x50\x2a\x4d\x18\x01\0\0\0-" + (tmp_path / "in/c.jsonl.zst").read_bytes())
    for case, n in table("patterns of files"):
        keys = {"path": str(tmp_path / case["pattern"]), "format": "json_lines", "field": "meta.text"}
        assert texts(**keys) == TEXTS * int(n), case
        found = sources(DocumentsConfig(**keys))
        assert [place for source in found for _, place in read(DocumentsConfig(**keys), source)][-1] <= found[-1].size


@pytest.mark.parametrize(("keys", "message"), refused("files of documents"))
def test_a_fault_in_a_file_is_one_line_that_says_where(keys, message, tmp_path):
    name, content = keys.pop("name"), keys.pop("content", None)
    if content is None:
        nanosecond = pa.scalar(1, pa.timestamp("ns"))  # beyond Python's range
        parquet_file(tmp_path / name, [{"text": "~", "meta": {"text": "b"}, "time": nanosecond}], compression="none")
        content = (tmp_path / name).read_bytes().replace(b"~", keys.pop("byte", b"~"))
        (tmp_path / name).write_bytes(content)
    else:
        (tmp_path / name).write_bytes(gzip.compress(content * 999, mtime=0)[:-9] if name == "a.gz" else content)
    with pytest.raises(UserError, match=message) as caught:
        texts(**{"format": "json_lines", **keys, "path": str(tmp_path / keys.get("path", name))})
    assert "\n" not in str(caught.value)


def test_files_of_a_bucket_are_read_as_those_of_a_disk(tmp_path, monkeypatch):
    monkeypatch.setattr("fxf.data.documents.folder_at", lambda path, flag: epath.Path(path))
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(json.dumps({"text": TEXTS[2]}).encode()))
    parquet_file(tmp_path / "b.parquet", [{"text": TEXTS[0]}])
    for path in (tmp_path, tmp_path / "*"):
        keys = {"path": str(path), "format": "json_lines"}
        assert texts(**keys) == [TEXTS[2], TEXTS[0]]
        found = sources(DocumentsConfig(**keys))
        assert all(isinstance(source.path, epath.Path) and len(source.digest()) == 32 for source in found)


def test_without_a_path_the_lines_of_the_phrase_book_are_documents(monkeypatch):
    monkeypatch.setattr(phrasebook, "phrases", first_phrases)
    assert texts(format="files", separator="\n") == [phrase.source for phrase in first_phrases("fr")]


def test_the_parts_of_documents_have_their_shares():
    config = DocumentsConfig(format="files", validation=0.2, test=0.3)
    parts = [part_of(config, f"text {i}") for i in range(2000)]
    for part, share in (("validation", 0.2), ("test", 0.3), ("train", 0.5)):
        assert parts.count(part) / 2000 == pytest.approx(share, abs=0.05)


def test_a_sample_is_of_the_training_part_and_spread_over_the_files(tmp_path, monkeypatch):
    monkeypatch.setattr("fxf.data.documents.SAMPLE", 400)
    for i in range(40):
        (tmp_path / f"{i:02}.txt").write_text(f"{i:02} " * 33)
    config = DocumentsConfig(path=str(tmp_path), format="files")
    found, half = (list(sample(config, share)) for share in (1.0, 0.5))
    assert 3 <= len(found) <= 5 and len(half) < len(found) and max(int(text[:2]) for text in found) > 25
    assert {part_of(config, text) for text in found} == {"train"}


@pytest.mark.parametrize(("case", "_"), table("lines of a text file"))
def test_lines_end_in_line_feeds_and_a_byte_order_mark_is_dropped(case, _, tmp_path):
    (tmp_path / "a").write_bytes(case["content"])
    assert lines_of(read_text_file(tmp_path / "a", "data.path")) == case["lines"]


PACKED = {
    "gzip": gzip.compress(b"one\n", mtime=0) + gzip.compress(b"two\n", mtime=0),
    "bzip2": bz2.compress(b"one\ntwo\n"),
    "xz": lzma.compress(b"one\ntwo\n"),
    "zstd": pyarrow.compress(b"one\ntwo\n", "zstd", asbytes=True),
}


@pytest.mark.parametrize("how", PACKED)
def test_a_compressed_file_is_unpacked_whole_or_its_damage_is_named(how, tmp_path):
    path, packed = tmp_path / "a", PACKED[how]
    for content, unpacked in {packed: b"one\ntwo\n", b"one\ntwo\n": b"one\ntwo\n", b"BZh is": b"BZh is"}.items():
        path.write_bytes(content)
        assert read_text_file(path, "data.path") == unpacked
    for content in (packed[:-3], packed[:12]):
        path.write_bytes(content)
        with pytest.raises(UserError, match=f"^data.path: {path}: .+$"):
            read_text_file(path, "data.path")
