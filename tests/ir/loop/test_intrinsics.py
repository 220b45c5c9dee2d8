"""The table of intrinsics: who holds what, what calls fit, what tiles mean."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest

from nestwright.codegen.lower.passes.layout import offset
from nestwright.ir.dtypes import bf16, f32, to_numpy
from nestwright.ir.gpus import GPUS
from nestwright.ir.loop.build import as_int
from nestwright.ir.loop.fragments import Matrix, ldmatrix_source
from nestwright.ir.loop.interp.evaluate import UndefinedError, run
from nestwright.ir.loop.intrinsics import (
    TABLE,
    TF32_SCALE,
    WARP,
    misfit,
    tf32,
)
from nestwright.ir.loop.nodes import Buffer, Const, Intrinsic, Scope
from nestwright.ir.loop.parser import parse
from nestwright.ir.loop.verify import verify
from nestwright.ir.loop.visit import walk
from nestwright.ir.loop.warpgroups import WARPGROUP, Descriptor, GroupMatrix

MATRICES = [row.matrix for row in TABLE.values() if row.matrix is not None]


@pytest.mark.parametrize("x", MATRICES, ids=lambda x: str(x.operands))
def test_every_element_of_a_matrix_is_in_one_place(x: Matrix) -> None:
    a, b, c = x.words
    for words, per, place, shape in (
        (a, x.per_word, x.a, (x.m, x.k)),
        (b, x.per_word, x.b, (x.k, x.n)),
        (c, 1, x.c, (x.m, x.n)),
    ):
        held = [place(lane, e) for lane in range(WARP) for e in range(words * per)]
        assert Counter(held) == Counter(np.ndindex(shape))


@pytest.mark.parametrize(
    "x", [m for m in MATRICES if m.per_word == 2], ids=lambda x: str(x.operands)
)
def test_ldmatrix_brings_what_mma_takes(x: Matrix) -> None:
    """Rows of a as in [m, k], of b as in [n, k]: the usual addresses of the lanes."""
    for lane in range(WARP):
        for e in range(8):
            row, column = ldmatrix_source(lane, e // 2, e % 2, False)
            assert x.a(lane, e) == (row % 16, row // 16 * 8 + column)
        for e in range(4):
            row, column = ldmatrix_source(lane, e // 2, e % 2, False)
            assert x.b(lane, e) == (row // 8 * 8 + column, row % 8)
            turned, across = ldmatrix_source(lane, e // 2, e % 2, True)
            assert x.b(lane, e) == (turned, across)


def test_what_needs_which_architecture() -> None:
    names = {name for name, row in TABLE.items() if not row.on(GPUS["sm_75"])}
    assert "copy_async" in names and "barrier" not in names and "ldmatrix.x4" not in names
    assert all(row.on(GPUS["sm_90a"]) != row.tensor for row in TABLE.values())
    assert all(row.on(GPUS["sm_100a"]) for row in TABLE.values() if not row.exact)
    assert not TABLE["tcgen05.m128n64k32.s8.s32"].on(GPUS["sm_103a"])
    assert all(row.tile is not None or row.lane is not None for row in TABLE.values())


def test_rounding_to_tf32() -> None:
    values = np.array([1.0, 1 + 2**-10, 1 + 2**-10 - 2**-20, -3.0e-5, np.inf, np.nan], np.float32)
    assert list(tf32(values)[:3]) == [1.0, 1 + 2**-10, 1.0], "cut"
    rounded = tf32(values * np.float32(TF32_SCALE))
    assert list(rounded[:3]) == [1.0, 1 + 2**-10, 1 + 2**-10]
    assert abs(rounded[3] / values[3] - 1) <= 2**-10 * 2 / 3
    assert np.isinf(rounded[4]) and np.isnan(rounded[5])


def test_rounding_to_tf32_is_fair_and_keeps_numbers_of_ten_bits() -> None:
    short = np.arange(1024, 2048, dtype=np.float32)
    np.testing.assert_array_equal(tf32(short * np.float32(TF32_SCALE)), short)
    every = np.linspace(1, 2, 100_001, dtype=np.float32)[:-1]
    error = (tf32(every * np.float32(TF32_SCALE)).astype(np.float64) - every) * 2**10
    assert np.abs(error).max() < 2 / 3 + 1e-3
    assert abs(error.mean()) < 1e-3


@pytest.mark.parametrize("n", [64, 72, 256])
def test_every_sum_of_a_group_is_in_one_place(n: int) -> None:
    x = GroupMatrix(64, n, 16, bf16, f32)
    held = [x.c(thread, e) for thread in range(WARPGROUP) for e in range(x.words)]
    assert Counter(held) == Counter(np.ndindex(64, n))


@pytest.mark.parametrize("chunks", [2, 4, 8])
def test_a_descriptor_finds_what_a_swizzled_buffer_holds(chunks: int) -> None:
    """Rows as long as the swizzle: k of 16 columns of the product, then 16 rows of k."""
    wide = chunks * 8
    b = Buffer("S", (64, wide), bf16, Scope.SHARED, swizzle=chunks)
    at = {ij: as_int(offset(b, tuple(map(Const, ij)))) for ij in np.ndindex(64, wide)}
    plain = Descriptor(2 * wide, 0, 16 * wide)
    for row, k in np.ndindex(64, wide):
        start = k // 16 * 32
        assert plain.address(start, row, k % 16, 2) == 2 * (at[row, k] or 0)
    turned = Descriptor(2 * wide, 0, 16 * wide, turned=True)
    for k, row in np.ndindex(64, wide):
        start = k // 16 * 16 * 2 * wide
        assert turned.address(start, row, k % 16, 2) == 2 * (at[k, row] or 0)


def test_a_turned_operand_goes_on_in_the_next_panel() -> None:
    x = Descriptor(128, 4096, 1024, turned=True)
    assert x.address(0, 64, 0, 2) == 4096 and x.address(0, 65, 9, 2) == (4096 + 1024 + 128 + 2 ^ 16)


WGMMA = """\
@func(outputs=0)
def f():
    A = alloc({ab}[2, 64, 64], scope="shared", swizzle=8)
    B = alloc({ab}[2, 64, 256], scope="shared", swizzle=8)
    C = alloc({c}[64, 256], scope="warpgroup")
    intrinsic("wgmma.m64n256k{k}.{kind}.{c}", writes(C[0 : 64, 0 : 256]), \
reads(C[0 : 64, 0 : 256], A[1, 0 : 64, 0 : {k}], {b}), args({args}))
"""


@pytest.mark.parametrize(
    ("ab", "kind", "c", "k", "turned", "fits"),
    [
        ("bf16", "bf16", "f32", 16, 1, True),
        ("f32", "tf32", "f32", 8, 0, True),
        ("f32", "tf32", "f32", 8, 1, False),
        ("s8", "s8", "s32", 32, 0, True),
        ("f8e4m3fn", "f8e4m3fn", "f32", 32, 0, True),
    ],
)
def test_operands_of_warp_groups(
    ab: str, kind: str, c: str, k: int, turned: int, fits: bool
) -> None:
    """Only elements of two bytes may be turned."""
    b = f"B[0, 0 : {k}, 0 : 256]" if turned else f"B2[0 : 256, 0 : {k}]"
    text = WGMMA.format(ab=ab, kind=kind, c=c, k=k, b=b, args=f"0, {turned}")
    text = text.replace("    C =", f'    B2 = alloc({ab}[256, 64], scope="shared")\n    C =')
    (call,) = [s for s in walk(parse(text).body) if isinstance(s, Intrinsic)]
    assert (misfit(call) == "") == fits
    verify(parse(text)) if fits else None


CALL = """\
@func(outputs=0)
def f():
    S = alloc({ab}[4, 64, 64], scope="shared")
    A = alloc({ab}[64, 64], scope="warp")
    SB = alloc({b}[4, 64, 64], scope="shared")
    B = alloc({b}[64, 64], scope="warp")
    C = alloc({c}[2, 16, 16], scope="warp")
    T = alloc(f32[16, 16], scope="shared")
    {call}
"""
GOOD = {
    "zero_matrix": "writes(C[1, 0 : 16, 8 : 16])",
    "load_matrix_a": "writes(A[0 : 16, 0 : {k}]), reads(S[3, 0 : 16, {k} : {k} + {k}]), args(0)",
    "load_matrix_b": "writes(B[0 : {k}, 0 : 16]), reads(SB[3, 0 : {k}, 16 : 32]), args(1)",
    "mma": "writes(C[0, 0 : 16, 0 : 8]), reads(C[0, 0 : 16, 0 : 8], A[0 : {k}, 0 : 16], "
    "B[8 : 16, 0 : {k}]), args(1, 0)",
}


def call_of(name: str, call: str, row: str = "mma.m16n8k16.bf16.f32") -> Intrinsic:
    x = TABLE[row].matrix
    assert x is not None
    text = f'intrinsic("{row if name == "mma" else name}", {call.format(k=x.k)})'
    func = parse(CALL.format(call=text, ab=x.types[0], b=x.types[1], c=x.sums))
    (found,) = (s for s in walk(func.body) if isinstance(s, Intrinsic))
    return found


@pytest.mark.parametrize("row", [name for name, r in TABLE.items() if r.matrix is not None])
@pytest.mark.parametrize("name", list(GOOD))
def test_calls_that_fit(name: str, row: str) -> None:
    assert misfit(call_of(name, GOOD[name], row)) == ""


@pytest.mark.parametrize(
    ("name", "call", "why"),
    [
        ("zap", "writes(C[0, 0 : 16, 0 : 8])", "there is no intrinsic 'zap'"),
        ("barrier", "writes(C[0, 0 : 16, 0 : 8])", "it works on what single threads hold"),
        ("zero_matrix", "writes(T[0 : 16, 0 : 8])", "it works on tiles of a warp"),
        ("zero_matrix", "writes(C[0, 0 : 16, 0 : 16])", r"it writes f32\[16, 8\] in warp"),
        ("zero_matrix", "writes(C[0 : 2, 0 : 16, 0 : 8])", r"it writes f32\[16, 8\] in warp"),
        ("zero_matrix", "writes(C[0, 0 : 16, 0 : 8]), args(1)", r"args are one of \[\(\)\]"),
        (
            "store_matrix",
            "writes(S[0, 0 : 16, 0 : 8]), reads(C[0, 0 : 16, 0 : 8])",
            "in shared or global",
        ),
        (
            "load_matrix_a",
            "writes(A[0 : 16, 0 : 8]), reads(S[0, 0 : 16, 0 : 8]), args(0)",
            r"it writes .*bf16\[16, 16\] in warp.*reads .*bf16\[16, 16\] in shared",
        ),
    ],
)
def test_calls_that_do_not(name: str, call: str, why: str) -> None:
    assert re.search(why, misfit(call_of(name, call)))


PRODUCT = """\
@func(outputs=1)
def product(A: {ab}[{a}], B: {right}[{b}], C: {c}[16, 16]):
    SA = alloc({ab}[{a}], scope="shared")
    SB = alloc({right}[{b}], scope="shared")
    WA = alloc({ab}[{a}], scope="warp")
    WB = alloc({right}[{b}], scope="warp")
    WC = alloc({c}[16, 16], scope="warp")
    for i in range({a0}):
        for j in range({a1}):
            SA[i, j] = A[i, j]
    for i in range({b0}):
        for j in range({b1}):
            SB[i, j] = B[i, j]
    for n in range(2):
        intrinsic("zero_matrix", writes(WC[0 : 16, n * 8 : n * 8 + 8]))
    intrinsic("load_matrix_a", writes(WA[0 : {a0}, 0 : {a1}]), reads(SA[0 : {a0}, 0 : {a1}]), \
args({ta}))
    intrinsic("load_matrix_b", writes(WB[0 : {b0}, 0 : {b1}]), reads(SB[0 : {b0}, 0 : {b1}]), \
args({tb}))
    for n in range(2):
        intrinsic("{name}", writes(WC[0 : 16, n * 8 : n * 8 + 8]), \
reads(WC[0 : 16, n * 8 : n * 8 + 8], WA[0 : {a0}, 0 : {a1}], WB[{half}]), args({ta}, {tb}))
    for n in range(2):
        intrinsic("store_matrix", writes(C[0 : 16, n * 8 : n * 8 + 8]), \
reads(WC[0 : 16, n * 8 : n * 8 + 8]))
"""


@pytest.mark.parametrize("name", [name for name, r in TABLE.items() if r.matrix is not None])
@pytest.mark.parametrize(("ta", "tb"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_tiles_multiply(name: str, ta: int, tb: int) -> None:
    x = TABLE[name].matrix
    assert x is not None
    a, b = ((x.k, 16) if t else (16, x.k) for t in (ta, tb))
    half = f"0 : {x.k}, n * 8 : n * 8 + 8" if tb else f"n * 8 : n * 8 + 8, 0 : {x.k}"
    text = PRODUCT.format(
        name=name,
        ab=x.types[0],
        right=x.types[1],
        c=x.sums,
        ta=ta,
        tb=tb,
        half=half,
        a=f"{a[0]}, {a[1]}",
        b=f"{b[0]}, {b[1]}",
        a0=a[0],
        a1=a[1],
        b0=b[0],
        b1=b[1],
    )
    func = parse(text)
    verify(func)
    rng = np.random.default_rng(0)
    left, right = (
        rng.integers(-3, 4, s).astype(to_numpy(t)) for s, t in zip((a, b), x.types, strict=True)
    )
    (c,) = run(func, [left, right], check_races=True)
    want = (left.T if ta else left).astype(np.int32) @ (right if tb else right.T).astype(np.int32)
    np.testing.assert_array_equal(c, want)


def test_a_tile_that_nothing_wrote() -> None:
    text = CALL.format(
        ab="bf16", b="bf16", c="f32", call=f'intrinsic("zero_matrix", {GOOD["zero_matrix"]})'
    )
    text += '    intrinsic("store_matrix", writes(T[0 : 16, 0 : 8]), reads(C[1, 0 : 16, 0 : 8]))\n'
    with pytest.raises(UndefinedError, match=r"nothing wrote C\[1, 0, 0\] before"):
        run(parse(text), [])
