"""The memory there is, as the system tells it, and what is refused beside it."""

import resource
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fxf.decoding.config import DecodeConfig
from fxf.decoding.decoder import Decoder
from fxf.errors import UserError
from fxf.machine import memory
from fxf.machine.memory import GIB, Part
from helpers import small_model

PARTS = [Part("params", 5 * GIB, ("model.d_model",)), Part("batch", 2 * GIB, ("train.batch_size",))]


def test_what_fits_is_not_refused():
    memory.require("training", PARTS, 7 * GIB)


def test_what_does_not_fit_names_its_largest_parts_and_their_keys():
    with pytest.raises(UserError) as error:
        memory.require("training", [*PARTS, Part("cache", 1, ("x",))], 7 * GIB)
    assert str(error.value) == (
        "training: needs at least 7.0 GiB of memory, and 7.0 GiB are free: params 5.0 GiB, batch 2.0 GiB; "
        "change model.d_model, train.batch_size"
    )


@pytest.fixture
def cgroup(tmp_path, monkeypatch):
    """Returns `cgroup(files)`, which makes the files of control groups those of the system."""

    def make(files):
        text = memory._text

        def read(path):
            name = str(path).replace(str(tmp_path), "")
            return files.get(name, "") if name in files or name != str(path) else text(path)

        monkeypatch.setattr(memory, "CGROUPS", tmp_path)
        monkeypatch.setattr(memory, "_text", read)

    return make


def test_a_limit_on_a_group_that_holds_the_own_one_counts_and_cached_files_are_free(cgroup):
    cgroup(
        {
            "/proc/self/cgroup": "0::/outer/own\n",
            "/outer/own/memory.max": "max\n",
            "/outer/own/memory.current": "700\n",
            "/outer/memory.max": "5000\n",
            "/outer/memory.current": "2000\n",
            "/outer/memory.stat": "anon 1\ninactive_file 300\nactive_file 30\n",
            "/outer/memory.swap.max": "50\n",
            "/outer/memory.swap.current": "7\n",
        }
    )
    assert memory.free_on_the_host() == 5000 - 2000 + 330 + 50 - 7


def test_a_limit_of_the_first_version_of_control_groups_counts(cgroup):
    cgroup(
        {
            "/proc/self/cgroup": "7:cpu,memory:/own\n3:pids:/\n",
            "/proc/meminfo": "MemAvailable: 9000 kB\nSwapFree: 0 kB\n",
            "/memory/own/memory.limit_in_bytes": "5000\n",
            "/memory/own/memory.usage_in_bytes": "2000\n",
            "/memory/own/memory.stat": "total_inactive_file 300\n",
        }
    )
    assert memory.free_on_the_host() == 3300


def test_the_memory_and_the_swap_of_the_machine_count(cgroup):
    cgroup({"/proc/self/cgroup": "", "/proc/meminfo": "MemTotal: 9 kB\nMemAvailable: 5 kB\nSwapFree: 2 kB\n"})
    assert memory.free_on_the_host() == 7 * 1024


def test_a_limit_on_the_address_space_counts(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (100, 100))
    assert memory.free_on_the_host() == 0


def test_devices_of_a_cpu_share_its_memory(monkeypatch):
    monkeypatch.setattr(memory, "free_on_the_host", lambda: 80)
    monkeypatch.setattr(jax, "local_device_count", lambda: 8)
    assert memory.free_on_a_device(8) == 10


@pytest.mark.parametrize(
    ("statistics", "expected"),
    [
        ([None, None], {}),
        ([{"peak_bytes_in_use": 3}, {"peak_bytes_in_use": 5}], {"device_peak_bytes": 5}),
        ([{"peak_bytes_in_use": 3, "bytes_limit": 7}], {"device_peak_bytes": 3, "device_bytes": 7}),
    ],
)
def test_the_fullest_device_counts_and_a_cpu_tells_nothing(statistics, expected, monkeypatch):
    devices = [SimpleNamespace(memory_stats=lambda stats=stats: stats) for stats in statistics]
    monkeypatch.setattr(jax, "local_devices", lambda: devices)
    assert memory.held_on_a_device() == expected


def test_the_largest_product_is_found_in_loops_and_those_over_one_element_do_not_count():
    def f(x, y, column):
        return jax.lax.scan(lambda carry, _: (carry, x @ y), 0, length=2)[1].sum() + (column @ column.T).sum()

    jaxpr = jax.make_jaxpr(f)(jnp.ones((3, 5)), jnp.ones((5, 7)), jnp.ones((11, 1))).jaxpr
    assert memory.largest_product(jaxpr) == 4 * 3 * 7


@pytest.mark.parametrize(("width", "max_tokens", "part"), [
    (10**9, 31, "new tokens"),
    (10**9, 1, "cache of a prompt"),
    (5 * 10**4, 3, "scores of attention or logits"),
    (1, 10**18, "new tokens"),
])  # fmt: skip
def test_a_beam_or_a_text_that_cannot_fit_is_refused_before_it_compiles(monkeypatch, width, max_tokens, part):
    monkeypatch.setattr(memory, "free_on_the_host", lambda: 20 * GIB)
    model, params = small_model()
    decode = Decoder(model, 0, config=DecodeConfig(beam_width=width))
    prompts = {"tokens": np.ones((1, 3), np.int32), "lengths": np.array([3], np.int32)}
    with pytest.raises(UserError, match=rf"generation: needs at least .* {part} .* GiB.*; change .*max_tokens"):
        decode(params, prompts, max_tokens)
