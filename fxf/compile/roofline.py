"""An experiment's programs, compiled for other hardware: memory, operations, memory traffic, collectives and time.

The time is a roofline estimate: a kernel takes the larger of the times of its operations and of its memory traffic, and
a program the sum over its kernels.
"""

import functools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import ShapeDtypeStruct as Shape

from fxf.base.errors import UserError
from fxf.base.memory import gib
from fxf.base.on_gpu import deterministic_options
from fxf.base.status import stage
from fxf.compile import costs, hlo, times
from fxf.compile.costs import Kernel
from fxf.compile.topologies import Topology
from fxf.reports.tables import aligned
from fxf.runs.evaluator import Evaluators
from fxf.runs.experiment import Experiment
from fxf.runs.flops import device_bytes, model_flops
from fxf.training.sharding import Layout
from fxf.training.step import jit_step, make_step, make_train_steps

Figures = dict[str, Any]


class Program(NamedTuple):
    """A program to compile.

    Attributes:
      lowered: the program, lowered for its devices.
      held: the bytes of its arguments on a device, by use.
      temporary: the use of its temporary arrays.
      flops: the operations of the model on each device, or None.
      uncounted: the parts of the model whose operations are unknown.
      options: the compiler's options, besides those of the topology.
      parts: the names of the parts to report. The last is one iteration of the loop whose trip count is known only at
        run time, or the whole program if there is no such loop. One before it is the rest of the program.
    """

    lowered: Any
    layout: Layout
    held: dict[str, int]
    temporary: str = "activations and temporaries"
    flops: float | None = None
    uncounted: frozenset[str] = frozenset()
    options: dict[str, Any] | None = None
    parts: tuple[str, ...] = ("training step",)


def reports(experiment: Experiment, topology: Topology, names: Sequence[str], rows: int = 0) -> Iterator[Figures]:
    """Yields the costs of each program as soon as it is compiled. Call it within `topologies.target(topology)`.

    Args:
      names: `training`, `decoding` or both; a task that generates nothing has no decoding.
      rows: prompts decoded at a time; 0: the number of sequences of a device in a training step.

    Raises:
      UserError: the config does not fit the devices, its step runs under `pmap`, or it has none of the programs.
    """
    if "training" in names:
        if experiment.layout().pmap:
            raise UserError("parallel.kind: 'pmap' compiles only for devices that are present; use 'jit'")
        yield from figures(training(experiment), topology)
    if "decoding" in names and experiment.task.generates:
        yield from figures(decoding(experiment, rows), topology)
    elif "training" not in names:
        raise UserError("--program: the task generates nothing, so it has no decoding program")


def training(experiment: Experiment) -> Program:
    """Returns the program of training steps. It makes the batches too, if the task makes them on the devices.

    Its costs are those of one step, without what a call of several steps does once.
    """
    layout = experiment.layout()
    state, trainer, task = experiment.state_shapes(layout), experiment.trainer(layout), experiment.task
    shapes = task.largest_batch()
    model = model_flops(experiment, shapes)
    replicated = functools.partial(Shape, sharding=layout.replicated)
    hyperparameters = jax.tree.map(lambda x: replicated(x.shape, x.dtype), experiment.hyperparameters())
    if not task.has("batches"):
        steps = make_train_steps(trainer, task.batch, min(experiment.log.every, experiment.train.steps))
        lowered = steps.lower(state, hyperparameters, replicated((), np.int32))
    else:
        whole = trainer.config.microbatches * layout.parts
        n_rows = -(-len(shapes["weights"]) // whole) * whole
        batch = {name: Shape((n_rows, *x.shape[1:]), x.dtype, sharding=layout.tokens) for name, x in shapes.items()}
        lowered = jit_step(make_step(trainer), trainer).lower(state, batch, hyperparameters)
    held = {"weights": device_bytes(state.params), "optimizer state": device_bytes(state.opt_state)}
    flops, options = model.flops / layout.mesh.size, deterministic_options(lowered)
    return Program(lowered, layout, held, flops=flops, uncounted=model.uncounted, options=options)


def decoding(experiment: Experiment, rows: int) -> Program:
    """Returns the program that reads prompts and generates.

    A decoder's prompt fills half of the positions, and the new tokens the other half. An encoder–decoder's is empty.
    """
    layout = experiment.layout_of_one_copy()
    experiment = experiment.with_plain_weights()
    params, batch = experiment.state_shapes(layout).params, experiment.task.largest_batch()
    rows = rows or max(1, len(batch["inputs"]) // experiment.layout().parts) * layout.parts
    length = min(batch["inputs"].shape[1], experiment.max_len)
    read = {name: x for name, x in batch.items() if name not in ("inputs", "targets", "weights")}
    n_prompt = 0 if "source" in read else length // 2
    prompts = {name: Shape((rows, *x.shape[1:]), x.dtype) for name, x in read.items()}
    prompts["tokens"], prompts["lengths"] = Shape((rows, n_prompt), np.int32), Shape((rows,), np.int32)
    evaluators = Evaluators(experiment, layout)
    decoder, params = evaluators.decoder, evaluators.shapes(params)
    key = jax.eval_shape(lambda: decoder.key)
    lowered = decoder.jitted.lower(params, prompts, key, max_tokens=length - n_prompt)
    parts = f"prefill, {rows} prompts of {n_prompt or 'no'} tokens", f"decoding step, {rows} prompts"
    return Program(lowered, layout, {"weights": device_bytes(params)}, "cache and temporaries", parts=parts)


def figures(program: Program, topology: Topology) -> Iterator[Figures]:
    """Compiles a program and yields the costs of each of its parts, as JSON."""
    mesh, hardware, compiled = program.layout.mesh, topology.hardware, None
    head = {"topology": topology.name, "mesh": {name: int(size) for name, size in mesh.shape.items()}}
    error = f"a device has {gib(hardware.memory)}"
    if sum(program.held.values()) <= hardware.memory:
        try:
            with stage(f"compiling {' and '.join(program.parts)}"):
                compiled = program.lowered.compile({**topology.compiler_options, **(program.options or {})})
        except jax.errors.JaxRuntimeError as failure:
            error = str(failure).strip().split("\n")[0]
            if "RESOURCE_EXHAUSTED" not in str(failure):
                raise
    if compiled is None:
        yield {"program": program.parts[-1], **head, "bytes": program.held, "fits": False, "error": error}
        return
    kernels = costs.kernels(hlo.read(compiled.as_text()).entry, mesh.size, hardware.on_chip)
    parts = [[kernel for kernel in kernels if kernel.repeats == repeats] for repeats in (False, True)]
    if not parts[1]:
        parts = [kernels, kernels]
    shared = {**head, **_memory(program, compiled.memory_analysis(), hardware.memory)}
    for name, kernels in zip(program.parts, parts[-len(program.parts) :], strict=True):
        yield {"program": name, **shared, **_costs(kernels, topology, program)}


def _memory(program: Program, plan: Any, available: int) -> Figures:
    """Returns the bytes of a device: those of the arguments by use, and those that the compiler adds."""
    results = plan.output_size_in_bytes - plan.alias_size_in_bytes + plan.generated_code_size_in_bytes
    other = max(plan.argument_size_in_bytes + results - sum(program.held.values()), 0)
    held = {**program.held, program.temporary: plan.temp_size_in_bytes, "other": other}
    total = sum(held.values())
    return {"bytes": {**held, "total": total, "available": available}, "fits": total <= available}


def _costs(kernels: list[Kernel], topology: Topology, program: Program) -> Figures:
    """Returns the operations, memory traffic, collectives and seconds of the kernels of a part."""
    hardware, devices = topology.hardware, list(program.layout.mesh.devices.flat)
    flops = int(costs.total(kernels, lambda kernel: kernel.work.flops))
    ideal = times.seconds(kernels, topology, devices, hardware.peak)
    reached = times.seconds(kernels, topology, devices, hardware.reached) if hardware.reached else None
    seconds = reached or ideal
    spent = sum(seconds.values())
    useful = flops if program.flops is None else program.flops
    return {
        "flops": flops,
        "flops_visible": costs.total(kernels, lambda kernel: kernel.work.done),
        "model_flops": program.flops,
        "memory_traffic": int(costs.total(kernels, lambda kernel: kernel.n_bytes)),
        "kernels": int(costs.total(kernels, lambda kernel: kernel.costs)),
        "uncounted": sorted({kernel.uncounted for kernel in kernels if kernel.uncounted} | program.uncounted),
        "collectives": _exchanges(kernels, topology, devices),
        "ideal": sum(ideal.values()),
        "attainable": reached and spent,
        "expected": hardware.reached and spent * hardware.reached.measured,
        "seconds": seconds,
        "share_of_peak": useful / hardware.flops / spent if spent else 0.0,
    }


def _exchanges(kernels: list[Kernel], topology: Topology, devices: Sequence[Any]) -> list[Figures]:
    """Returns the collectives by kind, number of devices and link, with their counts, bytes and seconds."""
    rows: dict[tuple, Figures] = {}
    for kernel in kernels:
        for collective in kernel.collectives:
            for link, (sent, took) in topology.traffic(collective, devices).items():
                new = {"kind": collective.kind, "of": len(collective.groups[0]), "link": link}
                row = rows.setdefault((*new.values(),), {**new, "count": 0, "bytes": 0, "sent": 0.0, "seconds": 0.0})
                for name, amount in (("count", 1), ("bytes", collective.n_bytes), ("sent", sent), ("seconds", took)):
                    row[name] += kernel.times * amount
    return sorted(rows.values(), key=lambda row: -row["sent"])


def text(part: Figures) -> str:
    """Returns the costs of a part of a program as lines."""
    sizes = " x ".join(f"{name} {size}" for name, size in part["mesh"].items() if size > 1) or "one device"
    head = f"{part['program']} on {part['topology']}, {sizes}"
    if "error" in part:
        return f"{head}\n  does not fit: {_listed(part['bytes'])}; {part['error']}\n"
    held = dict(part["bytes"])
    total, available = held.pop("total"), held.pop("available")
    held = {name: n_bytes for name, n_bytes in held.items() if n_bytes >= total / 1000}
    model = f" (the model's {_si(part['model_flops'])}FLOP)" if part["model_flops"] else ""
    work = f"{_si(part['flops'])}FLOP{model}, {_si(part['memory_traffic'])}B to memory, {part['kernels']:,} kernels"
    time = f"{_ms(part['ideal'])} at best"
    if part["attainable"]:
        expected = f"{_ms(part['expected'])} as a measured step makes expect"
        time = f"{_ms(part['attainable'])} attainable, {time}, {expected}"
    kinds = [f"{kind} {_ms(seconds, '')}" for kind, seconds in part["seconds"].items() if seconds > spent(part) / 1000]
    rows = {
        "memory": f"{gib(total)} of {gib(available)}, {'fits' if part['fits'] else 'does not fit'}: {_listed(held)}",
        "work": work,
        "time": f"{time}; {100 * part['share_of_peak']:.1f} % of peak",
        "of it, ms": ", ".join(kinds),
        "not counted": ", ".join(part["uncounted"]),
    }
    lines = [head, *(f"  {name:<15}{value}" for name, value in rows.items() if value)]
    collectives = []
    for row in part["collectives"]:
        sent = f"{_si(row['bytes'])}B", row["link"], f"{_si(row['sent'])}B sent", _ms(row["seconds"])
        collectives.append([f"    {row['count']:,} {row['kind']}", f"of {row['of']}", *sent])
    if collectives:
        lines += ["  collectives", *aligned(collectives)]
    return "\n".join([*lines, ""])


def spent(part: Figures) -> float:
    """Returns the seconds of a part: the attainable ones, or those at the maker's rates if no others are known."""
    return part["attainable"] or part["ideal"]


def _ms(seconds: float, unit: str = " ms") -> str:
    return f"{1e3 * seconds:,.0f}{unit}" if seconds >= 1 else f"{1e3 * seconds:.3g}{unit}"


def _listed(held: dict[str, int]) -> str:
    return ", ".join(f"{name} {gib(n_bytes)}" for name, n_bytes in held.items())


def _si(number: float) -> str:
    """Formats a number with three digits and an SI prefix."""
    power = min(max(len(f"{int(number)}") - 1, 0) // 3, 5)
    return f"{number / 1000**power:.3g} {' kMGTP'[power].strip()}"
