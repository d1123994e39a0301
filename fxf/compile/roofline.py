"""The programs of an experiment compiled for other hardware: their memory, operations, traffic and collectives.

A program's time is the sum over its kernels, each of which takes as long as its operations or its traffic to memory.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import numpy as np

from fxf.base.errors import UserError
from fxf.base.memory import gib
from fxf.base.on_gpu import options_in_order
from fxf.base.status import stage
from fxf.compile import costs, hlo, times
from fxf.compile.costs import Kernel, Loop
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
      lowered: the program, traced for its devices.
      held: the bytes of its arguments on a device, by what they are.
      donated: the number of arrays that its results may replace.
      temporary: what its temporary arrays are.
      flops: the operations of the model on each device, or None.
      uncounted: what computes more in the model, whose operations are not known.
      options: the compiler's options, besides those of the topology.
      parts: the names of what to report. The last is one iteration of the loop whose number of iterations is known only
        when it runs, or the whole program if there is no such loop. One before it is the rest of the program.
    """

    lowered: Any
    layout: Layout
    held: dict[str, int]
    donated: int = 0
    temporary: str = "activations and temporaries"
    flops: float | None = None
    uncounted: frozenset[str] = frozenset()
    options: Mapping[str, Any] = MappingProxyType({})
    parts: tuple[str, ...] = ("training step",)


def reports(experiment: Experiment, topology: Topology, names: Sequence[str], rows: int = 0) -> Iterator[Figures]:
    """Yields the figures of each program, as soon as it is compiled. Call it inside `topologies.target(topology)`.

    Args:
      names: `training`, `decoding` or both; a task that generates nothing has no decoding.
      rows: prompts decoded at a time; 0 for as many as a device has sequences in a step.

    Raises:
      UserError: the config does not fit the devices, or its step runs under `pmap`.
    """
    if "training" in names and experiment.layout().pmap:
        raise UserError("parallel.kind: 'pmap' compiles only for devices that are here; use 'jit'")
    if "training" in names:
        yield from figures(training(experiment), topology)
    if "decoding" in names and experiment.task.generates:
        yield from figures(decoding(experiment, rows), topology)


def training(experiment: Experiment) -> Program:
    """Returns the program of training steps: with the batches inside, if the task makes them on the devices.

    Its figures are those of a step, without what a call of several steps does once.
    """
    layout = experiment.layout()
    state, trainer, task = experiment.state_shapes(layout), experiment.trainer(layout), experiment.task
    shapes = experiment.task.largest_batch()
    of_model = model_flops(experiment, shapes)
    hyperparameters = jax.tree.map(lambda x: _shape(x.shape, x.dtype, layout.replicated), experiment.hyperparameters())
    if not task.has("batches"):
        steps = make_train_steps(trainer, task.batch, min(experiment.log.every, experiment.train.steps))
        lowered = steps.lower(state, hyperparameters, _shape((), np.int32, layout.replicated))
    else:
        whole = trainer.config.microbatches * layout.parts
        n_rows = -(-len(shapes["weights"]) // whole) * whole
        batch = {name: _shape((n_rows, *x.shape[1:]), x.dtype, layout.tokens) for name, x in shapes.items()}
        lowered = jit_step(make_step(trainer), trainer).lower(state, batch, hyperparameters)
    return Program(
        lowered,
        layout,
        {"weights": device_bytes(state.params), "optimizer state": device_bytes(state.opt_state)},
        donated=len(jax.tree.leaves(state)),
        flops=of_model.flops / layout.mesh.size,
        uncounted=of_model.uncounted,
        options=options_in_order(lowered) or {},
    )


def decoding(experiment: Experiment, rows: int) -> Program:
    """Returns the program that reads prompts and generates.

    A prompt of a decoder fills half of the positions, and new tokens the other half. Behind a source it is empty.
    """
    layout = experiment.layout_of_one_copy()
    experiment = experiment.with_plain_weights()
    params, batch = experiment.state_shapes(layout).params, experiment.task.largest_batch()
    rows = rows or max(1, len(batch["inputs"]) // experiment.layout().parts) * layout.parts
    length = min(batch["inputs"].shape[1], experiment.max_len)
    read = {name: x for name, x in batch.items() if name not in ("inputs", "targets", "weights")}
    n_prompt = 0 if "source" in read else length // 2
    prompts = {name: _shape((rows, *x.shape[1:]), x.dtype) for name, x in read.items()}
    prompts["tokens"], prompts["lengths"] = _shape((rows, n_prompt), np.int32), _shape((rows,), np.int32)
    evaluators = Evaluators(experiment, layout)
    decoder, params = evaluators.decoder, evaluators.shapes(params)
    key = jax.eval_shape(lambda: decoder.key)
    lowered = decoder.jitted.lower(params, prompts, key, max_tokens=length - n_prompt)
    named = f"{rows} prompts of {n_prompt or 'no'} tokens"
    return Program(
        lowered,
        layout,
        {"weights": device_bytes(params)},
        temporary="cache and temporaries",
        parts=(f"prefill, {named}", f"decoding step, {rows} prompts"),
    )


def _shape(shape: tuple[int, ...], dtype: Any, sharding: Any = None) -> Any:
    return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)


def figures(program: Program, topology: Topology) -> Iterator[Figures]:
    """Compiles a program and yields the figures of each of its parts, in numbers and words that JSON can hold."""
    mesh, hardware = program.layout.mesh, topology.hardware
    head = {"topology": topology.name, "mesh": {name: int(size) for name, size in mesh.shape.items()}}
    too_large = {"program": program.parts[-1], **head, "bytes": program.held, "fits": False}
    if sum(program.held.values()) > hardware.memory:
        yield {**too_large, "error": f"a device has {gib(hardware.memory)}"}
        return
    try:
        with stage(f"compiling {' and '.join(program.parts)}"):
            compiled = program.lowered.compile({**topology.compiler_options, **program.options})
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        why = str(error).strip().split("\n")[0]
        yield {**too_large, "error": why}
        return
    module = hlo.read(compiled.as_text())
    held = _memory(program, compiled.memory_analysis(), hardware.memory)
    rest = whole = costs.kernels(module, mesh.size, hardware.on_chip)
    unknown = next((k.within[0] for k in whole if k.within and k.within[0].iterations is None), None)
    if unknown:
        whole = [k._replace(within=k.within[1:]) for k in rest if k.within[:1] == (unknown,)]
        rest = [k for k in rest if k.within[:1] != (unknown,)]
    donated = [module.header.count("-alias"), program.donated]
    for name, kernels in zip(program.parts, [rest, whole][-len(program.parts) :], strict=True):
        yield {"program": name, **head, **held, **_costs(kernels, topology, program), "donated": donated}


def _memory(program: Program, plan: Any, available: int) -> Figures:
    """Returns the bytes of a device: the arguments by what they are, and what the compiler adds."""
    results = plan.output_size_in_bytes - plan.alias_size_in_bytes + plan.generated_code_size_in_bytes
    other = max(plan.argument_size_in_bytes + results - sum(program.held.values()), 0)
    held = {**program.held, program.temporary: plan.temp_size_in_bytes, "other": other}
    total = sum(held.values())
    return {"bytes": {**held, "total": total, "available": available}, "fits": total <= available}


def _costs(kernels: list[Kernel], topology: Topology, program: Program) -> Figures:
    """Returns the operations, traffic, collectives and seconds of the kernels of a part."""
    hardware, devices = topology.hardware, list(program.layout.mesh.devices.flat)
    flops, n_bytes = (int(costs.total(kernels, of)) for of in (lambda k: k.work.flops, lambda k: k.n_bytes))
    ideal = times.seconds(kernels, topology, devices, hardware.peak)
    attainable = times.seconds(kernels, topology, devices, hardware.reached) if hardware.reached else None
    found = attainable or ideal
    spent = sum(found.values())
    useful = flops if program.flops is None else program.flops
    return {
        "flops": flops,
        "model_flops": program.flops,
        "memory_traffic": n_bytes,
        "kernels": int(costs.total(kernels, lambda k: k.costs)),
        "uncounted": sorted({k.uncounted for k in kernels if k.uncounted} | program.uncounted),
        "collectives": _exchanges(kernels, topology, devices),
        "ideal": sum(ideal.values()),
        "attainable": attainable and spent,
        "expected": attainable and spent * hardware.measured,
        "seconds": found,
        "share_of_peak": useful / hardware.flops / spent if spent else 0.0,
    }


def _exchanges(kernels: list[Kernel], topology: Topology, devices: Sequence[Any]) -> list[Figures]:
    """Returns what is exchanged by kind, number of devices, link and loop."""
    found: dict[tuple, Figures] = {}
    for kernel in kernels:
        for each in kernel.collectives:
            for link, (sent, took) in topology.traffic(each, devices).items():
                new = {"kind": each.kind, "of": len(each.groups[0]), "link": link, "place": _named(kernel.within)}
                row = found.setdefault((*new.values(),), {**new, "count": 0, "bytes": 0, "sent": 0.0, "seconds": 0.0})
                for name, amount in (("count", 1), ("bytes", each.n_bytes), ("sent", sent), ("seconds", took)):
                    row[name] += kernel.times * amount
    return list(found.values())


def _named(within: tuple[Loop, ...]) -> str:
    names = (f"{loop.name} x {'?' if loop.iterations is None else loop.iterations}" for loop in within)
    return " > ".join(names) or "not in a loop"


def text(found: Figures) -> str:
    """Returns the figures of a part of a program as lines."""
    sizes = " x ".join(f"{name} {size}" for name, size in found["mesh"].items() if size > 1) or "one device"
    head = f"{found['program']} on {found['topology']}, {sizes}"
    if "error" in found:
        return f"{head}\n  does not fit: {_listed(found['bytes'])}; {found['error']}\n"
    total, available = found["bytes"]["total"], found["bytes"]["available"]
    held = {name: n for name, n in found["bytes"].items() if n >= total / 1000 and name not in ("total", "available")}
    flops, of_model = found["flops"], found["model_flops"]
    again = f", {flops / of_model:.2g} times that" if of_model and flops > 1.5 * of_model else ""
    model = f" (the model's {_si(of_model)}FLOP{again})" if of_model else ""
    reused, donated = found["donated"]
    kinds = [f"{kind} {_ms(each, '')}" for kind, each in found["seconds"].items() if each > spent(found) / 1000]
    time = f"{_ms(found['ideal'])} at best"
    if found["attainable"]:
        expected = _ms(found["expected"])
        time = f"{_ms(found['attainable'])} attainable, {time}, {expected} as a measured step makes expect"
    moved = f"{_si(found['memory_traffic'])}B to memory"
    rows = [
        ("memory", f"{gib(total)} of {gib(available)}, {'fits' if found['fits'] else 'does not fit'}: {_listed(held)}"),
        ("work", f"{_si(flops)}FLOP{model}, {moved}, {found['kernels']:,} kernels"),
        ("time", f"{time}; {100 * found['share_of_peak']:.1f} % of peak"),
        ("of it, ms", ", ".join(kinds)),
    ]
    if reused < donated:
        rows.append(("not reused", f"{donated - reused} of {donated} arrays of the state"))
    if found["uncounted"]:
        rows.append(("not counted", ", ".join(found["uncounted"])))
    lines = [head, *(f"  {name:<15}{value}" for name, value in rows)]
    if found["collectives"]:
        lines += ["  collectives", *_collectives(found["collectives"])]
    return "\n".join([*lines, ""])


def _collectives(collectives: Sequence[Figures]) -> list[str]:
    """Returns a line for each kind, number of devices, link and place, the largest exchange first."""
    rows = []
    for c in sorted(collectives, key=lambda c: -c["sent"]):
        amounts = (f"{_si(c['bytes'])}B", c["link"], f"{_si(c['sent'])}B sent", _ms(c["seconds"]))
        rows.append((f"    {c['count']:,} {c['kind']}", f"of {c['of']}", *amounts, c["place"], ""))
    return [line.rstrip() for line in aligned(rows)]


def spent(found: Figures) -> float:
    """Returns the seconds of a part: as attainable, or at the maker's rates if others are not known."""
    return found["attainable"] or found["ideal"]


def _ms(seconds: float, unit: str = " ms") -> str:
    return f"{1e3 * seconds:,.0f}{unit}" if seconds >= 1 else f"{1e3 * seconds:.3g}{unit}"


def _listed(held: dict[str, int]) -> str:
    return ", ".join(f"{name} {gib(n_bytes)}" for name, n_bytes in held.items())


def _si(number: float) -> str:
    """Returns a number with three digits and a prefix of its unit."""
    power = min(max(len(f"{int(number)}") - 1, 0) // 3, 5)
    return f"{number / 1000**power:.3g} {' kMGTP'[power].strip()}"
