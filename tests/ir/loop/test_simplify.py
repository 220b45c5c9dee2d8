"""Index arithmetic: normal forms as before/after text, and simplification against evaluation."""

from __future__ import annotations

import operator
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nestwright.ir.dtypes import f32
from nestwright.ir.loop import build
from nestwright.ir.loop.affine import LOW, bounds, linear, refine, to_expr
from nestwright.ir.loop.nodes import Buffer, Const, Expr, Func, Load, Op, Stmt, Store, Var
from nestwright.ir.loop.parser import parse
from nestwright.ir.loop.printer import show
from nestwright.ir.loop.simplify import prove, simplify, simplify_stmt
from nestwright.ir.loop.visit import substitute_expr

IV, JV, FV, NV = Var("i"), Var("j"), Var("f"), Var("n")
RANGES = {IV: (0, 9), JV: (0, 7), FV: (0, 479)}


def expr(text: str) -> Expr:
    """An index expression over i, j, f, n (n: no range) and the s64 data D."""
    head = "@func(outputs=1)\ndef m(D: s64[8], C: s64[8], P: pred[8], "
    head += "i: s64, j: s64, f: s64, n: s64):\n"
    buffer = "P" if any(w in text for w in ("<", ">", "==", "!=", "and", "or")) else "C"
    func = parse(f"{head}    {buffer}[0] = {text}\n")
    assert isinstance(func.body, Store)
    return substitute_expr(func.body.value, dict(zip(func.symbols, (IV, JV, FV, NV), strict=True)))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("(i * 8 + j) // 8", "i"),
        ("(i * 8 + j) % 8", "j"),
        ("(i * 8 + j + 3) // 8", "i + (j + 3) // 8"),
        ("(i * 8 - 3) // 8", "i - 1"),
        ("(i * 4 + j * 4 + 3) // 8", "(i + j) // 2"),
        ("f // 6 // 8", "f // 48"),
        ("(f // 6 + 2) // 8", "(f + 12) // 48"),
        ("f % 64 % 8", "f % 8"),
        ("f % 6 // 2", "f % 6 // 2"),
        ("f // 8 * 8 + f % 8", "f"),
        ("f // 48 * 48 + f // 6 % 8 * 6 + f % 6", "f"),
        ("2 * (f % 8) + f // 8 * 16", "f * 2"),
        ("f % 48 // 6 * 12 + f % 6 * 2 + i", "f % 48 * 2 + i"),
        ("f - f // 8 * 8", "f % 8"),
        ("(f % 3 * 16 + j) // 3 * 3 + (f + j) % 3", "f % 3 * 16 + j"),
        ("i + j - i", "j"),
        ("j + i * 8", "i * 8 + j"),
        ("3 - i", "3 - i"),
        ("i * 0 + j", "j"),
        ("i * (j - j) + 3", "3"),
        ("min(8, 80 - i * 8)", "8"),
        ("max(i, i - 3)", "i"),
        ("i * 8 + min(8, 61 - i * 8) < 62", "True"),
        ("i * 8 + j < 80", "True"),
        ("i * 8 + j < 64", "i < 8"),
        ("i * 8 + j < 61", "i * 8 + j < 61"),
        ("i + 3 >= j + 3", "j < i + 1"),
        ("not i + 3 < j", "j < i + 4"),
        ("i * 2 == 7", "False"),
        ("i * 2 != n * 4", "i != n * 2"),
        ("n < n + 1", "True"),
        ("i < 10 and j < 4", "j < 4"),
        ("i < 10 or j < 4", "True"),
        ("select(i < 10, j, n)", "j"),
        ("select(n < 3, j + i - i, j)", "j"),
        ("n // 8 * 8 + n % 8", "n"),
        ("D[i + 1 - 1] + 1 > D[i]", "D[i] + 1 > D[i]"),
    ],
)
def test_before_after(before: str, after: str) -> None:
    assert show(simplify(expr(before), RANGES)) == after


def test_what_is_simple_comes_back_as_the_same_object() -> None:
    for text in ("i * 8 + j", "(f + 12) // 48", "i * 8 + j < 61", "D[i] + 1 > D[i]"):
        e = expr(text)
        assert simplify(e, RANGES) is e


def test_wrapping_data_is_never_compared_by_differences() -> None:
    assert prove(expr("D[0] < D[0] + 1"), RANGES) is None
    assert prove(expr("n < n + 1"), {NV: (LOW, -LOW - 1)}) is None
    assert prove(expr("n < n + 1"), {}) is True


def test_floats_are_left_alone() -> None:
    x = Load(Buffer("x", (4,), f32), (IV,))
    e = build.op("add", build.op("multiply", x, Const(0.0, f32)), Const(0.0, f32))
    assert simplify(e, RANGES) is e


def atoms() -> st.SearchStrategy[Expr]:
    return st.sampled_from([IV, JV, FV]) | st.integers(-12, 12).map(Const)


def extend(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    divisor = st.sampled_from([1, 2, 3, 4, 6, 8, 16, 48])
    factor = st.sampled_from([-8, -3, -1, 2, 3, 4, 6, 8, 48])
    pair = st.tuples(inner, inner)
    return st.one_of(
        pair.map(lambda p: build.op("add", *p)),
        pair.map(lambda p: build.op("subtract", *p)),
        st.tuples(inner, factor).map(lambda p: build.op("multiply", p[0], Const(p[1]))),
        st.tuples(inner, divisor).map(lambda p: build.op("floordiv", p[0], Const(p[1]))),
        st.tuples(inner, divisor).map(lambda p: build.op("floormod", p[0], Const(p[1]))),
        pair.map(lambda p: build.op("minimum", *p)),
        pair.map(lambda p: build.op("maximum", *p)),
        st.tuples(conditions(inner), inner, inner).map(lambda p: build.op("select", *p)),
    )


def conditions(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    name = st.sampled_from(["lt", "le", "gt", "ge", "eq", "ne"])
    leaf = st.tuples(name, inner, inner).map(lambda p: build.op(p[0], p[1], p[2]))
    both = st.tuples(st.sampled_from(["and", "or"]), leaf, leaf).map(
        lambda p: build.op(p[0], p[1], p[2])
    )
    return leaf | both | leaf.map(lambda c: build.op("not", c))


INDICES = st.recursive(atoms(), extend, max_leaves=10)
CONDITIONS = conditions(st.recursive(atoms(), extend, max_leaves=5))
POINTS = st.lists(
    st.tuples(st.integers(0, 9), st.integers(0, 7), st.integers(0, 479)), min_size=1, max_size=8
)


MEANING: dict[str, Callable[..., int]] = {
    **{name: getattr(operator, name) for name in ("lt", "le", "gt", "ge", "eq", "ne")},
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "floordiv": operator.floordiv,
    "floormod": operator.mod,
    "minimum": min,
    "maximum": max,
    "select": lambda c, a, b: a if c else b,
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
    "not": operator.not_,
}


def value(e: Expr, env: dict[Expr, int]) -> int:
    """The meaning of an index expression, told in the plainest way."""
    if isinstance(e, Const):
        assert isinstance(e.value, int)
        return e.value
    return MEANING[e.name](*(value(x, env) for x in e.args)) if isinstance(e, Op) else env[e]


@settings(max_examples=250, deadline=None)
@given(INDICES | CONDITIONS, POINTS)
def test_simplified_means_the_same(e: Expr, points: list[tuple[int, int, int]]) -> None:
    once = simplify(e, RANGES)
    low, high = bounds(e, RANGES)
    for p in points:
        env = dict(zip((IV, JV, FV), p, strict=True))
        assert value(once, env) == value(e, env), show(once)
        assert low <= value(e, env) <= high
    again = simplify(once, RANGES)
    assert show(again) == show(once)
    assert again is once


@settings(max_examples=120, deadline=None)
@given(CONDITIONS, POINTS)
def test_a_condition_refines_ranges_soundly(e: Expr, points: list[tuple[int, int, int]]) -> None:
    refined = refine(RANGES, e)
    for p in points:
        env = dict(zip((IV, JV, FV), p, strict=True))
        if value(e, env):
            assert all(refined[v][0] <= x <= refined[v][1] for v, x in env.items())


def test_linear_forms() -> None:
    form = linear(expr("i * 8 + j - 3 * i + f // 8 - 2"))
    assert show(to_expr(form)) == "i * 5 + j + f // 8 - 2"
    assert linear(expr("(i + j) * 2")) == linear(expr("j * 2 + i + i"))


def test_bounds_see_what_cancels() -> None:
    assert bounds(expr("i * 8 + min(8, 61 - i * 8)"), RANGES)[1] == 61
    assert bounds(expr("f % 8"), RANGES) == (0, 7)
    assert bounds(expr("(f + 480) // 480"), RANGES) == (1, 1)
    assert bounds(expr("n"), RANGES)[0] == LOW


def nest(text: str) -> Func:
    return parse("@func(outputs=1)\ndef m(A: f32[61], C: f32[61], n: s64):\n" + text)


def simplified(text: str) -> str:
    func = nest(text)
    body: Stmt = simplify_stmt(func.body)
    assert simplify_stmt(body) is body
    return show(body)


def test_unit_loops_go_and_dead_branches_with_them() -> None:
    before = """\
    for i in range(8):
        for u in range(1):
            if u < 1 and i * 8 + u < 57:
                C[i + u] = A[u + i * 1]
            else:
                C[0] = f32(0.0)
        if i > 7:
            C[1] = A[1]
"""
    after = """\
for i in range(8):
    C[i] = A[i]
"""
    assert simplified(before) == after


def test_a_name_of_a_variable_is_that_variable() -> None:
    before = """\
    for i in range(61):
        q = let(s64, i * 8 // 8)
        C[q] = A[q]
"""
    after = """\
for i in range(61):
    C[i] = A[i]
"""
    assert simplified(before) == after


def test_guards_narrow_what_is_under_them() -> None:
    before = """\
    for i in range(64):
        if i < 8:
            if i < 9:
                C[i // 8 + i] = A[i]
"""
    after = """\
for i in range(64):
    if i < 8:
        C[i] = A[i]
"""
    assert simplified(before) == after


def test_an_idle_block_guard_is_dropped_and_a_needed_one_stays() -> None:
    before = """\
    for i in range(8):
        for j in range(8):
            with block("b"):
                vi = spatial(61, i * 8 + j)
                where(i * 8 + j < {limit})
                reads(A[vi])
                writes(C[vi])
                C[vi] = A[vi]
"""
    assert "where" not in simplified(before.format(limit=64))
    assert "where(i * 8 + j < 61)" in simplified(before.format(limit=61))


def test_a_guard_over_an_axis_is_not_taken_for_granted() -> None:
    before = """\
    for i in range(64):
        with block("b"):
            vi = spatial(61, i)
            where(vi < 61)
            reads(A[vi])
            writes(C[vi])
            C[vi] = A[vi]
"""
    assert "where(vi < 61)" in simplified(before)


def test_loops_that_never_run_leave_nothing() -> None:
    assert simplified("    for i in range(0):\n        C[i] = A[i]\n") == "pass\n"


def test_loops_over_nothing_leave_nothing() -> None:
    loops = "    for i in unroll(3):\n        for j in vectorize(n):\n            pass\n"
    branch = "    for i in range(n):\n        if i < 3:\n            pass\n"
    for before in (loops, branch):
        assert simplified(before + "    C[0] = f32(0.0)\n") == "C[0] = f32(0.0)\n"


def test_thread_loops_stay() -> None:
    before = '    for i in thread("blockIdx.x", 1):\n        C[i] = A[i]\n'
    assert simplified(before) == 'for i in thread("blockIdx.x", 1):\n    C[0] = A[0]\n'


def test_an_unchanged_nest_is_the_same_object() -> None:
    func = nest("    for i in range(n):\n        if i < 61:\n            C[i] = A[i]\n")
    assert simplify_stmt(func.body) is func.body
