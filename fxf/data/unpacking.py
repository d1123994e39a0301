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
    rb"|(?P<xz>\xfd7zXZ\x00)|(?P<zip>PK\x03\x04)"
)


@contextlib.contextmanager
def unpacked(raw: Any, where: str) -> Iterator[io.BufferedReader]:
    """Gives the content of a file, decompressed if it is gzip, bzip2, zstd or xz.

    Args:
      raw: the file, opened to read bytes.
      where: what a message begins with.

    Raises:
      UserError: the file is a zip, or what is read of it is damaged or cut off.
    """
    packed = raw if hasattr(raw, "peek") else io.BufferedReader(raw)
    try:
        begins = _BEGINS.match(packed.peek(10))
        yield _decompressed(packed, begins.lastgroup or "", where) if begins else packed
    except (EOFError, lzma.LZMAError, OSError) as error:
        raise UserError(f"{where}: {getattr(error, 'strerror', None) or text_of(error)}") from None


def require_plain(content: bytes, where: str) -> None:
    """Raises a UserError if a file with this content is compressed."""
    if begins := _BEGINS.match(content):
        raise UserError(
            f"{where}: expected a plain text, got a file that is compressed ({begins.lastgroup}); unpack it"
        )


def unpacked_content(content: bytes, where: str) -> bytes:
    """Returns what `unpacked` gives of a file with this content."""
    with unpacked(io.BytesIO(content), where) as file:
        return file.read()


def _decompressed(packed: Any, codec: str, where: str) -> io.BufferedReader:
    if codec == "zip":
        raise UserError(
            f"{where}: expected a text, or one that is compressed by gzip, bzip2, zstd or xz; got a zip file"
        )
    if codec == "xz":
        return io.BufferedReader(lzma.LZMAFile(packed), BUFFER)
    import pyarrow  # imported here because it takes a fifth of a second

    return io.BufferedReader(pyarrow.CompressedInputStream(packed, codec), BUFFER)
