"""Which arguments a plan may overwrite with results that begin as copies of them."""

from __future__ import annotations

from nestwright.codegen.plan.nodes import (
    BufferSlice,
    ConditionalThunk,
    CopyThunk,
    KernelThunk,
    Plan,
    Thunk,
)
from nestwright.codegen.plan.signature import ArraySpec
from nestwright.codegen.plan.updates import updated_in_place
from nestwright.ir.dtypes import f32

X, Y = (BufferSlice("param", 0, 16, n) for n in range(2))
R, S = (BufferSlice("result", 0, 16, n) for n in range(2))


def pairs(*thunks: Thunk) -> set[tuple[int, int]]:
    params = ArraySpec("x", f32, (4,)), ArraySpec("y", f32, (4,))
    results = ArraySpec("r", f32, (4,)), ArraySpec("s", f32, (4,))
    return set(updated_in_place(Plan(thunks, 0, 0, params, results, (0, 1), (0, 1))))


def update(target: BufferSlice, *read: BufferSlice) -> KernelThunk:
    return KernelThunk("update", (*read, target), 1)


def test_a_copy_that_is_updated_may_be_the_argument() -> None:
    assert pairs(CopyThunk(X, R), update(R, Y, R)) == {(0, 0)}
    assert pairs(CopyThunk(X, R), update(R, R), CopyThunk(Y, S), update(S, S)) == {(0, 0), (1, 1)}


def test_an_argument_that_is_read_after_the_update_may_not() -> None:
    assert pairs(CopyThunk(X, R), update(R, R), update(S, X)) == set()
    assert pairs(CopyThunk(X, R), update(R, X)) == set()
    assert pairs(CopyThunk(X, R), update(S, X), update(R, R)) == {(0, 0)}
    assert pairs(update(S, X), CopyThunk(X, R), update(R, R)) == {(0, 0)}


def test_what_a_branch_reads_and_writes_counts() -> None:
    flag = BufferSlice("param", 0, 1, 1)
    later = ConditionalThunk(flag, ((update(S, X),), ()))
    assert pairs(CopyThunk(X, R), update(R, R), later) == set()
    inside = ConditionalThunk(flag, ((update(R, R),), (update(S, X),)))
    assert pairs(CopyThunk(X, R), inside) == set()
    assert pairs(ConditionalThunk(flag, ((CopyThunk(X, R),), ()))) == set()


def test_a_result_that_was_something_else_before_may_not() -> None:
    assert pairs(update(R, Y), CopyThunk(X, R)) == set()
    part = BufferSlice("param", 0, 8, 0), BufferSlice("result", 0, 8, 0)
    assert pairs(CopyThunk(*part)) == set()


def test_of_two_copies_of_an_argument_both_may_be_it_if_neither_is_updated() -> None:
    assert pairs(CopyThunk(X, R), CopyThunk(X, S)) == {(0, 0), (0, 1)}
    assert pairs(CopyThunk(X, R), update(R, R), CopyThunk(X, S)) == {(0, 1)}
