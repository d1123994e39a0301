"""Trains on one and on eight devices, and prints the differences as JSON.

JAX reads its number of devices at start-up, so tests/training/test_sharding.py runs this in a new process. It leaves
in its folder the numbers that two_processes.py compares with. With `more` after the folder, it runs the layouts and
stages that `make test-all` adds.
"""

import functools
import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

sys.path.append(str(Path(__file__).parents[1]))

import flax.traverse_util
import jax
import numpy as np
import optax
from jax.experimental import pallas
from jax.sharding import NamedSharding, PartitionSpec
from terms_model import model_of

from closeness import bound, largest_of, without_key_biases
from fxf.base import on_gpu as gpu
from fxf.base.devices import AXES, compiling_for, over_mesh
from fxf.base.weights import flatten
from fxf.layers import fp8, loss
from fxf.layers.linear import linear
from fxf.layers.moe import MoE, apply_experts
from fxf.models.decode_config import DecodeConfig
from fxf.models.decoder import Decoder
from fxf.models.transformer_lm import TransformerLMConfig, transformer_lm
from fxf.runs import run
from fxf.runs.experiment import build
from fxf.tasks.reversal import Reversal
from fxf.training import checkpoint
from fxf.training.parallel import ParallelConfig
from fxf.training.sharding import make_layout
from fxf.training.state import TrainState, hyperparameters, state_shardings
from fxf.training.step import TrainConfig, Trainer, make_train_steps_from_iterator
from helpers import random_params
from small_runs import tiny_config

LAYOUTS = {"fsdp 2, sequence 2, tensor 2": ({"fsdp": 2, "sequence": 2, "tensor": 2}, 2)}
PMAP = {"pmap 8": ({"kind": "pmap"}, 1)}
MORE_LAYOUTS = {"data 2, fsdp 2, tensor 2": ({"fsdp": 2, "tensor": 2}, 2)}
MORE_LAYOUTS["data 4, sequence 2"] = {"sequence": 2, "slices": 2}, 1
STEPS, ROWS, LENGTH = 5, 24, 6
VOCAB_SIZE = 11  # not a multiple of two, the size of `tensor`
SIZES = {"n_layers": 2, "d_model": 8, "d_ff": 14, "n_heads": 2, "max_len": LENGTH}
CHOICES = {"attention_bias": "all", "scan_blocks": True, "tied_embeddings": True, "logits_bias": True}
CONFIG = TransformerLMConfig(**SIZES, **CHOICES)
MODEL = transformer_lm(CONFIG, VOCAB_SIZE)
# Its state also has the newest gradient.
KEEP = optax.GradientTransformation(
    lambda params: jax.tree.map(jax.numpy.zeros_like, params), lambda gradient, _, params=None: (gradient, gradient)
)
# A gradient that is small beside its terms is uncertain; this eps keeps Adam from dividing by it.
ADAM = {"eps": 1e-4}
loss.LOGITS_AT_ONCE = 5 * VOCAB_SIZE  # several groups of tokens on each device
OPTIMIZER = optax.chain(KEEP, optax.adam(1e-3, **ADAM))


def batches(index=0, count=1):
    """Yields batches of packed documents with different weights; the first third of the rows has no weight.

    With `count` processes, the one with this index gets every count-th row.
    """
    rng = np.random.default_rng(0)
    while True:
        tokens = rng.integers(0, VOCAB_SIZE, (2, ROWS, LENGTH)).astype(np.int32)
        weights = (
            rng.uniform(0, 1, (ROWS, LENGTH)).astype(np.float32) * np.linspace(0, 4, ROWS, dtype=np.float32)[:, None]
        )
        weights[: ROWS // 3] = 0
        documents = np.sort(rng.integers(0, 3, (ROWS, LENGTH)).astype(np.int32))
        batch = {"inputs": tokens[0], "targets": tokens[1], "weights": weights, "documents": documents}
        yield {name: x[index::count] for name, x in batch.items()}


def train(parallel, microbatches=1, model=MODEL, optimizer=OPTIMIZER):
    """Returns loss, gradient and terms of the first step, and the final params, without the biases of keys."""
    layout = make_layout(ParallelConfig(**parallel), jax.devices())
    config = TrainConfig(batch_size=ROWS, microbatches=microbatches)
    params = random_params(model.spec)
    start = jax.device_get(TrainState(np.int32(0), params, optimizer.init(params)))
    state = placed(start, state_shardings(model, optimizer, layout))
    fed = batches(jax.process_index(), jax.process_count())
    steps = make_train_steps_from_iterator(Trainer(model, optimizer, config, layout), fed)
    numbers = hyperparameters(0, config)
    state, first = steps(state, numbers, 1)
    gradient = whole(state.opt_state[0])
    state, _ = steps(state, numbers, STEPS - 1)
    terms = {name: values[0] for name, values in first.items() if name.startswith(("term/", "figure/"))}
    mean = {"loss": first["loss_sum"][0] / first["weight_sum"][0], **terms}
    return {"loss": mean, "gradient": gradient, "params": without_key_biases(whole(state.params))}


def placed(tree, shardings):
    """Puts the host's arrays on the devices of all processes; device_put would compile a program to compare each."""
    if jax.process_count() == 1:
        return jax.device_put(tree, shardings)
    return jax.tree.map(lambda x, s: jax.make_array_from_callback(x.shape, s, lambda cut: x[cut]), tree, shardings)


def same(tree):
    return tree


def whole(tree):
    """Gathers arrays that are split over processes, by one program."""
    if jax.process_count() > 1:
        mesh = jax.tree.leaves(tree)[0].sharding.mesh
        tree = jax.jit(same, out_shardings=NamedSharding(mesh, PartitionSpec()))(tree)
    return jax.device_get(tree)


def distance(a, b):
    """Returns the largest difference between two trees, in units of the bound on rounding; infinity instead of NaN."""
    largest = np.max(jax.tree.leaves(jax.tree.map(lambda x, y: np.abs(x - y).max(), a, b)))
    return float(np.nan_to_num(largest / bound(largest_of(b)), nan=np.inf))


def distances(one, other):
    return {name: distance(other[name], one[name]) for name in one}


def read(path):
    with np.load(path) as arrays:
        return flax.traverse_util.unflatten_dict(dict(arrays), sep="/")


def start_jax(n_devices):
    """Starts JAX, which may be imported already, with this number of devices and no shared program cache."""
    jax.config.update("jax_num_cpu_devices", n_devices)
    jax.config.update("jax_enable_compilation_cache", False)
    jax.config.update("jax_default_matmul_precision", "highest")
    jax.config.update("jax_numpy_rank_promotion", "raise")


def compare(layouts, folder=None, **parts):
    """Returns the distances of each layout, with its numbers of microbatches, from one device."""
    one = train({"data": 1}, **parts)
    if folder:
        np.savez(folder / "one.npz", **flatten(one))
    return {name: distances(one, train(parallel, n, **parts)) for name, (parallel, n) in layouts.items()}


def go_on(workdir, parallel):
    """Trains a small run from the newest checkpoint in the folder to its end; returns its last state."""
    config = tiny_config(parallel=parallel, train={"batch_size": 8}, model={"d_model": 8, "d_ff": 16}, optimizer=ADAM)
    run.train(config, workdir, {"config_file": "", "overrides": {}})
    experiment = build(config)
    ((_, state, _),) = checkpoint.load(workdir / "checkpoints", experiment.state_shapes(experiment.layout()))
    return state


def save(folder):
    """Saves a run on eight devices, and copies it at step 4 for one device and for two processes.

    Returns the share of the optimizer state on one of the eight.
    """
    answers = Reversal.validate
    Reversal.validate = lambda *_: {"exact_match": 0.0}  # two processes will generate
    state = go_on(folder / "eight", {"fsdp": 8})
    Reversal.validate = answers
    np.savez(folder / "unbroken.npz", **flatten(whole(state.params)))
    leaves = jax.tree.leaves(state.opt_state)
    for copy in (folder / "one", folder / "two"):
        shutil.copytree(folder / "eight", copy)
        (copy / "result.json").unlink()
        shutil.rmtree(copy / "checkpoints" / "6")
    return sum(leaf.addressable_shards[3].data.nbytes for leaf in leaves) / sum(leaf.nbytes for leaf in leaves)


def resumed(copy, parallel):
    """Resumes a copy, and returns the distance of its params from those of eight devices."""
    return distance(whole(go_on(copy, parallel).params), read(copy.parent / "unbroken.npz"))


def of_a_gpu():
    """Returns the distance of a GPU's gradients over a mesh from those of one device.

    They are those of tables whose rows the mesh divides or not, and of experts with biases.
    """
    rng, found = np.random.default_rng(0), []
    mesh = make_layout(ParallelConfig(fsdp=2, sequence=2, expert=2), jax.devices()).mesh
    table, x, of_tokens = (rng.normal(size=size).astype("f4") for size in ((5, 2), (4, 6, 8), (4, 6, 2)))
    experts, gpu.BLOCK = random_params(MoE(CONFIG, n_experts=4).spec())["experts"], 3
    read = lambda experts, chosen: apply_experts(CONFIG, experts, x, chosen, of_tokens)  # noqa: E731
    rows = gpu.embedding_lookup
    for function, *given in ((rows, table, (4, 6)), (rows, table, (1, 5)), (read, experts, (4, 6, 2))):

        def total(weights, indices, function=function):
            y = function(weights, indices)
            return (y * jax.numpy.arange(y.size).reshape(y.shape)).sum()

        given[1] = rng.integers(0, 4, given[1])
        whole = jax.jit(jax.value_and_grad(total))(*given)
        with over_mesh(mesh), compiling_for([SimpleNamespace(platform="gpu")]):
            found.append(distance(jax.jit(jax.value_and_grad(lambda *given: total(*given)))(*given), whole))
    return found


def products_of_8_bits():
    """Returns the distance of a sharded product in 8 bits and its gradients from those on one device."""

    def learn(x, w):
        with fp8.products():
            y = linear(x, w)
        return (y * jax.numpy.sin(jax.numpy.arange(y.size)).reshape(y.shape)).sum()

    rng, layout = np.random.default_rng(0), make_layout(ParallelConfig(fsdp=2, tensor=2), jax.devices())
    x, w = (rng.normal(size=shape).astype("f4") for shape in ((8, 3, 6), (6, 10)))
    step = jax.jit(jax.value_and_grad(learn, argnums=(0, 1)))
    in_parts = NamedSharding(layout.mesh, PartitionSpec("fsdp", "tensor"))
    return [distance(step(*jax.device_put((x, w), (layout.rows, in_parts))), step(x, w))]


def loss_kernel():
    """Returns the distance of a GPU's loss and gradient by one kernel per device from those by one kernel."""
    rng, layout = np.random.default_rng(0), make_layout(ParallelConfig(sequence=2), jax.devices())
    x, targets = rng.normal(size=(8, 3, 9)).astype("f4"), rng.integers(0, 9, (8, 3))
    weights = rng.uniform(size=(8, 3)).astype("f4")

    def learn(mesh, *rows):
        one = functools.partial(loss.loss_by_kernel, mesh, 9, 0.1)
        return jax.value_and_grad(lambda x, *rest: jax.vmap(one, spmd_axis_name=AXES[:4])(x, *rest).sum())(*rows)

    with mock.patch.object(pallas, "pallas_call", functools.partial(pallas.pallas_call, interpret=True)):
        whole = jax.device_get(jax.jit(functools.partial(learn, None))(x, targets, weights))
        parts = jax.device_put((x, targets, weights), NamedSharding(layout.mesh, PartitionSpec(AXES[:4])))
        compiled = jax.jit(functools.partial(learn, layout.mesh)).lower(*parts).compile()
    assert "all-gather" not in compiled.as_text()
    return [distance(jax.device_get(compiled(*parts)), whole)]


def sums_of_bfloat16():
    """Returns the distance of a weight's gradient, from bfloat16 rows on eight devices, from the sum of its terms.

    The unit is bfloat16's rounding of the largest term. The devices sum in float32, and in bfloat16.
    """
    rng, found = np.random.default_rng(0), []
    x, dy, w = (rng.normal(size=shape).astype("bfloat16") for shape in ((8, 3, 5), (8, 3, 7), (5, 7)))
    terms = np.einsum("bti,bto->bio", x.astype("f8"), dy.astype("f8"))
    for gradient_sums in ("float32", "model"):
        layout = make_layout(ParallelConfig(gradient_sums=gradient_sums), jax.devices())
        y = layout.with_mesh(MODEL._replace(features=lambda w, x: linear(x, w))).features
        loss = lambda w, x, dy, y=y: (y(w, x) * dy).astype("float32").sum()  # noqa: E731
        rows = jax.device_put((x, dy), layout.rows)
        gradient = jax.jit(jax.grad(loss))(w.astype("f4"), *rows)
        found.append(float(np.abs(gradient - terms.sum(0)).max() / (np.abs(terms).max() * 2**-9)))
    return found


def hypotheses():
    """Returns the distance of the hypotheses by a mesh, which pads the vocabulary, from those by one device."""
    layout, beam = make_layout(ParallelConfig(fsdp=2, tensor=2), jax.devices()), DecodeConfig(beam_width=2)
    params = jax.tree.map(lambda w: w - 9 * (w.shape == (VOCAB_SIZE,)), random_params(MODEL.spec))  # logits below 0
    prompts = {"tokens": np.arange(18).reshape(6, 3) % VOCAB_SIZE, "lengths": np.array([3, 0, 2, 3, 1, 2])}
    decoders = Decoder(layout.with_mesh(MODEL), 1, config=beam, layout=layout), Decoder(MODEL, 1, config=beam)
    return distance(*(decode(params, prompts, 2) for decode in decoders))


def figures(folder):
    from sequences_on_devices import parts  # reads this file

    return {
        "distances": compare(LAYOUTS, folder) | compare(PMAP, model=model_of("in a row")),
        **{each.__name__: each() for each in (parts, of_a_gpu, loss_kernel, products_of_8_bits)},
        "sums_of_bfloat16": sums_of_bfloat16(),
    }


def more_figures(folder):
    return {
        "share": save(folder),
        "distances": compare({**MORE_LAYOUTS, **PMAP}, folder),
        "resumed": resumed(folder / "one", {"data": 1}),
        "hypotheses": hypotheses(),
    }


if __name__ == "__main__":
    start_jax(8)
    print(json.dumps((more_figures if sys.argv[2:] else figures)(Path(sys.argv[1]))))
