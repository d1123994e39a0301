import atexit
import gc
import os
import shutil
import sys
import tempfile
import time
import types
from importlib import metadata

# Tests compare numbers, so fix the platform before JAX starts.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Compilation takes nearly all the time: on a CPU, half of it in an XLA pass that makes programs a tenth faster, and an
# eighth in splitting small programs over threads, which wait busily.
if os.environ["JAX_PLATFORMS"] == "cpu":
    # XLA of JAX 0.11 exits at a flag that was removed.
    emitters = "--xla_cpu_use_fusion_emitters=false" if metadata.version("jaxlib") < "0.11" else ""
    threads = "--xla_cpu_parallel_codegen_split_count=1 --xla_cpu_multi_thread_eigen=false"
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {threads} {emitters}"

# The processes of a session compile each program once and quickly, and share it in a folder made by the first one: in
# memory, if there is space, because checkpoints would wait for a disk.
if "PYTEST_XDIST_WORKER" not in os.environ:
    memory = "/dev/shm"
    roomy = os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 2**32
    scratch = tempfile.mkdtemp(prefix="fxf-tests-", dir=memory if roomy else None)
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    os.environ |= {
        "TMPDIR": scratch,
        "PYTEST_DEBUG_TEMPROOT": os.path.dirname(scratch),  # where the files of failed tests stay
        "JAX_COMPILATION_CACHE_DIR": f"{scratch}/programs",
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        "JAX_TRACEBACK_IN_LOCATIONS_LIMIT": "0",
        "OMP_NUM_THREADS": "1",  # PyTorch's threads would wait busily for each other with such small models
    }
    # Otherwise they and the commands that they start would each compile all source again.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

import hypothesis
import jax
import pytest
from hypothesis.internal.conjecture import providers

import quick  # noqa: F401

# No signal thread of fxf in this process: the commands that it starts would inherit the blocked signals.
sys.modules["fxf.base.listen"] = types.SimpleNamespace(STARTED=time.perf_counter())

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_default_matmul_precision", "highest")

# The same cases each time, on every machine, however busy; `make fuzz` draws new ones.
plain = hypothesis.settings(deadline=None, database=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.register_profile("same", plain, derandomize=True, max_examples=10)
hypothesis.settings.register_profile("fuzz", plain, derandomize=False, max_examples=20)
hypothesis.settings.load_profile("same")
# Hypothesis also draws numbers and texts that it finds in the code imported so far. Cases would then depend on which
# tests ran before, on changes elsewhere, and on the folder's name.
no_constants = providers.Constants()
providers._get_local_constants = lambda: no_constants

# Files with few and long tests, which would otherwise run last, while other workers are idle.
FIRST = ("sharding", "run_text", "kill", "run", "decoder", "every_key", "mistakes", "on_gpu", "in_memory")


@pytest.fixture
def process():
    """Makes a test's imports of own files those of a new process."""
    from small_runs import new_process

    with new_process():
        yield


def pytest_addoption(parser):
    parser.addoption("--no-skips", action="store_true", help="a test that would be skipped fails")


@pytest.hookimpl(tryfirst=True)  # before any test is deselected
def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: item.path.stem.removeprefix("test_") not in FIRST)
    gc.freeze()  # Python no longer looks through what is imported


def pytest_runtest_setup(item):
    """Fails a test of a GPU where there is none, because it would compare a CPU with itself."""
    if item.get_closest_marker("gpu") and jax.default_backend() != "gpu":
        pytest.fail("needs an NVIDIA GPU, and JAX with CUDA: make environment PLATFORM=cuda", pytrace=False)


def not_skipped(report, config):
    """Returns a report of a test or a file, under --no-skips a failed one where it says skipped."""
    if report.skipped and config.getoption("--no-skips") and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"--no-skips: {report.longrepr[-1]}"
    return report


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config):
    if hasattr(config, "workerinput"):
        os._exit(0)  # all is reported; to free what JAX holds takes a process seconds


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    return not_skipped((yield), item.config)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    return not_skipped((yield), collector.config)
