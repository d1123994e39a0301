"""The cost of an optimized XLA program on a device: operations, memory traffic and collectives, with loops counted."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from fxf.compile import products
from fxf.compile.hlo import Array, Computation, Instruction, groups
from fxf.compile.products import Work

# Instructions without memory traffic.
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
WRITES_SLICES = {"dynamic-update-slice": 1, "scatter": 2}  # with the index of the operand that has the new values
CALLS = ("while", "conditional", "call", "call-start", "async-start")
# XLA's custom calls for TPUs that compute nothing.
MOVES = (
    *("AllocateBuffer", "ConcatBitcast", "AsyncCollectiveStart", "AsyncCollectiveDone", "AssumeGatherIndicesInBound"),
    *("PrepareAsyncCallStart", "PrepareAsyncCallDone"),
)
_CHAINED, _STARTS, _ENDS = "async_collective_fusion_config", "AsyncCollectiveStart", "AsyncCollectiveDone"
_RING = '"phase_rings":'  # occurs once for each ring of a collective on a TPU's SparseCores


class Collective(NamedTuple):
    """A collective operation within each group of devices.

    Attributes:
      n_bytes: the size of the whole array that a device sends, gathers or sums.
      rings: the number of one-way rings that share it, each over one link of a device at a time; None if unknown.
    """

    kind: str
    n_bytes: int
    groups: list[list[int]]
    rings: int | None = None


class Kernel(NamedTuple):
    """An instruction that a device runs as one kernel, such as a fusion, and its cost per run.

    Attributes:
      name: that of the instruction, or of the asynchronous collective that it starts.
      kind: `products`, `attention`, `reductions`, `elementwise`, `copies`, `collectives` or `other`.
      n_bytes: bytes that it reads from and writes to main memory.
      work: the operations of its matrix products, and their dtype; masked pairs of attention count.
      collectives: the collectives that it runs or starts.
      uncounted: the custom call or other instruction whose operations are unknown, if any.
      starts: whether it is asynchronous: later kernels run beside it until one awaits it.
      awaits: the name of the asynchronous kernel whose end it waits for.
      times: how often it runs, in all iterations of the loops around it with a known trip count.
      repeats: whether it is in a loop whose trip count is known only at run time.
    """

    name: str
    kind: str
    n_bytes: int = 0
    work: Work = Work()
    collectives: tuple[Collective, ...] = ()
    uncounted: str = ""
    starts: bool = False
    awaits: str = ""
    times: int = 1
    repeats: bool = False

    @property
    def costs(self) -> bool:
        """Whether it computes or moves anything."""
        return bool(self.work.flops or self.n_bytes or self.collectives)


def total(kernels: Iterable[Kernel], of: Callable[[Kernel], float]) -> float:
    """Returns the sum of a quantity over all runs of the kernels."""
    return sum(kernel.times * of(kernel) for kernel in kernels)


def kernels(computation: Computation, n_devices: int, on_chip: tuple[int, ...] = ()) -> list[Kernel]:
    """Returns the kernels that each of `n_devices` runs for a computation, such as a program's entry, in order.

    Args:
      on_chip: the indices of memory spaces whose traffic does not count.
    """
    result: list[Kernel] = []
    for op in computation:
        called = [kernels(inner, n_devices, on_chip) for inner in op.called] if op.opcode in CALLS else []
        if op.opcode == "while":
            n = _iterations(op)
            result += [k._replace(times=k.times * (n or 1), repeats=k.repeats or n is None) for k in called[1]]
        elif op.opcode == "conditional":  # counts the most expensive branch
            result += max(called, key=lambda branch: total(branch, lambda kernel: kernel.work.flops + kernel.n_bytes))
        elif op.opcode == "call":
            result += called[0]
        elif called:  # a TPU's SparseCores run the computation of a call-start
            result += [kernel._replace(name=op.name, starts=True) for kernel in called[0]]
        else:
            kernel = _kernel(op, n_devices, on_chip)
            result += [kernel] if kernel.costs or kernel.uncounted or kernel.awaits else []
    return result


def _iterations(loop: Instruction) -> int | None:
    """Returns the trip count of a loop: XLA's, or from its condition, first value and step; None if unknown."""
    known = loop.number("known_trip_count")
    (ends, body), state = loop.called, loop.operands[0]
    compare = ends.root
    if known is not None or compare.opcode != "compare" or "direction=LT" not in compare.attributes:
        return known
    counter, last = compare.operands
    index = counter.number("index")
    if index is None or state.opcode != "tuple" or body.root.opcode != "tuple":
        return None
    update = body.root.operands[index]
    first, end = _constant(state.operands[index]), _constant(last)
    steps = [step for step in map(_constant, update.operands) if step]
    if update.opcode != "add" or first is None or end is None or len(steps) != 1:
        return None
    return -(-(end - first) // steps[0])


def _constant(value: Instruction) -> int | None:
    """Returns the value of an int constant, looking through copies; None for anything else."""
    while value.opcode in ("copy", "bitcast", "copy-done", "copy-start"):
        value = value.operands[0]
    return int(value.content) if value.opcode == "constant" and value.content.lstrip("-").isdecimal() else None


def _kernel(instruction: Instruction, n_devices: int, on_chip: tuple[int, ...]) -> Kernel:
    """Returns the kernel of a single instruction, or of a fusion, whose inner instructions cause no memory traffic.

    On a TPU several fusions may share an asynchronous collective: the first starts it and counts, the last awaits it.
    """
    opcode, name, fused = instruction.opcode, instruction.name, instruction.opcode == "fusion"
    starts, awaits = opcode.endswith("-start"), instruction.operands[0].name if opcode.endswith("-done") else ""
    work, collectives, uncounted = Work(), [], ""
    inner = list(_fused(instruction)) if fused else [instruction]
    for op in inner:
        if op.opcode.removesuffix("-start") in COLLECTIVES:
            chained = fused and _CHAINED in op.attributes
            targets = {user.target for user in op.users} if chained else ()
            if not chained or _STARTS in targets:
                collectives.append(_collective(op, n_devices, fused))
            if _STARTS in targets:
                name, starts = f"channel {op.number('channel_id')}", True
            elif _ENDS in targets:
                awaits = f"channel {op.number('channel_id')}"
        elif (op_work := products.work(op)) is not None:
            work = work.plus(op_work)
        elif not fused and op.target not in MOVES:
            uncounted = op.target or opcode
    n_bytes = _traffic(instruction, on_chip)
    return Kernel(name, _kind(inner), n_bytes, work, tuple(collectives), uncounted, starts, awaits)


def _fused(instruction: Instruction) -> Iterator[Instruction]:
    """Yields the instructions of a fusion and of the fusions within it."""
    for op in (op for computation in instruction.called for op in computation):
        yield op
        if op.opcode in ("fusion", "call"):
            yield from _fused(op)


def _collective(instruction: Instruction, n_devices: int, fused: bool) -> Collective:
    kind, users = instruction.opcode.removesuffix("-start"), instruction.users
    if fused and users and all(user.opcode == "dynamic-slice" for user in users):
        kind = "reduce-scatter"
    joined = groups(instruction.attributes, n_devices)
    n_bytes = sum(array.n_bytes for operand in instruction.operands for array in operand.arrays)
    rings = instruction.attributes.count(_RING) or None
    return Collective(kind, n_bytes * (len(joined[0]) if kind == "all-gather" else 1), joined, rings)


def _traffic(instruction: Instruction, on_chip: tuple[int, ...]) -> int:
    """Returns the bytes that an instruction reads from and writes to main memory."""
    opcode, result = instruction.opcode.removesuffix("-start"), instruction.arrays
    if opcode in FREE or opcode.endswith(("-done", "-update")) or instruction.target in MOVES:
        return 0
    operands = [_bytes(operand.arrays, on_chip) for operand in instruction.operands]
    if instruction.opcode.endswith("-start"):  # its result also has the operands, and scalars that signal its end
        read = [array for operand in instruction.operands for array in operand.arrays]
        listed = Counter(array for array in result if array.dims)
        result = list((listed - Counter(read)).elements()) or read
    if instruction.target.startswith("__cublas"):  # an s8 workspace follows the results
        result = [array for i, array in enumerate(result) if not i or array.dtype != "s8"]
    if opcode in READS_SLICES:
        return min(_bytes(result), operands[0]) + _bytes(result, on_chip)
    if opcode in WRITES_SLICES:
        return 2 * operands[WRITES_SLICES[opcode]]
    if opcode != "fusion":
        return sum(operands) + _bytes(result, on_chip)
    (inner,) = instruction.called
    n_read = sum(min(n_bytes, _read(inner.parameter(i))) for i, n_bytes in enumerate(operands))
    return n_read + min(_bytes(result, on_chip), _written(inner.root))


def _bytes(arrays: Iterable[Array], on_chip: tuple[int, ...] = ()) -> int:
    """Returns the bytes of arrays, except those on the chip."""
    return sum(array.n_bytes for array in arrays if array.space not in on_chip)


def _read(value: Instruction) -> int:
    """Returns the bytes that a fusion reads of a value: only slices, if no instruction reads the whole."""
    whole, n_bytes = _bytes(value.arrays), 0
    for user in value.users:
        if user.opcode in READS_SLICES and user.operands[0] is value:
            n_bytes += _bytes(user.arrays)
        elif user.opcode == "bitcast":
            n_bytes += _read(user)
        elif user.opcode == "tuple" or user.target in MOVES:  # the array passes through
            continue
        elif user.opcode not in WRITES_SLICES or user.operands[0] is not value:
            return whole
    return min(whole, n_bytes)


def _written(value: Instruction) -> int:
    """Returns the bytes that a fusion writes for a result: only the new values, if it updates a part of an array."""
    if value.opcode in ("tuple", "bitcast"):
        return sum(map(_written, value.operands))
    if value.opcode in WRITES_SLICES:
        return _bytes(value.operands[WRITES_SLICES[value.opcode]].arrays)
    return 0 if value.opcode == "parameter" else _bytes(value.arrays)


def _kind(instructions: Sequence[Instruction]) -> str:
    """Returns the kind of a kernel: attention, or the first of `kinds` that has one of its instructions."""
    opcodes = {instruction.opcode.removesuffix("-start") for instruction in instructions}
    targets = " ".join(instruction.target or instruction.opcode for instruction in instructions)
    if "fmha" in targets or instructions[0].name.startswith(tuple(products.SPLASH_PRODUCTS)):
        return "attention"
    kinds = {"products": PRODUCTS, "collectives": {*COLLECTIVES}, "reductions": REDUCTIONS, "other": {"custom-call"}}
    fitting = (kind for kind, members in kinds.items() if opcodes & members)
    return "products" if "__cublas" in targets else next(fitting, "copies" if opcodes <= COPIES else "elementwise")
