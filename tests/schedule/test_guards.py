"""Predicates of blocks: what remains of them where a reduction starts, and of loops rebuilt."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from math import prod

import pytest

from nestwright.ir.elementwise import TABLE
from nestwright.ir.loop.build import FALSE
from nestwright.ir.loop.nodes import AxisKind, Const, Expr, For, Op, Var
from nestwright.ir.loop.parser import parse
from nestwright.ir.loop.printer import show
from nestwright.ir.loop.visit import walk
from nestwright.schedule.cursor import Path, block_of, nest
from nestwright.schedule.guards import lasting_guards, starting_guard

PROGRAM = """\
@func(outputs=1)
def f(A: f32[12, 12], C: f32[12]):
    for i in range(3):
        for j in range(4):
            for k in range(2):
                for l in range(5):
                    with block("C"):
                        vi, vk = spatial({axis}), reduce({term})
                        where({guard})
                        reads(C[vi], A[vi, vk])
                        writes(C[vi])
                        with init():
                            C[vi] = f32(0.0)
                        C[vi] = C[vi] + A[vi, vk]
"""


def path_of(axis: str, term: str, guard: str) -> tuple[Path, list[dict[Var, int]]]:
    """The block, and all points of its loops."""
    func = parse(PROGRAM.format(axis=axis, term=term, guard=guard))
    loops = [s for s in walk(func.body) if isinstance(s, For)]
    sizes = [s.extent.value for s in loops if isinstance(s.extent, Const)]
    points = product(*(range(int(n)) for n in sizes if not isinstance(n, complex)))
    found = [dict(zip([s.var for s in loops], at, strict=True)) for at in points]
    assert len(found) == prod((3, 4, 2, 5))
    return nest(func).blocks["C"], found


def value(e: Expr, at: Mapping[Var, int]) -> int:
    match e:
        case Var():
            return at[e]
        case Const(value=v):
            return int(v)  # type: ignore[arg-type]
        case Op(name=name, args=args):
            return int(TABLE[name].numpy(*(_array(value(a, at), a) for a in args)))
    raise AssertionError(e)


def _array(x: int, e: Expr) -> object:
    import numpy as np

    return np.bool_(x) if e.dtype.kind == "pred" else np.int64(x)


@pytest.mark.parametrize(
    "guard, left",
    [
        ("i * 4 + j < 10", "i * 4 + j < 10"),
        ("k * 5 + l < 7", ""),
        ("i * 4 + j < 10 and k * 5 + l < 7", "i * 4 + j < 10"),
        ("i * 4 + j + k < 12", "i * 4 + j < 12"),
        ("i + l * 2 < 4", "i < 4"),
        ("(i + l) // 2 < 2", "i // 2 < 2"),
        ("l * 2 - k < 7", "False"),  # less in a later iteration: the first may fail alone
        ("3 < l + i", "False"),
        ("l % 3 < 2", "False"),
        ("l < j", "False"),
    ],
)
def test_where_a_reduction_starts(guard: str, left: str) -> None:
    path, points = path_of("12, i * 4 + j", "10, k * 5 + l", guard)
    block = block_of(path)
    found = starting_guard(block)
    assert ("" if found is None else show(found).replace(" + 0", "")) == left
    if found == FALSE:
        return
    over = {v for a in block.axes if a.kind is AxisKind.REDUCE for v in (path[2].var, path[3].var)}  # type: ignore[union-attr]
    assert block.predicate is not None
    for p in points:
        first = {v: 0 if v in over else n for v, n in p.items()}
        starts = found is None or value(found, p)
        assert starts == value(block.predicate, first)
        assert starts or not value(block.predicate, p)


@pytest.mark.parametrize(
    "axis, guard, kept",
    [
        ("10, i * 4 + j", "i * 4 + j < 10", []),  # beyond the axis
        ("12, i * 4 + j", "i * 4 + j < 7", ["vi < 7"]),
        ("12, i * 4 + j", "i * 4 + j < 7 and k * 5 + l < 9", ["vi < 7", "vk < 9"]),
        ("12, i * 4 + j", "i * 4 + j < 12", []),
        ("12, i * 4 + j", "2 <= i * 4 + j", ["2 <= vi"]),
        ("12, i * 4 + j", "j < 3", []),  # as of a loop of 3 that was split
        ("12, i * 4 + j", "j < i", None),
        ("3, i", "j < 3", []),  # repeats the same instances
    ],
)
def test_what_lasts_when_loops_are_rebuilt(axis: str, guard: str, kept: list[str] | None) -> None:
    path, _ = path_of(axis, "10, k * 5 + l", guard)
    found = lasting_guards(path)
    assert (None if found is None else [show(c) for c in found]) == kept


def test_without_a_predicate_nothing_lasts() -> None:
    text = PROGRAM.format(axis="12, i * 4 + j", term="10, k * 5 + l", guard="")
    func = parse(text.replace("                        where()\n", ""))
    assert lasting_guards(nest(func).blocks["C"]) == ()
    assert starting_guard(block_of(nest(func).blocks["C"])) is None
