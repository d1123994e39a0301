"""What `make` installs: dependencies and their pins, and the choice of a platform."""

import shutil
import subprocess
import tomllib
from importlib.metadata import requires, version

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from helpers import table
from small_runs import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
DEPENDENCIES = [Requirement(line) for lines in (PROJECT["dependencies"], *EXTRAS.values()) for line in lines]
LINES = (ROOT / "constraints.txt").read_text().splitlines()
PINS = {canonicalize_name(name): Version(version) for name, version in (line.split("==") for line in LINES)}
MAKE = shutil.which("make")


def test_every_dependency_has_a_lower_bound_and_a_pin_above_it():
    for requirement in DEPENDENCIES:
        assert [specifier.operator for specifier in requirement.specifier] == [">="]
        assert PINS[canonicalize_name(requirement.name)] in requirement.specifier


@pytest.mark.skipif(Version(version("jax")) != PINS["jax"], reason="another JAX than the pinned one is installed")
@pytest.mark.parametrize("platform", ["cuda", "tpu"])
def test_the_pins_of_an_accelerator_are_those_that_the_pinned_jax_requires(platform):
    (extra,) = Requirement(EXTRAS[platform][0]).extras
    wanted = [Requirement(line) for line in requires("jax")]
    wanted = [r for r in wanted if r.marker and not r.marker.evaluate() and r.marker.evaluate({"extra": extra})]
    assert len(wanted) > 1
    for requirement in wanted:
        assert PINS[canonicalize_name(requirement.name)] in requirement.specifier


@pytest.mark.parametrize(("of", "texts"), table("choices of make environment"))
def test_make_installs_a_platform_with_extras_and_keeps_the_choice_or_lists_them(of, texts, tmp_path):
    arguments, (said, _, kept) = of["arguments"], texts.partition(" > ")
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)

    def make(*arguments):
        command = [MAKE, "--dry-run", "environment", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"})

    done = make(*arguments)
    if not kept:
        assert (done.returncode, done.stdout) == (2, "")
        assert said in done.stderr and done.stderr.count("\n") == 1
        return
    assert "-m pip install" in done.stdout and said in done.stdout
    assert f"echo '{kept}' > .venv/ready" in done.stdout
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv/ready").write_text(f"{kept}\n")
    assert all("pip" not in make(*again).stdout for again in ([], arguments))
