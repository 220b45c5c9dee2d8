"""The table of intrinsics: the operations of GPUs that are not loops over elements.

An intrinsic has up to two forms. In a *tile* form, that of schedules, its operands are boxes in
logical coordinates, the last two dimensions a matrix; one warp does it, and what it means is a
function of NumPy. In a *lane* form, that of lowered code, its operands are flat: what one thread
holds in registers and where it points to. ``Matrix`` says which elements are in a thread's hands.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import product
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from ..dtypes import DType, bf16, f16, f32, s8, s32, u32
from ..gpus import Gpu
from .build import as_int
from .nodes import Intrinsic, Region, Scope

Array: TypeAlias = np.ndarray[Any, Any]
Meaning: TypeAlias = Callable[..., Array]
"""From the matrices read, then ``args``, to the matrix written, if of a wider type."""

WARP = 32
BLOCK = 0  # threads of a form: all of the block


@dataclass(frozen=True, slots=True)
class Operand:
    """A box: the extents of its last dimensions, those before being 1, and the scopes it may be in.

    ``dtypes`` of None are any; ``bytes`` is the size of a box of any shape.
    """

    scopes: tuple[Scope, ...]
    shape: tuple[int, ...] | None = None
    dtypes: tuple[DType, ...] | None = None
    bytes: int = 0

    def __str__(self) -> str:
        what = "|".join(map(str, self.dtypes)) if self.dtypes else "any"
        size = f"{self.bytes} bytes" if self.shape is None else f"{what}{list(self.shape)}"
        return f"{size} in {' or '.join(s.value for s in self.scopes)}"

    def takes(self, r: Region) -> bool:
        """True if a region of constant extents fits."""
        extents = [as_int(x.extent) or 0 for x in r.ranges]
        b = r.buffer
        if b.scope not in self.scopes or (self.dtypes and b.dtype not in self.dtypes):
            return False
        if self.shape is None:
            return math.prod(extents) * b.dtype.bytes == self.bytes
        lead = len(extents) - len(self.shape)
        return lead >= 0 and extents == [1] * lead + list(self.shape)


@dataclass(frozen=True, slots=True)
class Signature:
    """One way to call a form. Regions of the same type where ``alike``."""

    args: tuple[int, ...] = ()
    writes: tuple[Operand, ...] = ()
    reads: tuple[Operand, ...] = ()
    alike: bool = False

    def takes(self, s: Intrinsic) -> bool:
        """True if a call fits."""
        pairs = ((self.writes, s.writes), (self.reads, s.reads))
        if s.args != self.args or any(len(a) != len(b) for a, b in pairs):
            return False
        both = [(o, r) for a, b in pairs for o, r in zip(a, b, strict=True)]
        same = {r.buffer.dtype for o, r in both if not o.dtypes or len(o.dtypes) > 1}
        return all(o.takes(r) for o, r in both) and not (self.alike and len(same) > 1)


@dataclass(frozen=True, slots=True)
class Form:
    """The operands and the meaning of an intrinsic at one level.

    ``threads`` do it together: 1, the neighbours of a warp, those of several warps, or ``BLOCK``.
    """

    signatures: tuple[Signature, ...]
    threads: int
    meaning: Meaning | None = None


@dataclass(frozen=True, slots=True)
class IntrinsicDef:
    """An intrinsic. ``sm`` is the least architecture; ``exact`` ones exist on that number alone."""

    name: str
    sm: int
    tile: Form | None = None
    lane: Form | None = None
    exact: bool = False
    matrix: Matrix | None = None

    def on(self, gpu: Gpu) -> bool:
        """True if an architecture has it."""
        return gpu.exact and gpu.sm == self.sm if self.exact else gpu.sm >= self.sm

    def form(self, s: Intrinsic) -> Form | None:
        """The form that a call is of: a tile form where an operand is spread over a warp."""
        tile = any(r.buffer.scope is Scope.WARP for r in (*s.writes, *s.reads))
        return self.tile if tile else self.lane


@dataclass(frozen=True, slots=True)
class Matrix:
    """A product ``c[m, n] += a[m, k] b[k, n]`` of one warp, and who holds which elements of it.

    ``a``, ``b`` and ``c`` give the place, in these coordinates, of an element of a thread's own
    fragment: element e of lane l. Operands are packed in 32-bit words, low bits first: element e of
    a or b lies in word ``e // per_word``. They work on ints and on NumPy arrays.
    """

    m: int
    n: int
    k: int
    operands: DType
    sums: DType
    per_word: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "per_word", 4 // self.operands.bytes)

    @property
    def words(self) -> tuple[int, int, int]:
        """32-bit words that one thread holds of a, b and c."""
        per = WARP * self.per_word
        return self.m * self.k // per, self.k * self.n // per, self.m * self.n // WARP

    def a(self, lane: Any, element: Any) -> tuple[Any, Any]:
        """(m, k) of an element of a: words take turns in rows eight apart, then in columns."""
        word, part = element // self.per_word, element % self.per_word
        return lane // 4 + word % 2 * 8, (lane % 4 + word // 2 * 4) * self.per_word + part

    def b(self, lane: Any, element: Any) -> tuple[Any, Any]:
        """(k, n) of an element of b."""
        word, part = element // self.per_word, element % self.per_word
        return (lane % 4 + word * 4) * self.per_word + part, lane // 4

    def c(self, lane: Any, element: Any) -> tuple[Any, Any]:
        """(m, n) of an element of c."""
        return lane // 4 + element // 2 * 8, lane % 4 * 2 + element % 2


def ldmatrix_source(lane: Any, word: Any, half: Any, transposed: bool) -> tuple[Any, Any]:
    """Whose row, and which 16-bit element of it, ``ldmatrix`` puts into a half of a lane's word.

    Word w comes from the 8 x 8 matrix w, whose rows are those that lanes 8w to 8w + 7 point to.
    """
    row, column = lane // 4, lane % 4 * 2 + half
    return (8 * word + column, row) if transposed else (8 * word + row, column)


def tf32(values: Array) -> Array:
    """f32 with the mantissa rounded to ten bits, ties away from zero, as tensor cores take it."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)
    return np.where(np.isfinite(values), rounded, values)


# Meanings of tile forms


def _zero() -> Array:
    return np.zeros((16, 8))


def _copy(source: Array, *args: int) -> Array:
    return source


def multiply(c: Array, a: Array, b: Array, a_transposed: int, b_transposed: int) -> Array:
    """``c + a b``, where b is [n, k] unless transposed; products of integers are exact."""
    left = (a.T if a_transposed else a).astype(c.dtype)
    right = (b if b_transposed else b.T).astype(c.dtype)
    return np.asarray(c + left @ right, c.dtype)


# The table

_SHARED, _GLOBAL = (Scope.SHARED,), (Scope.GLOBAL,)
_REGISTER, _WARP = (Scope.REGISTER,), (Scope.WARP,)
_K: Mapping[DType, int] = MappingProxyType({f16: 16, bf16: 16, f32: 8, s8: 32})
"""The depth of a matrix product by the type of its operands: 32 bytes."""


def _loads(rows: int) -> Form:
    """Copies of [rows, k] from shared memory; transposed, of [k, rows]."""
    signatures = []
    for (dtype, k), turned in product(_K.items(), (0, 1)):
        shape = (k, rows) if turned else (rows, k)
        to, of = (Operand(scope, shape, (dtype,)) for scope in (_WARP, _SHARED))
        signatures.append(Signature((turned,), (to,), (of,)))
    return Form(tuple(signatures), WARP, _copy)


def _zeros() -> Form:
    c = (Signature((), (Operand(_WARP, (16, 8), (dtype,)),)) for dtype in (f32, s32))
    return Form(tuple(c), WARP, _zero)


def _stores() -> Form:
    to = Operand((Scope.SHARED, Scope.GLOBAL), (16, 8), (f32, s32))
    of = Operand(_WARP, (16, 8), (f32, s32))
    return Form((Signature((), (to,), (of,), alike=True),), WARP, _copy)


def _product(name: str, x: Matrix) -> IntrinsicDef:
    c = Operand(_WARP, (x.m, x.n), (x.sums,))
    tiles = []
    for turned in product((0, 1), (0, 1)):
        a, b = (
            Operand(_WARP, (x.k, rows) if t else (rows, x.k), (x.operands,))
            for t, rows in zip(turned, (x.m, x.n), strict=True)
        )
        tiles.append(Signature(turned, (c,), (c, a, b)))
    own = Operand(_REGISTER, (x.words[2],), (x.sums,))
    a, b = (Operand(_REGISTER, (words,), (u32,)) for words in x.words[:2])
    lanes = Signature((), (own,), (own, a, b))
    return IntrinsicDef(
        name, 80, Form(tuple(tiles), WARP, multiply), Form((lanes,), WARP), matrix=x
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


def _waits(most: int) -> Form:
    return Form(tuple(Signature((n,)) for n in range(most + 1)), 1)


_EMPTY = (Signature(),)
_ROWS = (
    IntrinsicDef("zero_matrix", 80, tile=_zeros()),
    IntrinsicDef("load_matrix_a", 80, tile=_loads(16)),
    IntrinsicDef("load_matrix_b", 80, tile=_loads(16)),
    _product("mma.m16n8k16.f16.f32", Matrix(16, 8, 16, f16, f32)),
    _product("mma.m16n8k16.bf16.f32", Matrix(16, 8, 16, bf16, f32)),
    _product("mma.m16n8k8.tf32.f32", Matrix(16, 8, 8, f32, f32)),
    _product("mma.m16n8k32.s8.s32", Matrix(16, 8, 32, s8, s32)),
    IntrinsicDef("store_matrix", 80, tile=_stores()),
    IntrinsicDef("barrier", 75, lane=Form(_EMPTY, BLOCK)),
    IntrinsicDef("warp_barrier", 75, lane=Form(_EMPTY, WARP)),
    IntrinsicDef("copy_async", 80, lane=_copy_async(filled=False)),
    IntrinsicDef("copy_async_zfill", 80, lane=_copy_async(filled=True)),
    IntrinsicDef("commit_async", 80, lane=Form(_EMPTY, 1)),
    IntrinsicDef("wait_async", 80, lane=_waits(15)),
    *(
        IntrinsicDef(f"ldmatrix.x{words}{turned}", 75, lane=_ldmatrix(words))
        for words in (1, 2, 4)
        for turned in ("", ".trans")
    ),
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
    """Bytes of shared memory for one value of each warp of a block: a reduction's on its way from
    warp to warp."""
    return -(-(-(-threads // WARP) * dtype.bytes) // 16) * 16
