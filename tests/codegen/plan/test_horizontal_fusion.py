"""Which kernels of a plan become one: those between which no value passes, that fit."""

from __future__ import annotations

import pytest

from nestwright.codegen.plan.facts import FactList
from nestwright.codegen.plan.horizontal_fusion import FusedKernel, HorizontalFusion, fuse_kernels
from nestwright.codegen.plan.nodes import (
    BufferSlice,
    ConditionalThunk,
    CopyThunk,
    KernelThunk,
    Thunk,
    WhileThunk,
)
from nestwright.ir.hlo.ops.definition import Work


def value(number: int, size: int = 64) -> BufferSlice:
    return BufferSlice("value", 0, size, number)


def call(name: str, read: str, *written: int, in_place: tuple[int, ...] = ()) -> KernelThunk:
    """A kernel that reads and writes values by number; ``w`` has a workspace, number 99."""
    args = [value(int(n)) for n in read.split()]
    results = [value(n) for n in written]
    results += [value(99, 16)] if name == "w" else []
    return KernelThunk(name, (*args, *results), len(results), name, name, in_place, 0)


def joined(*thunks: Thunk, most: int = 8, apart: str = "") -> list[str]:
    """The plan's kernels and copies as texts, those that became one as ``a+b``."""

    def fits(keys: tuple[str, ...]) -> bool:
        return len(keys) <= most and not set(apart.split()) & set(keys)

    def join(keys: tuple[str, ...]) -> FusedKernel | None:
        return (
            None if "z" in keys else FusedKernel("+".join(keys), "+".join(keys), 16 * ("w" in keys))
        )

    facts = FactList(lambda i: "")
    facts.add("dot", [], Work(2.0, 0.0))
    workspace = {name: 16 * (name == "w") for name in "abcdwz"}
    made = fuse_kernels(
        thunks, HorizontalFusion(workspace, fits, join), facts, lambda size, name: value(100, size)
    )
    return [text for thunk in made for text in texts(thunk)]


def texts(thunk: Thunk) -> list[str]:
    match thunk:
        case KernelThunk(symbol=symbol, args=args, outputs=outputs):
            cut = len(args) - outputs
            read, written = (" ".join(str(s.index) for s in x) for x in (args[:cut], args[cut:]))
            return [f"{symbol}({read})->({written})"]
        case WhileThunk(condition=first, body=second):
            return ["while", *(t for x in (*first, *second) for t in texts(x))]
        case ConditionalThunk(branches=branches):
            return ["branch", *(t for b in branches for x in b for t in texts(x))]
        case CopyThunk(source=source, target=target):
            return [f"copy {source.index}->{target.index}"]
        case _:
            return ["?"]


def test_kernels_that_share_an_input_are_one() -> None:
    parts = call("a", "0 1", 5), call("b", "0 2", 6), call("c", "0 3", 7)
    assert joined(*parts) == ["a+b+c(0 1 0 2 0 3)->(5 6 7)"]


def test_of_four_that_read_two_inputs_all_may_be_one() -> None:
    parts = call("a", "0 1", 5), call("b", "0 2", 6), call("c", "4 1", 7), call("d", "4 2", 8)
    assert joined(*parts) == ["a+b+c+d(0 1 0 2 4 1 4 2)->(5 6 7 8)"]


@pytest.mark.parametrize(
    ("second", "why"),
    [
        (call("b", "5", 6), "reads what the first one writes"),
        (call("b", "1", 5), "writes what the first one writes"),
        (call("b", "1", 0), "writes what the first one reads"),
    ],
)
def test_what_depends_on_a_kernel_comes_after_it(second: KernelThunk, why: str) -> None:
    found = joined(call("a", "0", 5), second)
    assert len(found) == 2 and found[0].startswith("a(") and found[1].startswith("b("), why


def test_a_kernel_moves_over_others_but_not_over_what_it_needs() -> None:
    first, between = call("a", "0", 5), call("x", "5", 6)
    assert joined(first, between, call("b", "1", 7)) == ["a+b(0 1)->(5 7)", "x(5)->(6)"]
    assert joined(first, between, call("b", "6", 7)) == ["a(0)->(5)", "x(5)->(6)", "b(6)->(7)"]
    copied = CopyThunk(value(5), value(1))
    assert joined(first, copied, call("b", "1", 7))[1] == "copy 5->1"
    assert joined(first, copied, call("b", "2", 1))[1] == "copy 5->1"
    assert joined(first, copied, call("b", "2", 7))[1] == "copy 5->1"
    assert joined(first, copied, call("b", "2", 7))[0] == "a+b(0 2)->(5 7)"


def test_one_that_waits_for_another_part_is_no_part() -> None:
    """``c`` needs ``b``, which is in the fused kernel already."""
    found = joined(call("a", "0", 5), call("b", "0", 6), call("c", "6", 7))
    assert found == ["a+b(0 0)->(5 6)", "c(6)->(7)"]


def test_workspaces_become_one() -> None:
    assert joined(call("w", "0", 5), call("a", "0", 6)) == ["w+a(0 0)->(5 6 100)"]


def test_what_does_not_fit_stays_apart() -> None:
    parts = call("a", "0", 5), call("b", "0", 6), call("c", "0", 7)
    assert joined(*parts, most=2) == ["a+b(0 0)->(5 6)", "c(0)->(7)"]
    assert joined(*parts, apart="b") == ["a+c(0 0)->(5 7)", "b(0)->(6)"]
    assert joined(call("a", "0", 5), call("x", "0", 6)) == ["a(0)->(5)", "x(0)->(6)"]
    assert joined(call("a", "0", 5), call("z", "0", 6)) == ["a(0)->(5)", "z(0)->(6)"]


def test_bodies_and_branches_are_joined_in_themselves() -> None:
    parts = call("a", "0", 5), call("b", "0", 6)
    loop = WhileThunk((call("c", "0", 7),), value(7, 1), parts)
    assert joined(loop) == ["while", "c(0)->(7)", "a+b(0 0)->(5 6)"]
    assert joined(call("c", "0", 8), loop, call("d", "0", 9))[-1] == "d(0)->(9)"
    assert joined(ConditionalThunk(value(1, 1), (parts, ())))[1] == "a+b(0 0)->(5 6)"


def test_a_kernel_moves_over_branches_that_leave_its_values_alone() -> None:
    """As the tests of several convolutions' weights, each followed by a choice of two kernels."""
    inner = ConditionalThunk(value(5, 1), ((call("x", "1", 6),), ()))
    branch = ConditionalThunk(value(5, 1), ((inner, CopyThunk(value(2), value(7))), ()))
    first = call("a", "0", 5)
    assert joined(first, branch, call("b", "3", 8))[0] == "a+b(0 3)->(5 8)"
    for last in (call("b", "6", 8), call("b", "7", 8), call("b", "3", 1), call("b", "3", 2)):
        assert joined(first, branch, last)[0] == "a(0)->(5)"


def test_large_kernels_have_launches_of_their_own() -> None:
    large, table = value(0, 1 << 26), value(0, 1 << 27)
    assert len(joined(KernelThunk("a", (value(5), large), 1, "a"), call("b", "1", 6))) == 2
    rows = KernelThunk("a", (table, value(5)), 1, "a", "a", (), 0)
    assert len(joined(rows, call("b", "1", 6))) == 1  # of which it may read few


def test_a_large_result_stays_over_its_argument() -> None:
    large = KernelThunk("a", (value(0, 1 << 21), value(5, 1 << 21)), 1, "a", "a", (0,), 0)
    assert len(joined(large, call("b", "1", 6))) == 2
    assert joined(call("a", "0", 5, in_place=(0,)), call("b", "1", 6)) == ["a+b(0 1)->(5 6)"]


def test_a_copy_moves_with_the_kernel_that_starts_from_it() -> None:
    """Two caches, each copied and then updated in place."""
    second = CopyThunk(value(2), value(7)), call("b", "7 1", 7)
    found = joined(CopyThunk(value(3), value(6)), call("a", "6 1", 6), *second)
    assert found == ["copy 3->6", "copy 2->7", "a+b(6 1 7 1)->(6 7)"]
    assert joined(call("a", "0", 5), call("x", "0", 2), *second)[-1] == "b(7 1)->(7)"
    late = joined(call("a", "0", 5), CopyThunk(value(5), value(7)), call("b", "7", 7))
    assert late == ["a(0)->(5)", "copy 5->7", "b(7)->(7)"]
    twice = CopyThunk(value(2), value(8)), CopyThunk(value(8), value(7)), call("b", "7", 7)
    assert joined(call("a", "0", 5), *twice)[-1] == "b(7)->(7)"
    stays = joined(call("a", "0", 5), CopyThunk(value(2), value(8)), call("b", "1", 7))
    assert stays == ["a+b(0 1)->(5 7)", "copy 2->8"]
