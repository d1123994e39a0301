"""A parser of optimized HLO text: its computations, as graphs of instructions."""

import dataclasses
import math
import re
from typing import NamedTuple

import numpy as np

_ARRAY = re.compile(r"([a-z]\w*)\[([\d,<=]*)\](?:\{[^}]*?(?:S\((\d+)\)[^}]*)?\})?")
_HEAD = re.compile(r"^(ENTRY )?%?([\w.-]+) \(.*\{$")
_INSTRUCTION = re.compile(r"^\s+(ROOT )?%?([\w.-]+) = (.*?) ([a-z][\w-]*)\(([^)]*)\)(.*)")
_COMMENT = re.compile(r"/\*.*?\*/")
_PART = re.compile(r"'([^']*)'(?::\((\d+)\)(\d+))?")
# A loop names its condition first, then its body.
_CALLED = re.compile(
    r"\b(?:calls|to_apply|condition|body|branch_computations|true_computation|false_computation|called_computations)="
    r"(\{[^}]*\}|%?[\w.-]+)"
)


class Array(NamedTuple):
    """An array in a shape: its dtype, dimensions and memory space."""

    dtype: str
    dims: tuple[int, ...]
    space: int = 0

    @property
    def n_bytes(self) -> int:
        digits = re.search(r"\d+", self.dtype)  # the dtype `token` has none
        bits = 8 if self.dtype == "pred" else int(digits[0]) if digits else 0
        return math.ceil(math.prod(self.dims) * bits / 8)


def arrays(shape: str) -> list[Array]:
    """Returns the arrays in the text of a shape; a tuple has several."""
    return [
        Array(dtype, tuple(int(n.lstrip("<=")) for n in dims.split(",") if n), int(space or 0))
        for dtype, dims, space in _ARRAY.findall(shape)
    ]


@dataclasses.dataclass(eq=False)
class Instruction:
    """An instruction of a computation.

    Attributes:
      arrays: the arrays of its result.
      operands: the instructions that it reads.
      content: the text in its parentheses.
      attributes: the text after the parentheses.
      called: the computations that it calls.
      users: the instructions that read its result.
    """

    name: str
    opcode: str
    arrays: list[Array]
    operands: list["Instruction"]
    content: str
    attributes: str
    called: list["Computation"]
    users: list["Instruction"] = dataclasses.field(default_factory=list)

    @property
    def target(self) -> str:
        """The target of a custom call, "" for other instructions."""
        return self.attributes.partition('custom_call_target="')[2].partition('"')[0]

    def numbers(self, name: str) -> list[int]:
        """Returns the numbers of an attribute, such as index=1, dims={0,1} or "known_trip_count":{"n":"7"}."""
        match = re.search(rf'\b{name}\W{{1,8}}(?:n\W+)?(\d[\d,"\s]*)', self.attributes)
        return _ints(match[1]) if match else []

    def number(self, name: str) -> int | None:
        """Returns the first number of an attribute, or None."""
        return next(iter(self.numbers(name)), None)


class Computation(list[Instruction]):
    """The instructions of a computation, in order. The root computes its result."""

    root: Instruction

    def parameter(self, number: int) -> Instruction:
        return next(op for op in self if op.opcode == "parameter" and op.content == str(number))


class Module(NamedTuple):
    """A program: its computations by name, and its entry computation."""

    computations: dict[str, Computation]
    entry: Computation


def read(text: str) -> Module:
    """Parses the text that `jax.stages.Compiled.as_text()` returns. Called computations precede their callers."""
    computations: dict[str, Computation] = {}
    current = entry = Computation()
    named: dict[str, Instruction] = {}  # of the current computation
    for line in text.splitlines():
        if match := _HEAD.match(line):
            current, named = Computation(), {}
            computations[match[2]] = current
            entry = current if match[1] else entry
        elif match := _INSTRUCTION.match(_COMMENT.sub("", line)):
            is_root, name, shape, opcode, content, attributes = match.groups()
            attributes = attributes.replace(r"\22", '"')  # an escaped quote in the metadata of a Pallas kernel on a GPU
            operands = [named[x] for x in re.findall(r"%([\w.-]+)", content) if x in named]
            called = [x for text in _CALLED.findall(attributes) for x in re.findall(r"[\w.-]+", text)]
            inner = [computations[x] for x in called if x in computations]
            named[name] = Instruction(name, opcode, arrays(shape), operands, content, attributes, inner)
            for operand in dict.fromkeys(operands):
                operand.users.append(named[name])
            current.append(named[name])
            if is_root:
                current.root = named[name]
    return Module(computations, entry)


def groups(attributes: str, n_devices: int) -> list[list[int]]:
    """Returns the device groups of a collective. If it names none, all devices are one group.

    XLA writes groups as lists {{0,1},{2,3}}, as an iota array [2,2]<=[4], which may be transposed, as axes of a mesh,
    or, for a permutation, as pairs.
    """
    match = re.search(r"(?:replica_groups|source_target_pairs)=(\{\{.*?\}\}|\[.*|mesh\[.*)", attributes)
    if not match:
        return [list(range(n_devices))]
    text = match[1]
    if text.startswith("{"):
        return [_ints(group) for group in text.split("},")]
    if text.startswith("["):
        shape, order = text.split("<=", 1)
        return _iota(order).reshape(_ints(shape)).tolist()
    return _groups_of_axes(text)


def _groups_of_axes(text: str) -> list[list[int]]:
    """Returns the groups of `mesh['a'=2,'b'=4], device_ids=(…) {'b'}`: devices that differ only along the named axes.

    'a':(n)m is a sub-axis: axis a is split into sizes n, m and the rest, and the part of size m is meant.
    """
    match = re.match(r"mesh\[(.*?)\](?:, device_ids=\((.*?)\))? \{(.*?)\}", text)
    assert match, text[:200]
    sizes = {name: int(size) for name, size in re.findall(r"'([^']*)'=(\d+)", match[1])}
    parts = {name: (int(n or 1), int(m or sizes[name])) for name, n, m in _PART.findall(match[3])}
    shape, joined = list[int](), list[int]()
    for name, size in sizes.items():
        before, part = parts.get(name, (1, 1))
        joined.append(len(shape) + 1)
        shape += [before, part, size // before // part]
    rest = [axis for axis in range(len(shape)) if axis not in joined]
    ids = _iota(match[2] or f"[{math.prod(shape)}]").reshape(shape)
    return ids.transpose(*rest, *joined).reshape(-1, math.prod(shape[axis] for axis in joined)).tolist()


def _iota(text: str) -> np.ndarray:
    """Returns the numbers of an iota array such as [8] or [2,4]T(1,0), flattened, or the numbers of a list."""
    match = re.match(r"\[([\d,]*)\](?:T\(([\d,]*)\))?", text)
    if not match:
        return np.array(_ints(text))
    numbers = np.arange(math.prod(_ints(match[1]))).reshape(_ints(match[1]))
    return (numbers.transpose(_ints(match[2])) if match[2] else numbers).reshape(-1)


def _ints(text: str) -> list[int]:
    return [int(n) for n in re.findall(r"\d+", text)]
