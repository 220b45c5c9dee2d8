"""Well-formed loop functions pass; each kind of violation is named with its place."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nestwright.ir.dtypes import f32, pred, s32
from nestwright.ir.errors import VerifyError
from nestwright.ir.loop.nodes import (
    AllReduce,
    Buffer,
    Cast,
    Const,
    For,
    Func,
    Intrinsic,
    Kind,
    Load,
    Op,
    Range,
    Region,
    Scope,
    Seq,
    Stmt,
    Store,
    Var,
)
from nestwright.ir.loop.parser import parse
from nestwright.ir.loop.verify import verify

BLOCK = """\
@func(outputs=1)
def f(A: f32[16, 8], C: f32[16]):
    for i in {loop}:
        for k in range(8):
            with block("sum"):
                x, y = {axes}
                reads({reads})
                writes(C[x])
                with init():
                    C[x] = f32(0.0)
                C[x] = C[x] + {value}
"""
GOOD = {
    "loop": "range(16)",
    "axes": "spatial(16, i), reduce(8, k)",
    "reads": "A[x, y], C[x]",
    "value": "A[x, y]",
}


def block(**parts: str) -> Func:
    return parse(BLOCK.format(**{**GOOD, **parts}))


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"reads": "A[x, 0 : 8], C[0 : 16]"},
        {"reads": "A[x, y], A[x, (y + 1) % 8], C[x]", "value": "A[x, (y + 1) % 8]"},
        {"value": "select(x > 0, A[x - 1, y], f32(0.0))", "reads": "A[x - 1 : x + 1, y], C[x]"},
        {"loop": "vectorize(16)"},
        {"axes": "spatial(16, i // 2), reduce(8, k)"},
    ],
)
def test_good_functions_pass(parts: dict[str, str]) -> None:
    verify(block(**parts))


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"reads": "C[x]"}, "its body reads A[x, y]: not among its reads"),
        ({"reads": "A[x, 0 : 4], C[x]"}, "its body reads A[x, y]: not among its reads"),
        ({"reads": "A[x, y]"}, "its body reads C[x]: not among its reads"),
        ({"axes": "spatial(16, i), spatial(8, k)"}, "it has an init but no reduce axis"),
        ({"axes": "spatial(16, i + 16), reduce(8, k)"}, "axis x is always out of range: 16 to 31"),
        ({"value": "A[x, y + 8]"}, "index y + 8 of A is out of bounds: not within 0 to 7"),
        ({"value": "A[x]"}, "A has 2 dimensions, 1 indices are given"),
        ({"value": "A[x, y] * x"}, "multiply of f32 and s64: A[x, y] * x"),
    ],
)
def test_violations_in_blocks(parts: dict[str, str], message: str) -> None:
    with pytest.raises(VerifyError) as e:
        verify(block(**parts))
    assert str(e.value).startswith(f"loop i > loop k > block sum: {message}")


def test_vector_loops_have_constant_extents() -> None:
    func = parse(
        "@func(outputs=1)\ndef f(C: f32[8], n: s64):\n    for i in vectorize(n):\n        pass"
    )
    with pytest.raises(VerifyError, match="a loop of kind vectorize needs a constant extent: n"):
        verify(func)


def test_block_names_are_unique() -> None:
    one = BLOCK.format(**GOOD)
    func = parse(one + "".join(one.splitlines(keepends=True)[2:]))
    with pytest.raises(VerifyError, match="another block has this name"):
        verify(func)


IV, C = Var("i"), Buffer("C", (8,), f32)
ZERO = Const(0.0, f32)
STORE = Store(C, (IV,), ZERO)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (STORE, "variable i is not defined here"),
        (For(IV, Const(8), Seq((STORE, Seq((STORE,))))), "a Seq is directly in a Seq"),
        (For(IV, Const(8), For(IV, Const(8), STORE)), "variable i is introduced twice"),
        (For(IV, Const(8), STORE, Kind.THREAD), "a loop names a thread index exactly if"),
        (For(IV, Const(8, s32), STORE), "the extent is s32, not s64"),
        (For(IV, Const(-1), STORE), "the extent is negative"),
        (Store(C, (Const(0),), Const(1, s32)), "the value stored to C is s32, not f32"),
        (Store(C, (Const(0),), Const("x", f32)), "literal 'x' is not an f32"),  # type: ignore[arg-type]
        (Store(C, (Const(8),), ZERO), "index 8 of C is out of bounds"),
        (Store(Buffer("D", (8,), f32), (Const(0),), ZERO), "buffer D is not defined here"),
        (Store(C, (Const(0),), Op("frob", (ZERO,), f32)), "there is no operation 'frob'"),
        (Store(C, (Const(0),), Op("sqrt", (ZERO, ZERO), f32)), "sqrt takes 1 operands, not 2"),
        (Store(C, (Const(0),), Op("lt", (ZERO, ZERO), f32)), "lt gives pred, not f32"),
        (Store(C, (Const(0),), Op("and", (ZERO, ZERO), f32)), "and of f32: it takes kinds psu"),
        (
            Store(C, (Const(0),), Op("select", (ZERO, ZERO, ZERO), f32)),
            "select by a f32",
        ),
        (
            Store(C, (Const(0),), Cast(Const(True, pred), Const(1, s32).dtype, bits=True)),
            "bits of pred taken as s32: the widths differ",
        ),
    ],
)
def test_violations_elsewhere(body: Stmt, message: str) -> None:
    with pytest.raises(VerifyError) as e:
        verify(Func("f", (C,), 1, body))
    assert message in str(e.value)


def test_parameters_are_laid_out_by_the_caller() -> None:
    aligned = Buffer("C", (4, 8), f32, align=(0, 32, 16))
    with pytest.raises(VerifyError, match="parameter C has an alignment"):
        verify(Func("f", (aligned,), 1, Store(aligned, (Const(0), Const(0)), ZERO)))


GPU = """\
@func(outputs=1)
def f(A: f32[16, 16], C: f32[16, 16]):
    S = alloc(f32[16, 16], scope="{scope}", align=({align}), swizzle={swizzle})
    W = alloc(f32[16, 8], scope="warp")
    R = alloc(f32[1], scope="register")
    for t in thread("{index}", 32):
        for i in range(16):
            S[i, 0] = A[i, 0]
        {body}
"""
GOOD_GPU = {
    "scope": "shared",
    "align": "0, 32, 8",
    "swizzle": "4",
    "index": "threadIdx.y",
    "body": 'intrinsic("load_matrix_a", writes(W[0 : 16, 0 : 8]), '
    "reads(S[0 : 16, 8 : 16]), args(0))",
}
STORE_TILE = (
    'intrinsic("store_matrix", writes(C[{at} : {at} + 16, 0 : 8]), reads(W[0 : 16, 0 : 8]))'
)


def test_good_gpu_code_passes() -> None:
    verify(parse(GPU.format(**GOOD_GPU)))
    reduction = "all_reduce(8, R, lambda a, b: a + b)"
    verify(parse(GPU.format(**{**GOOD_GPU, "index": "threadIdx.x", "body": reduction})))


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"index": "threadIdx.w"}, "unknown thread index 'threadIdx.w'"),
        ({"index": "threadIdx.x"}, "it is in a loop over threadIdx.x"),
        ({"scope": "global"}, "buffer S is laid out for shared memory: it is global"),
        ({"scope": "register", "swizzle": "0"}, "buffer S has an alignment: it is register"),
        ({"align": "2, 32, 8"}, "buffer S has no alignment (2, 32, 8)"),
        ({"align": "0, 8, 8"}, "buffer S has no alignment (0, 8, 8)"),
        ({"swizzle": "3"}, "buffer S has swizzle 3"),
        ({"body": "W[0, 0] = A[0, 0]"}, "an element of W is accessed"),
        ({"body": "C[0, 0] = W[0, 0]"}, "an element of W is accessed"),
        ({"body": 'intrinsic("sync")'}, "there is no intrinsic 'sync'"),
        ({"body": STORE_TILE.format(at=1)}, "C[1 : + 16, 0 : + 8] is out of bounds"),
        (
            {"body": 'intrinsic("zero_matrix", writes(W[0 : 16, 0 : 0 + t]))'},
            "the extent of a box is not constant",
        ),
        (
            {"body": 'intrinsic("zero_matrix", writes(W[0 : 8, 0 : 8]))'},
            "intrinsic zero_matrix is called incorrectly: it writes f32[16, 8] in warp",
        ),
        ({"body": "all_reduce(2, S, lambda a, b: a)"}, "S is in scope shared"),
    ],
)
def test_violations_in_gpu_code(parts: dict[str, str], message: str) -> None:
    with pytest.raises(VerifyError) as e:
        verify(parse(GPU.format(**{**GOOD_GPU, **parts})))
    assert message in str(e.value)


def test_reductions_across_threads_are_checked() -> None:
    r, a, b, t = (
        Buffer("R", (1,), f32, Scope.REGISTER),
        Var("a", f32),
        Var("b", f32),
        Var("t"),
    )
    good = AllReduce((r,), (a,), (b,), (a,), 8)
    for bad, message in (
        (replace(good, threads=5), "groups of 5 threads: threadIdx.x has 32"),
        (replace(good, right=()), "values and their combination differ"),
        (replace(good, combined=(t,)), "values and their combination differ"),
        (replace(good, left=(b,)), "its names are not its own"),
        (replace(good, values=(replace(r, name="Q"),)), "buffer Q is not defined here"),
    ):
        loop = For(t, Const(32), bad, Kind.THREAD, "threadIdx.x")
        with pytest.raises(VerifyError, match=message):
            verify(Func("f", (C,), 0, loop, (r,)))


def test_a_block_covers_what_its_intrinsic_touches() -> None:
    text = """\
@func(outputs=1)
def f(C: f32[16, 16]):
    W = alloc(f32[16, 8], scope="warp")
    with block("store"):
        v = spatial(2, 1)
        reads(W[0 : 16, 0 : 8])
        writes(C[0 : {rows}, v * 8 : v * 8 + 8])
        intrinsic("store_matrix", writes(C[0 : 16, v * 8 : v * 8 + 8]), reads(W[0 : 16, 0 : 8]))
"""
    verify(parse(text.format(rows=16)))
    with pytest.raises(VerifyError, match=r"its body writes C\[0 : \+ 16, .* not among its writes"):
        verify(parse(text.format(rows=8)))


def test_the_box_of_an_unknown_extent() -> None:
    region = Region(C, (Range(Const(0), IV),))
    with pytest.raises(VerifyError, match="variable i is not defined here"):
        verify(Func("f", (C,), 1, Intrinsic("zero_matrix", (region,))))


def test_a_variable_ends_with_its_loop() -> None:
    first = For(IV, Const(8), STORE)
    with pytest.raises(VerifyError, match="variable i is not defined here"):
        verify(Func("f", (C,), 1, Seq((first, STORE))))


def test_an_index_under_a_guard_is_not_judged() -> None:
    load = Load(C, (Op("add", (IV, Const(8)), Const(0).dtype),))
    body = For(IV, Const(8), Store(C, (IV,), Op("select", (Const(False, pred), load, ZERO), f32)))
    verify(Func("f", (C,), 1, body))


def test_parameters_live_in_memory() -> None:
    b = replace(C, scope=Scope.REGISTER)
    with pytest.raises(VerifyError, match="parameter C is in scope register"):
        verify(Func("f", (b,), 1, For(IV, Const(8), Store(b, (IV,), ZERO))))


def test_what_a_loop_of_no_trips_touches_is_nowhere() -> None:
    text = """\
@func(outputs=1)
def f(A: f32[2], C: f32[0]):
    for i in range({extent}):
        with block("c"):
            x = spatial({extent}, i)
            reads(A[x + 2])
            writes(C[x])
            C[x] = A[x + 2]
"""
    verify(parse(text.format(extent=0)))
    with pytest.raises(VerifyError, match="out of bounds"):
        verify(parse(text.format(extent=1).replace("C: f32[0]", "C: f32[1]")))
