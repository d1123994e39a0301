"""Reads the text of a program that XLA has optimized: its computations, as graphs of instructions."""

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
# In its order in the text a loop calls its condition, then its body.
_CALLED = re.compile(
    r"\b(?:calls|to_apply|condition|body|branch_computations|true_computation|false_computation|called_computations)="
    r"(\{[^}]*\}|%?[\w.-]+)"
)


class Array(NamedTuple):
    """An array of a shape: its type, its dimensions, and the space of memory that it is in."""

    dtype: str
    dims: tuple[int, ...]
    space: int = 0

    @property
    def n_bytes(self) -> int:
        found = re.search(r"\d+", self.dtype)  # bits; a token has none
        bits = 8 if self.dtype == "pred" else int(found[0]) if found else 0
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
      arrays: those of its result.
      operands: the instructions that it reads.
      content: the text in its parentheses.
      attributes: the text after them.
      called: the computations that it calls.
      users: the instructions that read it.
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
    def op_name(self) -> str:
        """The name that JAX gave to the operation, or that of the instruction."""
        found = re.search(r'op_name="([^"]*)"', self.attributes)
        return found[1] if found else self.name

    @property
    def target(self) -> str:
        """What a custom call calls."""
        return self.attributes.partition('custom_call_target="')[2].partition('"')[0]

    def numbers(self, name: str) -> list[int]:
        """Returns the numbers of an attribute, such as index=1, dims={0,1} or "known_trip_count":{"n":"7"}."""
        found = re.search(rf'\b{name}\W{{1,8}}(?:n\W+)?(\d[\d,"\s]*)', self.attributes)
        return _ints(found[1]) if found else []

    def number(self, name: str) -> int | None:
        """Returns the first number of an attribute, or None."""
        return next(iter(self.numbers(name)), None)


class Computation(list[Instruction]):
    """The instructions of a computation, in order; the root makes its result."""

    root: Instruction

    def parameter(self, number: int) -> Instruction:
        return next(each for each in self if each.opcode == "parameter" and each.content == str(number))


class Module(NamedTuple):
    """A program: its computations by name, and the one that it begins with."""

    computations: dict[str, Computation]
    entry: Computation


def read(text: str) -> Module:
    """Returns the program of a text as `jax.stages.Compiled.as_text()` returns it: what is called stands first."""
    computations: dict[str, Computation] = {}
    current = entry = Computation()
    named: dict[str, Instruction] = {}  # of the current computation
    for line in text.splitlines():
        if found := _HEAD.match(line):
            current, named = Computation(), {}
            computations[found[2]] = current
            entry = current if found[1] else entry
        elif found := _INSTRUCTION.match(_COMMENT.sub("", line)):
            is_root, name, shape, opcode, content, attributes = found.groups()
            attributes = attributes.replace(r"\22", '"')  # a quote inside of what a kernel of Pallas says on a GPU
            operands = [named[each] for each in re.findall(r"%([\w.-]+)", content) if each in named]
            called = [each for text in _CALLED.findall(attributes) for each in re.findall(r"[\w.-]+", text)]
            inner = [computations[each] for each in called if each in computations]
            named[name] = Instruction(name, opcode, arrays(shape), operands, content, attributes, inner)
            for operand in dict.fromkeys(operands):
                operand.users.append(named[name])
            current.append(named[name])
            if is_root:
                current.root = named[name]
    return Module(computations, entry)


def groups(attributes: str, n_devices: int) -> list[list[int]]:
    """Returns the groups of devices that a collective joins; all devices are one group if it names none.

    XLA writes them as lists {{0,1},{2,3}}, as an array [2,2]<=[4], which may be transposed, as axes of a mesh, or, for
    a permutation, as pairs.
    """
    found = re.search(r"(?:replica_groups|source_target_pairs)=(\{\{.*?\}\}|\[.*|mesh\[.*)", attributes)
    if not found:
        return [list(range(n_devices))]
    text = found[1]
    if text.startswith("{"):
        return [_ints(each) for each in text.split("},")]
    if text.startswith("["):
        shape, order = text.split("<=", 1)
        return _iota(order).reshape(_ints(shape)).tolist()
    return _groups_of_axes(text)


def _groups_of_axes(text: str) -> list[list[int]]:
    """Returns the groups of `mesh['a'=2,'b'=4], device_ids=(…) {'b'}`: devices that differ along the named axes.

    The part 'a':(n)m of an axis is that of size m after the first n.
    """
    found = re.match(r"mesh\[(.*?)\](?:, device_ids=\((.*?)\))? \{(.*?)\}", text)
    assert found, text[:200]
    sizes = {name: int(size) for name, size in re.findall(r"'([^']*)'=(\d+)", found[1])}
    parts = {name: (int(n or 1), int(m or sizes[name])) for name, n, m in _PART.findall(found[3])}
    shape, joined = list[int](), list[int]()
    for name, size in sizes.items():
        before, part = parts.get(name, (1, 1))
        joined.append(len(shape) + 1)
        shape += [before, part, size // before // part]
    rest = [axis for axis in range(len(shape)) if axis not in joined]
    ids = _iota(found[2] or f"[{math.prod(shape)}]").reshape(shape)
    return ids.transpose(*rest, *joined).reshape(-1, math.prod(shape[axis] for axis in joined)).tolist()


def _iota(text: str) -> np.ndarray:
    """Returns the numbers of [2,4]T(1,0), or of [8], in order, or those of a list."""
    found = re.match(r"\[([\d,]*)\](?:T\(([\d,]*)\))?", text)
    if not found:
        return np.array(_ints(text))
    numbers = np.arange(math.prod(_ints(found[1]))).reshape(_ints(found[1]))
    return (numbers.transpose(_ints(found[2])) if found[2] else numbers).reshape(-1)


def _ints(text: str) -> list[int]:
    return [int(n) for n in re.findall(r"\d+", text)]
