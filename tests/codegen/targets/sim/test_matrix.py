"""Matrix instructions of simulated warps against NumPy, for every operand type."""

from __future__ import annotations

import numpy as np
import pytest

from nestwright.codegen.driver.kernel import Kernel, compile_flat
from nestwright.codegen.targets.registry import emit
from nestwright.ir.arrays import Array
from nestwright.ir.dtypes import BY_NAME, DType, bf16, f16, f32, s8, to_numpy
from nestwright.ir.errors import SimulationError, UnsupportedError
from nestwright.ir.loop.interp.evaluate import run
from nestwright.ir.loop.intrinsics import tf32
from nestwright.ir.loop.parser import parse
from nestwright.ir.loop.verify import verify
from nestwright.ir.target import Target

TYPES = {
    "mma.m16n8k16.f16.f32": f16,
    "mma.m16n8k16.bf16.f32": bf16,
    "mma.m16n8k8.tf32.f32": f32,
    "mma.m16n8k32.s8.s32": s8,
    "mma.m16n8k32.f8e4m3fn.f32": BY_NAME["f8e4m3fn"],
    "mma.m16n8k32.f8e5m2.f32": BY_NAME["f8e5m2"],
}

# Two products in a row; b stands as [n, k]. A row of a tile is 32 bytes: two rows of ldmatrix.
PRODUCT = """
@func(outputs=1)
def product(X: {ab}[{size_a}], W: {ab}[{size_b}], Y: {c}[128]):
    for l in thread("threadIdx.x", 32):
        A = alloc({ab}[{size_a}], scope="shared")
        B = alloc({ab}[{size_b}], scope="shared")
        a = alloc(u32[4], scope="register")
        b = alloc(u32[2], scope="register")
        c = alloc({c}[4], scope="register")
        for i in range({size_a} // 32):
            A[i * 32 + l] = X[i * 32 + l]
        for i in range({size_b} // 32):
            B[i * 32 + l] = W[i * 32 + l]
        for i in unroll(4):
            c[i] = {c}(0)
        intrinsic("warp_barrier")
        for k in {loop}(2):
            p = let(s64, k * {k} + (l % 8 + l // 8 % 2 * 8) * {row} + l // 16 * {chunk})
            q = let(s64, k * {k} + l % 8 * {row} + l // 8 % 2 * {chunk})
            intrinsic("ldmatrix.x4", writes(a[0:4]), reads(A[p:p + {chunk}]))
            intrinsic("ldmatrix.x2", writes(b[0:2]), reads(B[q:q + {chunk}]))
            intrinsic("{name}", writes(c[0:4]), reads(c[0:4], a[0:4], b[0:2]))
        for i in unroll(4):
            Y[(l // 4 + i // 2 * 8) * 8 + l % 4 * 2 + i % 2] = c[i]
"""


def build(text: str, spec: str = "cuda-sim -arch=sm_80") -> Kernel:
    func = parse(text)
    verify(func)
    return Kernel(compile_flat(func, Target.parse(spec)))


def operands(dtype: DType, *shapes: tuple[int, ...]) -> list[Array]:
    rng = np.random.default_rng(1)
    if dtype == s8:
        return [rng.integers(-128, 128, s).astype(np.int8) for s in shapes]
    return [rng.standard_normal(s).astype(to_numpy(dtype)) for s in shapes]


def source(name: str, loop: str = "range") -> str:
    dtype = TYPES[name]
    chunk = 16 // dtype.bytes
    return PRODUCT.format(
        name=name,
        loop=loop,
        ab=dtype.name,
        c="s32" if dtype == s8 else "f32",
        chunk=chunk,
        k=2 * chunk,
        row=4 * chunk,
        size_a=16 * 4 * chunk,
        size_b=8 * 4 * chunk,
    )


@pytest.mark.parametrize("check", ["", " -check=0"])
@pytest.mark.parametrize("name", TYPES)
def test_product_of_tiles(name: str, check: str) -> None:
    dtype = TYPES[name]
    k = 64 // dtype.bytes
    x, w = operands(dtype, (16, k), (8, k))
    y = build(source(name), f"cuda-sim -arch=sm_89{check}")(x.ravel(), w.ravel()).reshape(16, 8)
    if dtype == s8:
        np.testing.assert_array_equal(y, x.astype(np.int32) @ w.astype(np.int32).T)
        return
    a, b = ((tf32(v) if dtype == f32 else v).astype(np.float64) for v in (x, w))
    np.testing.assert_allclose(y, a @ b.T, rtol=1e-5, atol=1e-5)


def test_tf32_rounds_its_operands() -> None:
    x, w = operands(f32, (16, 16), (8, 16))
    y = build(source("mma.m16n8k8.tf32.f32"))(x.ravel(), w.ravel()).reshape(16, 8)
    exact = x.astype(np.float64) @ w.astype(np.float64).T
    assert 1e-5 < np.abs(y - exact).max() < 1e-2


def test_neighboring_operations_share_a_meeting() -> None:
    name = "mma.m16n8k16.f16.f32"
    x, w = operands(f16, (16, 32), (8, 32))
    texts = [source(name, loop) for loop in ("range", "unroll")]
    for text in texts:
        assert (
            emit(parse(text), Target.parse("cuda-sim -arch=sm_80")).count(
                "call i8 @llvm.coro.suspend"
            )
            == 3
        )
    one, other = map(build, texts)
    np.testing.assert_array_equal(one(x.ravel(), w.ravel()), other(x.ravel(), w.ravel()))


# a stands as [k, m] and b as [k, n].
TURNED = """
@func(outputs=1)
def turned(X: f16[256], W: f16[128], Y: f32[128]):
    for l in thread("threadIdx.x", 32):
        A = alloc(f16[256], scope="shared")
        B = alloc(f16[128], scope="shared")
        a = alloc(u32[4], scope="register")
        b = alloc(u32[2], scope="register")
        c = alloc(f32[4], scope="register")
        for i in range(8):
            A[i * 32 + l] = X[i * 32 + l]
        for i in range(4):
            B[i * 32 + l] = W[i * 32 + l]
            c[i] = f32(0.0)
        intrinsic("warp_barrier")
        p = let(s64, (l % 8 + l // 16 * 8) * 16 + l // 8 % 2 * 8)
        intrinsic("ldmatrix.x4.trans", writes(a[0:4]), reads(A[p:p + 8]))
        for h in unroll(2):
            q = let(s64, (l % 8 + h * 8) * 8)
            intrinsic("ldmatrix.x1.trans", writes(b[h:h + 1]), reads(B[q:q + 8]))
        intrinsic("mma.m16n8k16.f16.f32", writes(c[0:4]), reads(c[0:4], a[0:4], b[0:2]))
        for i in unroll(4):
            Y[(l // 4 + i // 2 * 8) * 8 + l % 4 * 2 + i % 2] = c[i]
"""


def test_transposed_loads() -> None:
    x, w = operands(f16, (16, 16), (16, 8))
    y = build(TURNED)(x.ravel(), w.ravel()).reshape(16, 8)
    np.testing.assert_allclose(y, x.T.astype(np.float64) @ w, rtol=1e-5, atol=1e-5)


def test_lanes_of_a_warp_part_ways() -> None:
    text = source("mma.m16n8k16.f16.f32").replace(
        '            intrinsic("mma', '            if l < 31:\n                intrinsic("mma'
    )
    x, w = operands(f16, (16, 32), (8, 32))
    with pytest.raises(SimulationError) as caught:
        Kernel(compile_flat(parse(text), Target.parse("cuda-sim")))(x.ravel(), w.ravel())
    assert "not all threads reach" in caught.value.what
    assert "mma.m16n8k16.f16.f32" in str(caught.value) or "ldmatrix.x4" in str(caught.value)


def test_a_matrix_that_is_read_before_it_is_there() -> None:
    text = source("mma.m16n8k16.f16.f32")
    early = text.replace('        intrinsic("warp_barrier")\n', "")
    x, w = operands(f16, (16, 32), (8, 32))
    with pytest.raises(SimulationError, match=r"A\[\d+\]"):
        build(early)(x.ravel(), w.ravel())


def test_a_row_that_is_not_aligned() -> None:
    text = source("mma.m16n8k16.f16.f32").replace("let(s64, k * 16 +", "let(s64, 1 + k * 15 +")
    x, w = operands(f16, (16, 32), (8, 32))
    with pytest.raises(SimulationError, match="is not aligned"):
        Kernel(compile_flat(parse(text), Target.parse("cuda-sim")))(x.ravel(), w.ravel())


def test_half_a_warp_is_refused() -> None:
    text = source("mma.m16n8k16.f16.f32").replace('"threadIdx.x", 32', '"threadIdx.x", 16')
    with pytest.raises(UnsupportedError, match="not a multiple of 32"):
        Kernel(compile_flat(parse(text), Target.parse("cuda-sim")))


STORE = """
@func(outputs=1)
def stored(X: f16[256], Y: f16[256]):
    for l in thread("threadIdx.x", 32):
        S = alloc(f16[256], scope="shared")
        r = alloc(f16[{halves}], scope="register")
        for i in range({halves}):
            r[i] = X[l * {halves} + i]
        intrinsic("stmatrix.x{words}{turned}", writes(S[{row}:{row} + 8]), reads(r[0:{halves}]))
        intrinsic("warp_barrier")
        for i in range(8):
            Y[i * 32 + l] = f16(0.0)
        for i in range({halves}):
            Y[i * 32 + l] = S[i * 32 + l]
"""


@pytest.mark.parametrize("words", [1, 2, 4])
@pytest.mark.parametrize("turned", ["", ".trans"])
def test_stmatrix_is_the_way_back(words: int, turned: str) -> None:
    """Lane l holds elements 2 (l % 4) and the next of row l / 4 of each 8 x 8, or of its column."""
    row = f"l % {8 * words} * 8"
    text = STORE.format(halves=2 * words, words=words, turned=turned, row=row)
    x = np.arange(256, dtype=np.float16)
    tiles = x[: 64 * words].reshape(32, words, 2).transpose(1, 0, 2).reshape(words, 8, 8)
    expected = (tiles.transpose(0, 2, 1) if turned else tiles).ravel()
    simulated = build(text, "cuda-sim -arch=sm_90")
    np.testing.assert_array_equal(np.asarray(simulated(x))[: 64 * words], expected)
    (got,) = run(parse(text), [x], seed=0, check_races=True)
    np.testing.assert_array_equal(got[: 64 * words], expected)


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ('intrinsic("warp_barrier")', 'intrinsic("commit_async")', "race on S"),
        (
            "S[l % 32 * 8:l % 32 * 8 + 8]",
            "S[l % 32 * 8 + 4:l % 32 * 8 + 12]",
            "not aligned|misaligned|out of",
        ),
        ("S[l % 32 * 8:l % 32 * 8", "S[l % 16 * 8:l % 16 * 8", "race on S"),
    ],
)
def test_faults_of_stmatrix(old: str, new: str, found: str) -> None:
    text = STORE.format(halves=8, words=4, turned="", row="l % 32 * 8")
    assert old in text
    with pytest.raises(SimulationError, match=found):
        build(text.replace(old, new), "cuda-sim -arch=sm_90")(np.ones(256, np.float16))
