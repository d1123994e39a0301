"""Runs from Python, and the cost and names of `import fxf`."""

import os
import subprocess
import sys

import pytest

import fxf
from small_runs import ROOT


def test_importing_fxf_imports_nothing_else_and_each_name_exists():
    program = (
        "import sys; before = set(sys.modules); import fxf; assert set(sys.modules) - before == {'fxf'}, sys.modules;"
        "assert set(fxf.__all__) <= set(dir(fxf))"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, timeout=600)
    assert all(getattr(fxf, name) for name in fxf.__all__)
    with pytest.raises(AttributeError, match="module 'fxf' has no attribute 'fitt'"):
        fxf.fitt  # noqa: B018


@pytest.mark.thorough
def test_a_type_checker_knows_the_names(tmp_path):
    (tmp_path / "typed.py").write_text(
        "import fxf\nreveal_type(fxf.fit)\nreveal_type(fxf.load('run').generate(['1']))\nfxf.fitt\nfxf.fit(3)\n"
    )
    command = [sys.executable, "-m", "mypy", "--follow-imports=silent", "typed.py"]
    environment = {**os.environ, "MYPYPATH": str(ROOT)}  # mypy does not follow an editable installation
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert '"list[str]"' in done.stdout
    assert 'Module has no attribute "fitt"' in done.stdout
    assert 'Argument 1 to "fit" has incompatible type "int"' in done.stdout
