"""Barriers: where lowering puts them, where none is needed, and that each one it puts is needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from nestwright.codegen.lower.gpu.barriers import place_barriers
from nestwright.codegen.lower.passes.rebuild import with_body
from nestwright.codegen.targets.registry import lower
from nestwright.ir.errors import UnsupportedError
from nestwright.ir.loop.interp.evaluate import UndefinedError, run
from nestwright.ir.loop.nodes import Func, Intrinsic, Seq, Stmt
from nestwright.ir.loop.parser import parse
from nestwright.ir.loop.printer import show
from nestwright.ir.loop.visit import map_stmt, walk
from nestwright.ir.target import Target

KINDS = ("barrier", "warp_barrier")


def waits(func: Func) -> list[str]:
    """The barriers in order."""
    found = (x.name for x in walk(func.body) if isinstance(x, Intrinsic))
    return [name for name in found if name in KINDS]


def without(func: Func, number: int) -> Func:
    """The function without one of its barriers."""
    count = iter(range(100))

    def stmt(s: Stmt) -> Stmt:
        if isinstance(s, Intrinsic) and s.name in KINDS:
            return Seq(()) if next(count) == number else s
        return map_stmt(s, stmt, lambda e: e)

    return with_body(func, stmt(func.body))


Needed: TypeAlias = Callable[[str, list[str]], None]


@pytest.fixture(scope="session")
def each_is_needed(
    means_the_same: Callable[[str], Func], arguments: Callable[[Func], list[Any]]
) -> Needed:
    """Lowered without a race; a race as soon as any barrier is missing."""

    def check(before: str, expected: list[str]) -> None:
        flat = means_the_same(before)
        assert waits(flat) == expected
        args = [a.reshape(-1) for a in arguments(parse(before))]
        for n in range(len(expected)):
            with pytest.raises(UndefinedError):
                run(without(flat, n), args, check_races=True, seed=1)

    return check


def kernel(body: str) -> str:
    """Text of one launch over A[64], C[64], shared S[64] and T[64]; ``t`` is the thread."""
    lines = "\n".join(f"            {line}" for line in body.strip("\n").split("\n"))
    return f"""\
@func(outputs=1)
def f(A: f32[64], C: f32[64]):
    S = alloc(f32[64], scope="shared")
    T = alloc(f32[64], scope="shared")
    for b in thread("blockIdx.x", 1):
        for t in thread("threadIdx.x", 64):
{lines}
"""


def placed(body: str, target: Target) -> list[str]:
    """The barriers in a launch of that body."""
    return waits(lower(parse(kernel(body)), target))


def test_a_barrier_between_a_write_and_another_threads_read(each_is_needed: Needed) -> None:
    before = """\
@func(outputs=1)
def f(A: f32[64], C: f32[64]):
    S = alloc(f32[64], scope="shared")
    for b in thread("blockIdx.x", 1):
        for t in thread("threadIdx.x", 64):
            S[t] = A[t]
        for t in thread("threadIdx.x", 64):
            C[t] = S[63 - t]
"""
    each_is_needed(before, ["barrier"])


@pytest.mark.parametrize("place", ["t", "t // 8 * 8 + t % 8", "63 - t"])
def test_no_barrier_where_each_thread_reads_what_it_wrote(place: str, target: Target) -> None:
    body = f"""
for k in range(4):
    S[{place}] = A[t]
    C[t] = S[{place}]
"""
    assert placed(body, target) == []


REUSE = """\
@func(outputs=1)
def f(A: f32[4, 64], C: f32[4, 64]):
    S = alloc(f32[4, 64], scope="shared")
    for b in thread("blockIdx.x", 1):
        for k in range(4):
            for t in thread("threadIdx.x", 64):
                S[k, t] = A[k, t]
            for t in thread("threadIdx.x", 64):
                C[k, t] = S[k, 63 - t]
"""


def test_an_iteration_waits_for_what_the_last_one_still_reads(each_is_needed: Needed) -> None:
    each_is_needed(REUSE, ["barrier", "barrier"])


def test_one_warp_needs_its_own_barrier_only(each_is_needed: Needed) -> None:
    each_is_needed(REUSE.replace("63", "31").replace("64", "32"), ["warp_barrier"] * 2)


def test_threads_of_one_warp_that_meet_need_the_warps_barrier_only(each_is_needed: Needed) -> None:
    before = """\
@func(outputs=1)
def f(A: f32[64], C: f32[64]):
    S = alloc(f32[64], scope="shared")
    for b in thread("blockIdx.x", 1):
        for y in thread("threadIdx.y", 2):
            for x in thread("threadIdx.x", 32):
                S[y * 32 + x] = A[y * 32 + x]
        for y in thread("threadIdx.y", 2):
            for x in thread("threadIdx.x", 32):
                C[y * 32 + x] = S[y * 32 + 31 - x]
"""
    each_is_needed(before, ["warp_barrier"])


def test_a_buffer_takes_the_place_of_another_once_all_have_read_it(each_is_needed: Needed) -> None:
    before = """\
@func(outputs=2)
def f(A: f32[64], C: f32[64], D: f32[64]):
    S = alloc(f32[64], scope="shared")
    T = alloc(f32[64], scope="shared")
    for b in thread("blockIdx.x", 1):
        for t in thread("threadIdx.x", 64):
            S[t] = A[t]
        for t in thread("threadIdx.x", 64):
            C[t] = S[63 - t]
        for t in thread("threadIdx.x", 64):
            T[t] = A[t] + f32(1.0)
        for t in thread("threadIdx.x", 64):
            D[t] = T[63 - t]
"""
    each_is_needed(before, ["barrier"] * 3)


def test_threads_may_meet_in_global_memory(each_is_needed: Needed) -> None:
    before = """\
@func(outputs=2)
def f(A: f32[64], C: f32[64], D: f32[64]):
    for b in thread("blockIdx.x", 1):
        for t in thread("threadIdx.x", 64):
            C[t] = A[t]
        for t in thread("threadIdx.x", 64):
            D[t] = C[63 - t]
"""
    each_is_needed(before, ["barrier"])


def test_places_that_take_turns_are_told_apart() -> None:
    before = """\
@func(outputs=1)
def f(A: f32[9, 64], C: f32[9, 64]):
    for bx in thread("blockIdx.x", 1):
        for tx in thread("threadIdx.x", 64):
            S = alloc(f32[2, 64], scope="shared")
            S[0, tx] = A[0, tx]
            for k in range(9):
                intrinsic("barrier")
                if k < 8:
                    S[(k + 1) % 2, tx] = A[k + 1, tx]
                C[k, tx] = S[k % 2, 63 - tx]
"""
    func = parse(before)
    assert place_barriers(func) is func
    wrong = parse(before.replace("(k + 1) % 2", "k % 2"))
    assert waits(place_barriers(wrong)) == ["barrier", "barrier"]


def test_a_guard_on_threads_moves_inside_of_what_all_have_to_reach(
    means_the_same: Callable[[str], Func],
) -> None:
    before = """\
@func(outputs=1)
def f(A: f32[4, 64], C: f32[4, 64]):
    S = alloc(f32[4, 48], scope="shared")
    for b in thread("blockIdx.x", 1):
        for t in thread("threadIdx.x", 64):
            for k in range(4):
                C[k, t] = A[k, t]
        for t in thread("threadIdx.x", 48):
            for k in range(4):
                for u in thread("threadIdx.x", 48):
                    S[k, u] = A[k, u]
                for u in thread("threadIdx.x", 48):
                    C[k, u] = S[k, 47 - u]
"""
    flat = means_the_same(before)
    assert waits(flat) == ["barrier", "barrier"]
    lines = show(flat).split("\n")
    guards = [line for line in lines if "if tx < 48" in line]
    assert len(guards) == 2
    assert all(line.startswith(" " * 20) for line in guards)


def test_loops_of_single_elements_know_their_iterations_apart(target: Target) -> None:
    body = """
for k in range(4):
    for j in range(16):
        if t < 4:
            S[k * 16 + j] = A[k]
"""
    assert placed(body.replace("t < 4", "t == 0"), target) == []


@pytest.mark.parametrize(
    "body",
    [
        "for k in range(t + 1):\n    S[t] = A[k]\n    C[k] = S[63 - t]",
        "if A[t] > f32(0.0):\n    S[t] = A[t]\n    A[t] = S[63 - t]\n",
    ],
)
def test_a_barrier_that_some_threads_would_not_reach_is_refused(body: str, target: Target) -> None:
    with pytest.raises(UnsupportedError, match="there is a barrier inside"):
        placed(body, target)


PIECE = """
@func(outputs=1)
def piece(X: f32[40, 12], Y: f32[40, 20]):
    for b in thread("blockIdx.x", 4):
        for t in thread("threadIdx.x", 32):
            for k in unroll(4):
                with block("Y"):
                    v = spatial(480, b * 128 + k * 32 + t)
                    where(b * 128 + k * 32 + t < 480)
                    reads(X[v // 12, v % 12])
                    writes(Y[v // {n}, v % {n} + {first}])
                    Y[v // {n}, v % {n} + {first}] = X[v // 12, v % 12]
"""


def test_a_piece_of_rows_is_written_without_waiting(target: Target) -> None:
    """As a concatenation does. A shorter piece is not injective: rows would be written twice."""
    assert waits(lower(parse(PIECE.format(n=12, first=8)), target)) == []
    both = PIECE.format(n=12, first=8).replace("v % 12 + 8]", "v % 12 % 8 + 8]")
    assert waits(lower(parse(both), target)) != []
