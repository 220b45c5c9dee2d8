"""Partition: whatever a guard asks, the parts decide it and compute the same."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from nestwright.codegen.lower.passes.partition import certain, partition
from nestwright.ir.loop.interp.evaluate import run
from nestwright.ir.loop.nodes import For, Func
from nestwright.ir.loop.parser import parse
from nestwright.ir.target import Target

TARGET = Target.parse("llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512")
NAMES = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}
EQUAL = {"==": np.equal, "!=": np.not_equal}
FORMS = list(product((-3, -2, -1, 1, 2, 3), (-2, 0, 1), range(-9, 10, 3)))  # of i, of j, and more
ROWS, COLUMNS = 7, 3

GUARDED = """\
@func(outputs=1)
def f(A: f32[1], C: f32[{rows}, {columns}]):
    for y in range({rows}):
        for x in range({columns}):
            C[y, x] = f32(0.0)
    for i in {kind}({rows}):
        for j in range({columns}):
            if {guard}:
                C[i, j] = A[0]
"""


def guarded(guard: str, kind: str = "range") -> Func:
    return parse(GUARDED.format(guard=guard, kind=kind, rows=ROWS, columns=COLUMNS))


def values(a: int, b: int, c: int) -> Any:
    """Return the form at each place of the loops."""
    return a * np.arange(ROWS)[:, None] + b * np.arange(COLUMNS) + c


def second_loop(func: Func) -> For:
    (_, loop) = func.body.stmts  # type: ignore[union-attr]
    assert isinstance(loop, For)
    return loop


@pytest.mark.parametrize("name", NAMES)
def test_bounds_are_the_same_in_certain_iterations(name: str) -> None:
    """All that hold, or all that do not if these are more."""
    for a, b, c in FORMS:
        loop = second_loop(guarded(f"i * {a} + j * {b} + {c} {name} 0"))
        start, stop = certain(loop.body, loop.var, (0, ROWS), {loop.var: (0, ROWS - 1)})
        holds = NAMES[name](values(a, b, c), 0)
        wanted = max(holds.all(axis=1), ~holds.any(axis=1), key=np.count_nonzero)
        inside = [start <= i < stop for i in range(ROWS)]
        assert inside == wanted.tolist(), (a, b, c)


@pytest.mark.parametrize("name", EQUAL)
def test_equality_is_decided_in_certain_iterations(name: str) -> None:
    found = 0
    for a, b, c in FORMS:
        loop = second_loop(guarded(f"i * {a} + j * {b} + {c} {name} 0"))
        start, stop = certain(loop.body, loop.var, (0, ROWS), {loop.var: (0, ROWS - 1)})
        assert (values(a, b, c)[max(start, 0) : stop] != 0).all() or (start, stop) == (0, ROWS)
        found += 0 < stop - start < ROWS
    assert found > len(FORMS) // 4


@pytest.mark.parametrize("limit", [0, 1000], ids=["no copies", "copies"])
@pytest.mark.parametrize("kind", ["range", "parallel", "unroll"])
@pytest.mark.parametrize("name", [*NAMES, *EQUAL])
def test_parts_compute_the_same(name: str, kind: str, limit: int) -> None:
    for a, b, c in FORMS[:: 1 if limit and kind == "range" else 5]:
        func = guarded(f"i * {a} + j * {b} + {c} {name} 0", kind)
        (got,) = run(partition(func, TARGET, limit), [np.ones(1, np.float32)])
        np.testing.assert_array_equal(
            got, (NAMES | EQUAL)[name](values(a, b, c), 0), str((a, b, c))
        )
