import bz2
import gzip
import lzma

import pytest

from fxf.base.errors import UserError
from fxf.data.sentence_files import lines_of, read_text_file


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"a\r\nb\n", [b"a", b"b"]),
        (b"\xef\xbb\xbfa\tb\rc\td\r", [b"a\tb", b"c\td"]),
        (b"a\rb\n", [b"a\rb"]),
        ("a\u2028b\x0bc\x0cd\x1c\x85e\n".encode(), ["a\u2028b\x0bc\x0cd\x1c\x85e".encode()]),
    ],
)
def test_lines_end_in_line_feeds_or_in_returns_where_there_is_no_line_feed(content, lines):
    assert lines_of(content) == lines


def test_a_compressed_file_is_named(tmp_path):
    packed = (gzip.compress(b"a"), bz2.compress(b"a"), lzma.compress(b"a"))
    for content in (*packed, b"\x28\xb5\x2f\xfd\x20", b"PK\x03\x04\x14\xff"):
        (tmp_path / "a").write_bytes(content)
        with pytest.raises(UserError, match=f"^data.path: {tmp_path}/a: the file is compressed; unpack it first$"):
            read_text_file(tmp_path / "a", "data.path")
    (tmp_path / "a").write_bytes(b"BZh is a name")
    assert read_text_file(tmp_path / "a", "data.path") == b"BZh is a name"
