"""What a program that XLA has optimized costs a device: operations, traffic to memory, loops, and collectives."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from fxf.compile import products
from fxf.compile.hlo import Array, Computation, Instruction, Module, groups
from fxf.compile.products import Work

# Instructions without traffic of their own.
FREE = (
    *("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "partition-id", "replica-id"),
    *("opt-barrier", "add-dependency", "while", "conditional", "call"),
)
COLLECTIVES = (
    *("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute", "collective-broadcast"),
    "ragged-all-to-all",
)
PRODUCTS = {"dot", "convolution", "ragged-dot"}
REDUCTIONS = {"reduce", "reduce-window", "scatter", "sort", "gather", "select-and-scatter"}
COPIES = {*FREE, "copy", "transpose", "convert", "reshape", "slice", "concatenate"}
READS_SLICES = ("dynamic-slice", "gather", "slice")
WRITES_SLICES = {"dynamic-update-slice": 1, "scatter": 2}  # and which operand has the new values
# Custom calls of XLA for TPUs that compute nothing.
MOVES = (
    *("AllocateBuffer", "ConcatBitcast", "AsyncCollectiveStart", "AsyncCollectiveDone", "AssumeGatherIndicesInBound"),
    *("PrepareAsyncCallStart", "PrepareAsyncCallDone"),
)
_CHAINED, _STARTS, _ENDS = "async_collective_fusion_config", "AsyncCollectiveStart", "AsyncCollectiveDone"
_RING = '"phase_rings":'  # stands once for each ring of a collective on a TPU's SparseCores


class Collective(NamedTuple):
    """An exchange between the devices of each group.

    Attributes:
      n_bytes: the whole that a device gives, gathers or sums.
      rings: the number of one-way rings that share it, each over one link of a device at a time; None if not known.
    """

    kind: str
    n_bytes: int
    groups: list[list[int]]
    rings: int | None = None


class Loop(NamedTuple):
    """A loop: the operation that made it, and its iterations, None if known only when it runs."""

    name: str
    iterations: int | None


Within = tuple[Loop, ...]


class Kernel(NamedTuple):
    """An instruction that a device runs as one, such as a fusion, and what it costs in each iteration.

    Attributes:
      name: that of the instruction, or of the exchange that it starts.
      kind: `products`, `attention`, `reductions`, `elementwise`, `copies`, `collectives` or `other`.
      within: the loops around it, the outer one first.
      n_bytes: bytes that it reads and writes in the main memory.
      work: the operations of its products, and the type of their numbers; masked pairs of attention count.
      collectives: what it exchanges.
      uncounted: the custom call or other instruction, if its operations are not known.
      starts: whether those that follow run beside it, until one awaits it.
      awaits: the name of the one whose end it waits for.
    """

    name: str
    kind: str
    within: Within
    n_bytes: int = 0
    work: Work = Work()
    collectives: tuple[Collective, ...] = ()
    uncounted: str = ""
    starts: bool = False
    awaits: str = ""

    @property
    def times(self) -> int:
        """How often it runs; a loop counts once if its iterations are not known."""
        return math.prod(loop.iterations or 1 for loop in self.within)

    @property
    def costs(self) -> bool:
        """Whether it computes or moves anything."""
        return bool(self.work.flops or self.n_bytes or self.collectives)


def kernels(module: Module, n_devices: int, on_chip: tuple[int, ...] = ()) -> list[Kernel]:
    """Returns what each of `n_devices` runs, in order.

    Args:
      on_chip: the numbers of the spaces of memory whose traffic does not count.
    """
    return list(_Reader(module, n_devices, on_chip).computation(module.entry, ()))


def total(kernels: Iterable[Kernel], of: Callable[[Kernel], float]) -> float:
    """Returns the sum of a figure over kernels in all iterations of their loops."""
    return sum(kernel.times * of(kernel) for kernel in kernels)


class _Reader(NamedTuple):
    module: Module
    n_devices: int
    on_chip: tuple[int, ...]

    def computation(self, name: str, within: Within) -> Iterator[Kernel]:
        computation = self.module.computations[name]
        for instruction in computation.values():
            yield from self.instruction(computation, instruction, within)

    def instruction(self, computation: Computation, instruction: Instruction, within: Within) -> Iterator[Kernel]:
        opcode = instruction.opcode
        if opcode == "while":
            (body,) = instruction.called("body")
            loop = Loop(instruction.op_name, self.iterations(computation, instruction))
            yield from self.computation(body, (*within, loop))
        elif opcode == "conditional":
            names = instruction.called("branch_computations", "true_computation", "false_computation")
            branches = [list(self.computation(name, within)) for name in names]
            yield from max(branches, key=lambda b: (total(b, lambda k: k.work.flops), total(b, lambda k: k.n_bytes)))
        elif opcode in ("call", "call-start", "async-start"):  # a TPU's SparseCores compute what a call-start calls
            (name,) = instruction.called("to_apply", "calls", "called_computations")
            for kernel in self.computation(name, within):
                yield kernel if opcode == "call" else kernel._replace(name=instruction.name, starts=True)
        else:
            kernel = self.kernel(computation, instruction, within)
            if kernel.costs or kernel.uncounted or kernel.awaits:
                yield kernel

    def kernel(self, computation: Computation, instruction: Instruction, within: Within) -> Kernel:
        """Returns an instruction that stands alone, or a fusion, whose instructions have no traffic of their own.

        A TPU's asynchronous collective stands in several fusions: the first starts it and counts, the last awaits it.
        """
        opcode, name, fused = instruction.opcode, instruction.name, instruction.opcode == "fusion"
        starts, awaits = opcode.endswith("-start"), instruction.operands[0] if opcode.endswith("-done") else ""
        work, collectives, uncounted = Work(), [], ""
        inner = list(self.fused(instruction)) if fused else [(computation, instruction)]
        for holder, each in inner:
            if each.opcode.removesuffix("-start") in COLLECTIVES:
                chained = fused and _CHAINED in each.attributes
                targets = {i.target for i in holder.values()} if chained else ()
                if not chained or _STARTS in targets:
                    collectives.append(self.collective(holder, each, fused))
                if _STARTS in targets:
                    name, starts = f"channel {each.number('channel_id')}", True
                elif _ENDS in targets:
                    awaits = f"channel {each.number('channel_id')}"
            elif (found := products.work(holder, each)) is not None:
                work = work.plus(found)
            elif not fused and each.target not in MOVES:
                uncounted = each.target or opcode
        n_bytes, kind = self.traffic(computation, instruction), _kind([each for _, each in inner])
        return Kernel(name, kind, within, n_bytes, work, tuple(collectives), uncounted, starts, awaits)

    def fused(self, instruction: Instruction) -> Iterator[tuple[Computation, Instruction]]:
        """Yields the instructions of a fusion, and of those inside of it."""
        for name in instruction.called("calls", "to_apply") if instruction.opcode in ("fusion", "call") else ():
            computation = self.module.computations[name]
            for each in computation.values():
                yield computation, each
                yield from self.fused(each)

    def iterations(self, computation: Computation, loop: Instruction) -> int | None:
        """Returns how often a loop runs: what XLA says, or what its condition, first value and step say."""
        known = loop.number("known_trip_count")
        if known is not None:
            return known
        ends, body = (self.module.computations[loop.called(name)[0]] for name in ("condition", "body"))
        compare, state = ends.root, computation[loop.operands[0]]
        if compare.opcode != "compare" or "direction=LT" not in compare.attributes or state.opcode != "tuple":
            return None
        place, last = ends[compare.operands[0]].number("index"), _constant(ends, compare.operands[1])
        moved = body.get(body.root.operands[place]) if place is not None and body.root.opcode == "tuple" else None
        if place is None or moved is None or moved.opcode != "add":
            return None
        first = _constant(computation, state.operands[place])
        steps = [number for number in (_constant(body, name) for name in moved.operands) if number]
        return None if first is None or last is None or len(steps) != 1 else -(-(last - first) // steps[0])

    def collective(self, computation: Computation, instruction: Instruction, fused: bool) -> Collective:
        kind = instruction.opcode.removesuffix("-start")
        users = [user for user in computation.values() if instruction.name in user.operands]
        if fused and users and all(user.opcode == "dynamic-slice" for user in users):
            kind = "reduce-scatter"
        joined = groups(instruction.attributes, self.n_devices)
        n_bytes = sum(array.n_bytes for operand in computation.operand_arrays(instruction) for array in operand)
        rings = instruction.attributes.count(_RING) or None
        return Collective(kind, n_bytes * (len(joined[0]) if kind == "all-gather" else 1), joined, rings)

    def traffic(self, computation: Computation, instruction: Instruction) -> int:
        """Returns the bytes of the main memory that an instruction reads and writes."""
        opcode = instruction.opcode
        if opcode in FREE or opcode.endswith(("-done", "-update")) or instruction.target in MOVES:
            return 0
        operands = [self.held(operand) for operand in computation.operand_arrays(instruction)]
        if instruction.target.startswith("__cublas"):  # the workspace comes behind its results
            return sum(operands) + self.held([a for i, a in enumerate(instruction.arrays) if not i or a.dtype != "s8"])
        if opcode in READS_SLICES:
            return 2 * self.held(instruction.arrays)
        if opcode in WRITES_SLICES:
            return 2 * operands[WRITES_SLICES[opcode]]
        if opcode.endswith("-start"):
            return self.traffic_of_start(computation, instruction)
        if opcode != "fusion":
            return sum(operands) + self.held(instruction.arrays)
        (name,) = instruction.called("calls")
        inner = self.module.computations[name]
        read = sum(min(held, self.read(inner, i)) for i, held in enumerate(operands))
        return read + min(self.held(instruction.arrays), self.written(inner, inner.root))

    def traffic_of_start(self, computation: Computation, instruction: Instruction) -> int:
        """Returns the traffic of an instruction that goes on beside others.

        Its result also names its operands, and scalars that tell when it is done.
        """
        named = [array for array in instruction.arrays if array.dims]
        read = [array for operand in computation.operand_arrays(instruction) for array in operand]
        if instruction.opcode == "all-reduce-start":
            return 2 * self.held(read)
        written = max(self.held(named) - self.held(read), 0)
        if instruction.opcode.removesuffix("-start") not in READS_SLICES:
            return self.held(read) + written
        sliced = sum(array.n_bytes for array in named) - sum(array.n_bytes for array in read)
        return written + min(sliced, self.held(read))

    def held(self, arrays: list[Array]) -> int:
        """Returns the bytes of arrays in the main memory."""
        return sum(array.n_bytes for array in arrays if array.space not in self.on_chip)

    def read(self, computation: Computation, number: int) -> int:
        """Returns the bytes that a fusion reads of a parameter: only slices of it, if nothing else reads it."""
        found = (i for i in computation.values() if i.opcode == "parameter" and i.content == str(number))
        return self.read_by_users(computation, next(found))

    def read_by_users(self, computation: Computation, value: Instruction) -> int:
        whole, n_bytes = sum(array.n_bytes for array in value.arrays), 0
        for user in computation.values():
            if value.name not in user.operands:
                continue
            if user.opcode in READS_SLICES and user.operands[0] == value.name:
                n_bytes += sum(array.n_bytes for array in user.arrays)
            elif user.opcode == "bitcast" or self.is_bitcast(user):
                n_bytes += self.read_by_users(computation, user)
            elif user.opcode == "tuple" or user.target in MOVES:  # the array passes through
                continue
            elif user.opcode not in WRITES_SLICES or user.operands[0] != value.name:
                return whole
        return min(whole, n_bytes)

    def is_bitcast(self, instruction: Instruction) -> bool:
        if instruction.opcode != "fusion":
            return False
        inner = self.module.computations[instruction.called("calls")[0]].values()
        return all(i.opcode in ("parameter", "bitcast") for i in inner)

    def written(self, computation: Computation, value: Instruction) -> int:
        """Returns the bytes that a fusion writes for a result: only the new values, if it changes part of an array."""
        if value.opcode in ("tuple", "bitcast"):
            return sum(self.written(computation, computation[name]) for name in value.operands)
        arrays = [] if value.opcode == "parameter" else value.arrays
        if value.opcode in WRITES_SLICES:
            arrays = computation[value.operands[WRITES_SLICES[value.opcode]]].arrays
        return sum(array.n_bytes for array in arrays)


def _kind(instructions: Sequence[Instruction]) -> str:
    """Returns what the instructions of a kernel are for: their products, else their reductions, and so on."""
    opcodes = {instruction.opcode.removesuffix("-start") for instruction in instructions}
    targets = " ".join(instruction.target or instruction.opcode for instruction in instructions)
    if "fmha" in targets or instructions[0].name.startswith(tuple(products.SPLASH_PRODUCTS)):
        return "attention"
    kinds = {"products": PRODUCTS, "collectives": {*COLLECTIVES}, "reductions": REDUCTIONS, "other": {"custom-call"}}
    found = (kind for kind, named in kinds.items() if opcodes & named)
    return "products" if "__cublas" in targets else next(found, "copies" if opcodes <= COPIES else "elementwise")


def _constant(computation: Computation, name: str) -> int | None:
    """Returns the number that a constant holds, also a copied one."""
    instruction = computation[name]
    while instruction.opcode in ("copy", "bitcast", "copy-done", "copy-start") and instruction.operands:
        instruction = computation[instruction.operands[0]]
    found = instruction.content if instruction.opcode == "constant" else ""
    return int(found) if found.lstrip("-").isdecimal() else None
