"""Index expressions as linear forms over LLVM values, and addresses made from them.

A form is kept until it is needed: constants fold, what varies in an inner loop is added last, so
that each partial sum can stand outside the loops it does not depend on, and a constant offset ends
up in the address mode of the instruction.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field, replace

from ...ir.dtypes import DType, index, pred, s32
from ...ir.loop.nodes import Buffer, Const, Expr, Op, Var
from ...ir.target import Target
from .launches import DeviceEmitter
from .llvm.builder import IRBuilder
from .llvm.core import Value, memory_type
from .llvm.fold import lane_literals


@dataclass(frozen=True, slots=True)
class Lanes:
    """The vector loop that is open: lane k has the variable at ``base + k``.

    ``mask`` is None where every lane is on. ``certain`` tells that at least one is.
    """

    var: Var
    base: Value
    count: int
    mask: Value | None = None
    certain: bool = True


@dataclass(frozen=True, slots=True)
class NarrowIndex:
    """An index as 32 bits, and what it lies between."""

    value: Value
    low: int
    high: int


@dataclass(slots=True)
class LinearForm:
    """``sum of value * factor + lane * (number of the lane) + constant``."""

    terms: dict[str, tuple[Value, int]] = field(default_factory=dict)
    lane: int = 0
    constant: int = 0

    def add(self, value: Value, factor: int) -> None:
        """Add ``factor * value``, a scalar."""
        if isinstance(value.literal, int):
            self.constant += factor * value.literal
            return
        known = self.terms.get(value.text)
        total = factor + (known[1] if known else 0)
        if total:
            self.terms[value.text] = value, total
        else:
            self.terms.pop(value.text, None)


class Indices(IRBuilder):
    """A builder that evaluates index expressions; ``buffers`` has the pointers.

    ``numbered`` are the buffers of ``emit.llvm.opaque.numbered``.
    ``device`` is there when the code is for a GPU; ``private`` are a thread's own buffers. A GPU
    computes with 32 bits: ``small`` has by their text the indices that need no more.
    """

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self.buffers: dict[Buffer, Value] = {}
        self.lanes: Lanes | None = None
        self.device: DeviceEmitter | None = None
        self.private: set[Buffer] = set()
        self.numbered: frozenset[Buffer] = frozenset()
        self.small: dict[str, NarrowIndex] = {}

    @abstractmethod
    def value(self, e: Expr) -> Value:
        """The value of any expression."""

    @abstractmethod
    def alignment(self, buffer: Buffer, at: Expr) -> int:
        """Bytes that the address of an element (that of lane 0) is surely a multiple of."""

    def form(self, e: Expr) -> LinearForm | None:
        """The linear form of an index expression; None where lanes differ in another way."""
        result = LinearForm()
        return result if self._gather(e, 1, result) else None

    def _gather(self, e: Expr, k: int, into: LinearForm) -> bool:
        match e:
            case Const(value=int(c)):
                into.constant += k * c
                return True
            case Var() if self.lanes is not None and e is self.lanes.var:
                into.lane += k
                into.add(self.lanes.base, k)
                return True
            case Op(name="add", args=(a, b), dtype=d) if d == index:
                return self._gather(a, k, into) and self._gather(b, k, into)
            case Op(name="subtract", args=(a, b), dtype=d) if d == index:
                return self._gather(a, k, into) and self._gather(b, -k, into)
            case Op(name="negate", args=(a,), dtype=d) if d == index:
                return self._gather(a, -k, into)
            case Op(name="multiply", args=(a, b), dtype=d) if d == index:
                return self._product(a, b, k, into)
        value = self.value(e)
        if value.lanes:
            return False
        into.add(value, k)
        return True

    def _product(self, a: Expr, b: Expr, k: int, into: LinearForm) -> bool:
        x, y = self.form(a), self.form(b)
        if x is None or y is None:
            return False
        if x.terms or x.lane:
            x, y = y, x
        if x.lane or (x.terms and y.lane):
            return False
        if x.terms:
            into.add(self._times(self.total(x), self.total(y)), k)
            return True
        k *= x.constant
        into.constant += k * y.constant
        into.lane += k * y.lane
        for value, factor in y.terms.values():
            into.add(value, k * factor)
        return True

    def narrow(self, x: Value) -> NarrowIndex | None:
        """A scalar index as 32 bits, on a GPU and where they are enough."""
        if self.device is None or x.lanes:
            return None
        if isinstance(x.literal, int) and fits(x.literal, x.literal):
            return NarrowIndex(self.const(x.literal, s32), x.literal, x.literal)
        return self.small.get(x.text)

    def widened(self, x: Value, low: int, high: int) -> Value:
        """An s32 between ``low`` and ``high`` as an index."""
        if isinstance(x.literal, int):
            return self.const(x.literal, index)
        wide = self.cast("zext nneg" if low >= 0 else "sext", x, index)
        self.small[wide.text] = NarrowIndex(x, low, high)
        return wide

    def _times(self, a: Value, b: Value) -> Value:
        x, y = self.narrow(a), self.narrow(b)
        if x is not None and y is not None:
            ends = [p * q for p in (x.low, x.high) for q in (y.low, y.high)]
            if fits(min(ends), max(ends)):
                return self.widened(self.binary("mul", x.value, y.value), min(ends), max(ends))
        return self.binary("mul", a, b)

    def _small_total(self, form: LinearForm) -> Value | None:
        low = high = form.constant
        total: Value | None = None
        parts = [(self.narrow(value), k) for value, k in _outside_in(form)]
        for x, k in parts:
            if x is None:
                return None
            low, high = low + min(k * x.low, k * x.high), high + max(k * x.low, k * x.high)
        if not parts or not fits(low, high):
            return None
        for x, k in parts:
            assert x is not None
            scaled = self.binary("mul", x.value, self.const(k, s32))
            total = scaled if total is None else self.binary("add", total, scaled)
        assert total is not None
        return self.widened(self.binary("add", total, self.const(form.constant, s32)), low, high)

    def total(self, form: LinearForm) -> Value:
        """The scalar part of a form as one value."""
        small = self._small_total(form)
        if small is not None:
            return small
        total: Value | None = None
        for value, factor in _outside_in(form):
            scaled = self.binary("mul", value, self.const(factor, index))
            total = scaled if total is None else self.binary("add", total, scaled)
        constant = self.const(form.constant, index)
        return constant if total is None else self.binary("add", total, constant)

    def pointer(self, buffer: Buffer, form: LinearForm) -> Value:
        """The address of the element at ``form``, of lane 0 in a vector loop."""
        at = self.buffers[buffer]
        type_ = memory_type(buffer.dtype)
        terms = _outside_in(form)
        while terms:
            depth = terms[0][0].depth
            same = {v.text: (v, k) for v, k in terms if v.depth == depth}
            terms = [(v, k) for v, k in terms if v.depth != depth]
            at = self.offset(at, self.total(LinearForm(same)), type_)
        return self.offset(at, self.const(form.constant, index), type_) if form.constant else at

    def offset(self, at: Value, by: Value, type_: str) -> Value:
        """``by`` elements after ``at``."""
        text = f"getelementptr inbounds {type_}, ptr {at.text}, {by}"
        return self.pure(text, index, by.lanes, max(at.depth, by.depth))

    def read(
        self, text: str, dtype: DType, lanes: int, buffer: Buffer, pointer: Value, depth: int
    ) -> Value:
        """A load's instruction, of neighbouring elements where there are lanes."""
        device = self.device
        if device is None or buffer in self.private:
            return self.function.read(text, dtype, lanes, buffer, depth)
        size = max(1, lanes) * dtype.bytes

        def tell(region: int) -> None:
            device.access(buffer, pointer, size, False, region)

        return self.function.read(text, dtype, lanes, buffer, depth, tell)

    def change(self, line: str, buffer: Buffer, pointer: Value, value: Value) -> None:
        """A store's instruction, of neighbouring elements where there are lanes."""
        if self.device is not None and buffer not in self.private:
            size = max(1, value.lanes) * value.dtype.bytes
            self.device.access(buffer, pointer, size, True, self.function.depth)
        self.function.write(line)

    def under(self, mask: Value) -> Lanes | None:
        """The lanes that are on and in ``mask`` too; None if that is known to be none."""
        assert self.lanes is not None
        if self.lanes.mask is not None:
            mask = self.binary("and", self.lanes.mask, mask)
        on = lane_literals(mask)
        if on is None:
            return replace(self.lanes, mask=mask, certain=False)
        if not any(on):
            return None
        return replace(self.lanes, mask=None if all(on) else mask, certain=True)

    def mask_text(self) -> Value:
        """The lanes that are on, as a vector of conditions."""
        assert self.lanes is not None
        mask = self.lanes.mask
        return self.const(True, pred, self.lanes.count) if mask is None else mask


def fits(low: int, high: int) -> bool:
    """Whether 32 bits hold what lies between these."""
    return low >= -(1 << 31) and high < 1 << 31


def _outside_in(form: LinearForm) -> list[tuple[Value, int]]:
    """The terms, those of outer regions first."""
    return sorted(form.terms.values(), key=lambda t: t[0].depth)
