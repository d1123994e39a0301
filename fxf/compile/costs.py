"""What a program that XLA has optimized costs a device: operations, traffic to memory, loops, and collectives."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from fxf.compile import products
from fxf.compile.hlo import Array, Computation, Instruction, groups
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
CALLS = ("while", "conditional", "call", "call-start", "async-start")
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


class Kernel(NamedTuple):
    """An instruction that a device runs as one, such as a fusion, and what it costs in each iteration.

    Attributes:
      name: that of the instruction, or of the exchange that it starts.
      kind: `products`, `attention`, `reductions`, `elementwise`, `copies`, `collectives` or `other`.
      n_bytes: bytes that it reads and writes in the main memory.
      work: the operations of its products, and the type of their numbers; masked pairs of attention count.
      collectives: what it exchanges.
      uncounted: the custom call or other instruction, if its operations are not known.
      starts: whether those that follow run beside it, until one awaits it.
      awaits: the name of the one whose end it waits for.
      times: how often it runs, in all iterations of the loops around it whose number is known.
      repeats: whether it stands in a loop whose iterations are known only when it runs.
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
    """Returns the sum of a figure over kernels, each as often as it runs."""
    return sum(kernel.times * of(kernel) for kernel in kernels)


def kernels(computation: Computation, n_devices: int, on_chip: tuple[int, ...] = ()) -> list[Kernel]:
    """Returns what each of `n_devices` runs for a computation, such as a program's entry, in order.

    Args:
      on_chip: the numbers of the spaces of memory whose traffic does not count.
    """
    found: list[Kernel] = []
    for each in computation:
        called = [kernels(inner, n_devices, on_chip) for inner in each.called] if each.opcode in CALLS else []
        if each.opcode == "while":
            n = _iterations(each)
            found += [k._replace(times=k.times * (n or 1), repeats=k.repeats or n is None) for k in called[1]]
        elif each.opcode == "conditional":
            found += max(called, key=lambda branch: total(branch, lambda kernel: kernel.work.flops + kernel.n_bytes))
        elif each.opcode == "call":
            found += called[0]
        elif called:  # a TPU's SparseCores compute what a call-start calls
            found += [kernel._replace(name=each.name, starts=True) for kernel in called[0]]
        else:
            kernel = _kernel(each, n_devices, on_chip)
            found += [kernel] if kernel.costs or kernel.uncounted or kernel.awaits else []
    return found


def _iterations(loop: Instruction) -> int | None:
    """Returns how often a loop runs: what XLA says, or what its condition, first value and step say."""
    known = loop.number("known_trip_count")
    (ends, body), state = loop.called, loop.operands[0]
    compare = ends.root
    if known is not None or compare.opcode != "compare" or "direction=LT" not in compare.attributes:
        return known
    counter, last = compare.operands
    place = counter.number("index")
    if place is None or state.opcode != "tuple" or body.root.opcode != "tuple":
        return None
    moved = body.root.operands[place]
    first, end = _constant(state.operands[place]), _constant(last)
    steps = [step for step in map(_constant, moved.operands) if step]
    if moved.opcode != "add" or first is None or end is None or len(steps) != 1:
        return None
    return -(-(end - first) // steps[0])


def _constant(value: Instruction) -> int | None:
    """Returns the int of a constant, also behind copies; None if it is none."""
    while value.opcode in ("copy", "bitcast", "copy-done", "copy-start"):
        value = value.operands[0]
    return int(value.content) if value.opcode == "constant" and value.content.lstrip("-").isdecimal() else None


def _kernel(instruction: Instruction, n_devices: int, on_chip: tuple[int, ...]) -> Kernel:
    """Returns an instruction that stands alone, or a fusion, whose instructions have no traffic of their own.

    A TPU's asynchronous collective stands in several fusions: the first starts it and counts, the last awaits it.
    """
    opcode, name, fused = instruction.opcode, instruction.name, instruction.opcode == "fusion"
    starts, awaits = opcode.endswith("-start"), instruction.operands[0].name if opcode.endswith("-done") else ""
    work, collectives, uncounted = Work(), [], ""
    inner = list(_fused(instruction)) if fused else [instruction]
    for each in inner:
        if each.opcode.removesuffix("-start") in COLLECTIVES:
            chained = fused and _CHAINED in each.attributes
            targets = {user.target for user in each.users} if chained else ()
            if not chained or _STARTS in targets:
                collectives.append(_collective(each, n_devices, fused))
            if _STARTS in targets:
                name, starts = f"channel {each.number('channel_id')}", True
            elif _ENDS in targets:
                awaits = f"channel {each.number('channel_id')}"
        elif (found := products.work(each)) is not None:
            work = work.plus(found)
        elif not fused and each.target not in MOVES:
            uncounted = each.target or opcode
    n_bytes = _traffic(instruction, on_chip)
    return Kernel(name, _kind(inner), n_bytes, work, tuple(collectives), uncounted, starts, awaits)


def _fused(instruction: Instruction) -> Iterator[Instruction]:
    """Yields the instructions of a fusion, and of those inside of it."""
    for each in (each for computation in instruction.called for each in computation):
        yield each
        if each.opcode in ("fusion", "call"):
            yield from _fused(each)


def _collective(instruction: Instruction, n_devices: int, fused: bool) -> Collective:
    kind, users = instruction.opcode.removesuffix("-start"), instruction.users
    if fused and users and all(user.opcode == "dynamic-slice" for user in users):
        kind = "reduce-scatter"
    joined = groups(instruction.attributes, n_devices)
    n_bytes = sum(array.n_bytes for operand in instruction.operands for array in operand.arrays)
    rings = instruction.attributes.count(_RING) or None
    return Collective(kind, n_bytes * (len(joined[0]) if kind == "all-gather" else 1), joined, rings)


def _traffic(instruction: Instruction, on_chip: tuple[int, ...]) -> int:
    """Returns the bytes of the main memory that an instruction reads and writes."""
    opcode, result = instruction.opcode.removesuffix("-start"), instruction.arrays
    if opcode in FREE or opcode.endswith(("-done", "-update")) or instruction.target in MOVES:
        return 0
    operands = [_bytes(operand.arrays, on_chip) for operand in instruction.operands]
    if instruction.opcode.endswith("-start"):  # its result also names its operands, and scalars that tell its end
        read = [array for operand in instruction.operands for array in operand.arrays]
        named = Counter(array for array in result if array.dims)
        result = list((named - Counter(read)).elements()) or read
    if instruction.target.startswith("__cublas"):  # the workspace comes behind its results
        result = [array for i, array in enumerate(result) if not i or array.dtype != "s8"]
    if opcode in READS_SLICES:
        return min(_bytes(result), operands[0]) + _bytes(result, on_chip)
    if opcode in WRITES_SLICES:
        return 2 * operands[WRITES_SLICES[opcode]]
    if opcode != "fusion":
        return sum(operands) + _bytes(result, on_chip)
    (inner,) = instruction.called
    taken = sum(min(held, _read(inner.parameter(i))) for i, held in enumerate(operands))
    return taken + min(_bytes(result, on_chip), _written(inner.root))


def _bytes(arrays: Iterable[Array], on_chip: tuple[int, ...] = ()) -> int:
    """Returns the bytes of arrays, without those on the chip."""
    return sum(array.n_bytes for array in arrays if array.space not in on_chip)


def _read(value: Instruction) -> int:
    """Returns the bytes that a fusion reads of a value: only slices of it, if nothing else reads it."""
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
    """Returns the bytes that a fusion writes for a result: only the new values, if it changes part of an array."""
    if value.opcode in ("tuple", "bitcast"):
        return sum(map(_written, value.operands))
    if value.opcode in WRITES_SLICES:
        return _bytes(value.operands[WRITES_SLICES[value.opcode]].arrays)
    return 0 if value.opcode == "parameter" else _bytes(value.arrays)


def _kind(instructions: Sequence[Instruction]) -> str:
    """Returns what the instructions of a kernel are for: their products, else their reductions, and so on."""
    opcodes = {instruction.opcode.removesuffix("-start") for instruction in instructions}
    targets = " ".join(instruction.target or instruction.opcode for instruction in instructions)
    if "fmha" in targets or instructions[0].name.startswith(tuple(products.SPLASH_PRODUCTS)):
        return "attention"
    kinds = {"products": PRODUCTS, "collectives": {*COLLECTIVES}, "reductions": REDUCTIONS, "other": {"custom-call"}}
    found = (kind for kind, named in kinds.items() if opcodes & named)
    return "products" if "__cublas" in targets else next(found, "copies" if opcodes <= COPIES else "elementwise")
