"""Runs every command and all Python code of README and docs/, page by page. Long commands are shortened."""

import json
import re
import shlex
import shutil
import sys
from unittest import mock

import jax
import pyarrow
import pytest
from pyarrow import parquet

from fxf.runs.experiment import default_config
from fxf.runs.guests import load
from helpers import table
from page_code import FILES, PAGES, code_of, ran, write_files
from small_runs import ROOT, command, environment, new_process, script

pytestmark = pytest.mark.thorough

COMMAND = re.compile(r"^    ((?:[A-Z_]+=\S+ )*(?:fxf|make) (?:.*\\\n)*.*)$", re.MULTILINE)
RECIPE = re.compile(r"^(\w+): .*##.*\n\t\$\(BIN\)/(fxf .*)$", re.MULTILINE)
# Flags that shorten a verb's commands. README's first command runs unchanged.
SIX_STEPS = {"--config.train.steps=6", "--config.optimizer.warmup_steps=0"}
SHORT = {"train": {"--smoke"}, "sweep": SIX_STEPS, "try": SIX_STEPS | {"--seeds=2", "--rates=1", "--workers=1"}}
AS_IT_IS = {"--config=reversal:example0", "--workdir=runs/example0"}
# Commands that take minutes or need what most machines lack, and the tests that run similar ones.
ELSEWHERE = {of["pattern"]: test for of, test in table("commands tested elsewhere")}


def commands_of(page):
    """Returns the commands of a page, one per line; make targets are replaced by their recipe."""
    recipes = dict(RECIPE.findall((ROOT / "Makefile").read_text()))
    lines = [re.sub(r"\\\n *", "", line) for line in COMMAND.findall((ROOT / page).read_text())]
    return [recipes.get(line.removeprefix("make "), line) for line in lines]


def test_commands_tested_elsewhere_are_in_a_page_and_their_tests_exist():
    lines = [line for page in PAGES for line in commands_of(page)]
    assert len(lines) > 40
    for pattern, test in ELSEWHERE.items():
        assert any(re.match(pattern, line) for line in lines), pattern
        assert (ROOT / test).exists()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Returns the folder of the run that the pages start from."""
    folder = tmp_path_factory.mktemp("trained")
    done = command("train", *AS_IT_IS, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "runs/example0"


@pytest.fixture
def folder(tmp_path, trained):
    """Returns a folder with the files that the pages mention."""
    for name in ("example0", "other", "sweep/first", "sweep/second"):
        shutil.copytree(trained, tmp_path / "runs" / name)
    lines = [f"the {noun} {verb} {i}" for i in range(40) for noun in ("cat", "dog") for verb in ("sees", "hears")]
    (tmp_path / "fra.txt").write_text("".join(f"{line}\t{line[::-1]}\n" for line in lines))
    (tmp_path / "sentences.txt").write_text("".join(f"{line}\n" for line in lines[:3]))
    (tmp_path / "input.txt").write_text("".join(f"{line}\n" for line in 20 * lines))
    documents = [f"{i} {line}" for i in range(60) for line in lines]
    corpus = "".join(json.dumps({"text": text}) + "\n" for text in documents)
    (tmp_path / "corpus.jsonl").write_text(corpus)
    (tmp_path / "wiki.jsonl.zst").write_bytes(pyarrow.compress(corpus.encode(), "zstd", asbytes=True))
    (tmp_path / "code").mkdir()
    parquet.write_table(pyarrow.table({"text": documents, "content": documents}), tmp_path / "code/part.parquet")
    for name, *keys in (("pairs", "en", "fr", "prompt", "completion"), ("choices", "prompt", "chosen", "rejected")):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(dict.fromkeys(keys, line)) + "\n" for line in lines))
    write_files(tmp_path)
    return tmp_path


# All of the first week runs from a wheel, in tests/test_wheel.py.
@pytest.mark.parametrize(
    "page", [page for page in PAGES if commands_of(page) + code_of(page) and "first_week" not in page]
)
def test_the_commands_and_the_code_of_a_page_run(page, folder, monkeypatch, capsys):
    for line in commands_of(page):
        if not any(re.match(pattern, line) for pattern in ELSEWHERE):
            done = short(shlex.split(line), folder)
            assert done.returncode == 0, f"{line}\n{done.stderr}"
            if line.startswith("fxf generate --workdir=runs/example0"):
                assert done.stdout == ("1 3\n" if "--stream" in line else "1 3\n9 7\n")
    monkeypatch.chdir(folder)
    monkeypatch.setitem(sys.modules, "wandb", mock.MagicMock())
    names, files = {"config": default_config("language_model")}, [(page, number) for _, page, number in FILES]
    with new_process(), jax.numpy_rank_promotion("allow"):
        load(folder / "mine.py")  # a page imports from it
        for number in range(len(code_of(page))):
            if (page, number) not in files:
                expected, printed = ran(page, number, names), capsys.readouterr().out.splitlines()
                # A shortened run gives some answer.
                assert len(printed) == len(expected) and (page == "docs/own_task.md" or printed == expected)
    if page == "docs/inside.md":
        assert_patched_and_attributed(names)


def assert_patched_and_attributed(names):
    """Asserts that after the last block only the last token is unembedded, in one program for all patches."""
    assert names["all_patches"]._cache_size() == 1
    effects, attribution_NT = names["effects"], names["attribution_NT"]
    clean, other = (float(names["model"].apply(names["params"], names[of])[0, -1, 3]) for of in ("clean", "other"))
    assert effects.tolist()[1] == pytest.approx([other, other, other, clean], abs=1e-5)
    assert attribution_NT.shape == (2, 4) and attribution_NT.tolist()[1][:3] == pytest.approx([0, 0, 0], abs=1e-6)


def short(words, folder):
    """Runs a shortened command in the folder, and returns the finished process."""
    start = words.index("fxf")
    verb, *arguments = words[start + 1 :]
    env = environment() | dict(word.split("=") for word in words[:start]) if start else None
    flags = set() if AS_IT_IS.issubset(arguments) else SHORT.get(verb, set()) - set(arguments)
    if verb == "sweep" and "--workers=2" in arguments:
        flags |= {"--dry_run"}  # tests/sweeps trains in several processes
    alone = env or verb in ("sweep", "compile")  # start processes, or look for other devices
    done = (
        script(verb, *arguments, *flags, stdin="thank you\n", env=env, cwd=folder)
        if alone
        else command(verb, *arguments, *flags, stdin="thank you\n", cwd=folder)
    )
    if "--smoke" in {*flags, *arguments} and done.returncode == 0:
        (place,) = [word.removeprefix("--workdir=") for word in arguments if word.startswith("--workdir=")]
        if not (folder / place).exists():
            (folder / f"{place}-smoke").rename(folder / place)
    return done
