import errno
import os

import pytest

from fxf.base.errors import UserError, why_not_ours
from fxf.base.files import folder_at, read_file, read_json, to_json, why_not_written, write_atomically
from helpers import table
from small_runs import no_file_larger_than


def test_nan_and_infinity_are_null_also_in_older_files(tmp_path):
    value = {"a": [1.5, float("nan"), (float("inf"), 2)], "b": -float("inf"), "c": "NaN", "d": None, "e": True}
    assert to_json(value) == '{"a": [1.5, null, [null, 2]], "b": null, "c": "NaN", "d": null, "e": true}'
    (tmp_path / "result.json").write_text('{"a": NaN, "b": [-Infinity, 1]}')
    assert read_json(tmp_path / "result.json", "a result") == {"a": None, "b": [None, 1]}


TENSORSTORE = 'RESOURCE_EXHAUSTED: Failed writing: "4/state/d/9b": Failed to write 7369 bytes to file 24: {} [...]'


@pytest.mark.parametrize(("of", "why"), table("errors of a disk"))
def test_a_full_disk_is_distinguished_from_other_errors_whoever_raises_it(of, why):
    number = getattr(errno, of["number"])
    assert why_not_written(OSError(number, os.strerror(number))) == why
    assert why_not_written(ValueError(TENSORSTORE.format(os.strerror(number)))) == why
    full = of["number"] in ("ENOSPC", "EDQUOT")  # errors of writing to an open file do not name it
    assert why_not_ours(OSError(number, os.strerror(number))) == (f"a file: {why}" if full else "")


def test_a_tilde_that_the_shell_leaves_is_the_home_folder(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    assert str(folder_at("~/runs", "--workdir")) == "/home/me/runs"


def test_on_a_full_disk_a_file_stays_unchanged_and_nothing_is_left_beside_it(tmp_path):
    write_atomically(tmp_path / "file", "old")
    with no_file_larger_than(2), pytest.raises(OSError, match=r"File too large: '.*/file'$"):
        write_atomically(tmp_path / "file", b"new text")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"file": "old"}


def test_a_pipe_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(UserError, match=r"^data.path: .*/fifo: expected a file, got a pipe or a device$"):
        read_file(tmp_path / "fifo", "data.path")
