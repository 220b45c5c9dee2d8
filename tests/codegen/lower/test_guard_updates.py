"""Guards of updates become conditions around them, and bounds of the loops over them."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from nestwright.codegen.lower.passes.guard_updates import guard_updates
from nestwright.ir.loop.interp.evaluate import run
from nestwright.ir.loop.nodes import Func
from nestwright.ir.loop.parser import parse
from nestwright.ir.loop.printer import show
from nestwright.ir.loop.simplify import simplify_stmt
from nestwright.ir.loop.verify import verify

PROGRAM = """\
@func(outputs=1)
def f(A: f32[6, 8], C: f32[6]):
    for i in range(6):
        T = alloc(f32[1], scope="register")
        T[0] = f32({start})
        for k in {kind}(8):
            {update}
        C[i] = T[0]
"""
SUM = "T[0] = T[0] + select({guard}, A[i, k], f32(0.0))"


def program(update: str, kind: str = "range", start: float = 0.0) -> Func:
    return parse(PROGRAM.format(update=update, kind=kind, start=start))


def loop(func: Func) -> list[str]:
    """The lines of the inner loop."""
    lines = show(func).splitlines()
    first = next(n for n, line in enumerate(lines) if " in " in line and "i in" not in line)
    return [line.strip() for line in lines[first:-1]]


def test_a_bound_by_an_outer_loop_is_the_loops_own() -> None:
    after = guard_updates(program(SUM.format(guard="1 <= i + k and i + k < 7")))
    assert loop(after) == [
        "for k in range(min(8, 7 - i) - max(0, 0 - i + 1)):",
        "k_1 = let(s64, k + max(0, 0 - i + 1))",
        "T[0] = T[0] + A[i, k_1]",
    ]


@pytest.mark.parametrize(
    "guard, line",
    [
        ("k < 5", "if k < 5:"),  # `partition` splits the loop
        ("i < 3", "if i < 3:"),
        ("i + k == 4", "if i + k == 4:"),
        ("i + k < 7 or k < 2", "if i + k < 7 or k < 2:"),
        ("i * k < 7", "if i * k < 7:"),
        ("k + k // 2 + i < 7", "if k + k // 2 + i < 7:"),
    ],
)
def test_other_guards_are_conditions(guard: str, line: str) -> None:
    after = guard_updates(program(SUM.format(guard=guard)))
    assert loop(after) == ["for k in range(8):", line, "T[0] = T[0] + A[i, k]"]


def test_a_bound_of_loops_inside_is_not_the_outer_ones() -> None:
    inner = "for l in unroll(3):\n                "
    after = guard_updates(program(inner + SUM.format(guard="i + k + l < 7")))
    assert loop(after)[:3] == ["for k in range(8):", "for l in unroll(3):", "if i + k + l < 7:"]


@pytest.mark.parametrize(
    "update",
    [
        "T[0] = T[0] + select(i + k < 7, A[i, k], f32(1.0))",  # an update in every iteration
        "T[0] = T[0] - select(i + k < 7, A[i, k], f32(0.0))",
        "T[0] = A[i, 0] + select(i + k < 7, A[i, k], f32(0.0))",
        "T[0] = T[0] + select(A[i, k] < f32(7.0), A[i, k], f32(0.0))",
        "T[0] = max(T[0], select(i + k < 7, A[i, k], f32(0.0)))",
    ],
    ids=["other value", "no sum", "no update", "of data", "no identity"],
)
def test_what_is_no_such_update_stays(update: str) -> None:
    func = program(update)
    assert guard_updates(func) is func


def test_lanes_share_a_condition_and_keep_their_own() -> None:
    text = """\
@func(outputs=1)
def f(A: f32[6, 8], C: f32[6, 8]):
    for i in range(6):
        T = alloc(f32[8], scope="register")
        for l in vectorize(8):
            T[l] = f32(0.0)
        for k in range(6):
            for l_1 in vectorize(8):
                T[l_1] = T[l_1] + select({guard}, A[k, l_1], f32(0.0))
        for l_2 in vectorize(8):
            C[i, l_2] = T[l_2]
"""
    own = parse(text.format(guard="l_1 + k < 7"))
    assert guard_updates(own) is own
    shared = show(guard_updates(parse(text.format(guard="i + k < 7"))))
    assert "in range(min(6, 7 - i)):" in shared and "select" not in shared


def test_an_else_runs_in_iterations_beyond_the_bound() -> None:
    func = program(
        "if i + k < 7:\n                T[0] = A[i, k]\n            else:\n"
        "                T[0] = f32(5.0)"
    )
    assert guard_updates(func) is func


@pytest.mark.parametrize("name", ["<", "<=", ">", ">="])
@pytest.mark.parametrize(
    "update, start",
    [("T[0] + {}", 0.0), ("max(T[0], {})", 2.0), ("T[0] * {}", 1.0), ("min({}, T[0])", 1.0)],
)
def test_bounded_loops_compute_the_same(update: str, start: float, name: str) -> None:
    identity = {"max": "-inf", "min": "inf", "T[0] *": "1.0"}
    zero = next((v for k, v in identity.items() if update.startswith(k)), "0.0")
    x = np.random.default_rng(0).integers(-3, 4, (6, 8)).astype(np.float32)
    bounded = 0
    for a, b, c in product((-3, -1, 1, 2), (-2, 1), (-7, 0, 4)):
        term = f"select(k * {a} + i * {b} + {c} {name} 0, A[i, k], f32({zero}))"
        func = program(f"T[0] = {update.format(term)}", start=start)
        after = guard_updates(replace(func, body=simplify_stmt(func.body)))
        verify(after)
        bounded += "let(s64" in show(after)
        np.testing.assert_array_equal(run(after, [x])[0], run(func, [x])[0], str((a, b, c)))
    assert bounded > 12
