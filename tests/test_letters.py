"""Shape letters of names: each has one meaning, and an einsum has those of its operands.

The legend is in the docstring of `fxf/__init__.py`.
"""

import ast
import functools
import re

import fxf
from small_runs import ROOT

LEGEND = dict(re.findall(r"^    ([A-Z])  (.+)$", fxf.__doc__, re.MULTILINE))
SUFFIX = re.compile(r"^_?[a-z]\w*?_([A-Z0-9]*[A-Z][A-Z0-9]*)$")
EINSUM = re.compile(r"^[A-Z]+(,[A-Z]+)*->[A-Z]*$")


@functools.cache
def suffix(name):
    """Returns the letters and digits of an array's name, or "" for another name."""
    found = SUFFIX.match(name)
    return found[1] if found else ""


@functools.cache
def files():
    """Returns the nodes of each file's code."""
    paths = sorted(path for folder in ("fxf", "configs/primer") for path in (ROOT / folder).rglob("*.py"))
    return {path: list(ast.walk(ast.parse(path.read_text()))) for path in paths}


def names_in(nodes):
    for node in nodes:
        if isinstance(node, ast.Name | ast.arg | ast.Attribute | ast.keyword):
            yield getattr(node, {ast.Name: "id", ast.Attribute: "attr"}.get(type(node), "arg")) or ""


def einsums_in(nodes):
    """Yields the letters of each operand of an einsum, and the operand's name if it has one."""
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "einsum":
            letters, *operands = node.args
            assert isinstance(letters, ast.Constant) and EINSUM.match(letters.value), ast.unparse(node)
            inputs, output = letters.value.split("->")
            for part, operand in zip(inputs.split(","), operands, strict=True):
                yield part, operand.id if isinstance(operand, ast.Name) else ""
            yield output, ""


def letters_in(nodes):
    """Returns the letters of the names and the einsums in code."""
    names = {letter for name in names_in(nodes) for letter in suffix(name) if letter.isalpha()}
    return names | {letter for letters, _ in einsums_in(nodes) for letter in letters}


def test_every_letter_of_a_name_or_an_einsum_is_in_the_legend():
    found = {path: letters_in(nodes) - LEGEND.keys() for path, nodes in files().items()}
    assert {str(path): letters for path, letters in found.items() if letters} == {}


def test_an_einsum_has_the_letters_of_its_operands():
    for path, nodes in files().items():
        for letters, name in einsums_in(nodes):
            # The tokens of a chunk are queries, T, and keys, C, of each other.
            assert suffix(name).replace("T", "C") in ("", letters.replace("T", "C")), f"{path}: {name}"
