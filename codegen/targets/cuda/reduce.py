"""Reductions across threads in PTX: shuffles within a warp, shared memory between warps.

Every thread comes to the result in the same order, so all of them have the same bits. The values
of a warp's threads are combined in a butterfly: with the neighbor at distance 1, then 2, 4, ...
The results of warps go through a few bytes of shared memory, of which there are two copies, used in
turn: what is read after one reduction's barrier is not written again before the next one's.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....ir.dtypes import DType, f32, f64, pred, s32, s64, u8, u16, u32, u64
from ....ir.elementwise import TABLE
from ....ir.errors import UnsupportedError
from ....ir.loop.intrinsics import WARP, warp_results
from ....ir.loop.nodes import AllReduce, Const, Load, Op
from ...emit.access import store_element
from ...emit.expr import Emitter
from ...emit.launches import LaunchNest
from ...emit.llvm.core import IRValue, memory_type

DIRECT = 4  # warps whose results every thread reads itself, rather than by shuffles
BARRIER = "llvm.nvvm.barrier0"


class Reducer:
    """Writes the reductions of one launch."""

    def __init__(self, em: Emitter, nest: LaunchNest) -> None:
        self.em, self.nest = em, nest
        self.bytes = [0, 0]  # of each copy of the scratch memory
        self.turn = 0
        self.ordered = True  # the last reduction surely ended before the next one's first write

    def globals(self) -> list[str]:
        """Return the scratch memory that was used."""
        return [
            f"@{self._scratch(n)} = internal addrspace(3) global [{size} x i8] undef, align 16"
            for n, size in enumerate(self.bytes)
            if size
        ]

    def _scratch(self, turn: int) -> str:
        return f"nw_scratch_{self.nest.symbol}_{turn}"

    def emit(self, s: AllReduce) -> None:
        """Emit a reduction; the values' buffers have the results in every thread."""
        self._check(s)
        em = self.em
        values = [em.value(Load(b, (Const(0),))) for b in s.values]
        position = em.pure(f"and {self._axis(0)}, {min(s.threads, WARP) - 1}", s32, 0, 0)
        values = self._butterfly(s, values, min(s.threads, WARP), position)
        if s.threads > WARP:
            values = self._across_warps(s, values)
        for buffer, value in zip(s.values, values, strict=True):
            store_element(em, buffer, Const(0), value)

    def _check(self, s: AllReduce) -> None:
        n, extent = s.threads, self.nest.block[0]
        whole = n % WARP == 0 if n > WARP else n & (n - 1) == 0
        if n < 1 or not whole or extent % n:
            raise UnsupportedError(
                f"a reduction across {n} of {extent} threads in {self.nest.symbol}",
                "it takes a power of two up to 32, or whole warps, that divides threadIdx.x",
            )

    def _axis(self, axis: int) -> IRValue:
        assert self.em.device is not None
        return self.em.device.thread_index(f"threadIdx.{'xyz'[axis]}")

    def _linear(self) -> IRValue:
        """Return the number of this thread in its block."""
        em = self.em
        x, y, _ = self.nest.block
        total = self._axis(0)
        for axis, stride in ((1, x), (2, x * y)):
            if self.nest.block[axis] > 1:
                scaled = em.binary("mul", self._axis(axis), em.const(stride, s32))
                total = em.binary("add", total, scaled)
        return total

    def _mask(self) -> IRValue:
        """Return the mask of this warp's threads; a partial last warp has fewer."""
        em = self.em
        warps, rest = divmod(self.nest.threads, WARP)
        full = em.const(-1, s32)
        if not rest:
            return full
        some = em.const((1 << rest) - 1, s32)
        if not warps:
            return some
        warp = em.binary("lshr", self._linear(), em.const(5, s32))
        return em.select(em.compare("eq", warp, em.const(warps, s32)), some, full)

    def _butterfly(
        self, s: AllReduce, values: Sequence[IRValue], width: int, position: IRValue
    ) -> list[IRValue]:
        """Return the values of ``width`` neighbors combined, in all of them."""
        em, swapped = self.em, _commutes(s)
        found, distance = list(values), 1
        while distance < width:
            other = [self._shuffle(v, distance) for v in found]
            if swapped:
                found = self._combined(s, found, other)
            else:
                bit = em.binary("and", position, em.const(distance, s32))
                upper = em.compare("ne", bit, em.const(0, s32))
                left = [em.select(upper, o, v) for o, v in zip(other, found, strict=True)]
                right = [em.select(upper, v, o) for o, v in zip(other, found, strict=True)]
                found = self._combined(s, left, right)
            distance *= 2
        return found

    def _combined(
        self, s: AllReduce, left: Sequence[IRValue], right: Sequence[IRValue]
    ) -> list[IRValue]:
        """Return combined values, without contraction of products and sums.

        One fused on one side only would make the result differ from thread to thread.
        """
        self.em.env |= dict(zip((*s.left, *s.right), (*left, *right), strict=True))
        self.em.contracts = False
        result = [self.em.value(e) for e in s.combined]
        self.em.contracts = True
        return result

    def _shuffle(self, x: IRValue, distance: int) -> IRValue:
        """Return the value of the thread whose number differs in one bit."""
        em = self.em
        if x.dtype in (f32, f64):
            return em.from_bits(self._shuffle(em.bits(x), distance))
        if x.dtype.bits == 64:
            low = self._shuffle(em.cast("trunc", x, u32), distance)
            top = em.cast("trunc", em.binary("lshr", x, em.like(32, x)), u32)
            high = em.cast("zext", self._shuffle(top, distance), u64)
            both = em.binary("shl", high, em.const(32, u64))
            joined = em.binary("or", both, em.cast("zext", low, u64))
            return IRValue(joined.text, x.dtype, 0, joined.depth)
        if x.dtype == pred or x.dtype.bits < 32:
            narrow = _as_int(em, x)
            wide = self._shuffle(em.cast("zext", narrow, u32), distance)
            small = em.cast("trunc", wide, narrow.dtype)
            return _from_int(em, small, x.dtype)
        name = "llvm.nvvm.shfl.sync.bfly.i32"
        em.declare(name, "i32", ["i32"] * 4)
        text = f"call i32 @{name}({self._mask()}, {x}, i32 {distance}, i32 31)"
        return em.function.result(text, x.dtype)

    def _across_warps(self, s: AllReduce, values: Sequence[IRValue]) -> list[IRValue]:
        """Return the values combined across the warps of a group, from each warp's own results."""
        em, group = self.em, s.threads // WARP
        linear = self._linear()
        warp = em.binary("lshr", linear, em.const(5, s32))
        lane = em.binary("and", linear, em.const(WARP - 1, s32))
        places = self._open_scratch(values)
        em.function.open_arm()
        for value, place in zip(values, places, strict=True):
            self._write(place, warp, value)
        first = em.compare("eq", lane, em.const(0, s32))
        em.function.branch(first, em.function.close_arm(), None)
        self._barrier()
        rest = em.binary("urem", warp, em.const(group, s32))
        start = em.binary("sub", warp, rest)
        if group > DIRECT and group & (group - 1) == 0:
            turn = em.binary("and", lane, em.const(group - 1, s32))
            mine = em.binary("add", start, turn)
            found = [self._read(p, mine, v) for p, v in zip(places, values, strict=True)]
            return self._butterfly(s, found, group, turn)
        found = [self._read(p, start, v) for p, v in zip(places, values, strict=True)]
        for k in range(1, group):
            at = em.binary("add", start, em.const(k, s32))
            more = [self._read(p, at, v) for p, v in zip(places, values, strict=True)]
            found = self._combined(s, found, more)
        return found

    def _open_scratch(self, values: Sequence[IRValue]) -> list[str]:
        """Return the addresses of an array for each value, with an element for each warp."""
        straight = self.em.function.depth == 0
        if not (straight and self.ordered):
            self._barrier()
        self.ordered, self.turn = straight, 1 - self.turn
        size, places = 0, []
        for value in values:
            base = f"ptr addrspace(3) @{self._scratch(self.turn)}"
            places.append(f"getelementptr (i8, {base}, i64 {size})")
            size += warp_results(value.dtype, self.nest.threads)
        self.bytes[self.turn] = max(self.bytes[self.turn], size)
        return places

    def _barrier(self) -> None:
        self.em.declare(BARRIER, "void", [])
        self.em.function.write(f"call void @{BARRIER}()")

    def _address(self, place: str, at: IRValue, dtype: DType) -> IRValue:
        kind = memory_type(dtype)
        text = f"getelementptr inbounds {kind}, ptr addrspace(3) {place}, {at}"
        return self.em.pure(text, s64, 0, at.depth)

    def _write(self, place: str, at: IRValue, value: IRValue) -> None:
        pointer = self._address(place, at, value.dtype)
        kept = _as_int(self.em, value) if value.dtype == pred else value
        line = f"store {kept}, ptr addrspace(3) {pointer.text}, align {value.dtype.bytes}"
        self.em.function.write(line)

    def _read(self, place: str, at: IRValue, like: IRValue) -> IRValue:
        pointer = self._address(place, at, like.dtype)
        kind, size = memory_type(like.dtype), like.dtype.bytes
        text = f"load {kind}, ptr addrspace(3) {pointer.text}, align {size}"
        got = self.em.function.result(text, u8 if like.dtype == pred else like.dtype)
        return _from_int(self.em, got, like.dtype) if like.dtype == pred else got


def _as_int(em: Emitter, x: IRValue) -> IRValue:
    """Return the bits of an element of less than 32 bits."""
    if x.dtype == pred:
        return em.cast("zext", x, u8)
    return em.cast("bitcast", x, u8 if x.dtype.bits == 8 else u16)


def _from_int(em: Emitter, x: IRValue, dtype: DType) -> IRValue:
    return em.compare("ne", x, em.like(0, x)) if dtype == pred else em.cast("bitcast", x, dtype)


def _commutes(s: AllReduce) -> bool:
    """True if a combiner does not depend on the order of its operands."""
    for left, right, e in zip(s.left, s.right, s.combined, strict=True):
        if not isinstance(e, Op) or set(e.args) != {left, right}:
            return False
        if len(e.args) != 2 or not TABLE[e.name].commutative:
            return False
    return True
