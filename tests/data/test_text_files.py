import bz2
import gzip
import lzma

import pyarrow
import pytest

from fxf.base.errors import UserError
from fxf.data.text_files import lines_of, read_text_file


def test_lines_end_in_line_feeds_and_a_byte_order_mark_is_none(tmp_path):
    for content, lines in {
        b"a\r\nb\n": [b"a", b"b"],
        b"\xef\xbb\xbfa\tb\nc\td\n": [b"a\tb", b"c\td"],
        b"a\rb\n": [b"a\rb"],
        b"\xef\xbb\xbfa\tb\rc\td\r": [b"a\tb", b"c\td"],
        (odd := "a\u2028b\x0bc\x0cd\x1c\x85e".encode()): [odd],
    }.items():
        (tmp_path / "a").write_bytes(content)
        assert lines_of(read_text_file(tmp_path / "a", "data.path")) == lines


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
