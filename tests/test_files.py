import errno
import os

import pytest

from fxf.base.errors import UserError, why_not_ours
from fxf.base.files import folder_at, read_file, read_json, to_json, why_not_written, write_atomically
from helpers import table
from small_runs import no_file_larger_than


def test_a_number_that_json_does_not_have_is_null():
    value = {"a": [1.5, float("nan"), (float("inf"), 2)], "b": -float("inf"), "c": "NaN", "d": None, "e": True}
    assert to_json(value) == '{"a": [1.5, null, [null, 2]], "b": null, "c": "NaN", "d": null, "e": true}'


def test_numbers_that_an_older_file_has_and_json_does_not_are_read_as_null(tmp_path):
    (tmp_path / "result.json").write_text('{"a": NaN, "b": [-Infinity, 1]}')
    assert read_json(tmp_path / "result.json", "a result") == {"a": None, "b": [None, 1]}


TENSORSTORE = 'RESOURCE_EXHAUSTED: Failed writing: "4/state/d/9b": Failed to write 7369 bytes to file 24: {} [...]'


@pytest.mark.parametrize(("of", "why"), table("errors of a disk"))
def test_a_disk_without_room_is_told_from_other_errors_by_whoever_raises_it(of, why):
    number = getattr(errno, of["number"])
    assert why_not_written(OSError(number, os.strerror(number))) == why
    assert why_not_written(ValueError(TENSORSTORE.format(os.strerror(number)))) == why
    # An open file does not name itself, nor does a working directory that was removed.
    spoken = {"ENOSPC": "a file: ", "EDQUOT": "a file: ", "ENOENT": "the working directory: "}.get(of["number"])
    assert why_not_ours(OSError(number, os.strerror(number))) == (spoken + os.strerror(number) if spoken else "")


def test_a_tilde_that_the_shell_has_left_is_the_home(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    assert str(folder_at("~/runs", "--workdir")) == "/home/me/runs"


def test_without_room_a_file_stays_as_it_was_and_nothing_is_left_beside_it(tmp_path):
    write_atomically(tmp_path / "file", "old")
    with no_file_larger_than(2), pytest.raises(OSError, match=r"File too large: '.*/file'$"):
        write_atomically(tmp_path / "file", b"new text")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "old"


def test_what_is_no_regular_file_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for path, kind in [(tmp_path, "a folder"), (tmp_path / "fifo", "a pipe or a device")]:
        with pytest.raises(UserError, match=f"^data.path: {path}: expected a file, got {kind}$"):
            read_file(path, "data.path")
