import errno
import os

import pytest

from fxf.files import why_not_written, write_atomically
from runs import no_file_larger_than

TENSORSTORE = 'RESOURCE_EXHAUSTED: Failed writing: "4/state/d/9b": Failed to write 7369 bytes to file 24: {} [...]'


@pytest.mark.parametrize(
    ("number", "why"),
    [
        (errno.ENOSPC, "the disk is full (No space left on device)"),
        (errno.EDQUOT, "the disk quota is used up (Disk quota exceeded)"),
        (errno.EFBIG, "a file would be larger than the limit (File too large)"),
        (errno.EIO, "the disk failed (Input/output error)"),
        (errno.EACCES, ""),
    ],
)
def test_a_disk_without_room_is_told_from_other_errors_by_whoever_raises_it(number, why):
    assert why_not_written(OSError(number, os.strerror(number))) == why
    assert why_not_written(ValueError(TENSORSTORE.format(os.strerror(number)))) == why


def test_without_room_a_file_stays_as_it_was_and_nothing_is_left_beside_it(tmp_path):
    write_atomically(tmp_path / "file", "old")
    with no_file_larger_than(2), pytest.raises(OSError, match="File too large"):
        write_atomically(tmp_path / "file", "new text")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "old"
