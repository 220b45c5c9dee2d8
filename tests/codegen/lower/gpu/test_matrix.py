"""Matrix tiles of warps: fragments, addresses and fallbacks, against what the tiles mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest

from nestwright.codegen.lower.gpu.matrix import lower_matrices
from nestwright.codegen.targets.registry import lower
from nestwright.ir.errors import UnsupportedError
from nestwright.ir.loop.nodes import Func, Intrinsic
from nestwright.ir.loop.parser import parse
from nestwright.ir.loop.printer import show
from nestwright.ir.loop.visit import walk
from nestwright.ir.target import Target

Lowered: TypeAlias = Callable[[str], Func]
CORE = {
    "f16": ("mma.m16n8k16.f16.f32", 16, "f32"),
    "bf16": ("mma.m16n8k16.bf16.f32", 16, "f32"),
    "f32": ("mma.m16n8k8.tf32.f32", 8, "f32"),
    "s8": ("mma.m16n8k32.s8.s32", 32, "s32"),
}


COPY = """\
        for y in thread("threadIdx.y", 2):
            for x in thread("threadIdx.x", 32):
                for r in range({times}):
                    with block("{name}s"):
                        vi, vj = (
                            spatial({rows}, (r * 64 + y * 32 + x) // {columns}),
                            spatial({columns}, (r * 64 + y * 32 + x) % {columns}),
                        )
                        reads({name}[vi, vj])
                        writes({name}s[vi, vj])
                        {name}s[vi, vj] = {name}[vi, vj]
"""
PRODUCT = """\
@func(outputs=1)
def f(A: {dtype}[{a}], B: {dtype}[{b}], C: {total}[32, 16]):
    As = alloc({dtype}[{a}], scope="shared"{layout})
    Bs = alloc({dtype}[{b}], scope="shared"{layout})
    Aw = alloc({dtype}[{a}], scope="warp")
    Bw = alloc({dtype}[{b}], scope="warp")
    Cw = alloc({total}[32, 16], scope="warp")
    Cs = alloc({total}[32, 16], scope="shared")
    for block_ in thread("blockIdx.x", 1):
{copies}\
        for y in thread("threadIdx.y", 2):
            for j in range(2):
                with block("zero"):
                    vi, vj = spatial(2, y), spatial(2, j)
                    reads()
                    writes(Cw[{c}])
                    intrinsic("zero_matrix", writes(Cw[{c}]))
            for k in range(2):
                with block("Aw"):
                    vi, vk = spatial(2, y), spatial(2, k)
                    reads(As[{box_a}])
                    writes(Aw[{box_a}])
                    intrinsic("load_matrix_a", writes(Aw[{box_a}]), reads(As[{box_a}]), args({ta}))
                with block("Bw"):
                    vj, vk = spatial(1, 0), spatial(2, k)
                    reads(Bs[{box_b}])
                    writes(Bw[{box_b}])
                    intrinsic("load_matrix_b", writes(Bw[{box_b}]), reads(Bs[{box_b}]), args({tb}))
                for j in range(2):
                    with block("Cw"):
                        vi, vj, vk = spatial(2, y), spatial(2, j), reduce(2, k)
                        reads(Cw[{c}], Aw[{box_a}], Bw[{half_b}])
                        writes(Cw[{c}])
                        intrinsic(
                            "{core}",
                            writes(Cw[{c}]),
                            reads(Cw[{c}], Aw[{box_a}], Bw[{half_b}]),
                            args({ta}, {tb}),
                        )
            for j in range(2):
                with block("store"):
                    vi, vj = spatial(2, y), spatial(2, j)
                    reads(Cw[{c}])
                    writes({to}[{c}])
                    intrinsic("store_matrix", writes({to}[{c}]), reads(Cw[{c}]))
{tail}"""
TAIL = """\
        for y in thread("threadIdx.y", 2):
            for x in thread("threadIdx.x", 32):
                for r in range(8):
                    with block("C"):
                        vi, vj = spatial(32, r * 4 + y * 2 + x // 16), spatial(16, x % 16)
                        reads(Cs[vi, vj])
                        writes(C[vi, vj])
                        C[vi, vj] = Cs[vi, vj] + {total}(1)
"""


def copied(name: str, shape: tuple[int, int]) -> str:
    """A cooperative copy of a whole matrix to shared memory by 64 threads."""
    rows, columns = shape
    return COPY.format(name=name, rows=rows, columns=columns, times=rows * columns // 64)


def product(
    dtype: str, turned: tuple[int, int] = (0, 0), layout: str = "", store: str = "shared"
) -> str:
    """C[32, 16] of two warps, 16 rows each; ``turned`` operands stand with k first."""
    core, deep, total = CORE[dtype]

    def box(rows: str, size: int, turn: int) -> str:
        at, along = f"{rows} : {rows} + {size}", f"vk * {deep} : vk * {deep} + {deep}"
        return f"{along}, {at}" if turn else f"{at}, {along}"

    def shape(rows: int, turn: int) -> tuple[int, int]:
        return (2 * deep, rows) if turn else (rows, 2 * deep)

    a, b = shape(32, turned[0]), shape(16, turned[1])
    parts = {
        "a": f"{a[0]}, {a[1]}",
        "b": f"{b[0]}, {b[1]}",
        "copies": copied("A", a) + copied("B", b),
        "c": "vi * 16 : vi * 16 + 16, vj * 8 : vj * 8 + 8",
        "box_a": box("vi * 16", 16, turned[0]),
        "box_b": box("vj * 16", 16, turned[1]),
        "half_b": box("vj * 8", 8, turned[1]),
        "to": "Cs" if store == "shared" else "C",
        "tail": TAIL.format(total=total) if store == "shared" else "",
    }
    ta, tb = turned
    return PRODUCT.format(dtype=dtype, total=total, core=core, layout=layout, ta=ta, tb=tb, **parts)


def names(func: Func) -> set[str]:
    """The intrinsics of a function."""
    return {x.name for x in walk(func.body) if isinstance(x, Intrinsic)}


@pytest.mark.parametrize("turned", [(0, 0), (1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("dtype", CORE)
def test_products_by_warps(dtype: str, turned: tuple[int, int], means_the_same: Lowered) -> None:
    flat = means_the_same(product(dtype, turned))
    halves = dtype in ("f16", "bf16")
    plain, transposed = 0 in turned, 1 in turned and halves
    found = names(flat)
    assert CORE[dtype][0] in found
    assert ("ldmatrix.x4" in found) == plain
    assert ("ldmatrix.x4.trans" in found) == transposed


@pytest.mark.parametrize(
    "layout", [", swizzle=2", ", swizzle=4", ", align=(0, 64, 8)", ", align=(0, 16, 1)"]
)
def test_rows_that_are_moved_apart_are_found_where_they_stand(
    layout: str, means_the_same: Lowered
) -> None:
    flat = means_the_same(product("bf16", layout=layout))
    whole = not layout.endswith("1)")  # rows that begin at no multiple of 16 bytes are no rows
    assert ("ldmatrix.x4" in names(flat)) == whole


def test_results_may_go_to_global_memory_straight(means_the_same: Lowered) -> None:
    assert "C[ty * 256 + tx // 4 * 16" in show(means_the_same(product("f16", store="global")))


def test_tiles_become_four_words_of_each_thread() -> None:
    before = """\
@func(outputs=1)
def f(S: f16[16, 16], C: f32[16, 8]):
    for bx in thread("blockIdx.x", 1):
        for tx in thread("threadIdx.x", 32):
            A = alloc(f16[16, 16], scope="warp")
            T = alloc(f16[16, 16], scope="shared")
            intrinsic("load_matrix_a", writes(A[0:16, 0:16]), reads(T[0:16, 0:16]), args(0))
            R = alloc(f32[16, 8], scope="warp")
            intrinsic("zero_matrix", writes(R[0:16, 0:8]))
            intrinsic("store_matrix", writes(C[0:16, 0:8]), reads(R[0:16, 0:8]))
"""
    row = "T[tx // 8 % 2 * 8 + tx % 8, tx // 16 * 8 : tx // 16 * 8 + 8]"
    assert (
        show(lower_matrices(parse(before)))
        == f"""\
@func(outputs=1)
def f(S: f16[16, 16], C: f32[16, 8]):
    for bx in thread("blockIdx.x", 1):
        for tx in thread("threadIdx.x", 32):
            A = alloc(u32[1, 1, 4], scope="register")
            T = alloc(f16[16, 16], scope="shared")
            intrinsic("ldmatrix.x4", writes(A[0, 0, 0 : 4]), reads({row}))
            R = alloc(f32[1, 1, 4], scope="register")
            R[0, 0, 0] = f32(0.0)
            R[0, 0, 1] = f32(0.0)
            R[0, 0, 2] = f32(0.0)
            R[0, 0, 3] = f32(0.0)
            for v in vectorize(2):
                C[tx // 4, tx % 4 * 2 + v] = R[0, 0, v]
            for v in vectorize(2):
                C[tx // 4 + 8, tx % 4 * 2 + v] = R[0, 0, v + 2]
"""
    )


def test_what_is_no_warp_is_refused(target: Target) -> None:
    before = product("f16").replace('"threadIdx.x", 32', '"threadIdx.x", 64')
    with pytest.raises(UnsupportedError, match="64 threads in x"):
        lower(parse(before), target)


def test_a_tile_between_tiles_is_refused(target: Target) -> None:
    before = product("f16").replace("vj * 8 : vj * 8 + 8", "vj * 4 : vj * 4 + 8")
    with pytest.raises(UnsupportedError, match="does not hold whole tiles"):
        lower(parse(before), target)
