"""Costs of compiled programs: on this CPU as if it were other hardware, and with the packages for that hardware."""

import json
import math
import os
import re
from unittest import mock

import jax
import pytest

from fxf.base import on_gpu
from fxf.base.errors import UserError
from fxf.base.hardware import Hardware
from fxf.base.weights import count
from fxf.compile import costs, hlo, roofline, topologies
from fxf.compile.topologies import Topology
from fxf.runs.experiment import build
from helpers import table, with_attributes
from small_runs import ROOT, script, tiny_config

SMALL = {"n_layers": 1, "d_model": 16, "d_ff": 24, "n_heads": 2}
DECODE = {"beam_width": 3}, {"temperature": 1.0}
CPU = Topology("cpu:1", jax.devices()[:1], Hardware((), flops=1e12, memory=2**30, bandwidth=1e9, link=1e9))


@pytest.fixture(scope="module")
def reports():
    """Returns the experiment, and the costs of its training step, prefill and decoding step."""
    experiment = build(tiny_config(model=SMALL, parallel={"data": 1}))
    with topologies.target(CPU):
        return experiment, list(roofline.reports(experiment, CPU, ("training", "decoding")))


def test_a_step_has_the_operations_of_the_model_and_holds_its_state_once(reports):
    experiment, (training, *_) = reports
    rows, length = experiment.task.largest_batch()["weights"].shape
    of_token = 2 * (4 * 16 * 16 + 2 * 16 * 24) + 2 * 2 * length * 16 + 2 * 16 * experiment.task.vocab_size
    expected = 3 * of_token * rows * length
    assert training["model_flops"] == expected and training["flops"] == pytest.approx(expected, rel=0.01)
    held, n_bytes = training["bytes"], 4 * count(experiment.model.spec)
    assert held["weights"] == n_bytes
    assert held["optimizer state"] == 2 * n_bytes + math.prod((2, 4))  # two moments and two int32 counts
    assert held["activations and temporaries"] > n_bytes
    assert held["total"] == sum(held.values()) - held["total"] - held["available"] and training["fits"]
    assert held["other"] < n_bytes  # batch and metrics only, because the new state reuses the old one's memory


def test_a_programs_time_is_the_sum_over_kernels_bound_by_operations_or_traffic(reports):
    for found in reports[1]:
        compute, memory = found["flops"] / 1e12, found["memory_traffic"] / 1e9
        assert max(compute, memory) <= found["ideal"] * (1 + 1e-9) <= compute + memory and found["kernels"] > 3
        assert found["ideal"] == pytest.approx(sum(found["seconds"].values())) and found["attainable"] is None
        assert json.loads(json.dumps(found)) == found
        printed = roofline.text(found)
        assert printed.startswith(f"{found['program']} on cpu:1, one device\n")
        assert f"{1e3 * found['ideal']:.3g} ms at best" in printed and "fits: weights" in printed


def test_prefill_reads_half_of_the_positions_and_a_decoding_step_one_token_of_each_row(reports):
    experiment, (_, prefill, step) = reports
    rows, length = experiment.task.largest_batch()["inputs"].shape
    assert prefill["program"] == f"prefill, {rows} prompts of {length // 2} tokens"
    assert step["program"] == f"decoding step, {rows} prompts"
    products = 4 * 16 * 16 + 2 * 16 * 24  # per token and block, without attention
    assert 2 * rows * products < step["flops"] < 4 * rows * products
    assert prefill["flops"] == 2 * rows * (length // 2) * 2 * 16 * 16  # the last block's keys and values are enough


@pytest.mark.parametrize(
    ("held", "said"), [(0.5, "RESOURCE_EXHAUSTED: Ran out of memory"), (3.0, "a device has 1.0 GiB")]
)
def test_a_program_that_does_not_fit_is_reported_and_compiled_only_if_its_state_fits(held, said):
    lowered = mock.Mock()
    lowered.compile.side_effect = jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Ran out of memory\nmore")
    layout = build(tiny_config(parallel={"data": 1})).layout()
    (found,) = roofline.figures(roofline.Program(lowered, layout, {"weights": int(held * 2**30)}), CPU)
    assert f"does not fit: weights {held} GiB; {said}\n" in roofline.text(found)
    assert lowered.compile.called == (held * 2**30 < CPU.hardware.memory)


def test_a_step_under_pmap_and_the_decoding_of_a_task_that_generates_nothing_are_refused():
    experiment = build(tiny_config(parallel={"kind": "pmap", "data": 1}))
    with pytest.raises(UserError, match=r"^parallel.kind: 'pmap' compiles only for devices that are present"):
        list(roofline.reports(experiment, CPU, ["training"]))
    scored = experiment._replace(task=with_attributes(experiment.task, generates=False))
    with pytest.raises(UserError, match=r"^--program: the task generates nothing"):
        list(roofline.reports(scored, CPU, ["decoding"]))


@pytest.mark.thorough
def test_no_program_computes_64_bit_numbers():
    """Scanned blocks, random positions and dropout in training, and a beam and sampling in decoding."""
    model = {**SMALL, "dropout": 0.1, "scan_blocks": True, "position_range": 40, "positions": "sinusoidal"}
    experiment, sampling = (build(tiny_config(parallel={"data": 1}, model=model, decode=decode)) for decode in DECODE)
    with topologies.target(CPU):
        programs = roofline.training(experiment), *(roofline.decoding(each, 0) for each in (experiment, sampling))
        texts = [program.lowered.compile().as_text() for program in programs]
    assert [re.findall(r"\b(?:[fsu]64|c128)\[", text) for text in texts] == [[], [], []]


def compiled_for(name, experiment, programs=("training",), rows=0):
    """Returns the costs of an experiment's programs on other hardware, in a user's precision.

    A TPU's kernel refuses these tests' precision "highest", because its products are in bfloat16.
    """
    topology = topologies.topology(name)
    with topologies.target(topology), jax.default_matmul_precision("default"):
        return list(roofline.reports(experiment, topology, programs, rows))


@pytest.mark.thorough  # needs the packages of EXTRAS=compile
@pytest.mark.parametrize(("of", "link"), table("steps of an accelerator"))
def test_an_accelerators_step_has_the_models_operations_and_its_links(of, link):
    name, implementation = of["name"], of["implementation"]
    model = {"n_layers": 2, "d_model": 32, "d_ff": 64, "n_heads": 2, "dtype": "bfloat16", "max_len": 128}
    model |= {"attention_implementation": implementation, "norm_epsilon_in": "variance"}
    # The rows have 128 tokens, a block of flash attention on a TPU.
    sections = {"task": {"max_length": 63}, "train": {"steps": 6, "batch_size": 16}}
    experiment = build(tiny_config(model=model, parallel={"fsdp": 2, "tensor": 2}, **sections))
    training, *decoding = compiled_for(name, experiment, ("training", "decoding"))
    assert training["uncounted"] == []
    assert training["model_flops"] <= training["flops"] <= 2 * training["model_flops"]
    assert {found["link"] for found in training["collectives"]} == {link}
    assert sum(found["count"] for found in training["collectives"] if found["kind"] == "all-reduce") >= 8
    assert [found["program"].split(",")[0] for found in decoding] == ["prefill", "decoding step"]


@pytest.mark.thorough  # as above
@pytest.mark.parametrize(("of", "n_cublas"), table("decoding steps of a GPU"))
def test_a_decoding_step_of_a_gpu_reads_its_weights_in_their_type_and_its_cache_once(of, n_cublas):
    rows, weights, tensor = of["rows"], of["weights"], of["tensor"]
    model = {"n_layers": 2, "d_model": 512, "d_ff": 2048, "n_heads": 8, "dtype": "bfloat16", "max_len": 256}
    model |= {"tied_embeddings": True, "scaled_embeddings": True}
    sections = {"task": {"max_length": 127}, "decode": {"weights": weights}, "parallel": {"tensor": tensor}}
    experiment = build(tiny_config(model=model, **sections)).with_vocabulary(10007)
    _, step = compiled_for(f"h100:{tensor}", experiment, ("decoding",), rows)
    n_slots = experiment.task.largest_batch()["inputs"].shape[1]
    cache = 2 * rows * n_slots * 2 * 512 * experiment.model_config.n_layers
    size, others, workspace = (2, 0, 2**22) if weights == "plain" else (1, 512 * 10112, 0)
    once = (size * count(experiment.model.spec) + cache) / tensor
    # In 8 bits the table counts once more: a fusion gathers one of its rows.
    assert step["memory_traffic"] < 1.1 * once + others + int(n_cublas) * workspace


@pytest.mark.thorough  # as above
def test_the_documented_flags_reduce_scatter_each_gradient_on_a_3d_slice():
    (flags,) = re.findall(r'export LIBTPU_INIT_ARGS="([^"]*)"', (ROOT / "docs/devices.md").read_text())
    sizes = {"n_layers": 1, "d_model": 1024, "d_ff": 2048, "n_heads": 8, "dtype": "bfloat16"}
    sections = {"model": sizes, "parallel": {"fsdp": 64}, "train": {"batch_size": 64}}
    keys = [f"--config.{name}.{key}={value}" for name, values in sections.items() for key, value in values.items()]
    given = ["--config=configs/reversal.py", "--topology=v5p:4x4x4", "--program=training", "--json", *keys]
    finished = script("compile", *given, env={**os.environ, "LIBTPU_INIT_ARGS": flags.replace("\\\n", "")})
    assert finished.returncode == 0, finished.stderr
    found = json.loads(finished.stdout)
    held = {
        kind: [sum(c[what] for c in found["collectives"] if c["kind"] == kind) for what in ("count", "bytes")]
        for kind in ("all-gather", "reduce-scatter", "all-reduce")
    }
    smallest = 2 * 1024 * 1024  # bytes of a matrix in bfloat16
    matrices = 4 * smallest + 2 * 2 * smallest
    tables = 4 * (51 + 128) * 1024  # in float32; the unembedding's has a vocabulary padded to 128
    assert held["reduce-scatter"] == [6 + 2, 2 * matrices + tables]  # gradients are summed in float32
    last = 2 * smallest  # one gather serves both passes
    assert held["all-gather"][0] >= 2 * 6 and held["all-gather"][1] >= 2 * matrices - last
    assert held["all-reduce"][1] < smallest / 4  # of biases, norms and the loss
    assert found["uncounted"] == []


@pytest.mark.thorough  # needs the packages of EXTRAS=compile
@pytest.mark.parametrize(("name", "parallel"), [("h100:1", {}), ("h100:8", {"fsdp": 2, "tensor": 2})])
def test_a_gpu_computes_all_products_of_blocks_with_matrices_in_8_bits_if_asked(name, parallel):
    model = {"n_layers": 2, "d_model": 64, "d_ff": 128, "n_heads": 4, "dtype": "bfloat16", "activation": "gelu_tanh"}
    sections = {"parallel": parallel, "train": {"steps": 6, "batch_size": 64, "products": "fp8"}}
    experiment, topology = build(tiny_config(model=model, **sections)), topologies.topology(name)
    with topologies.target(topology):
        lowered = roofline.training(experiment).lowered
    # XLA would merge small products with the same vectors, in the model's type.
    text = lowered.compile({**topology.compiler_options, **on_gpu.DECODING}).as_text()
    kernels = costs.kernels(hlo.read(text).entry, len(topology.devices))
    of_8_bits = costs.total((k for k in kernels if k.work.dtype.startswith("f8")), lambda k: k.work.flops)
    tokens = math.prod(experiment.task.largest_batch()["weights"].shape) / len(topology.devices)
    assert of_8_bits == 3 * 2 * tokens * 2 * (4 * 64 * 64 + 2 * 64 * 128)


@pytest.mark.thorough
@pytest.mark.parametrize("window", [0, 4096])
def test_eight_devices_that_share_a_long_row_compute_little_more_than_its_visible_pairs(window):
    length = 131_072
    model = {"n_layers": 1, "d_model": 64, "d_ff": 64, "n_heads": 1, "dtype": "bfloat16", "max_len": length}
    model |= {"attention_implementation": "flash", "positions": "none", "window": window}
    sections = {"task": {"max_length": length // 2 - 1}, "parallel": {"sequence": 8}, "train": {"batch_size": 1}}
    (training,) = compiled_for("h100:8", build(tiny_config(model=model, **sections)))
    in_products = 2 * 64 * (2 + 5)  # per pair, forward and backward
    pairs = length * window - window**2 / 2 if window else length**2 / 2
    assert 1 <= training["flops_visible"] / (in_products * pairs / 8) <= 1.1
    assert window or training["flops"] / (in_products * pairs / 8) <= 1.1
    assert training["bytes"]["activations and temporaries"] < length * 64 * 2 * 40  # no array of all pairs
