"""The text of optimized programs, short ones written by hand and those of this CPU."""

import ast

import pytest

from fxf.compile import hlo
from fxf.compile.hlo import Array
from helpers import programs


def test_a_program_is_its_computations_and_their_instructions():
    module = hlo.read(programs()["program"])
    assert (module.entry, list(module.computations)) == ("main.1", ["fused", "main.1"])
    fusion, root = module.computations["main.1"]["fusion"], module.computations["main.1"].root
    assert (fusion.opcode, fusion.operands, fusion.called("calls")) == ("fusion", ("x",), ["fused"])
    assert (root.name, root.operands) == ("tuple", ("fusion", "y"))
    assert root.arrays == [Array("f32", (3, 5)), Array("s4", (7,))]
    assert fusion.number("known_trip_count") == 11 and fusion.number("channel_id") is None
    assert root.opcode == "tuple" and not fusion.is_root


def test_an_instruction_names_the_operation_that_made_it():
    module = hlo.read(programs()["program"])
    assert module.computations["fused"].root.op_name == "jit(f)/convert"
    assert module.computations["main.1"]["fusion"].op_name == "fusion"


def test_an_array_has_its_bytes_and_its_space_of_memory():
    module = hlo.read(programs()["program"])
    assert module.computations["main.1"]["x"].arrays == [Array("bf16", (3, 5), space=1)]
    shapes = {
        "f32[3,5]{1,0}": 60,
        "pred[7]": 7,
        "s4[7]{0}": 4,
        "f64[]": 8,
        "c64[3]": 24,
        "f8e4m3fn[3]": 3,
        "token[]": 0,
    }
    assert {shape: sum(array.n_bytes for array in hlo.arrays(shape)) for shape in shapes} == shapes


@pytest.mark.parametrize("name", [name for name in programs() if name.startswith("groups: ")])
def test_groups_of_devices_are_read_in_each_form(name):
    text, expected = programs()[name].strip(), ast.literal_eval(name.split()[1])
    assert hlo.groups(f", channel_id=1, {text}", 4) == expected
