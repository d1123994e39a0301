import bz2
import gzip
import lzma

import pytest

from fxf.data.sentence_files import lines_of, read_text_file
from fxf.errors import UserError


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


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (gzip.compress(b"a"), "compressed by gzip; unpack it with gunzip"),
        (bz2.compress(b"a"), "compressed by bzip2; unpack it with bunzip2"),
        (lzma.compress(b"a"), "compressed by xz; unpack it with unxz"),
        (b"\x28\xb5\x2f\xfd\x20", "compressed by zstd; unpack it with unzstd"),
        (b"PK\x03\x04\x14\x00", "a zip archive, which is compressed; unpack it with unzip"),
        (b"PAR1\x15\x04\x15\x00", "a Parquet table, which is compressed; write its texts into a text file"),
    ],
)
def test_a_compressed_file_is_named_with_what_unpacks_it(content, message, tmp_path):
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(UserError, match=f"^data.path: {tmp_path}/a: the file is {message}$"):
        read_text_file(tmp_path / "a", "data.path")


def test_a_text_that_begins_like_a_compressed_file_is_a_text(tmp_path):
    (tmp_path / "a").write_bytes(b"BZh and PAR1 are names")
    assert read_text_file(tmp_path / "a", "data.path") == b"BZh and PAR1 are names"
