import bz2
import gzip
import lzma

import pyarrow
import pytest

from fxf.base.errors import UserError
from fxf.data.sentence_files import lines_of, read_text_file


def test_lines_end_in_line_feeds():
    for content, lines in {
        b"a\r\nb\n": [b"a", b"b"],
        b"\xef\xbb\xbfa\tb\nc\td\n": [b"a\tb", b"c\td"],
        b"a\rb\n": [b"a\rb"],
        b"\xef\xbb\xbfa\tb\rc\td\r": [b"a\tb", b"c\td"],
        (odd := "a\u2028b\x0bc\x0cd\x1c\x85e".encode()): [odd],
    }.items():
        assert lines_of(content) == lines


PACKED = {
    "gzip": gzip.compress(b"one\n", mtime=0) + gzip.compress(b"two\n", mtime=0),
    "bzip2": bz2.compress(b"one\ntwo\n"),
    "xz": lzma.compress(b"one\ntwo\n"),
    "zstd": pyarrow.compress(b"one\ntwo\n", "zstd", asbytes=True),
    "none": b"one\ntwo\n",
}


@pytest.mark.parametrize("how", PACKED)
def test_a_compressed_file_is_unpacked_whole_or_its_damage_is_named(how, tmp_path):
    path = tmp_path / "a"
    path.write_bytes(PACKED[how])
    assert read_text_file(path, "data.path") == b"one\ntwo\n"
    for content in (PACKED[how][:-3], PACKED[how][:12]) if how != "none" else ():
        path.write_bytes(content)
        with pytest.raises(UserError, match=f"^data.path: {path}: .+$"):
            read_text_file(path, "data.path")
    path.write_bytes(b"BZh is a name")
    assert read_text_file(path, "data.path") == b"BZh is a name"
