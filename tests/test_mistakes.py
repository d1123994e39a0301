r"""Mistyped commands end in one line on stderr that says how to fix them, with exit code 2, and lose nothing.

mistakes.txt has the cases. A line of it begins with
  $   the command: a verb and its arguments, with @NAME for FLAGS and BYTE for 0xff, or Python after >>>
  >   what the line says: these words, with … for any between
  !   file, line and error of a fault in a user's own code, to which its traceback leads
  +   a file to write first, "NAME: CONTENT", in which \n, \t and \xff are as in Python; - removes a file or folder
  ~   a folder whose files are cut in half first; % a text to replace in a file first, "NAME: OLD => NEW"
  <   standard input
and one with @ says which flags a NAME stands for.
"""

import functools
import os
import re
import shlex
import shutil
import sys
from dataclasses import dataclass

import numpy as np
import pytest

import fxf
from fxf.training import checkpoint
from fxf.verbs.flags import EXITS, read_lines
from helpers import random_params
from small_runs import ROOT, command, overrides, script

FLAGS = {"reversal": " ".join(["--config=reversal", *(flag for flag in overrides()[1:] if "start." not in flag)])}
PHRASES = [f"{i} see the {en}\tje vois le {fr}\n" for i in range(9) for en, fr in (("cat", "chat"), ("dog", "chien"))]


@dataclass
class Case:
    """A command, its expected message, and the preparation."""

    line: int
    command: str = ""
    words: str = ""
    of_user: bool = False
    stdin: str = ""
    changes: tuple = ()


def cases():
    """Returns the cases of mistakes.txt."""
    found, case = [], Case(0)
    for number, line in enumerate((ROOT / "tests/mistakes.txt").read_text().splitlines(), 1):
        kind, _, text = line.partition(" ")
        if kind in (">", "!"):
            case.words, case.of_user, case.line = text, kind == "!", number
            found.append(case)
            case = Case(0)
        elif kind == "$":
            case.command = text
        elif kind.startswith("@"):
            FLAGS[kind[1:]] = text
        elif kind == "<":
            case.stdin = text.encode().decode("unicode_escape")
        elif kind in ("+", "-", "~", "%"):
            name, _, content = text.partition(":")
            case.changes += ((kind, name, content.removeprefix(" ")),)
    return found


def flags_of(word):
    """Returns the flags that @NAME stands for, or another word itself."""
    return [flag for part in FLAGS[word[1:]].split() for flag in flags_of(part)] if word.startswith("@") else [word]


def arguments_of(command):
    """Returns the words of a command; a flag replaces an earlier one from @NAME."""
    words = shlex.split(command.replace("BYTE", "\udcff"))
    typed = {word.split("=")[0] for word in words}
    return [flag for word in words for flag in flags_of(word) if flag == word or flag.split("=")[0] not in typed]


CASES = cases()


@pytest.fixture(scope="module")
def box(tmp_path_factory):
    """Returns a folder with data and a small run."""
    folder = tmp_path_factory.mktemp("mistakes")
    (folder / "parallel").mkdir()
    for part, rows in {"train": PHRASES[:12], "val": PHRASES[12:15], "test": PHRASES[15:]}.items():
        for side, name in enumerate(("en", "fr")):
            lines = [row.rstrip().split("\t")[side] for row in rows]
            (folder / f"parallel/{part}.{name}").write_text("".join(f"{line}\n" for line in lines))
    (folder / "pairs.tsv").write_text("".join(PHRASES))
    (folder / "text.txt").write_text("".join(row.replace("\t", " ") for row in PHRASES))
    finished = command(*arguments_of("train @reversal --workdir=reversal"), cwd=folder)
    assert finished.returncode == 0, finished.stderr
    return folder


@pytest.fixture(scope="module", autouse=True)
def read_once():
    """Reads each file of arrays once, because Orbax takes most of the time of a mistake with a run."""
    read, found = checkpoint._read, {}

    def kept(folder, shapes, identity):
        key = str(folder), str(shapes), str(identity)
        if key not in found:
            found[key] = read(folder, shapes, identity)
        return found[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "_read", kept)
        yield


@functools.cache
def names_of_python():
    """Returns the names for cases in Python: a model and one with a source, their params, rows and their batch."""
    sizes, rows = {"n_layers": 1, "d_model": 6, "d_ff": 7, "n_heads": 2, "max_len": 11}, np.arange(18).reshape(3, 6) % 4
    model, reader = (fxf.model(name, vocab_size=5, **sizes) for name in ("transformer_lm", "encoder_decoder"))
    found = {"fxf": fxf, "np": np, "rows": rows + 1, "batch": lambda key, step: fxf.language_model_batch(rows)}
    found |= {"model": model, "params": random_params(model.spec)}
    return found | {"reader": reader, "reader_params": random_params(reader.spec)}


def change(folder, kind, name, text):
    """Changes a file or folder as a line of mistakes.txt specifies."""
    path = folder / name
    if kind == "+":
        path.write_bytes(text.encode("latin-1").decode("unicode_escape").encode("latin-1"))
    elif kind == "-":
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    elif kind == "~":
        for file in (file for file in path.rglob("*") if file.is_file()):
            file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    else:
        old, new = text.split(" => ")
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))


def contents(folder):
    """Returns inode, size and modification time of each file in a folder, except locks."""
    paths = [f"{at}/{name}" for at, _, names in os.walk(folder) if "__pycache__" not in at for name in names]
    found = {path: os.stat(path) for path in paths if not path.endswith("/lock")}
    return {path: (file.st_ino, file.st_size, file.st_mtime_ns) for path, file in found.items()}


def assert_names_the_users_line(case, code, lines):
    """Asserts that the traceback's last line in the user's file is the one that raised, and the error comes last."""
    file, number, error = case.words.split()
    places = re.findall(rf'{re.escape(file)}(?::|", line )(\d+)', "\n".join(lines))
    raised = [line for line in lines if re.match(r"(error: .*)?\w+(\.\w+)*(Error|Exception): ", line)]
    assert code and places[-1] == number and error in raised[-1], lines


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"line {case.line}: {case.command}")
def test_a_mistake_is_one_line_that_helps_and_costs_nothing(case, box, tmp_path, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(box.with_name("prepared")))
    # The last line asserts that files without preparation are unchanged.
    folder = shutil.copytree(box, tmp_path, dirs_exist_ok=True) if case.changes else box
    for each in case.changes:
        change(folder, *each)
    before = contents(folder)
    if case.command.startswith(">>>"):
        monkeypatch.chdir(folder)
        with pytest.raises(fxf.UserError) as raised:
            exec(case.command.removeprefix(">>> "), names_of_python())
        lines = str(raised.value).splitlines()
    else:
        verb, *arguments = arguments_of(case.command)
        finished = command(verb, *arguments, cwd=folder, stdin=case.stdin)
        lines = finished.stderr.splitlines()
        if case.of_user:
            assert_names_the_users_line(case, finished.returncode, lines)
            return
        assert (finished.returncode, finished.stdout) == (2, ""), lines
        assert lines[0].startswith("error: ")
    assert len(lines) == 1 and re.search(".*".join(map(re.escape, case.words.split(" … "))), lines[0]), lines
    assert contents(folder) == before


def test_in_a_conversation_a_wrong_prompt_is_one_line_and_the_next_is_answered(box):
    flags = ("--workdir=reversal", "--interactive", "--format=json")
    finished = command("generate", *flags, stdin="\ufeff1\nx\n3\n", cwd=box)
    assert (finished.returncode, re.findall(r'"prompt": ?(\d+)', finished.stdout)) == (0, ["1", "3"])
    lines = [line for line in finished.stderr.splitlines() if not line.startswith("warning: ")]  # answers cut off
    assert len(lines) == 1 and lines[0].startswith("error: prompt 2: ")


def test_help_lists_the_flags_of_a_verb_and_the_exit_codes():
    finished = command("generate", "--help")
    assert finished.returncode == 0 and finished.stdout.endswith(EXITS)
    assert all(flag in finished.stdout for flag in ("--workdir", "--beam_width", "--input", "fxf generate"))
    assert [int(line.split()[0]) for line in EXITS.splitlines()[1:]] == [0, 1, 2, 75, 130, 141]


def test_lines_of_a_file_of_prompts_are_read_as_they_are(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    assert read_lines(None) == read_lines("-") == []
    (tmp_path / "prompts").write_bytes("\ufeff1 2\n\n é \r\n2\r\r\n1\r2\u2028\x0b3\x0c\n\n".encode())
    assert read_lines(str(tmp_path / "prompts")) == ["1 2", "", " é ", "2\r", "1\r2\u2028\x0b3\x0c", ""]


@pytest.mark.thorough  # a new process, because JAX must not have started
def test_processes_that_were_not_started_are_one_line(tmp_path):
    arguments = arguments_of("train @reversal --workdir=new --config.parallel.processes=0")
    finished = script(*arguments, cwd=tmp_path)
    line = "parallel.processes: 0 asks SLURM, Open MPI or a TPU pod, and none has started this process"
    assert (finished.returncode, finished.stdout) == (2, "")
    assert finished.stderr.startswith(f"error: {line}") and finished.stderr.count("\n") == 1
