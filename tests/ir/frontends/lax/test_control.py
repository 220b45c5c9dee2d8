"""Loops and branches of terms: values from around them, nesting, known choices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nestwright.ir.errors import VerifyError
from nestwright.ir.frontends.lax import control
from nestwright.ir.frontends.lax.graph import Graph
from nestwright.ir.frontends.lax.reductions import sum_
from nestwright.ir.frontends.lax.shaping import full
from nestwright.ir.frontends.lax.term import Term

from .conftest import module_of

ROWS = np.arange(6, dtype=np.float32).reshape(3, 2)


def test_a_loop_takes_values_from_around_it(run: Any) -> None:
    def doubled(x: Term, step: Term) -> Any:
        far = x + step  # an array of the outer graph
        return control.while_loop(lambda v: sum_(v) < 100, lambda v: [v * 2 + far - step], [x])

    value = ROWS.copy()
    while value.sum() < 100:
        value = value * 2 + ROWS
    assert np.array_equal(run(doubled, ROWS, np.float32(3)[()]), value)


def test_a_loop_in_a_loop_takes_values_from_both(run: Any) -> None:
    def nested(x: Term, y: Term) -> Any:
        def outer(_: Term, total: Term) -> Any:
            inner = control.fori_loop(2, lambda n, t: [t + y * total], [total * 0])
            return [total + inner[0] + x]

        return control.fori_loop(3, outer, [x])

    total = ROWS
    for _ in range(3):
        total = total + 2 * (2 * total) + ROWS
    assert np.array_equal(run(nested, ROWS, np.float32(2)[()]), total)


def test_a_scan_stacks_results(run: Any) -> None:
    def sums(x: Term, bias: Term) -> Any:
        start = full(x.site, 0, x.dtype, (2,))
        return control.scan(lambda s, row: [s + row, s * bias], [start], [x], 3)

    last, held = run(sums, ROWS, np.float32([1, 10]))
    assert np.array_equal(last, ROWS.sum(0))
    before = np.cumsum(ROWS, 0) - ROWS
    assert np.array_equal(held, before * np.float32([1, 10]))


@pytest.mark.parametrize("choice", [True, False])
def test_branches_take_what_they_use(choice: bool, run: Any) -> None:
    def chosen(c: Term, x: Term, y: Term) -> Any:
        return control.cond(c, lambda: [x + y, x], lambda: [x * 3, y])

    a, b = run(chosen, np.array(choice), ROWS, ROWS + 1)
    assert np.array_equal(a, ROWS + ROWS + 1 if choice else ROWS * 3)
    assert np.array_equal(b, ROWS if choice else ROWS + 1)


@pytest.mark.parametrize("number", [0, 1, 2, 7, -1])
def test_a_number_out_of_range_takes_the_last_branch(number: int, run: Any) -> None:
    def chosen(n: Term, x: Term) -> Any:
        return control.switch(n, [lambda: [x], lambda: [x * 2], lambda: [full(n.site, 9, x.dtype)]])

    got = run(chosen, np.int32(number)[()], np.float32(5)[()])
    assert float(got) == {0: 5, 1: 10}.get(number, 9)


def test_a_known_choice_leaves_no_branch() -> None:
    def chosen(x: Term) -> Any:
        yes = Term(x.site, x.site.constant(np.array(True)))
        return control.cond(yes, lambda: [x + 1], lambda: [x])

    opcodes = {i.opcode for i in module_of(chosen, ROWS).entry.instructions}
    assert "conditional" not in opcodes


def test_a_body_may_not_change_shapes(run: Any) -> None:
    with pytest.raises(VerifyError, match="changes its values"):
        run(lambda x: control.fori_loop(2, lambda _, v: [sum_(v)], [x]), ROWS)


def test_constants_are_written_again_inside() -> None:
    def looped(x: Term) -> Any:
        five = full(x.site, 5, x.dtype, (3, 2))
        return control.fori_loop(4, lambda _, v: [v + five], [x])

    module = module_of(looped, ROWS)
    (loop,) = [i for i in module.entry.instructions if i.opcode == "while"]
    assert len(loop.operands[0].operands) == 2  # the number and the array


def test_known_values_are_those_of_the_outer_graph() -> None:
    outer = Graph("outer")
    five = full(outer, 5, control.s32)
    inner = Graph("inner", outer)
    assert Term(inner, five.value).known() == 5
