"""What a program that XLA has optimized costs a device: operations, traffic to memory, loops, and collectives."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from fxf.compile import products
from fxf.compile.hlo import Array, Computation, Instruction, Module, groups

# Instructions without traffic of their own.
FREE = (
    *("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "partition-id", "replica-id"),
    *("opt-barrier", "add-dependency", "while", "conditional", "call"),
)
COLLECTIVES = (
    *("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute", "collective-broadcast"),
    "ragged-all-to-all",
)
READS_SLICES = ("dynamic-slice", "gather", "slice")
WRITES_SLICES = {"dynamic-update-slice": 1, "scatter": 2}  # and which operand has the new values
# Custom calls of XLA for TPUs that compute nothing.
MOVES = (
    *("AllocateBuffer", "ConcatBitcast", "AsyncCollectiveStart", "AsyncCollectiveDone", "AssumeGatherIndicesInBound"),
    *("PrepareAsyncCallStart", "PrepareAsyncCallDone"),
)
_CHAINED = "async_collective_fusion_config"
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
    """A loop: the operation that made it, its iterations (None if known only when it runs), and the cost of one."""

    name: str
    iterations: int | None
    cost: "Cost"

    @property
    def n_turns(self) -> int:
        """The number of iterations, 1 if unknown."""
        return 1 if self.iterations is None else self.iterations


class Cost(NamedTuple):
    """What a computation costs a device, without its loops, and its loops.

    Attributes:
      flops: floating-point operations of products; masked pairs of attention count.
      n_bytes: bytes that instructions read and write in the main memory; a fusion is one instruction.
      uncounted: the custom calls and other instructions whose operations are not known.
    """

    flops: int = 0
    n_bytes: int = 0
    collectives: tuple[Collective, ...] = ()
    loops: tuple[Loop, ...] = ()
    uncounted: tuple[str, ...] = ()

    def plus(self, other: "Cost") -> "Cost":
        pairs: Iterator[Any] = zip(self, other, strict=True)
        return Cost(*(a + b for a, b in pairs))

    def total(self, of: Callable[["Cost"], float]) -> float:
        """Returns the sum of a figure over this computation and all iterations of its loops."""
        return of(self) + sum(loop.n_turns * loop.cost.total(of) for loop in self.loops)

    def places(self, times: int = 1, within: tuple[Loop, ...] = ()) -> Iterator[tuple[tuple[Loop, ...], int, "Cost"]]:
        """Yields the loops around each part, the outer one first, how often it runs, and its cost without loops."""
        yield within, times, self
        for loop in self.loops:
            yield from loop.cost.places(times * loop.n_turns, (*within, loop))


def cost(module: Module, n_devices: int, on_chip: tuple[int, ...] = ()) -> Cost:
    """Returns what a program costs each of `n_devices`.

    Args:
      on_chip: the numbers of the spaces of memory whose traffic does not count.
    """
    return _Reader(module, n_devices, on_chip).computation(module.entry)


class _Reader(NamedTuple):
    module: Module
    n_devices: int
    on_chip: tuple[int, ...]

    def computation(self, name: str, fused: bool = False) -> Cost:
        total = Cost()
        for instruction in self.module.computations[name].values():
            total = total.plus(self.instruction(self.module.computations[name], instruction, fused))
        return total

    def instruction(self, computation: Computation, instruction: Instruction, fused: bool) -> Cost:
        """Returns the cost of an instruction. Those of a fusion have no traffic of their own."""
        opcode = instruction.opcode
        if opcode == "while":
            (body,) = instruction.called("body")
            iterations = self.iterations(computation, instruction)
            return Cost(loops=(Loop(instruction.op_name, iterations, self.computation(body, fused)),))
        if opcode == "conditional":
            names = instruction.called("branch_computations", "true_computation", "false_computation")
            branches = [self.computation(name, fused) for name in names]
            return max(branches, key=lambda c: (c.total(lambda c: c.flops), c.total(lambda c: c.n_bytes)))
        if opcode in ("call", "call-start", "async-start"):  # a TPU's SparseCores compute what a call-start calls
            (name,) = instruction.called("to_apply", "calls", "called_computations")
            return self.computation(name, fused)
        n_bytes = 0 if fused else self.traffic(computation, instruction)
        if opcode == "fusion":
            (name,) = instruction.called("calls")
            return self.computation(name, fused=True).plus(Cost(n_bytes=n_bytes))
        if opcode.removesuffix("-start") in COLLECTIVES:
            # A TPU's asynchronous collective stands in several fusions: the one that starts it counts.
            if fused and _CHAINED in instruction.attributes and not any(map(_starts, computation.values())):
                return Cost()
            return Cost(n_bytes=n_bytes, collectives=(self.collective(computation, instruction, fused),))
        flops = products.flops(computation, instruction)
        unknown = flops is None and not fused and instruction.target not in MOVES
        return Cost(flops or 0, n_bytes, uncounted=(instruction.target or opcode,) if unknown else ())

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


def _starts(instruction: Instruction) -> bool:
    return instruction.target == "AsyncCollectiveStart"


def _constant(computation: Computation, name: str) -> int | None:
    """Returns the number that a constant holds, also a copied one."""
    instruction = computation[name]
    while instruction.opcode in ("copy", "bitcast", "copy-done", "copy-start") and instruction.operands:
        instruction = computation[instruction.operands[0]]
    found = instruction.content if instruction.opcode == "constant" else ""
    return int(found) if found.lstrip("-").isdecimal() else None
