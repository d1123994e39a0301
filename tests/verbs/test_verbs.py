"""The command `fxf` and its verbs."""

import subprocess
import sys

import pytest

from fxf.base.errors import why_not_ours
from fxf.verbs import VERBS
from small_runs import ROOT, script


def test_every_module_of_the_room_is_a_verb():
    modules = {path.stem for path in (ROOT / "fxf/verbs").glob("*.py")}
    assert modules - {"__init__", "command", "flags"} == set(VERBS)


def test_without_a_verb_it_lists_the_verbs_with_a_line_each_and_imports_no_library():
    heavy = "{'jax', 'numpy', 'absl', 'ml_collections'}"
    program = f"import sys; import fxf.__main__ as m; m.main(); assert not {heavy} & set(sys.modules)"
    for arguments in ([], ["--help"]):
        run = [sys.executable, "-c", program, *arguments]
        done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, timeout=600)
        assert (done.returncode, done.stderr) == (0, "")
        lines = [line for line in done.stdout.splitlines() if line.startswith("  fxf ")]
        assert [line.split()[1] for line in lines] == list(VERBS)
        assert all(len(line.split()) > 5 and line.endswith(".") and len(line) < 120 for line in lines)


@pytest.mark.thorough
def test_a_verb_reads_a_config_of_fxf_by_its_name_in_any_folder_and_imports_no_library_that_it_does_not_need(tmp_path):
    """What reads data sets, writes checkpoints, logs and plots, and scores texts is imported where it is used."""
    program = (
        "import sys; sys.argv = ['fxf', 'describe', '--config=reversal:example0', '--config.model.n_layers=1'];"
        "import fxf.__main__ as m; m.main();"
        "unused = {'grain', 'matplotlib', 'orbax', 'sacrebleu', 'tensorboardX', 'tensorflow_datasets'};"
        "assert not unused & set(sys.modules), unused & set(sys.modules)"
    )
    run = [sys.executable, "-c", program]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stderr) == (0, "")
    assert "11 x 128" in done.stdout
    assert "--workdir" in script("help", "train", cwd=tmp_path).stdout


def test_a_library_that_an_installation_lacks_is_named_with_what_brings_it():
    lacking = ModuleNotFoundError("No module named 'safetensors'", name="safetensors.numpy")
    compiler = ModuleNotFoundError("No module named 'libtpu'", name="libtpu")
    assert why_not_ours(compiler) == "libtpu is not installed: pip install 'fxf[compile]'"
    assert why_not_ours(lacking) == "safetensors is not installed: pip install 'fxf[interop]'"
    assert why_not_ours(ModuleNotFoundError("of a user's own", name="mine")) == ""
