"""The documentation as a site."""

import re
import subprocess
import sys

import pytest

from small_runs import ROOT


def test_every_page_has_an_entry():
    listed = set(re.findall(r"\S+\.md", (ROOT / "docs/mkdocs.yml").read_text()))
    assert {f"docs/{path.name}" for path in ROOT.glob("docs/*.md")} <= listed
    assert all((ROOT / page).is_file() for page in listed)


@pytest.mark.thorough  # with libraries that are not among the requirements of the tests
def test_the_site_is_built_without_a_warning_and_loads_nothing_from_elsewhere():
    built = subprocess.run([sys.executable, "docs/site.py"], cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    pages = list((ROOT / "build/site").rglob("*.html"))
    assert len(pages) > 200
    for page in pages:
        assert not re.search(r'<(script|img)[^>]+src="https?:|<link[^>]+stylesheet[^>]+https?:', page.read_text())
