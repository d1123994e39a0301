"""What README and the pages of docs/ say: their commands, files, links and names exist, and their code runs.

test_commands.py runs all commands and all code, which takes minutes.
"""

import importlib
import re
import shlex

import pytest

import fxf
from fxf.runs import configs
from fxf.runs.guests import load
from fxf.testing import assert_consistent
from fxf.verbs.flags import Parser
from helpers import random_tokens, small_model
from page_code import PAGES, ran, write_files
from small_runs import ROOT, new_process

TEXTS = {page: (ROOT / page).read_text() for page in PAGES}
TEXT = "".join(TEXTS.values())
COMMANDS = sorted(
    set(re.findall(r"^    ((?:[A-Z_]+=\S+ )?fxf \w+ (?:.*\\\n)*.*)$", TEXT, re.MULTILINE)),
    key=lambda line: line.split("fxf "),
)


def test_readme_is_at_most_160_lines_and_no_page_but_the_reference_above_1500_words():
    assert len(TEXTS["README.md"].splitlines()) <= 160
    words = {page: len(text.split()) for page, text in TEXTS.items()}
    assert {page for page, n in words.items() if n > 1500} <= {"docs/keys.md"}


@pytest.fixture(scope="module")
def own_files(tmp_path_factory):
    """Returns a folder with the files that the pages let a reader write, as those of a process."""
    folder = tmp_path_factory.mktemp("own")
    write_files(folder)
    with new_process():
        yield folder


def test_a_command_names_a_verb_its_flags_and_a_config_with_its_keys(own_files, monkeypatch):
    monkeypatch.chdir(own_files)
    assert len(COMMANDS) > 40
    for command in COMMANDS:
        words = shlex.split(command.replace("\\\n", " "))
        _, verb, *arguments = words[words.index("fxf") :]
        try:
            args = Parser(verb, importlib.import_module(f"fxf.verbs.{verb}")).parse(arguments)
            if args.overrides or getattr(args, "config", None):
                configs.with_changes(configs.read_config(args.config), args.overrides, "--config.")
        except fxf.UserError as error:
            pytest.fail(f"{command}: {error}", pytrace=False)


def test_files_that_the_pages_name_exist():
    names = set(re.findall(r"((?:configs|experiments|fxf|tests)/[\w/]+\.(?:py|sh|sbatch|yaml|md))", TEXT))
    assert len(names) > 10
    assert [name for name in names if not (ROOT / name).is_file() and not name.startswith("fxf/configs")] == []


def test_links_lead_to_pages_and_headings():
    pages = [
        ROOT / "docs/tour.py",
        *(path for of in ("", "docs/", "experiments/**/") for path in ROOT.glob(f"{of}*.md")),
    ]
    for page in pages:
        for target in re.findall(r"\]\((?!https://)([^)]+)\)", page.read_text()):
            path, _, anchor = target.partition("#")
            assert (page.parent / path).is_file(), (page, target)
            headings = re.findall(r"^#+ (.*)$", (page.parent / path).read_text(), re.MULTILINE) if anchor else []
            assert not anchor or anchor in [heading.lower().replace(" ", "-") for heading in headings], (page, target)


def test_every_name_of_the_face_has_a_line_in_a_page():
    aside = ("Model", "Run", "__version__")
    assert [name for name in fxf.__all__ if f"fxf.{name}" not in TEXT and name not in aside] == []


def test_the_code_of_the_readme_prints_what_it_says(capsys):
    assert ran("README.md", 1, {}) == capsys.readouterr().out.splitlines() != []


def test_the_idea_of_the_readme_decodes_as_it_trains(own_files):
    load(own_files / "idea.py")
    assert_consistent(*small_model(attention="idea:OrNothing"), {"inputs": random_tokens((3, 5))})
