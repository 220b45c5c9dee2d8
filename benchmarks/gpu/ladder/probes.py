"""Kernels of one mechanism each, as flat functions: barriers with phases, bulk copies, warp groups.

They rely on nothing of the compiler above the emitter, so that what fails is the instruction, what
we think it does, or its address.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .rung import Array

ROWS, COLUMNS = 40, 96  # of a matrix that a box of 32 x 64 overhangs on both sides
ROW, COLUMN = 16, 64  # where the box begins
HIGH, WIDE = 32, 64


@dataclass(frozen=True)
class Probe:
    """A kernel's text, its inputs from random numbers, and what it makes of them.

    ``asks`` are the intrinsics that the processor has to know.
    """

    text: str
    inputs: Callable[[np.random.Generator], tuple[Array, ...]]
    right: Callable[..., Array]
    asks: tuple[str, ...]


def _floats(count: int) -> Callable[[np.random.Generator], tuple[Array, ...]]:
    return lambda rng: (rng.integers(-99, 100, count).astype(np.float32),)


def _halves(*counts: int) -> Callable[[np.random.Generator], tuple[Array, ...]]:
    return lambda rng: tuple(rng.integers(-4, 5, n).astype(np.float16) for n in counts)


MBARRIER = Probe(
    """
@func(outputs=1)
def ring(X: f32[512], Y: f32[512]):
    for t in thread("threadIdx.x", 96):
        S = alloc(f32[128], scope="shared")
        full = alloc(u64[2], scope="shared")
        empty = alloc(u64[2], scope="shared")
        if t == 0:
            for i in range(2):
                intrinsic("mbarrier_init", writes(full[i]), args(32))
                intrinsic("mbarrier_init", writes(empty[i]), args(64))
        intrinsic("barrier")
        if t < 64:
            for k in range(8):
                p = alloc(s32[1], scope="register")
                p[0] = cast(s32, k // 2 % 2)
                intrinsic("mbarrier_wait", reads(full[k % 2], p[0]))
                Y[k * 64 + t] = S[k % 2 * 64 + 63 - t]
                intrinsic("mbarrier_arrive", writes(empty[k % 2]))
        else:
            for k in range(8):
                p = alloc(s32[1], scope="register")
                p[0] = cast(s32, (k // 2 + 1) % 2)
                intrinsic("mbarrier_wait", reads(empty[k % 2], p[0]))
                for h in range(2):
                    S[k % 2 * 64 + h * 32 + t - 64] = X[k * 64 + h * 32 + t - 64]
                intrinsic("mbarrier_arrive", writes(full[k % 2]))
""",
    _floats(512),
    lambda x: x.reshape(8, 64)[:, ::-1].ravel(),
    ("mbarrier_wait",),
)
"""A warp fills two places in turn, two warps read them; no copy is asynchronous."""

_BOX = f"args({COLUMNS}, {ROWS}, {COLUMNS}, {WIDE}, {HIGH}, 128)"
_SIZE = ROWS * COLUMNS
_PLACE = f"""\
            q = alloc(s32[2], scope="register")
            q[0] = s32({COLUMN})
            q[1] = s32({ROW})
"""
_SWIZZLED = "e // 64 * 64 + (e % 64 // 8 ^ e // 64 % 8) * 8 + e % 8"


def _overhang(x: Array) -> Array:
    box = np.zeros((HIGH, WIDE), x.dtype)
    part = x.reshape(ROWS, COLUMNS)[ROW:, COLUMN:]
    box[: part.shape[0], : part.shape[1]] = part
    return box.ravel()


TMA_LOAD = Probe(
    f"""
@func(outputs=1)
def loaded(X: f16[{_SIZE}], Y: f16[2048]):
    for t in thread("threadIdx.x", 32):
        S = alloc(f16[2048], scope="shared")
        bar = alloc(u64[1], scope="shared")
        p = alloc(s32[1], scope="register")
        p[0] = s32(0)
        if t == 0:
            intrinsic("mbarrier_init", writes(bar[0]), args(1))
            intrinsic("fence_mbarrier_init")
        intrinsic("barrier")
        if t == 0:
{_PLACE}            intrinsic("mbarrier_expect", writes(bar[0]), args(4096))
            intrinsic("tma_load", writes(S[0:2048]), reads(X[0:{_SIZE}], q[0:2], bar[0]), \
{_BOX})
        intrinsic("mbarrier_wait", reads(bar[0], p[0]))
        for i in range(64):
            e = let(s64, i * 32 + t)
            Y[e] = S[{_SWIZZLED}]
""",
    _halves(_SIZE),
    _overhang,
    ("tma_load", "mbarrier_expect"),
)
"""A swizzled box that overhangs its matrix: zeros beyond the edges, all its bytes counted."""

TMA_STORE = Probe(
    f"""
@func(outputs=1)
def kept(X: f16[2048], Y: f16[{_SIZE}]):
    for t in thread("threadIdx.x", 32):
        S = alloc(f16[2048], scope="shared")
        for i in range(64):
            e = let(s64, i * 32 + t)
            S[{_SWIZZLED}] = X[e]
        for i in range({_SIZE // 32}):
            e = let(s64, i * 32 + t)
            if e < {ROW * COLUMNS}:
                Y[e] = f16(0.0)
            else:
                if e % {COLUMNS} < {COLUMN}:
                    Y[e] = f16(0.0)
        intrinsic("fence_proxy_async")
        intrinsic("barrier")
        if t == 0:
{_PLACE}            intrinsic("tma_store", writes(Y[0:{_SIZE}]), reads(S[0:2048], q[0:2]), \
{_BOX})
            intrinsic("tma_commit")
            intrinsic("tma_wait", args(0))
""",
    _halves(2048),
    lambda x: np.pad(
        x.reshape(HIGH, WIDE)[: ROWS - ROW, : COLUMNS - COLUMN], ((ROW, 0), (COLUMN, 0))
    ).ravel(),
    ("tma_store", "fence_proxy_async"),
)
"""The way back: what overhangs is not written."""

STMATRIX = Probe(
    """
@func(outputs=1)
def stored(X: f16[256], Y: f16[256]):
    for l in thread("threadIdx.x", 32):
        S = alloc(f16[256], scope="shared")
        r = alloc(f16[8], scope="register")
        for i in range(8):
            r[i] = X[l * 8 + i]
        intrinsic("stmatrix.x4", writes(S[l * 8:l * 8 + 8]), reads(r[0:8]))
        intrinsic("warp_barrier")
        for i in range(8):
            Y[i * 32 + l] = S[i * 32 + l]
""",
    _halves(256),
    lambda x: x.reshape(32, 4, 2).transpose(1, 0, 2).ravel(),
    ("stmatrix.x4",),
)
"""Four matrices of 8 x 8 from the pairs that lanes hold."""

_PRODUCT = """
@func(outputs=1)
def multiplied(A: f16[1024], B: f16[1024], C: f32[4096]):
    for w in thread("threadIdx.z", {groups}):
        for t in thread("threadIdx.x", 128):
            SA = alloc(f16[1024], scope="shared")
            SB = alloc(f16[1024], scope="shared")
            if w == 0:
                for v in range(8):
                    SA[(t ^ t // 8 % 2) * 8 + v] = A[t * 8 + v]
                    SB[(t ^ t // 8 % 2) * 8 + v] = B[t * 8 + v]
            intrinsic("fence_proxy_async")
            intrinsic("barrier")
            if w == 0:
{take}                R = alloc(f32[32], scope="register")
                for e in unroll(32):
                    R[e] = f32(0.0)
                intrinsic("wgmma_fence", writes(R[0:32]), reads(R[0:32]))
                intrinsic("wgmma.m64n64k16.f16.f32", writes(R[0:32]), reads(R[0:32], SA[0:8], \
SB[0:8]), args(0, 0, 32, 0, 256, 32, 0, 256))
                intrinsic("wgmma_commit")
                intrinsic("wgmma_wait", writes(R[0:32]), reads(R[0:32]), args(0))
                for e in unroll(32):
                    C[(t // 32 * 16 + t % 32 // 4 + e // 2 % 2 * 8) * 64 + e // 4 * 8 + t % 4 * 2 \
+ e % 2] = R[e]
{give}"""


def _multiplied(a: Array, b: Array) -> Array:
    left, right = (x.reshape(64, 16).astype(np.float32) for x in (a, b))
    return np.asarray(left @ right.T).ravel()


WGMMA = Probe(
    _PRODUCT.format(groups=1, take="", give=""),
    _halves(1024, 1024),
    _multiplied,
    ("wgmma.m64n64k16.f16.f32",),
)
"""64 x 64 x 16 from tiles with a swizzle of 32 bytes, which threads stored."""

SETMAXNREG = Probe(
    _PRODUCT.format(
        groups=2,
        take='                intrinsic("take_registers", args(232))\n',
        give='            else:\n                intrinsic("give_registers", args(40))\n',
    ),
    _halves(1024, 1024),
    _multiplied,
    ("wgmma.m64n64k16.f16.f32", "take_registers"),
)
"""The same beside a group that gives registers away, which the first one waits for."""
