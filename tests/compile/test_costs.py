"""Costs of programs against counts by hand: programs of this CPU, and instructions that only accelerators have."""

import ast

import jax
import jax.numpy as jnp
import pytest

from fxf.compile import costs, hlo
from fxf.compile.costs import Collective
from fxf.compile.hlo import Array
from fxf.compile.products import Work
from helpers import programs, table

N, M, K = 3, 5, 7
PROGRAMS = programs()


def cases(kind):
    """Returns (expected, text) for the programs of a kind."""
    return [(name.partition(": ")[2], text) for name, text in PROGRAMS.items() if name.startswith(kind)]


def kernels_of(function, *shapes):
    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    return costs.kernels(hlo.read(jax.jit(function).lower(*shapes).compile().as_text()).entry, n_devices=1)


def written(body, others="", n_devices=4, **options):
    """Returns the kernels of a program whose entry has these instructions."""
    text = f"HloModule jit_f\n\n{others}\nENTRY %main () -> f32[] {{\n{body}\n}}\n"
    return costs.kernels(hlo.read(text).entry, n_devices, **options)


def flops(kernels):
    return costs.total(kernels, lambda k: k.work.flops)


def n_bytes(kernels):
    return costs.total(kernels, lambda k: k.n_bytes)


def collectives(kernels):
    return tuple(each for kernel in kernels for each in kernel.collectives)


def test_a_product_has_two_operations_per_multiplication_and_moves_its_matrices():
    found = kernels_of(jnp.matmul, (N, M), (M, K))
    assert flops(found) == 2 * N * M * K
    assert n_bytes(found) == 4 * (N * M + M * K + N * K)
    assert Work(9, "bf16", 7).plus(Work(5, "f32", 5)) == Work(14, "bf16", 12)


def test_loops_count_each_iteration_also_nested_ones_and_one_if_their_number_is_unknown():
    def inner(x, y):
        return jax.lax.fori_loop(0, 4, lambda _, x: jnp.tanh(x @ y), x)

    def f(x, y):
        return jax.lax.scan(lambda x, _: (inner(x, y), None), x, length=11)[0]

    def unknown(x, n):
        return jax.lax.fori_loop(0, n.astype(int), lambda _, x: x @ x, x)

    (product,) = [kernel for kernel in kernels_of(f, (N, N), (N, N)) if kernel.work.flops]
    assert (product.times, product.repeats, product.work.flops) == (44, False, 2 * N**3)
    (product,) = [kernel for kernel in kernels_of(unknown, (N, N), ()) if kernel.work.flops]
    assert (product.times, product.repeats, product.work.flops) == (1, True, 2 * N**3)


@pytest.mark.parametrize("product_first", [True, False])
def test_a_conditional_counts_as_its_largest_branch(product_first):
    def f(x):
        branches = (lambda x: x @ x), jnp.tanh
        return jax.lax.cond(x[0, 0] > 0, *(branches if product_first else branches[::-1]), x)

    assert flops(kernels_of(f, (N, N))) == 2 * N**3


def test_a_loops_condition_gives_the_iterations_that_xla_does_not():
    parts, body = PROGRAMS["a loop's parts"], PROGRAMS["a loop"]
    (found,) = written(body, parts)[-1:]
    assert (found.times, found.repeats) == (8, False)
    (found,) = written(body, parts.replace("constant(16)", "parameter(1)"))[-1:]
    assert (found.times, found.repeats) == (1, True)


def test_a_fusion_reads_only_the_slices_that_it_takes_and_writes_only_what_it_changes():
    def f(table, x):
        def body(i, table):
            return jax.lax.dynamic_update_index_in_dim(table, jnp.tanh(table[i] + x), i, 0)

        return jax.lax.fori_loop(0, 100, body, table)

    found = [kernel for kernel in kernels_of(f, (100, 64), (64,)) if kernel.times > 1]
    assert {kernel.times for kernel in found} == {100} and 2 * 256 <= n_bytes(found) / 100 < 8 * 256


@pytest.mark.parametrize(("expected", "body"), cases("kernel"))
def test_a_kernel_has_its_kind_type_operations_and_traffic(expected, body):
    """A causal attention kernel computes half of its pairs, a windowed one those within the window."""
    kind, dtype, *numbers = expected.replace(" again", "").split()
    (found,) = written(PROGRAMS["arguments"] + body, PROGRAMS["a fusion"], on_chip=(1,))
    assert (found.kind, found.work.dtype) == (kind, dtype.replace("_", " "))
    assert [found.work.flops, found.work.done, found.n_bytes] == list(map(float, numbers))


@pytest.mark.parametrize(("expected", "body"), table("collectives"))
def test_collectives_have_their_bytes_and_groups(expected, body):
    found = written(f"  %x = f32[3]{{0}} parameter(0)\n  ROOT %c = f32[3]{{0}} {body}")
    assert collectives(found) == (Collective(*expected.values()),)


def test_a_fused_collective_of_a_tpu_counts_once_from_its_start_to_its_end():
    body = PROGRAMS["calls of fused collectives"]
    everyone, found = [[0, 1, 2, 3]], written(body, PROGRAMS["fused collectives"])
    told = [(kernel.name, kernel.starts, kernel.awaits) for kernel in found]
    assert told == [("channel 1", True, ""), ("b", False, "channel 1"), ("c", False, "")]
    assert collectives(found) == (Collective("all-gather", 48, everyone), Collective("reduce-scatter", 48, everyone))


def test_a_collective_on_sparse_cores_counts_once_with_its_traffic_and_named_rings():
    body = PROGRAMS["calls of sparse cores"]
    started, awaited = written(body, PROGRAMS["a collective of sparse cores"])
    assert started.collectives == (Collective("reduce-scatter", 48, [[0, 1, 2, 3]], rings=2),)
    assert (started.name, started.starts, started.n_bytes, awaited.awaits) == ("s", True, 48 + 12, "s")
    assert not started.uncounted and not awaited.uncounted


def test_memory_spaces_and_comments_in_shapes_are_parsed():
    module = hlo.read(PROGRAMS["program"])
    assert module.entry.root.arrays == [Array("f32", (3, 5)), Array("s4", (7,))]
    assert module.entry[0].arrays == [Array("bf16", (3, 5), space=1)]
    assert 'op_name="jit(f)/convert"' in module.computations["fused"].root.attributes
    assert [kernel.n_bytes for kernel in costs.kernels(module.entry, 8, on_chip=(1,))] == [60]
    shapes = "(bf16[3,5], pred[7], s4[7], f64[], c64[3], f8e4m3fn[3], token[])"
    assert [array.n_bytes for array in hlo.arrays(shapes)] == [30, 7, 4, 8, 24, 3, 0]


@pytest.mark.parametrize(("expected", "text"), cases("groups"))
def test_groups_of_devices_are_parsed_in_each_format(expected, text):
    assert hlo.groups(f", channel_id=1, {text.strip()}", 4) == ast.literal_eval(expected.split()[0])
