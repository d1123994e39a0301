"""Training over several devices and processes. tests/cluster/run.sh trains under launchers."""

import json
import signal
import socket
import sys
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from fxf.base.devices import compiling_for, target_devices
from fxf.base.errors import UserError
from fxf.base.weights import Weight, map_weights
from fxf.training import processes
from fxf.training.optimizer import OPTIMIZERS, OptimizerConfig, make_optimizer
from fxf.training.parallel import ParallelConfig
from fxf.training.sharding import AXES, Layout, make_layout, partition, require_divisible
from fxf.training.state import init_state, state_shardings
from helpers import one_device, refused, small_model, table
from small_runs import script


def answers(program, *arguments):
    """Runs a program of this folder; returns the objects that it prints as JSON, and its last line of errors."""
    finished = script(f"tests/training/{program}.py", *arguments)
    assert finished.returncode == 0, finished.stderr
    assert "rematerialization" not in finished.stderr  # an array that all devices gather completely, to reshard it
    read = [json.loads(line) for line in finished.stdout.splitlines() if line.startswith("{")]
    return read, finished.stderr.splitlines()[-1:]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("devices")


@pytest.fixture(scope="module")
def figures(folder):
    ((found,), _) = answers("eight_devices", folder)
    return found


@pytest.fixture(scope="module")
def more_figures(folder):
    ((found,), _) = answers("eight_devices", folder, "more")
    return found


def assert_near(distances, *layouts):
    assert set(distances) == {*layouts}
    for layout in layouts:
        assert set(distances[layout]) == {"loss", "gradient", "params"} and max(distances[layout].values()) <= 1


def test_loss_gradient_and_later_params_are_those_of_one_device(figures):
    assert_near(figures["distances"], "fsdp 2, sequence 2, tensor 2", "pmap 8")


@pytest.mark.parametrize("what", ["parts", "of_a_gpu", "loss_kernel", "products_of_8_bits"])
def test_over_a_mesh_a_kernel_products_of_8_bits_and_gradients_of_a_gpu_are_those_of_one_device(figures, what):
    assert max(figures[what]) <= 1


def test_devices_sum_bfloat16_gradients_in_float32_or_on_request_in_bfloat16(figures):
    in_float32, in_bfloat16 = figures["sums_of_bfloat16"]
    assert in_float32 <= 1e-3 and in_bfloat16 >= 0.1


@pytest.mark.thorough
def test_of_eight_devices_each_holds_an_eighth_and_a_run_goes_on_with_one_and_they_decode_as_one(more_figures):
    assert_near(more_figures["distances"], "data 2, fsdp 2, tensor 2", "data 4, sequence 2", "pmap 8")
    assert more_figures["resumed"] <= 1 and more_figures["hypotheses"] <= 1
    assert 1 / 8 <= more_figures["share"] <= 1 / 7  # of the optimizer's state


@pytest.mark.thorough
def test_two_processes_have_the_numbers_of_one_device_and_one_notices_the_others_end(folder, more_figures):
    with socket.create_server(("localhost", 0)) as free:
        coordinator = f"localhost:{free.getsockname()[1]}"
    (found, ended), (said,) = answers("two_processes", folder, coordinator)
    assert max(found["distances"].values()) <= 1 and found["resumed"] <= 1
    assert found["bytes"] < 10e6  # the bytes of 16 MB that the second reads: it checks its half, and receives the rest
    assert ended["codes"] == [75, -signal.SIGKILL]  # the second one's, as the program has it
    assert said.startswith("error: process 0 of 2: lost another one; the same command resumes")


@pytest.mark.thorough
def test_models_with_adapters_experts_terms_and_modules_of_flax_have_the_numbers_of_one_device():
    ((found,), _) = answers("models_on_devices")
    assert found.keys() == {"layers", "rows", "adapters", "terms", "experts"}
    for of_model in found.values():
        assert_near(of_model, *of_model)


@pytest.mark.thorough
def test_models_with_sharded_sequences_have_the_numbers_of_one_device():
    ((found,), _) = answers("sequences_on_devices")
    assert len(found) == 13 and max(found.values()) <= 1


class Devices:
    """Replaces a mesh where only its sizes and platform are read."""

    def __init__(self, data=1, fsdp=1, expert=1, sequence=1, tensor=1, platform="cpu"):
        self.shape = {"data": data, "fsdp": fsdp, "expert": expert, "sequence": sequence, "tensor": tensor}
        self.devices = np.array([SimpleNamespace(platform=platform)])


@pytest.mark.parametrize(("sizes", "expected"), table("shardings of weights"))
def test_each_axis_of_the_mesh_shards_the_first_axis_that_it_divides(sizes, expected):
    axes, shape = sizes.pop("axes").split(), sizes.pop("shape")
    cuts = partition(Weight(shape, tuple(axes), None), Devices(**sizes))
    assert [cut or "-" for cut in (*cuts, *[None] * (len(axes) - len(cuts)))] == expected.split()


@pytest.mark.parametrize(("devices", "padded"), table("padded vocabularies"))
def test_a_vocabulary_is_padded_to_a_multiple_for_tensor_and_accelerator(devices, padded):
    layout = Layout(Devices(**devices))
    assert layout.padded_vocabulary(50_257) == int(padded) and layout.pads == (int(padded) > 50_257)


def test_a_single_cpu_gathers_and_pads_nothing():
    model, params = small_model()
    program = jax.make_jaxpr(lambda p: make_layout(ParallelConfig(data=1), jax.devices()).gather(model, p, pad=True))
    assert program(params).eqns == []


def test_only_weights_with_the_vocabulary_are_gathered_in_the_type_of_the_computation(monkeypatch):
    monkeypatch.setattr(Layout, "pads", True)
    model, params = small_model(dtype="bfloat16")
    model.spec["temperature"] = Weight((), (), None)  # a weight may be one number
    params["temperature"] = np.float32(1.7)
    found = jax.jit(lambda params: one_device().gather(model, params, pad=True)[0])(params)
    types = map_weights(lambda _, weight: "bfloat16" if "vocabulary" in weight.axes else "float32", model.spec)
    jax.tree.map(np.testing.assert_array_equal, found, jax.tree.map(np.asarray, params, types))


AROUND = {"frozen": "embedding/*", "ema_decay": 0.9}


@pytest.mark.parametrize(("name", "around"), [*((name, {}) for name in OPTIMIZERS), ("adam", AROUND), ("muon", AROUND)])
def test_the_state_of_every_optimizer_is_sharded_like_its_weights(name, around):
    """This compares shardings only, on an abstract mesh."""
    model, _ = small_model()
    optimizer = make_optimizer(OptimizerConfig(name=name, clip_norm=1.0, **around), 9, model.spec)
    shardings = state_shardings(model, optimizer, Layout(jax.sharding.AbstractMesh((1, 2, 1, 1, 3), AXES)))
    shapes = jax.eval_shape(lambda: init_state(model, optimizer, jax.random.key(0)))
    jax.tree.map(lambda s, sharding: sharding.shard_shape(s.shape), shapes, shardings)  # each fits its array
    leaves = list(zip(*map(jax.tree.leaves, (shapes.opt_state, shardings.opt_state)), strict=True))
    cut = [sharding.spec == P("fsdp", None) for s, sharding in leaves if s.shape == (6, 11)]
    assert cut and all(cut)


@pytest.mark.parametrize(("sizes", "message"), refused("six devices in a mesh"))
def test_devices_that_do_not_fit_the_mesh_are_an_error(sizes, message, monkeypatch):
    n_processes = sizes.pop("n_processes")
    monkeypatch.setattr(jax, "process_count", lambda: n_processes)
    monkeypatch.setattr(jax, "local_device_count", lambda: 6 // n_processes)
    with pytest.raises(UserError, match=message):
        make_layout(ParallelConfig(**sizes), [None] * 6)


def test_only_data_crosses_tpu_slices_which_may_be_in_any_order():
    kind = type("Unit", (SimpleNamespace,), {"__hash__": object.__hash__})
    devices = [kind(platform="cpu", device_kind="cpu", slice_index=i % 2) for i in range(12)]
    mesh = make_layout(ParallelConfig(fsdp=3), devices).mesh
    assert [{device.slice_index for device in row.flat} for row in mesh.devices] == [{0}, {0}, {1}, {1}]


def test_a_batch_and_sequences_that_the_devices_do_not_divide_are_an_error_that_names_the_sizes():
    layout = Layout(Devices(data=4, fsdp=2))
    require_divisible(layout, 16, 2)
    message = r"^train.batch_size: 16 / train.microbatches 4 does not divide into 8 equal .*data 4 × parallel.fsdp 2"
    with pytest.raises(UserError, match=message):
        require_divisible(layout, 16, 4)
    batch = {"row": np.zeros(3), "inputs": np.zeros((3, 6)), "source": np.zeros((3, 7))}
    Layout(Devices(sequence=1)).require_divisible_sequences(batch)
    with pytest.raises(UserError, match=r"^parallel\.sequence: 2 does not divide the length 7 of the batch's source$"):
        Layout(Devices(sequence=2)).require_divisible_sequences(batch)


def test_a_batch_from_the_host_is_padded_with_rows_without_weight():
    batch = {"inputs": np.arange(15).reshape(5, 3), "weights": jax.numpy.ones((5, 3))}  # a user's may be JAX's
    placed = jax.device_get(one_device().put(batch, 4))
    np.testing.assert_array_equal(placed["inputs"], batch["inputs"][[0, 1, 2, 3, 4, 4, 4, 4]])
    np.testing.assert_array_equal(placed["weights"], np.repeat([[1.0], [0.0]], [5, 3], axis=0) * np.ones((1, 3)))


def test_functions_of_a_model_on_one_of_several_devices_are_compiled_for_it():
    model = small_model()[0]._replace(features=target_devices, readout=target_devices)
    with compiling_for([object(), object()]):
        known = one_device().with_mesh(model)
        assert known.features() == known.readout() == jax.devices()[:1]


def test_the_first_process_refuses_a_port_where_another_run_listens():
    with socket.create_server(("", 0)) as held, pytest.raises(UserError, match=r"^parallel\.coordinator: .* in use"):
        processes.join(ParallelConfig(processes=2, coordinator=f"localhost:{held.getsockname()[1]}"))


def raises(error):
    with processes.ending_with_the_others():
        raise error


@pytest.mark.parametrize("error", [jax.errors.JaxRuntimeError, TimeoutError, ValueError])
def test_a_lost_process_ends_this_one_in_one_line(error, monkeypatch, capsys):
    monkeypatch.setattr(jax, "process_count", lambda: 3)
    monkeypatch.setattr(processes.os, "_exit", sys.exit)
    with pytest.raises(SystemExit, match="75"):
        raises(error("UNKNOWN: Gloo AllGather failed: Connection closed by peer\nand more"))
    assert capsys.readouterr().err == (
        "error: process 0 of 3: lost another one; the same command resumes from the newest checkpoint "
        "(UNKNOWN: Gloo AllGather failed: Connection closed by peer)\n"
    )


@pytest.mark.parametrize(
    ("count", "message"), [(1, "UNKNOWN: anything"), (3, "RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes")]
)
def test_an_error_without_a_lost_process_stays_unchanged(count, message, monkeypatch):
    monkeypatch.setattr(jax, "process_count", lambda: count)
    with pytest.raises(jax.errors.JaxRuntimeError, match=message):
        raises(jax.errors.JaxRuntimeError(message))


def test_processes_with_other_configs_are_refused(monkeypatch):
    """The fake gather adds the data of another process."""
    sent = []
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(processes.multihost_utils, "process_allgather", lambda x: sent.append(x) or np.stack(sent))
    processes.require_same_config({"seed": 0, "parallel": {"processes": 2, "process": 0}})
    processes.require_same_config({"seed": 0, "parallel": {"processes": 2, "process": 1}})
    with pytest.raises(UserError, match=r"^process 0 of 2: another process has another config, data or code"):
        processes.require_same_config({"seed": 3, "parallel": {"processes": 2, "process": 1}})
