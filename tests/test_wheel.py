"""The wheel, installed without a checkout: the command, its configs, and README's examples."""

import importlib.util
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
import urllib.request
import zipfile
from contextlib import contextmanager
from pathlib import Path

import pytest

import fxf
from page_code import code_of
from small_runs import HEARING, ROOT

SOURCES = ("fxf", "configs", "pyproject.toml", "README.md", "LICENSE")
README = (ROOT / "README.md").read_text()

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name)
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir=built", "."]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return next(folder.glob("built/*.whl"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """Returns a function that runs a command of a new environment, with this one's libraries, in an empty folder."""
    folder = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "env"], check=True)
    python = folder / "env/bin/python"
    left_out = ("PYTHONPATH", "JAX_DISABLE_MOST_OPTIMIZATIONS", "JAX_COMPILATION_CACHE_DIR")
    environment = {name: value for name, value in os.environ.items() if name not in left_out}
    environment["XDG_CACHE_HOME"] = str(folder / "caches")
    pip = [sys.executable, "-m", "pip", f"--python={python}", "install", "--no-deps", str(wheel)]
    subprocess.run(pip, check=True, capture_output=True, env=environment)
    (site_packages,) = folder.glob("env/lib/python*/site-packages")
    # A line of such a file adds a folder to the path, but ignores .pth files in it, such as an editable fxf's.
    (site_packages / "libraries.pth").write_text(f"{sysconfig.get_paths()['purelib']}\n")
    empty = folder / "empty"
    empty.mkdir()

    @contextmanager
    def start(program, *arguments):
        pipe = subprocess.PIPE
        command = [*HEARING, str(folder / "env/bin" / program), *arguments]
        with subprocess.Popen(command, cwd=empty, stdout=pipe, stderr=pipe, text=True, env=environment) as process:
            try:
                yield process
            finally:
                process.kill()

    def run(program, *arguments):
        with start(program, *arguments) as process:
            out, errors = process.communicate(timeout=600)
        assert process.returncode == 0, errors
        return out

    run.folder, run.start = empty, start
    return run


def test_the_wheel_has_every_file_of_the_package_every_config_and_its_types(wheel):
    held = set(zipfile.ZipFile(wheel).namelist())
    endings = ("py", "css", "js", "sh", "toml", "tsv", "txtpb", "xz", "yaml")
    files = [path for ending in endings for path in (ROOT / "fxf").rglob(f"*.{ending}")]
    package = {path.relative_to(ROOT).as_posix() for path in files}
    configs = {"fxf/" + path.relative_to(ROOT).as_posix() for path in (ROOT / "configs").rglob("*.py")}
    assert {name for name in held if name.startswith("fxf/")} == package | configs | {"fxf/py.typed"}
    assert wheel.name.startswith(f"fxf-{fxf.__version__}-")


def test_readmes_commands_and_python_code_print_what_it_says(installed):
    where = installed("python", "-c", "import fxf; print(fxf.__file__)").strip()
    assert not Path(where).is_relative_to(ROOT)
    train, generate, with_idea, _ = (shlex.split(line) for line in re.findall(r"^    fxf (.*)$", README, re.MULTILINE))
    assert "exact_match 1 " in installed("fxf", *train)
    assert installed("fxf", *generate) == "1 3\n9 7\n"
    idea, *others = code_of("README.md")
    (installed.folder / "idea.py").write_text(idea)
    assert "exact_match " in installed("fxf", *with_idea)
    for code in others:
        (expected,) = re.findall(r"^print\(.*\)  # (.*)$", code, re.MULTILINE)
        assert installed("python", "-c", code) == f"{expected}\n"


def test_the_first_week_works_as_its_page_says(installed):
    """The harness is included only if installed: it is not a requirement."""
    for name, code in zip(("make_data.py", "week.py"), code_of("docs/first_week.md"), strict=True):
        (installed.folder / name).write_text(code)
    page = (ROOT / "docs/first_week.md").read_text()
    commands = [shlex.split(line) for line in re.findall(r"^    ((?:fxf|python) .*)$", page, re.MULTILINE)]
    make, train, again, look, score, both, compare, answer, export, harness = commands
    installed(*make)

    with installed.start(*train) as training:
        records = installed.folder / "runs/week/metrics.jsonl"
        while training.poll() is None and not (records.exists() and records.read_text().count("\n") > 1):
            time.sleep(0.1)
        training.send_signal(signal.SIGINT)
        said = training.communicate(timeout=600)[1]
    assert (training.returncode, "stopped at step" in said) == (130, True), said
    found = installed(*train)
    assert "validation_loss/english " in found and "validation_loss/french " in found
    installed(*again)

    with installed.start(*look, "--port=0") as server:
        address = re.search(r"http://\S+", server.stdout.readline())[0]
        with urllib.request.urlopen(address, timeout=60) as answered:
            text = answered.read().decode()
        server.send_signal(signal.SIGINT)
        server.communicate(timeout=60)
    assert '"other"' in text and '"week"' in text and not re.search(r'(src|href)="?http', text)

    assert "bits_per_byte_low " in installed(*score)
    assert re.search(r"better|worse|no difference found", installed(*both))
    assert {"week", "other"} <= set(re.split(r"[\s|/]+", installed(*compare)))
    assert "." not in installed(*answer)
    assert installed(*export) == "runs/week/huggingface\n"
    if importlib.util.find_spec("lm_eval"):
        assert re.search(r"\|ends *\|.*\|acc *\|.\s*\| *(1|0\.9)", installed(*harness))
