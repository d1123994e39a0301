"""Files as they lie, plain or compressed: their first bytes say which."""

import contextlib
import io
import lzma
import re
from collections.abc import Iterator
from typing import Any

from fxf.base.errors import UserError, text_of

BUFFER = 2**16
_BEGINS = re.compile(
    rb"(?P<gzip>\x1f\x8b)|(?P<bz2>BZh[1-9](?:1AY&SY|\x17rE8P\x90))"  # of bzip2 also one without content
    rb"|(?P<zstd>\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18)"  # of zstd also frames to skip, which pzstd writes first
    rb"|(?P<xz>\xfd7zXZ\x00)"
)


def codec_of(begins: bytes) -> str:
    """Returns what a file that begins with these bytes is compressed by; '' if it is not."""
    found = _BEGINS.match(begins)
    return (found and found.lastgroup) or ""


@contextlib.contextmanager
def unpacked(raw: Any, where: str) -> Iterator[Any]:
    """Gives the content of a file, decompressed if it is gzip, bzip2, zstd or xz.

    Args:
      raw: the file, opened to read bytes.
      where: what a message begins with.

    Raises:
      UserError: what is read of the file is damaged or cut off.
    """
    packed = raw if hasattr(raw, "peek") else io.BufferedReader(raw)
    try:
        codec = codec_of(packed.peek(10))
        if not codec:
            yield packed
        elif codec == "xz":
            with lzma.LZMAFile(packed) as file:
                yield file
        else:
            import pyarrow  # imported here because it takes a fifth of a second

            yield io.BufferedReader(pyarrow.CompressedInputStream(packed, codec), BUFFER)
    except (EOFError, lzma.LZMAError, OSError) as error:
        raise UserError(f"{where}: {getattr(error, 'strerror', None) or text_of(error)}") from None


def unpacked_content(content: bytes, where: str) -> bytes:
    """Returns what `unpacked` gives of a file with this content."""
    with unpacked(io.BytesIO(content), where) as file:
        return file.read()
