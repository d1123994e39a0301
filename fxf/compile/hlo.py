"""Reads the text of a program that XLA has optimized: its computations, instructions and shapes."""

import math
import re
from typing import NamedTuple

import numpy as np

BITS = {"pred": 8, "s2": 2, "u2": 2, "s4": 4, "u4": 4, "token": 0, "opaque": 0}  # of others the name has the number
_ARRAY = re.compile(r"([a-z]\w*)\[([\d,<=]*)\](?:\{[^}]*?(?:S\((\d+)\)[^}]*)?\})?")
_HEAD = re.compile(r"^(ENTRY )?%?([\w.-]+) \(.*\{$")
_INSTRUCTION = re.compile(r"^\s+(ROOT )?%?([\w.-]+) = (\(|\S+ )")
_COMMENT = re.compile(r"/\*.*?\*/")


class Array(NamedTuple):
    """An array of a shape: its type, its dimensions, and the space of memory that it is in."""

    dtype: str
    dims: tuple[int, ...]
    space: int = 0

    @property
    def n_bytes(self) -> int:
        found = re.search(r"\d+", self.dtype)
        bits = BITS[self.dtype] if self.dtype in BITS else int(found[0]) if found else 0
        return math.ceil(math.prod(self.dims) * bits / 8)


def arrays(shape: str) -> list[Array]:
    """Returns the arrays in the text of a shape; a tuple has several."""
    return [
        Array(dtype, tuple(int(n.lstrip("<=")) for n in dims.split(",") if n), int(space or 0))
        for dtype, dims, space in _ARRAY.findall(shape)
    ]


class Instruction(NamedTuple):
    """An instruction of a computation.

    Attributes:
      arrays: those of its result.
      operands: the names of the instructions that it reads.
      content: the text in its parentheses.
      attributes: the text after them.
    """

    name: str
    opcode: str
    arrays: list[Array]
    operands: tuple[str, ...]
    content: str
    attributes: str
    is_root: bool

    @property
    def op_name(self) -> str:
        """The name that JAX gave to the operation, or that of the instruction."""
        found = re.search(r'op_name="([^"]*)"', self.attributes)
        return found[1] if found else self.name

    @property
    def target(self) -> str:
        """What a custom call calls."""
        return self.attributes.partition('custom_call_target="')[2].partition('"')[0]

    def number(self, name: str) -> int | None:
        """Returns the first number after an attribute's name, or None."""
        text = self.attributes.replace(r"\22", '"')  # a quote inside of what a kernel of Pallas says on a GPU
        found = re.search(rf'\b{name}"?[^\d]{{1,12}}?(\d+)', text)
        return int(found[1]) if found else None

    def numbers(self, name: str) -> tuple[int, ...]:
        """Returns the numbers in the braces or brackets of an attribute, empty if it has none."""
        found = re.search(rf'\b{name}"?[=:]\s*[{{\[]([^}}\]]*)[}}\]]', self.attributes)
        return tuple(map(int, re.findall(r"\d+", found[1]))) if found else ()

    def called(self, *names: str) -> list[str]:
        """Returns the computations that these attributes name."""
        found = [re.search(rf"\b{name}=(\{{[^}}]*\}}|%?[\w.-]+)", self.attributes) for name in names]
        return [c for each in found if each for c in re.findall(r"%?([\w.-]+)", each[1])]


class Computation(dict[str, Instruction]):
    """The instructions of a computation by name, in order."""

    def operand_arrays(self, instruction: Instruction) -> list[list[Array]]:
        return [self[name].arrays if name in self else [] for name in instruction.operands]

    @property
    def root(self) -> Instruction:
        return next(instruction for instruction in self.values() if instruction.is_root)


class Module(NamedTuple):
    """A program.

    Attributes:
      header: its first line.
      computations: by name.
      entry: the name of the first one.
    """

    header: str
    computations: dict[str, Computation]
    entry: str


def read(text: str) -> Module:
    """Returns the program of a text as `jax.stages.Compiled.as_text()` returns it."""
    computations: dict[str, Computation] = {}
    lines, entry = text.splitlines(), ""
    current = Computation()
    for line in lines:
        if found := _HEAD.match(line):
            current = computations[found[2]] = Computation()
            entry = found[2] if found[1] else entry
        elif found := _INSTRUCTION.match(line):
            instruction = _instruction(_COMMENT.sub("", line), found)
            current[instruction.name] = instruction
    return Module(lines[0], computations, entry)


def _instruction(line: str, found: re.Match) -> Instruction:
    start = line.index(" = ") + 3
    end = _closing(line, start) if line[start] == "(" else line.index(" ", start)
    opening = line.index("(", end)
    closing = _closing(line, opening)
    content = line[opening + 1 : closing - 1]
    return Instruction(
        name=found[2],
        opcode=line[end:opening].strip(),
        arrays=arrays(line[start:end]),
        operands=tuple(re.findall(r"%([\w.-]+)", content)),
        content=content,
        attributes=line[closing:],
        is_root=bool(found[1]),
    )


def _closing(line: str, start: int) -> int:
    """Returns the place after the parenthesis that closes the one at `start`."""
    depth = 0
    for bracket in re.compile(r"[()]").finditer(line, start):
        depth += 1 if bracket[0] == "(" else -1
        if not depth:
            return bracket.end()
    return len(line)


def groups(attributes: str, n_devices: int) -> list[list[int]]:
    """Returns the groups of devices that a collective joins; all devices are one group if it names none.

    XLA writes them as lists {{0,1},{2,3}}, as an array [2,2]<=[4], which may be transposed, as axes of a mesh, or, for
    a permutation, as pairs.
    """
    everyone = [list(range(n_devices))]
    found = re.search(r"(?:replica_groups|source_target_pairs)=(.*)", attributes)
    if not found:
        return everyone
    text = found[1]
    if text.startswith("{"):
        listed = re.match(r"\{((?:\{[\d,]*\},?)*)\}", text)
        return [_ints(each) for each in re.findall(r"\{([\d,]+)\}", listed[1] if listed else "")] or everyone
    if text.startswith("mesh["):
        return _groups_of_axes(text)
    shape, order = text.split("<=", 1)
    return _iota(order).reshape(_ints(shape)).tolist()


def _groups_of_axes(text: str) -> list[list[int]]:
    """Returns the groups of `mesh['a'=2,'b'=4], device_ids=(…) {'b'}`: devices that differ along the named axes."""
    found = re.match(r"mesh\[([^\]]*)\](?:, device_ids=\(([^)]*\]?(?:T\([^)]*\))?[^)]*)\))? \{([^}]*)\}", text)
    assert found, text[:200]
    sizes = {name: int(size) for name, size in re.findall(r"'([^']*)'=(\d+)", found[1])}
    ids = np.arange(math.prod(sizes.values()))
    if found[2]:
        ids = _iota(found[2]) if "[" in found[2] else np.array(_ints(found[2]))
    named = re.findall(r"'([^']*)'(?::\((\d+)\)(\d+))?", found[3])
    # A part 'a':(n)m of an axis is the axis of size m after the first n parts.
    shape: list[int] = []
    joined: list[int] = []
    for name, size in sizes.items():
        parts = [(int(before), int(part)) for axis, before, part in named if axis == name and part]
        whole = any(axis == name and not part for axis, _, part in named)
        for before, part in parts or [(1, size if whole else 1)]:
            shape += [before, part, size // before // part]
            joined.append(len(shape) - 2)
    rest = [axis for axis in range(len(shape)) if axis not in joined]
    n_together = math.prod(shape[axis] for axis in joined)
    return ids.reshape(shape).transpose(*rest, *joined).reshape(-1, n_together).tolist()


def _iota(text: str) -> np.ndarray:
    """Returns the numbers of [2,4]T(1,0), or of [8], in order."""
    found = re.match(r"\[([\d,]*)\](?:T\(([\d,]*)\))?", text)
    assert found, text[:200]
    shape = _ints(found[1])
    numbers = np.arange(math.prod(shape)).reshape(shape)
    return (numbers.transpose(_ints(found[2])) if found[2] else numbers).reshape(-1)


def _ints(text: str) -> list[int]:
    return [int(n) for n in re.findall(r"\d+", text)]
