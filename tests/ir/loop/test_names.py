"""Names of loops: by role, typed as printed, and a canonical text that does not follow them."""

from __future__ import annotations

import pytest

from nestwright.ir.loop.build import const
from nestwright.ir.loop.names import axis, called, fused, part_of, parts
from nestwright.ir.loop.nodes import For, Kind, Seq, Var
from nestwright.ir.loop.parser import parse
from nestwright.ir.loop.printer import canonical, loop_names, show

TWICE = """\
@func(outputs=1)
def f(A: f32[8], B: f32[8], C: f32[8]):
    for i in range(8):
        with block("B"):
            vi = spatial(8, i)
            reads(A[vi])
            writes(B[vi])
            B[vi] = A[vi]
    for i_1 in range(8):
        with block("C"):
            vi = spatial(8, i_1)
            reads(B[vi])
            writes(C[vi])
            C[vi] = B[vi]
"""


@pytest.mark.parametrize(
    ("name", "kind", "thread", "printed"),
    [
        ("i", Kind.VECTOR, "", "i"),
        ("i_tile", Kind.SERIAL, "", "i_tile"),
        ("i_tile", Kind.PARALLEL, "", "i_par"),
        ("i_in", Kind.VECTOR, "", "i_lane"),
        ("i_in_2", Kind.UNROLLED, "", "i_unroll"),
        ("i_j_tile", Kind.THREAD, "blockIdx.x", "i_j_block"),
        ("k0_in", Kind.THREAD, "threadIdx.y", "k0_thread"),
        ("i_lane", Kind.SERIAL, "", "i_lane"),
    ],
)
def test_a_part_of_a_loop_is_called_by_how_it_runs(
    name: str, kind: Kind, thread: str, printed: str
) -> None:
    assert called(For(Var(name), const(4), Seq(()), kind, thread)) == printed


def test_names_of_parts_and_of_what_is_fused() -> None:
    assert parts("i", 3) == ("i_tile", "i_tile", "i_in")
    assert parts("i_lane_1", 2) == ("i_tile", "i_in")
    assert part_of("j") == "j_in"
    assert axis("i_j_block") == "i_j"
    assert fused(["i", "j"]) == "i_j"
    assert fused(["i", "j_tile"]) == "i_j_tile"
    assert fused(["i_tile", "i_in"]) == "i"
    assert fused(["i_tile", "i_tile_1"]) == "i_tile"


def test_axes_are_named_in_their_block_and_loops_in_the_function() -> None:
    func = parse(TWICE)
    assert show(func) == TWICE
    assert list(loop_names(func).values()) == ["i", "i_1"]
    first, second = TWICE.split("    for i_1")
    renamed = second.replace("vi", "vi_1")
    assert canonical(func) == f"{first}    for i_1{renamed}", "by it old logs know a function"


def test_names_are_free_again_once_there_are_no_blocks() -> None:
    text = """\
@func(outputs=1)
def f(A: f32[8], C: f32[8]):
    for i in range(8):
        x = let(f32, A[i])
        C[i] = x
    for i in vectorize(8):
        C[i] = C[i] + f32(1.0)
"""
    assert show(parse(text)) == text
