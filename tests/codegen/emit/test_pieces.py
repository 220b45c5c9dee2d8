"""Pieces of short parallel loops: few, in even numbers, and every iteration once."""

from __future__ import annotations

import re

import numpy as np
import pytest

from nestwright.codegen.driver.kernel import compile_func
from nestwright.codegen.emit.statements import pieces
from nestwright.codegen.emit.statements.pieces import few_pieces
from nestwright.codegen.targets.registry import emit, lower
from nestwright.ir.loop.interp.evaluate import run as interpret
from nestwright.ir.loop.nodes import For, Func, Kind
from nestwright.ir.loop.parser import parse
from nestwright.ir.loop.visit import walk
from nestwright.ir.target import Target

LOOP = """
@func(outputs=1)
def f(A: f32[{n}, {width}], C: f32[{n}, {width}]):
    for i in parallel({n}):
        for j in range({width}):
            C[i, j] = A[i, j] + A[{n} - 1 - i, j]
"""


def loop_of(n: int, width: int = 3) -> Func:
    return parse(LOOP.format(n=n, width=width))


def pieces_of(func: Func, threads: int) -> int | None:
    (s,) = (x for x in walk(func.body) if isinstance(x, For) and x.kind is Kind.PARALLEL)
    return few_pieces(s, Target.parse(f"cpu -threads={threads}"), {})


COUNTS = [1, 2, 3, 5, 7, 16, 17, 33, 100]


@pytest.mark.parametrize(
    ("n", "threads"),
    [(n, t) for i, n in enumerate(COUNTS) for j, t in enumerate((1, 2, 3, 7)) if (i + j) % 2],
)
def test_every_iteration_runs_once(n: int, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    func = loop_of(n)
    x = np.random.default_rng(n).integers(-8, 8, (n, 3)).astype(np.float32)
    (want,) = interpret(func, [x])
    for piece in (1.0, 20.0, 1e9):
        monkeypatch.setattr(pieces, "PIECE", piece)
        kernel = compile_func(func, Target.parse(f"cpu -threads={threads}"))
        assert np.array_equal(kernel(x), want)


def test_a_short_loop_has_a_piece_for_each_thread() -> None:
    assert [pieces_of(loop_of(1000), n) for n in (2, 3, 16)] == [2, 3, 16]
    target = Target.parse("cpu -threads=2")
    text = emit(lower(loop_of(1000), target), target)
    assert re.search(r"call void @nw_parallel\(.*, i64 2\)", text)


def test_a_longer_loop_has_more_of_them_and_a_long_one_is_the_pools() -> None:
    found = [pieces_of(loop_of(1000, width), 2) for width in (3, 10, 20)]
    assert found == [2, 4, 8]
    assert pieces_of(loop_of(1000, 64), 2) is None


def test_no_more_pieces_than_iterations() -> None:
    assert pieces_of(loop_of(2), 2) is None
    assert pieces_of(loop_of(3), 4) is None
    assert pieces_of(loop_of(5), 4) == 4
