"""What a run needs at least: never more than the compiler plans, and enough to refuse what cannot fit."""

import pytest
from jax.sharding import AbstractMesh

from fxf.errors import UserError
from fxf.machine import memory
from fxf.runs import needs
from fxf.runs.experiment import build, default_config
from fxf.training.sharding import DATA, FSDP, TENSOR, Layout
from fxf.training.step import jit_step, make_step
from fxf.weights import count
from helpers import one_device
from small_runs import tiny_config

NONE = {"positions": "none"}


def changed(task_name, /, **sections):
    config = default_config(task_name).to_dict()
    for name, values in sections.items():
        config[name] |= values
    return config


@pytest.mark.parametrize(
    "changes",
    [
        {"optimizer": {"clip_norm": 1.0}, "train": {"microbatches": 3, "batch_size": 33}},
        *(
            pytest.param(changes, marks=pytest.mark.thorough)
            for changes in (
                {},
                {"model": {"dtype": "bfloat16", "remat": "full", "n_layers": 3}, "train": {"batch_size": 40}},
                {"model": {"attention": "linear", "n_layers": 3, "d_model": 1, "n_heads": 1, "d_ff": 1, **NONE}},
            )
        ),
    ],
)
def test_no_more_is_needed_than_the_compiler_plans(changes, monkeypatch):
    monkeypatch.setattr(needs, "PROGRAM_BYTES", 0)  # what compiling itself takes is not in its plan
    experiment = build(tiny_config(**changes))
    layout = one_device()
    trainer, state = experiment.trainer(layout), experiment.state_shapes(layout)
    lowered = jit_step(make_step(trainer), trainer).lower(
        state, experiment.batch_shapes(), experiment.hyperparameters()
    )
    plan = lowered.compile().memory_analysis()
    least = memory.total(needs.training(experiment, layout, 2**40))
    assert least <= plan.argument_size_in_bytes + plan.temp_size_in_bytes
    assert least > 4 * count(experiment.model.spec)


@pytest.mark.parametrize("changes", [{}, {"scan_blocks": True}])
def test_the_state_of_many_blocks_is_known_from_two(changes):
    experiment = build(tiny_config(model={"n_layers": 5, **changes}, optimizer={"name": "adamw"}))
    shapes = experiment.state_shapes(one_device())
    expected = [needs.device_bytes(shapes.params), needs.device_bytes(shapes.opt_state)]
    assert [part.n_bytes for part in needs.state(experiment, one_device())] == expected


def test_a_layout_cuts_what_a_device_needs():
    experiment = build(tiny_config(model={"d_model": 64}))
    layout = Layout(AbstractMesh((1, 8, 1), (DATA, FSDP, TENSOR)))
    params = count(experiment.model.spec)
    whole, cut = (needs.state(experiment, some)[0].n_bytes for some in (one_device(), layout))
    assert whole == 4 * params
    assert 4 * params / 8 <= cut < 4 * params / 4  # what fsdp does not divide is on each


@pytest.mark.parametrize(
    ("task", "sections", "parts"),
    [
        ("reversal", {"model": {"d_model": 10**9}}, ["params", "optimizer state", "model.d_model"]),
        ("reversal", {"model": {"n_layers": 10**6, "init": "gpt2"}}, ["params", "model.n_layers"]),
        ("reversal", {"model": {"max_len": 10**9}}, ["params", "model.max_len"]),
        ("reversal", {"train": {"batch_size": 10**9}}, ["batch", "train.batch_size"]),
        ("reversal", {"train": {"batch_size": 10**9, "microbatches": 10**9}}, ["batch", "train.batch_size"]),
        ("reversal", {"task": {"n_tokens": 10**9}}, ["params", "task.n_tokens"]),
        ("reversal", {"task": {"examples": 10**9}}, ["scoring: ", "sample to score", "task.examples"]),
        ("reversal", {"decode": {"beam_width": 10**9}}, ["scoring: ", "logits of the beam", "decode.beam_width"]),
        ("time_series", {"task": {"delay": 10**8, "length": 10**9}, "model": {"max_len": 10**9}}, ["model.max_len"]),
        ("boolean_map", {"train": {"batch_size": 10**9}}, ["largest matrix product", "train.batch_size"]),
    ],
)
def test_sizes_that_no_machine_holds_are_refused_before_anything_is_made(task, sections, parts):
    with pytest.raises(UserError) as error:
        needs.require_training(build(changed(task, **sections)), one_device())
    for part in ["needs at least", *parts]:
        assert part in str(error.value)


def test_what_trains_is_not_refused():
    needs.require_training(build(tiny_config()), one_device())
