"""What programs cost, against counts by hand: programs of this CPU, and instructions that only accelerators have."""

import jax
import jax.numpy as jnp
import pytest

from fxf.compile import costs, hlo
from fxf.compile.costs import Collective
from helpers import programs

N, M, K = 3, 5, 7
PROGRAMS = programs()


def numbered(kind):
    """Returns (number, text) of the programs of a kind, whose names end in a number."""
    return [(name.split()[1], text) for name, text in PROGRAMS.items() if name.startswith(kind)]


def kernels_of(function, *shapes):
    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    return costs.kernels(hlo.read(jax.jit(function).lower(*shapes).compile().as_text()), n_devices=1)


def written(body, others="", header="HloModule jit_f", n_devices=4, **options):
    """Returns the kernels of a program whose entry has these instructions."""
    return costs.kernels(
        hlo.read(f"{header}\n\n{others}\nENTRY %main () -> f32[] {{\n{body}\n}}\n"), n_devices, **options
    )


def flops(kernels):
    return costs.total(kernels, lambda k: k.work.flops)


def n_bytes(kernels):
    return costs.total(kernels, lambda k: k.n_bytes)


def collectives(kernels):
    return tuple(each for kernel in kernels for each in kernel.collectives)


def test_a_product_has_twice_its_multiplications_and_moves_its_matrices():
    found = kernels_of(jnp.matmul, (N, M), (M, K))
    assert flops(found) == 2 * N * M * K
    assert n_bytes(found) == 4 * (N * M + M * K + N * K)


def test_loops_count_each_turn_also_those_inside_of_others():
    def inner(x, y):
        return jax.lax.fori_loop(0, 4, lambda _, x: jnp.tanh(x @ y), x)

    def f(x, y):
        return jax.lax.scan(lambda x, _: (inner(x, y), None), x, length=11)[0]

    found = kernels_of(f, (N, N), (N, N))
    assert flops(found) == 11 * 4 * 2 * N**3
    (product,) = [kernel for kernel in found if kernel.work.flops]
    assert product.times == 44 and [loop.iterations for loop in product.within] == [11, 4]


def test_a_loop_whose_turns_are_not_known_counts_once():
    def f(x, n):
        return jax.lax.fori_loop(0, n.astype(int), lambda _, x: x @ x, x)

    found = kernels_of(f, (N, N), ())
    (product,) = [kernel for kernel in found if kernel.work.flops]
    assert product.within[0].iterations is None and flops(found) == 2 * N**3


def test_the_condition_tells_the_turns_that_xla_does_not_say():
    parts, body = PROGRAMS["a loop's parts"], PROGRAMS["a loop"]
    (found,) = [kernel for kernel in written(body, parts) if kernel.within]
    assert found.within[0].iterations == 8
    (found,) = [kernel for kernel in written(body, parts.replace("constant(17)", "parameter(1)")) if kernel.within]
    assert found.within[0].iterations is None and found.times == 1


def test_a_fusion_reads_only_the_slices_that_it_takes_and_writes_only_what_it_changes():
    def f(table, x):
        def body(i, table):
            return jax.lax.dynamic_update_index_in_dim(table, jnp.tanh(table[i] + x), i, 0)

        return jax.lax.fori_loop(0, 100, body, table)

    found = [kernel for kernel in kernels_of(f, (100, 64), (64,)) if kernel.within]
    assert {kernel.times for kernel in found} == {100} and 2 * 256 <= n_bytes(found) / 100 < 8 * 256


@pytest.mark.parametrize(("expected", "body"), numbered("moved: "))
def test_instructions_move_their_operands_and_results(expected, body):
    arguments = """  %a = f32[100,4]{1,0} parameter(0)
  %b = f32[1,4]{1,0} parameter(1)
  %i = s32[] parameter(2)
"""
    assert n_bytes(written(arguments + body, PROGRAMS["a fusion"], on_chip=(1,))) == int(expected)


@pytest.mark.parametrize(("expected", "body"), numbered("product: "))
def test_products_of_accelerators_are_counted(expected, body):
    assert flops(written(body)) == int(expected)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("all-reduce(%x), replica_groups={{0,1},{2,3}}", Collective("all-reduce", 12, [[0, 1], [2, 3]])),
        ("all-gather-start(%x), replica_groups=[1,4]<=[4]", Collective("all-gather", 48, [[0, 1, 2, 3]])),
        ("reduce-scatter(%x), replica_groups=[1,4]<=[4]", Collective("reduce-scatter", 12, [[0, 1, 2, 3]])),
        ("collective-permute(%x), source_target_pairs={{0,1}}", Collective("collective-permute", 12, [[0, 1]])),
    ],
)
def test_collectives_have_their_bytes_and_groups(body, expected):
    assert collectives(written(f"  %x = f32[3]{{0}} parameter(0)\n  ROOT %c = f32[3]{{0}} {body}")) == (expected,)


def test_fused_collectives_of_a_tpu_count_once_each_from_where_they_start_to_where_they_are_awaited():
    body = """  %x = f32[3]{0} parameter(0)
  %i = s32[] parameter(1)
  %a = f32[12]{0} fusion(%x), kind=kCustom, calls=%start
  %b = f32[12]{0} fusion(%x), kind=kCustom, calls=%done
  ROOT %c = f32[3]{0} fusion(%b, %i), kind=kCustom, calls=%scatter"""
    everyone, found = [[0, 1, 2, 3]], written(body, PROGRAMS["fused collectives"])
    assert [(kernel.name, kernel.starts, kernel.awaits) for kernel in found] == [
        ("channel 1", True, ""),
        ("b", False, "channel 1"),
        ("c", False, ""),
    ]
    assert collectives(found) == (
        Collective("all-gather", 48, everyone),
        Collective("reduce-scatter", 48, everyone),
    )


def test_a_collective_of_a_tpus_sparse_cores_counts_once_with_its_traffic_and_the_rings_that_it_names():
    body = """  %x = f32[12]{0} parameter(0)
  %p = s32[] custom-call(), custom_call_target="PrepareAsyncCallStart"
  %q = token[] custom-call(%p), custom_call_target="PrepareAsyncCallDone"
  %s = ((f32[12]{0}, token[]), f32[3]{0}) call-start(%x, %q), async_execution_thread="sparsecore", to_apply=%called
  ROOT %d = f32[3]{0} call-done(%s)"""
    found = written(body, PROGRAMS["a collective of sparse cores"])
    assert collectives(found) == (Collective("reduce-scatter", 48, [[0, 1, 2, 3]], rings=2),)
    assert n_bytes(found) == 48 + 12 and not any(kernel.uncounted for kernel in found)
