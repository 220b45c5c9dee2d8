"""Which nests of copies are boxes that one thread can copy by bulk."""

from __future__ import annotations

import pytest

from nestwright.codegen.lower.gpu.bulk_copies import box_copy
from nestwright.ir.loop.nodes import For
from nestwright.ir.loop.parser import parse
from nestwright.ir.loop.visit import walk

COPY = """\
@func(outputs=1)
def f(A: bf16[20, 64], C: bf16[64]):
    S = alloc(bf16[8, 64], scope="shared", swizzle=8)
    for r in range(3):
        for i in range(8):
            for j in range(64):
                S[i, j] = select(r * 8 + i < {rows}, A[r * 8 + i, j], bf16(0.0))
"""


@pytest.mark.parametrize(("rows", "is_box"), [(19, False), (20, True), (21, False)])
def test_rows_that_a_box_leaves_out_are_those_beyond_the_matrix(rows: int, is_box: bool) -> None:
    func = parse(COPY.format(rows=rows))
    turns, nest, _ = (s for s in walk(func.body) if isinstance(s, For))
    made = box_copy(nest, 1, func.params, {turns.var: (0, 2)})
    assert (made is not None) == is_box
