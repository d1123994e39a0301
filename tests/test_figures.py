"""Figures of the pages: each comes from a kept result or from the code, and every other number is accounted for."""

import json
import re
import shutil

import pytest

from experiments.benchmarks import compiled
from experiments.figures import pages
from experiments.figures.kept import Kept
from experiments.figures.long_runs import of_seeds
from experiments.figures.pieces import Conclusion, Page, figure, filled, only_docstrings, plain, table, wrong
from small_runs import ROOT

STUDIES = "experiments/studies"


@pytest.mark.parametrize("name", pages.names(ROOT))
def test_every_number_of_a_page_has_a_source_and_every_figure_is_that_of_the_kept_results(name):
    assert pages.differences(ROOT, [name]) == []


def test_no_page_is_written_anew():
    assert set(pages.PAGES) <= set(pages.names(ROOT))


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """Returns a copy of the pages and the kept results."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in pages.names(ROOT):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    for name in ("results", "studies"):
        shutil.copytree(ROOT / "experiments" / name, folder / "experiments" / name, dirs_exist_ok=True)
    return folder


@pytest.mark.parametrize(
    ("kept", "old", "new", "page"),
    [
        ("results/configs/multi30k_de/seed_0/result.json", '"bleu": 41.9', '"bleu": 42.9', "README.md"),
        ("studies/turns/table.csv", "40191,1.0,0.59,", "40191,1.0,0.69,", f"{STUDIES}/turns/README.md"),
        ("studies/characters/table.csv", "2.9946601", "1.9946601", f"{STUDIES}/README.md"),
        ("results/compile/gpt2_h100-1.txt", "105 GB to memory", "106 GB to memory", "docs/devices.md"),
        ("results/older.json", '"bleu": 99.4', '"bleu": 98.4', "configs/translation.py"),
        ("results/older.json", '1.900, 1.883', '1.900, 1.884', "experiments/results/README.md"),
    ],
)  # fmt: skip
def test_an_altered_result_is_noticed_and_make_figures_writes_it(copy, kept, old, new, page):
    path = copy / "experiments" / kept
    text = path.read_text()
    assert old in text and pages.differences(copy, [page]) == []
    path.write_text(text.replace(old, new, 1))
    try:
        assert any("the kept results" in line for line in pages.differences(copy, [page]))
        pages.rewrite(copy, [page])
        assert not any("the kept results give" in line for line in pages.differences(copy, [page]))
    finally:
        path.write_text(text)
        pages.rewrite(copy, [page])
    assert pages.differences(copy, [page]) == []


def test_a_mean_of_seeds_says_of_which():
    runs = [{"seed": seed, "bleu": bleu} for seed, bleu in enumerate((40.5, 41.0, 42.5))]
    assert plain(of_seeds(runs[:1])) == "seed 0"
    assert plain(of_seeds(runs)) == "mean of 3 seeds (40.50, 41.00, 42.50; deviation 1.04)"
    assert plain(of_seeds(runs, each=False)) == "mean of 3 seeds"


def test_a_number_that_nothing_accounts_for_is_named():
    text = "    fxf train --config.train.steps=9 \\\n  7\n\n`step 7`, GPT-2, Su et al. 2021\n\nIt reaches 0.97 on 12"
    assert wrong(text, Page([])) == ["line 6: nothing accounts for 0.97", "line 6: nothing accounts for 12"]
    assert wrong(text, Page([f"reaches {figure(0.97)}"], {"the machine": ["on 12"]})) == []
    assert wrong(text, Page([f"reaches {figure(0.98)}"], {"the machine": ["on 12"]})) == [
        "line 6: the kept results give 0.98, not 0.97"
    ]


def test_a_text_that_is_no_longer_in_the_page_is_named():
    assert wrong("nothing", Page(["some text"], {"why": ["another"]})) == [
        "this is missing: some text",
        "this is missing (why): another",
    ]


def test_a_conclusion_that_the_results_contradict_is_named():
    page = Page([Conclusion("rotary is best", False)])
    assert wrong("So rotary\nis best.", page) == ["the kept results contradict this: rotary is best"]


def test_figures_are_written_across_lines_and_in_tables():
    page = Page([f"from {figure(1.5)} to {figure(2500, ',')}", table(["a", "b"], [["x", "2"], ["y", "3"]], "lr")])
    text = "It went from 7\nto 1,000.\n\n| a | b |\n|---|---:|\n| x | 1 |\n\nEnd."
    assert filled(text, page) == ("It went from 1.5\nto 2,500.\n\n| a | b |\n|---|---:|\n| x | 2 |\n| y | 3 |\n\nEnd.")
    assert wrong(filled(text, page), page) == []


def test_only_docstrings_and_expected_of_a_config_count():
    code = '"""Reaches 0.5."""\n\nSTEPS = 300\nEXPECTED = {"loss": 0.7}\n\ndef f():\n    """In 3 steps."""\n    x = 4\n'
    assert wrong(code, Page([]), only_docstrings(code)) == [
        "line 1: nothing accounts for 0.5",
        "line 4: nothing accounts for 0.7",
        "line 7: nothing accounts for 3",
    ]


def test_kept_results_name_what_made_them():
    folders = {path.parent for name in ("result.json", "table.csv") for path in (ROOT / "experiments").rglob(name)}
    for folder in folders:
        made = Kept(ROOT).made_by(folder.relative_to(ROOT).as_posix())
        assert {"git_commit", "date", "machine", "versions"} <= set(made)
        assert re.fullmatch(r"[0-9a-f]{40}", made["git_commit"]), f"{folder}: from code that no commit has"


def test_older_figures_name_their_command_commit_date_and_machine():
    older = json.loads((ROOT / "experiments/results/older.json").read_text())
    for name, entry in older.items():
        assert name == "about" or {"what", "command", "commit", "date", "machine"} <= set(entry)


def test_the_plan_of_a_study_and_what_its_program_writes_are_no_typed_figures(tmp_path):
    page = "experiments/studies/new/README.md"
    path = tmp_path / page
    path.parent.mkdir(parents=True)
    shutil.copytree(ROOT / "experiments/results", tmp_path / "experiments/results")
    path.write_text("At most 20.\n\n**Test**, written before the runs. 7.\n\n**Command**\n\n8.\n\n## Result\n\n9.\n")
    numbers = [line.split()[-1] for line in pages.differences(tmp_path, [page])]
    assert numbers == ["8", "9"]
    (path.parent / "result.py").touch()
    assert [line.split()[-1] for line in pages.differences(tmp_path, [page])] == ["8"]


def test_each_file_of_compiled_programs_has_the_command_that_makes_it():
    for path in compiled.FOLDER.glob("*.txt"):
        (command,) = compiled.COMMAND.findall(path.read_text())
        variables, (verb, *flags) = compiled.split(command)
        assert set(variables) <= {"LIBTPU_INIT_ARGS"}, path
        assert verb == "compile" and any(flag.startswith("--topology=") for flag in flags), path
        assert all(flag.startswith("--") and " " not in flag for flag in flags), path
