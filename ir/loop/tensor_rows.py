"""The rows of the table of intrinsics that have to do with tensor memory.

In lane forms a place in tensor memory is a column of a flat buffer; the lanes are those of the
warp. Beside it stands a register with where the block's columns begin, as ``tensor_alloc`` said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np

from ..arrays import Array
from ..dtypes import DType, f32, s8, s32, u32, u64
from .forms import Form, IntrinsicDef, Meaning, Operand, Signature
from .nodes import Scope
from .tensor_memory import HELD, LANES, TensorMatrix

_WARP = 32
_WIDTHS = tuple(range(16, 257, 16))
_TENSOR, _SHARED, _REGISTER = (Scope.TENSOR,), (Scope.SHARED,), (Scope.REGISTER,)
_SUMS = (f32, s32)
_COLUMN = Operand(_TENSOR, (1,), _SUMS)
_BASE = Operand(_REGISTER, (1,), (u32,))
_FLAG = Operand(_REGISTER, (1,), (s32,))
_SLOT = Operand(_SHARED, (1,), (u32,))
_BAR = Operand(_SHARED, (1,), (u64,))
_NONE = (Signature(),)


def tensor_rows(
    depths: Mapping[DType, int], mixed: Sequence[tuple[DType, DType]], multiply: Meaning
) -> tuple[IntrinsicDef, ...]:
    """Return the rows, given the depth of a product by the type of its operands, pairs of other
    types that may meet, and what a product means."""
    kinds = (*((dtype, None) for dtype in depths), *mixed)
    products = (
        TensorMatrix(LANES, n, depths[a], a, s32 if a == s8 else f32, b)
        for a, b in kinds
        for n in _WIDTHS
    )
    return (*(_product(x, multiply) for x in products), *_OTHERS)


def _product(x: TensorMatrix, meaning: Meaning) -> IntrinsicDef:
    """Define ``c[m, n] += a[m, k] b[k, n]``, or without c where the first register read is 0.

    It is asynchronous: it reads shared memory (by the asynchronous proxy) and updates the sums at
    any time until the phase ends at which a later ``tensor_commit`` of its thread arrives. Products
    of one thread follow each other. In the lane form reads are a flag, where the columns begin, and
    the 16 bytes at which each operand begins; args are as those of warp groups' products.
    """
    c = Operand(_TENSOR, (x.m, x.n), (x.sums,))
    tiles = []
    for turned in product((0, 1) if x.operands.bytes == 2 else (0,), repeat=2):
        a, b = (
            Operand(_SHARED, (x.k, rows) if t else (rows, x.k), (dtype,))
            for t, rows, dtype in zip(turned, (x.m, x.n), x.types, strict=True)
        )
        tiles.append(Signature(turned, (c,), (c, a, b)))
    starts = (Operand(_SHARED, None, (dtype,), 16) for dtype in x.types)
    reads = (_FLAG, _BASE, *starts)
    sums = Operand(_TENSOR, (1,), (x.sums,))
    lanes = tuple(Signature(t.args, (sums,), reads, free=6) for t in tiles)
    kinds = ".".join(dict.fromkeys("tf32" if t == f32 else str(t) for t in x.types))
    return IntrinsicDef(
        f"tcgen05.m{x.m}n{x.n}k{x.k}.{kinds}.{x.sums}",
        100,
        Form(tuple(tiles), 1, meaning),
        Form(lanes, 1),
        tensor=True,
        product=x,
    )


def _zeros() -> Form:
    boxes = (Operand(_TENSOR, (LANES, n), (t,)) for n in _WIDTHS for t in _SUMS)
    return Form(tuple(Signature((), (box,)) for box in boxes), 1, lambda: np.zeros((1, 1)))


def _rows_held() -> Form:
    """Copies of a row's columns to the registers of the thread of its number (modulo 128)."""
    signatures = (
        Signature((), (Operand(_REGISTER, (1, n), (t,)),), (Operand(_TENSOR, (1, n), (t,)),))
        for n in HELD
        for t in _SUMS
    )
    return Form(tuple(signatures), 1, _copy)


def _copy(source: Array, *args: int) -> Array:
    return source


def _load(columns: int) -> Form:
    own = (Operand(_REGISTER, (columns,), (t,)) for t in _SUMS)
    return Form(tuple(Signature((), (to,), (_COLUMN, _BASE)) for to in own), _WARP)


def _waits() -> Form:
    """Registers that loads fill may be touched after it: those that it reads and writes."""
    held = Operand(_REGISTER, None, _SUMS)
    return Form((Signature((), (held,), (held,)),), _WARP)


_LANDED = Form(tuple(Signature((n,)) for n in range(8)), 1)
_OTHERS = (
    IntrinsicDef("zero_tensor", 100, _zeros(), tensor=True),
    IntrinsicDef("load_tensor", 100, _rows_held(), tensor=True),
    # One warp: args[0] columns of the multiprocessor's, and nobody asks for more. Where they begin
    # is written to shared memory. It waits until other blocks have freed as many.
    IntrinsicDef(
        "tensor_alloc",
        100,
        lane=Form((Signature((), (_SLOT,), free=1),), _WARP),
        tensor=True,
    ),
    # One warp, before the block ends: all columns that it has.
    IntrinsicDef(
        "tensor_free", 100, lane=Form((Signature((), (), (_BASE,), free=1),), _WARP), tensor=True
    ),
    # One thread: an arrival when all products that it has begun are done. Without a barrier, the
    # products since the last one are a group, of which ``tensor_landed`` lets args[0] be under way.
    IntrinsicDef("tensor_commit", 100, lane=Form((*_NONE, Signature((), (_BAR,))), 1), tensor=True),
    IntrinsicDef("tensor_landed", 100, lane=_LANDED, tensor=True),
    # What a thread did in tensor memory before the first one and a barrier, others see after the
    # barrier and the second one. A phase's end stands for the first one of who committed.
    IntrinsicDef("tensor_fence_before", 100, lane=Form(_NONE, 1), tensor=True),
    IntrinsicDef("tensor_fence_after", 100, lane=Form(_NONE, 1), tensor=True),
    *(IntrinsicDef(f"tensor_load.x{n}", 100, lane=_load(n), tensor=True) for n in HELD),
    IntrinsicDef("tensor_wait", 100, lane=_waits(), tensor=True),
)
