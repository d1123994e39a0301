"""Checks README and docs/: commands, files, links and names exist, code runs, and the site builds.

test_commands.py runs all commands and all code, which takes minutes.
"""

import importlib
import json
import re
import runpy
import shlex
import subprocess
import sys

import jax
import pytest

import fxf
from experiments.benchmarks.smoke import STARTS
from fxf.runs import configs
from fxf.runs.guests import load
from fxf.testing import assert_consistent
from fxf.verbs.flags import Parser
from helpers import random_tokens, small_model
from page_code import PAGES, write_files
from small_runs import ROOT, new_process

TEXTS = {page: (ROOT / page).read_text() for page in PAGES}
TEXT = "".join(TEXTS.values())
COMMANDS = dict.fromkeys(re.findall(r"^    ((?:[A-Z_]+=\S+ )?fxf \w+ (?:.*\\\n)*.*)$", TEXT, re.MULTILINE))


def test_readme_is_at_most_160_lines_and_no_page_but_the_reference_above_1500_words():
    assert len(TEXTS["README.md"].splitlines()) <= 160
    words = {page: len(text.split()) for page, text in TEXTS.items()}
    assert {page for page, n in words.items() if n > 1500} <= {"docs/keys.md"}


@pytest.fixture(scope="module")
def own_files(tmp_path_factory):
    """Returns a folder with the files that the pages ask a reader to write, as if in a new process."""
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
            named = getattr(args, "config", None) or ""
            if (args.overrides or named) and not named.startswith(tuple(STARTS)):
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


def test_every_public_name_has_a_line_in_a_page():
    aside = ("Model", "Run", "__version__")
    assert [name for name in fxf.__all__ if f"fxf.{name}" not in TEXT and name not in aside] == []


def test_the_idea_of_the_readme_decodes_as_it_trains(own_files):
    load(own_files / "idea.py")
    assert_consistent(*small_model(attention="idea:OrNothing"), {"inputs": random_tokens((3, 5))})


def test_every_page_has_an_entry():
    listed = set(re.findall(r"\S+\.md", (ROOT / "docs/mkdocs.yml").read_text()))
    assert {f"docs/{path.name}" for path in ROOT.glob("docs/*.md")} <= listed
    assert all((ROOT / page).is_file() for page in listed)


@pytest.mark.thorough  # needs libraries that the tests do not require
def test_the_site_is_built_without_a_warning_and_loads_nothing_from_elsewhere():
    built = subprocess.run([sys.executable, "docs/site.py"], cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    pages = list((ROOT / "build/site").rglob("*.html"))
    assert len(pages) > 200
    for page in pages:
        assert not re.search(r'<(script|img)[^>]+src="https?:|<link[^>]+stylesheet[^>]+https?:', page.read_text())


@pytest.mark.thorough  # the tests of layers/ and models/ always check these formulas
def test_every_formula_of_the_tour_equals_fxf(capsys):
    with jax.numpy_rank_promotion("allow"):
        names = runpy.run_path(str(ROOT / "docs/tour.py"))
    assert names["answer"] == [1, 2, 3, 4]
    assert capsys.readouterr().out.endswith("[9, 10] → [1, 2, 3, 4]\n")


NOTEBOOK = json.loads((ROOT / "docs/first_run.ipynb").read_text())
CODE = [cell for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]


@pytest.mark.thorough  # ten seconds of compilation; other tests run similar programs
def test_the_notebooks_cells_run_from_data_to_a_plot(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    names = {}
    with new_process(), jax.numpy_rank_promotion("allow"):
        for cell in CODE:
            code = "".join(cell["source"]).replace("steps = 800\n", "steps = 4\n")
            exec(code.replace("20_000", "500").replace("d_model=64, d_ff=128", "d_model=8, d_ff=9"), names)
    figures, plt = names["figures"], names["plt"]
    curve, heads = (plt.figure(number).axes for number in plt.get_fignums())
    plt.close("all")
    assert figures["steps"] == 4 and curve[0].lines[0].get_xdata().tolist() == [1, 2, 3, 4]
    assert len(heads) == 4 and all(axes.images[0].get_array().shape == (15, 15) for axes in heads)
    assert (tmp_path / "runs/words/report.html").exists()


def test_the_notebook_shows_the_outputs_of_its_cells():
    assert [cell["execution_count"] for cell in CODE] == list(range(1, len(CODE) + 1))
    kinds = [kind for cell in CODE for output in cell["outputs"] for kind in output["data"]]
    assert kinds.count("image/png") == 2 and len(json.dumps(NOTEBOOK)) < 100_000
    (answers,) = (cell["outputs"] for cell in CODE if "run.generate" in "".join(cell["source"]))
    assert "facade edacaf" in answers[0]["data"]["text/plain"][0]
