"""The table of intrinsics: the operations of GPUs that are not loops over elements.

An intrinsic has up to two forms. In a *tile* form, that of schedules, its operands are boxes in
logical coordinates, the last two dimensions a matrix; a warp or four do it, and what it means is
a function of NumPy. In a *lane* form, that of lowered code, its operands are flat: what one thread
holds in registers and where it points to. ``Matrix`` and ``GroupMatrix`` say which elements are in
a thread's hands. What rows of ``_ASYNCHRONOUS`` order and delay is written at each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from types import MappingProxyType

import numpy as np

from ..arrays import Array
from ..dtypes import BY_NAME, DType, bf16, f16, f32, s8, s32, u32, u64
from .build import as_int
from .forms import Form, IntrinsicDef, Operand, Signature
from .fragments import Matrix
from .nodes import Intrinsic, Scope
from .tensor_rows import tensor_rows
from .warpgroups import WARPGROUP, GroupMatrix

WARP = 32
SPREAD: Mapping[Scope, int] = MappingProxyType({Scope.WARP: WARP, Scope.WARPGROUP: WARPGROUP})
"""The scopes of tiles, and over the registers of how many threads each tile is spread."""
HELD_ROWS, HELD_COLUMNS = 8, 4  # of a warp's threads: rows, and pairs of columns, of a tile
BLOCK = 0  # threads of a form: all of the block
NAMED = -1  # threads of a form: as many as its last argument says
CLUSTERED = -2  # threads of a form: all of the cluster

TF32_SCALE = float(np.float32(1 + 2.0**-10 / 3))
"""A factor that makes cutting to ten bits of mantissa (``tf32``) rounding, about.

A third of a unit in the last place is added to 1.0 and two thirds to what is just below 2.0, so the
error lies between -2/3 and 2/3 units, 0 on average and for numbers of ten bits.
"""


def tf32(values: Array) -> Array:
    """f32 without the low 13 bits of the mantissa, as tensor cores take it."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return (bits & np.uint32(0xFFFFE000)).view(np.float32)


# Meanings of tile forms


def _copy(source: Array, *args: int) -> Array:
    return source


def multiply(c: Array, a: Array, b: Array, a_transposed: int, b_transposed: int) -> Array:
    """Return ``c + a b``, where b is [n, k] unless transposed; products of integers are exact."""
    left = (a.T if a_transposed else a).astype(c.dtype)
    right = (b if b_transposed else b.T).astype(c.dtype)
    return np.asarray(c + left @ right, c.dtype)


# The table

_SHARED, _GLOBAL = (Scope.SHARED,), (Scope.GLOBAL,)
_REGISTER, _WARP, _WARPGROUP = (Scope.REGISTER,), (Scope.WARP,), (Scope.WARPGROUP,)
_E4M3, _E5M2 = BY_NAME["f8e4m3fn"], BY_NAME["f8e5m2"]
_K: Mapping[DType, int] = MappingProxyType(
    {f16: 16, bf16: 16, f32: 8, s8: 32, _E4M3: 32, _E5M2: 32}
)
"""The depth of a matrix product by the type of its operands: 32 bytes."""


def _loads(rows: int) -> Form:
    """Copies of [rows, k] from shared memory; transposed, of [k, rows]."""
    signatures = []
    for (dtype, k), turned in product(_K.items(), (0, 1)):
        shape = (k, rows) if turned else (rows, k)
        to, of = (Operand(scope, shape, (dtype,)) for scope in (_WARP, _SHARED))
        signatures.append(Signature((turned,), (to,), (of,)))
    return Form(tuple(signatures), WARP, _copy)


def _zeros(scope: tuple[Scope, ...], rows: int, threads: int) -> Form:
    c = (Signature((), (Operand(scope, (rows, 8), (dtype,)),)) for dtype in (f32, s32))
    return Form(tuple(c), threads, lambda: np.zeros((rows, 8)))


def _stores(
    of: tuple[Scope, ...],
    shape: tuple[int, int],
    threads: int,
    dtypes: tuple[DType, ...] = (f32, s32),
    to: tuple[Scope, ...] = (Scope.SHARED, Scope.GLOBAL),
) -> Form:
    there, own = ((Operand(scopes, shape, dtypes),) for scopes in (to, of))
    return Form((Signature((), there, own, alike=True),), threads, _copy)


def _product(x: Matrix, sm: int = 80) -> IntrinsicDef:
    c = Operand(_WARP, (x.m, x.n), (x.sums,))
    tiles = []
    for turned in product((0, 1), (0, 1)):
        a, b = (
            Operand(_WARP, (x.k, rows) if t else (rows, x.k), (dtype,))
            for t, rows, dtype in zip(turned, (x.m, x.n), x.types, strict=True)
        )
        tiles.append(Signature(turned, (c,), (c, a, b)))
    own = Operand(_REGISTER, (x.words[2],), (x.sums,))
    a, b = (Operand(_REGISTER, (words,), (u32,)) for words in x.words[:2])
    lanes = Signature((), (own,), (own, a, b))
    name = f"mma.m{x.m}n{x.n}k{x.k}.{_kinds(x)}"
    return IntrinsicDef(
        name, sm, Form(tuple(tiles), WARP, multiply), Form((lanes,), WARP), matrix=x
    )


def _copy_async(filled: bool) -> Form:
    """Copies of 4, 8 or 16 bytes; ``filled`` ones read fewer, as a register says, the rest is 0."""
    count = (Operand(_REGISTER, (1,), (s32,)),) if filled else ()
    signatures = (
        Signature((n,), (Operand(_SHARED, bytes=n),), (Operand(_GLOBAL, bytes=n), *count), True)
        for n in (4, 8, 16)
    )
    return Form(tuple(signatures), 1)


def _ldmatrix(words: int) -> Form:
    to, row = Operand(_REGISTER, (words,), (u32,)), Operand(_SHARED, bytes=16)
    return Form((Signature((), (to,), (row,)),), WARP)


def _stmatrix(words: int) -> Form:
    """Return the form of ``stmatrix``: rows are written where the lanes point to."""
    row = Operand(_SHARED, bytes=16)
    own = (Operand(_REGISTER, (2 * words,), (dtype,)) for dtype in (f16, bf16))
    return Form(tuple(Signature((), (row,), (of,)) for of in own), WARP)


def _waits(most: int) -> Form:
    return Form(tuple(Signature((n,)) for n in range(most + 1)), 1)


def _arrives() -> Form:
    """All threads of the block learn whether it is the last of ``args[0]`` at the counter."""
    last, counter = Operand(_REGISTER, (1,), (s32,)), Operand((Scope.COUNTER,), (1,), (u32,))
    return Form((Signature((), (last,), (counter,), free=1),), BLOCK)


def _load_remote() -> Form:
    """Reads of the shared memory of the cluster's block of a rank, where this block has its own."""
    rank = Operand(_REGISTER, (1,), (s32,))
    signatures = (
        Signature((), (Operand(_REGISTER, bytes=n),), (Operand(_SHARED, bytes=n), rank))
        for n in (4, 8, 16)
    )
    return Form(tuple(signatures), 1)


_EMPTY = (Signature(),)

# Warp groups: four warps together, of which the first has a number that is a multiple of four

_WIDTHS = tuple(range(64, 257, 8))


_STORED_RESULTS = _stores(_WARPGROUP, (64, 16), WARPGROUP, (f16, bf16), _SHARED)


def _group_product(x: GroupMatrix) -> IntrinsicDef:
    """Define ``c[m, n] += a[m, k] b[k, n]``; operands in shared memory, sums in registers.

    It is asynchronous: it reads shared memory (by the asynchronous proxy) and updates the sums at
    any time until the ``wgmma_wait`` that covers its group. Until then only products of the same
    shape may touch these sums, and nothing may write the operands. Each product on the same sums
    follows the one before. In the lane form an operand is the 16 bytes at which its matrix begins,
    the same for all threads, and args are, after whether a and b are turned (k outermost), the
    ``Descriptor`` of a (swizzle, leading, stride) and that of b. An a of two-byte elements may be
    in registers, too, held like sums; then it is a thread's own elements, without a descriptor.
    """
    c = Operand(_WARPGROUP, (x.m, x.n), (x.sums,))
    own = Operand(_REGISTER, (x.words,), (x.sums,))
    at, start = (Operand(_SHARED, None, (dtype,), 16) for dtype in x.types)
    tiles, lanes = [], []
    for turned in product((0, 1) if x.operands.bytes == 2 else (0,), repeat=2):
        a, b = (
            Operand(_SHARED, (x.k, rows) if t else (rows, x.k), (dtype,))
            for t, rows, dtype in zip(turned, (x.m, x.n), x.types, strict=True)
        )
        tiles.append(Signature(turned, (c,), (c, a, b)))
        lanes.append(Signature(turned, (own,), (own, at, start), free=6))
        if x.operands.bytes == 2 and not turned[0]:
            tiles.append(Signature(turned, (c,), (c, replace(a, scopes=_WARPGROUP), b)))
            held = Operand(_REGISTER, (x.held,), (x.operands,))
            lanes.append(Signature(turned, (own,), (own, held, start), free=3))
    return IntrinsicDef(
        f"wgmma.m{x.m}n{x.n}k{x.k}.{_kinds(x)}",
        90,
        Form(tuple(tiles), WARPGROUP, multiply),
        Form(tuple(lanes), WARPGROUP),
        exact=True,
        group=x,
    )


def _kinds(x: Matrix | GroupMatrix) -> str:
    """Return the part of a product's name that tells its types: of b if it is not that of a."""
    types = dict.fromkeys("tf32" if t == f32 else str(t) for t in x.types)
    return ".".join((*types, str(x.sums)))


_MIXED = ((_E4M3, _E5M2), (_E5M2, _E4M3))


def _group_products() -> tuple[IntrinsicDef, ...]:
    return tuple(
        _group_product(GroupMatrix(64, n, _K[a], a, s32 if a == s8 else f32, b))
        for a, b in (*((dtype, None) for dtype in _K), *_MIXED)
        for n in _WIDTHS
        if a != s8 or n % 16 == 0
    )


_FENCED = 4  # buffers of registers that a fence names, at most


def _group_fence() -> Form:
    """Registers that it names (read and written) are as they are from there on."""
    held = Operand(_REGISTER, None, (f32, s32, f16, bf16))
    ways = ((held,) * n for n in range(_FENCED + 1))
    return Form(tuple(Signature((), way, way) for way in ways), WARPGROUP)


def _group_wait() -> Form:
    """Until at most n of the last groups are under way. Sums of the others may be touched: those
    that it names (read and written) were not, before."""
    sums = Operand(_REGISTER, None, (f32, s32))
    ways = ((), ()), ((sums,), (sums,))
    return Form(tuple(Signature((n,), *way) for way in ways for n in range(8)), WARPGROUP)


# Bulk copies and the barriers in shared memory that count them

_BAR = Operand(_SHARED, (1,), (u64,))
_NUMBER = Operand(_REGISTER, (1,), (s32,))
_PLACE = Operand(_REGISTER, (2,), (s32,))  # column and row of a box, which may lie outside
_TENSOR = Operand(_GLOBAL, None)
_BOX = Operand(_SHARED, None)


def _calls(
    *, writes: tuple[Operand, ...] = (), reads: tuple[Operand, ...] = (), free: int = 0
) -> tuple[Signature, ...]:
    return (Signature((), writes, reads, free=free),)


_BOXES = tuple(Signature((), (to,), (of,)) for to, of in ((_BOX, _TENSOR), (_TENSOR, _BOX)))
_ASYNCHRONOUS = (
    # Registers that other instructions wrote are seen by the products after it: before the first
    # one. What writes those that it names comes before it.
    IntrinsicDef("wgmma_fence", 90, lane=_group_fence(), exact=True),
    # The products since the last one are a group; groups end in order.
    IntrinsicDef("wgmma_commit", 90, lane=Form(_EMPTY, WARPGROUP), exact=True),
    IntrinsicDef("wgmma_wait", 90, lane=_group_wait(), exact=True),
    # What this thread wrote to (or saw in) shared memory by stores and by ``copy_async`` that it
    # waited for is seen by asynchronous readers (products, ``tma_store``) after it, and by those of
    # other threads after a barrier.
    IntrinsicDef("fence_proxy_async", 90, lane=Form(_EMPTY, 1)),
    # A barrier that args[0] arrivals complete. It is in phase 0 of two. One thread does it; others
    # use it after ``fence_mbarrier_init`` by that thread and a barrier of the block.
    IntrinsicDef("mbarrier_init", 80, lane=Form(_calls(writes=(_BAR,), free=1), 1)),
    IntrinsicDef("fence_mbarrier_init", 90, lane=Form(_EMPTY, 1)),
    # One arrival. A phase ends when all arrivals are there and all bytes expected have landed; the
    # next one begins with the full count. What the thread did before it is seen by whoever waits.
    IntrinsicDef("mbarrier_arrive", 80, lane=Form(_calls(writes=(_BAR,)), 1)),
    # One arrival as soon as each ``copy_async`` that the thread has begun has landed; it need not
    # wait for them itself. Copies are seen by whoever waits, stores of the thread are not.
    IntrinsicDef("mbarrier_arrive_copies", 80, lane=Form(_calls(writes=(_BAR,)), 1)),
    # One arrival, and first args[0] bytes more are expected in this phase.
    IntrinsicDef("mbarrier_expect", 90, lane=Form(_calls(writes=(_BAR,), free=1), 1)),
    # Until the phase of the parity reads[1] has ended: at once if the barrier is in the other one.
    IntrinsicDef("mbarrier_wait", 80, lane=Form(_calls(reads=(_BAR, _NUMBER)), 1)),
    # One thread: a box of a matrix to shared memory, which must lie at a multiple of its pattern
    # (128 bytes, or 8 swizzles); args: columns, rows and pitch (elements) of the matrix, columns
    # and rows of the box, bytes of the swizzle (0: none; else those of a row of the box). Elements
    # outside of the matrix are 0. reads: the matrix as a box of any size that begins at its first
    # element, column and row of the box's first element, the barrier. It lands at any time until
    # the phase ends in which it has counted its bytes, those outside too; then it is seen by
    # whoever waited for that phase, products included. It may overtake the thread's earlier reads.
    IntrinsicDef(
        "tma_load", 90, lane=Form(_calls(writes=(_BOX,), reads=(_TENSOR, _PLACE, _BAR), free=6), 1)
    ),
    # A box of a matrix on its way to be some ``tma_load``: the pipeline says to which barrier. Or
    # some ``tma_store``, of what all threads of the block have made.
    IntrinsicDef("copy_box", 90, lane=Form(_BOXES, 1), clips=True),
    # One thread: the way back, with the same args; elements outside are not written. It reads the
    # box at any time until ``tma_wait_read``, and has written at ``tma_wait``. Stores of the box by
    # threads come before their ``fence_proxy_async`` and a barrier.
    IntrinsicDef(
        "tma_store", 90, lane=Form(_calls(writes=(_TENSOR,), reads=(_BOX, _PLACE), free=6), 1)
    ),
    IntrinsicDef("tma_commit", 90, lane=Form(_EMPTY, 1)),
    IntrinsicDef("tma_wait", 90, lane=_waits(7)),
    IntrinsicDef("tma_wait_read", 90, lane=_waits(7)),
    # Registers of each thread of the group from here on: args[0], a multiple of 8, 24 to 256. The
    # second waits until they are free.
    IntrinsicDef("give_registers", 90, lane=Form(_calls(free=1), WARPGROUP), exact=True),
    IntrinsicDef("take_registers", 90, lane=Form(_calls(free=1), WARPGROUP), exact=True),
    # Barrier args[0] (1 to 15) of args[1] threads, whole warps; the second does not wait itself.
    IntrinsicDef("named_barrier", 75, lane=Form(_calls(free=2), NAMED)),
    IntrinsicDef("named_barrier_arrive", 75, lane=Form(_calls(free=2), NAMED)),
)

_ROWS = (
    IntrinsicDef("zero_matrix", 80, tile=_zeros(_WARP, 16, WARP)),
    IntrinsicDef("load_matrix_a", 80, tile=_loads(16)),
    IntrinsicDef("load_matrix_b", 80, tile=_loads(16)),
    *(_product(Matrix(16, 8, _K[x], x, f32)) for x in (f16, bf16, f32)),
    _product(Matrix(16, 8, 32, s8, s32)),
    *(_product(Matrix(16, 8, 32, x, f32), 89) for x in (_E4M3, _E5M2)),
    *(_product(Matrix(16, 8, 32, a, f32, b), 89) for a, b in _MIXED),
    IntrinsicDef("store_matrix", 80, tile=_stores(_WARP, (16, 8), WARP)),
    IntrinsicDef("barrier", 75, lane=Form(_EMPTY, BLOCK)),
    IntrinsicDef("warp_barrier", 75, lane=Form(_EMPTY, WARP)),
    IntrinsicDef("arrive", 75, lane=_arrives()),
    # All threads of a cluster: what they wrote to shared and global memory is seen by the others.
    # No block may end before the last read of its shared memory.
    IntrinsicDef("cluster_barrier", 90, lane=Form(_EMPTY, CLUSTERED)),
    IntrinsicDef("load_remote", 90, lane=_load_remote()),
    # Until launches before this one have ended, and what they wrote is seen. The second one lets
    # the next launch begin, once each block has come by it or ended.
    IntrinsicDef("launch_wait", 90, lane=Form(_EMPTY, 1)),
    IntrinsicDef("launch_next", 90, lane=Form(_EMPTY, 1)),
    # The number of blocks of the launch in x, which is known when it begins.
    IntrinsicDef("grid_blocks", 75, lane=Form(_calls(writes=(_NUMBER,)), 1)),
    IntrinsicDef("copy_async", 80, lane=_copy_async(filled=False)),
    IntrinsicDef("copy_async_zfill", 80, lane=_copy_async(filled=True)),
    IntrinsicDef("commit_async", 80, lane=Form(_EMPTY, 1)),
    IntrinsicDef("wait_async", 80, lane=_waits(15)),
    *(
        IntrinsicDef(f"ldmatrix.x{words}{turned}", 75, lane=_ldmatrix(words))
        for words in (1, 2, 4)
        for turned in ("", ".trans")
    ),
    *(
        IntrinsicDef(f"stmatrix.x{words}{turned}", 90, lane=_stmatrix(words))
        for words in (1, 2, 4)
        for turned in ("", ".trans")
    ),
    IntrinsicDef("zero_accumulators", 90, tile=_zeros(_WARPGROUP, 64, WARPGROUP), exact=True),
    IntrinsicDef(
        "store_accumulators", 90, tile=_stores(_WARPGROUP, (64, 8), WARPGROUP), exact=True
    ),
    IntrinsicDef("store_results", 90, tile=_STORED_RESULTS, exact=True),
    *_group_products(),
    *_ASYNCHRONOUS,
    *tensor_rows(_K, _MIXED, multiply),
)

TABLE: Mapping[str, IntrinsicDef] = MappingProxyType({row.name: row for row in _ROWS})
"""Every intrinsic by name."""


def misfit(s: Intrinsic) -> str:
    """Why a call is none that the table knows; '' if it is one. Extents must be constant."""
    row = TABLE.get(s.name)
    if row is None:
        return f"there is no intrinsic {s.name!r}"
    form = row.form(s)
    if form is None:
        return "it works on " + ("tiles of a warp" if row.tile else "what single threads hold")
    if any(as_int(x.extent) is None for r in (*s.writes, *s.reads) for x in r.ranges):
        return "the extent of a box is not constant"
    if any(known.takes(s) for known in form.signatures):
        return ""
    near = [known for known in form.signatures if known.args == s.args] or form.signatures
    writes, reads = (
        ", ".join(dict.fromkeys(str(o) for known in near for o in getattr(known, part)))
        for part in ("writes", "reads")
    )
    args = sorted({known.args for known in form.signatures})
    return f"it writes {writes or 'nothing'}; reads {reads or 'nothing'}; args are one of {args}"


def warp_results(dtype: DType, threads: int) -> int:
    """Return the bytes of shared memory through which a reduction passes a value of each warp."""
    return -(-(-(-threads // WARP) * dtype.bytes) // 16) * 16
