"""Each problem's strings have the answers of a plain Python program, and the papers' format and lengths."""

import ast
import functools
import importlib
import math
import operator
import re

import jax
import numpy as np

from fxf.runs.guests import load
from helpers import some
from small_runs import ROOT

PROBLEMS = load(ROOT / "configs/studies/problems.py").PROBLEMS
draw = importlib.import_module("deletang.problem").draw


LONGEST, DRAWS = 13, 600


@functools.cache
def pairs(name):
    """Returns (string, answer) of draws of all lengths."""
    problem = PROBLEMS[name]
    lengths = np.arange(DRAWS, dtype=np.int32) % LONGEST + 1
    found = []
    for string, n, answer, m in zip(*jax.device_get(draw(problem, jax.random.key(0), lengths, LONGEST)), strict=True):
        assert not string[n:].any() and not answer[m:].any()
        sides = (problem.inputs, string[:n]), (problem.outputs, answer[:m])
        found.append(tuple("".join(names[token - 1] for token in tokens) for names, tokens in sides))
    return lengths, found


OPERATIONS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}


def evaluated(text):
    """Returns the value modulo 5 of an expression, as Python reads it."""

    def value(node):
        if isinstance(node, ast.BinOp):
            return OPERATIONS[type(node.op)](value(node.left), value(node.right))
        return -value(node.operand) if isinstance(node, ast.UnaryOp) else node.value

    return value(ast.parse(text, mode="eval").body) % 5


def solution(equation):
    if len(equation) < 3:
        return "0"
    left, right = equation.split("=")
    (digit,) = [x for x in "01234" if evaluated(left.replace("x", x)) == int(right)]
    return digit


def stack(text):
    held = []
    for symbol in text:
        if symbol == "-":
            del held[-1:]
        else:
            held.append({"o": "0", "i": "1"}.get(symbol, symbol))
    return "".join(held[::-1])


def missing(text):
    twice = text.removesuffix(".") if len(text) % 2 else text
    return "1" if text == "1" else twice[(twice.index("_") + len(twice) // 2) % len(twice)]


def of_two(operate, text):
    if len(text) <= 2:
        return f"{int(text[::-1], 2):b}"[::-1] if operate is int.__add__ else "0" * (len(text) - 1)
    a, b = (int(number[::-1], 2) for number in re.split(r"[+*]", text))
    assert a > 0 and b > 0
    return f"{operate(a, b):b}"[::-1]


def root(text):
    assert int(text, 2) > 0
    return f"{math.isqrt(int(text, 2)):0{(len(text) + 1) // 2}b}"


ORACLES = {
    "even_pairs": lambda text: str((text.count("01") + text.count("10")) % 2),
    "parity": lambda text: str(text.count("1") % 2),
    "cycle_navigation": lambda text: str((text.count(">") - text.count("<")) % 5),
    "stack_manipulation": stack,
    "reverse_string": lambda text: text[::-1],
    "duplicate_string": lambda text: text + text,
    "missing_duplicate": missing,
    "odds_first": lambda text: text[1::2] + text[::2],
    "bucket_sort": lambda text: "".join(sorted(text)),
    "modular_arithmetic": lambda text: str(evaluated(text)),
    "modular_arithmetic_brackets": lambda text: str(evaluated(text)),
    "solve_equation": solution,
    "binary_addition": functools.partial(of_two, int.__add__),
    "binary_multiplication": functools.partial(of_two, int.__mul__),
    "compute_sqrt": root,
}


@some("name", PROBLEMS, ["missing_duplicate", "modular_arithmetic_brackets", "stack_manipulation"])
def test_answers_are_those_of_a_plain_program_with_the_papers_lengths(name):
    problem = PROBLEMS[name]
    lengths, found = pairs(name)
    for length, (string, answer) in zip(lengths, found, strict=True):
        assert len(string) == (length - (length % 2 == 0) if name == "modular_arithmetic" else length)
        assert answer == ORACLES[name](string), string
        assert len(answer) + problem.ends <= problem.tape(int(length))
        assert problem.ends or len(answer) == problem.tape(int(length))
    assert set("".join(string for string, _ in found)) == set(problem.inputs)
    assert set("".join(answer for _, answer in found)) == set(problem.outputs)
    assert len({string for string, _ in found}) > DRAWS // 2
