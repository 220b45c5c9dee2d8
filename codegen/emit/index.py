"""Index expressions as linear forms over LLVM values, and addresses made from them.

A form is kept until it is needed: constants fold, and terms that vary in an inner loop are added
last, so that each partial sum can be hoisted out of the loops that it does not depend on and a
constant offset ends up in the addressing mode of the instruction.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from ...ir.dtypes import DType, index, pred, s32
from ...ir.loop.nodes import Buffer, Const, Expr, Op, Var
from ...ir.target import Target
from .launches import DeviceEmitter
from .llvm.builder import IRBuilder
from .llvm.core import IRValue, memory_type
from .llvm.fold import lane_literals


@dataclass(frozen=True, slots=True)
class Lanes:
    """The open vector loop: lane k has the variable at ``base + k``.

    ``mask`` is None where every lane is active. ``certain`` is true if at least one is. ``known``
    are conditions that hold in those that are.
    """

    var: Var
    base: IRValue
    count: int
    mask: IRValue | None = None
    certain: bool = True
    known: tuple[Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class NarrowIndex:
    """An index in 32 bits, and its bounds."""

    value: IRValue
    low: int
    high: int


@dataclass(slots=True)
class LinearForm:
    """``sum of value * factor + lane * (lane number) + constant``.

    ``uneven`` is what known numbers that differ between lanes otherwise add in each.
    """

    terms: dict[str, tuple[IRValue, int]] = field(default_factory=dict)
    lane: int = 0
    constant: int = 0
    uneven: tuple[int, ...] = ()

    def add(self, value: IRValue, factor: int) -> None:
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
    """An IR builder that evaluates index expressions; ``buffers`` has the pointers, ``env`` the
    variables in scope.

    ``lane_dependent`` are the buffers of ``emit.llvm.opaque.lane_dependent_buffers``. ``device`` is
    set when the code is for a GPU; ``private`` are the thread's own buffers. A GPU computes indices
    in 32 bits: ``small`` maps the text of each index that fits to its narrow form. ``fetches`` are
    the ``FETCH`` notes of serial loops, by the names of their regions; ``bypassing`` are buffers
    that are written past the caches and begin at a cache line.
    """

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self.buffers: dict[Buffer, IRValue] = {}
        self.env: dict[Var, IRValue] = {}
        self.lanes: Lanes | None = None
        self.device: DeviceEmitter | None = None
        self.private: set[Buffer] = set()
        self.lane_dependent: frozenset[Buffer] = frozenset()
        self.small: dict[str, NarrowIndex] = {}
        self._split: dict[int, tuple[Expr, tuple[tuple[Expr, int], ...], int]] = {}
        self.fetches: dict[str, int] = {}
        self.bypassing: frozenset[Buffer] = frozenset()

    @abstractmethod
    def value(self, e: Expr) -> IRValue:
        """Emit any expression."""

    @abstractmethod
    def alignment(self, buffer: Buffer, at: Expr) -> int:
        """Return a number of bytes that divides the address of an element (of lane 0's)."""

    @contextmanager
    def over(self, lanes: Lanes | None) -> Iterator[None]:
        """Emit code for these lanes, or scalars for None, in a ``with`` block."""
        before, self.lanes = self.lanes, lanes
        try:
            yield
        finally:
            self.lanes = before

    def lanes_from(self, var: Var, base: IRValue, count: int, active: int) -> Lanes:
        """Return ``count`` lanes of a loop from ``base`` on, of which the first are active."""
        mask = self.first_lanes(active, count) if active < count else None
        return Lanes(var, base, count, mask)

    def form(self, e: Expr) -> LinearForm | None:
        """Return the linear form of an index expression; None if the lanes differ non-linearly."""
        result = LinearForm()
        return result if self._gather(e, 1, result) and not any(result.uneven) else None

    def uneven(self, e: Expr) -> LinearForm | None:
        """Return the form of an index whose lanes differ by known numbers, not all in equal steps;
        None of any other.
        """
        result = LinearForm()
        return result if self._gather(e, 1, result) and any(result.uneven) else None

    def _gather(self, e: Expr, k: int, into: LinearForm) -> bool:
        atoms, constant = self._linear(e)
        into.constant += k * constant
        return all(self._add_atom(atom, k * factor, into) for atom, factor in atoms)

    def _linear(self, e: Expr) -> tuple[tuple[tuple[Expr, int], ...], int]:
        """Return the atoms of an index with their factors, and its constant.

        An unrolled loop evaluates the same expression for every copy of its body.
        """
        found = self._split.get(id(e))
        if found is None:
            atoms: list[tuple[Expr, int]] = []
            constant = _flatten(e, 1, atoms)
            found = self._split[id(e)] = e, tuple(atoms), constant
        return found[1], found[2]

    def _add_atom(self, e: Expr, k: int, into: LinearForm) -> bool:
        match e:
            case Var() if self.lanes is not None and e is self.lanes.var:
                into.lane += k
                into.add(self.lanes.base, k)
                return True
            case Var():
                value = self.env[e]
            case Op(name="multiply", args=(a, b), dtype=d) if d == index:
                return self._product(a, b, k, into)
            case _:
                value = self.value(e)
        if value.lanes:
            numbers = lane_literals(value)
            if numbers is None:
                return False
            old = into.uneven or (0,) * value.lanes
            into.uneven = tuple(a + k * b for a, b in zip(old, numbers, strict=True))
            return True
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

    def narrow(self, x: IRValue) -> NarrowIndex | None:
        """Return an index in 32 bits, on a GPU and where they are enough; else None."""
        if self.device is None:
            return None
        if isinstance(x.literal, int) and fits_s32(x.literal, x.literal):
            return NarrowIndex(self.const(x.literal, s32, x.lanes), x.literal, x.literal)
        return self.small.get(x.text)

    def widened(self, x: IRValue, low: int, high: int) -> IRValue:
        """Return an s32 between ``low`` and ``high`` as an index."""
        if isinstance(x.literal, int):
            return self.const(x.literal, index)
        wide = self.cast("zext nneg" if low >= 0 else "sext", x, index)
        self.small[wide.text] = NarrowIndex(x, low, high)
        return wide

    def _times(self, a: IRValue, b: IRValue) -> IRValue:
        x, y = self.narrow(a), self.narrow(b)
        if x is not None and y is not None:
            ends = [p * q for p in (x.low, x.high) for q in (y.low, y.high)]
            if fits_s32(min(ends), max(ends)):
                return self.widened(self.binary("mul", x.value, y.value), min(ends), max(ends))
        return self.binary("mul", a, b)

    def _small_total(self, form: LinearForm) -> IRValue | None:
        low = high = form.constant
        total: IRValue | None = None
        parts = [(self.narrow(value), k) for value, k in _outside_in(form)]
        for x, k in parts:
            if x is None:
                return None
            low, high = low + min(k * x.low, k * x.high), high + max(k * x.low, k * x.high)
        if not parts or not fits_s32(low, high):
            return None
        for x, k in parts:
            assert x is not None
            scaled = self.binary("mul", x.value, self.const(k, s32))
            total = scaled if total is None else self.binary("add", total, scaled)
        assert total is not None
        return self.widened(self.binary("add", total, self.const(form.constant, s32)), low, high)

    def total(self, form: LinearForm) -> IRValue:
        """Return the scalar part of a form as one value."""
        small = self._small_total(form)
        if small is not None:
            return small
        total: IRValue | None = None
        for value, factor in _outside_in(form):
            scaled = self.binary("mul", value, self.const(factor, index))
            total = scaled if total is None else self.binary("add", total, scaled)
        constant = self.const(form.constant, index)
        return constant if total is None else self.binary("add", total, constant)

    def pointer(self, buffer: Buffer, form: LinearForm) -> IRValue:
        """Return the address of the element at ``form``; in a vector loop, lane 0's."""
        type_ = memory_type(buffer.dtype)
        at = self._base(self.buffers[buffer], form, type_)
        return self.offset(at, self.const(form.constant, index), type_) if form.constant else at

    def _base(self, at: IRValue, form: LinearForm, type_: str) -> IRValue:
        """Return the address at the terms of ``form``, emitted once where they are known."""
        terms = _outside_in(form)
        known = self.function.regions[max([at.depth, *(v.depth for v, _ in terms)])].known
        key = f"{at.text} {type_} " + " ".join([f"{v.text}*{k}" for v, k in terms])
        if (found := known.get(key)) is not None:
            return found
        while terms:
            depth = terms[0][0].depth
            same = {v.text: (v, k) for v, k in terms if v.depth == depth}
            terms = [(v, k) for v, k in terms if v.depth != depth]
            at = self.offset(at, self.total(LinearForm(same)), type_)
        known[key] = at
        return at

    def offset(self, at: IRValue, by: IRValue, type_: str) -> IRValue:
        """Return the address ``by`` elements after ``at``."""
        text = f"getelementptr inbounds {type_}, ptr {at.text}, {by}"
        return self.pure(text, index, by.lanes, max(at.depth, by.depth))

    def read(
        self, text: str, dtype: DType, lanes: int, buffer: Buffer, pointer: IRValue, depth: int
    ) -> IRValue:
        """Emit a load, of consecutive elements where there are lanes."""
        device = self.device
        if device is None or buffer in self.private:
            return self.function.read(text, dtype, lanes, buffer, depth)
        size = max(1, lanes) * dtype.bytes

        def tell(region: int) -> None:
            device.access(buffer, pointer, size, False, region)

        return self.function.read(text, dtype, lanes, buffer, depth, tell)

    def change(self, line: str, buffer: Buffer, pointer: IRValue, value: IRValue) -> None:
        """Emit a store, of consecutive elements where there are lanes."""
        if self.device is not None and buffer not in self.private:
            size = max(1, value.lanes) * value.dtype.bytes
            self.device.access(buffer, pointer, size, True, self.function.depth)
        self.function.write(line)

    def masked(self, mask: IRValue, *known: Expr) -> Lanes | None:
        """Return the lanes that are active and in ``mask``; None if there are known to be none.

        The conditions ``known`` hold in those of ``mask``.
        """
        assert self.lanes is not None
        known = self.lanes.known + known
        if self.lanes.mask is not None:
            mask = self.binary("and", self.lanes.mask, mask)
        on = lane_literals(mask)
        if on is None:
            return replace(self.lanes, mask=mask, certain=False, known=known)
        if not any(on):
            return None
        return replace(self.lanes, mask=None if all(on) else mask, certain=True, known=known)

    def mask_text(self) -> IRValue:
        """Return the active lanes as a vector of predicates."""
        assert self.lanes is not None
        mask = self.lanes.mask
        return self.const(True, pred, self.lanes.count) if mask is None else mask


def _flatten(e: Expr, k: int, atoms: list[tuple[Expr, int]]) -> int:
    """Add the atoms of ``k * e`` in order, and return its constant."""
    match e:
        case Const(value=int(c)):
            return k * c
        case Op(name="add", args=(a, b), dtype=d) if d == index:
            return _flatten(a, k, atoms) + _flatten(b, k, atoms)
        case Op(name="subtract", args=(a, b), dtype=d) if d == index:
            return _flatten(a, k, atoms) + _flatten(b, -k, atoms)
        case Op(name="negate", args=(a,), dtype=d) if d == index:
            return _flatten(a, -k, atoms)
        case Op(name="multiply", args=(a, Const(value=int(c))), dtype=d) if d == index:
            return _flatten(a, k * c, atoms)
        case Op(name="multiply", args=(Const(value=int(c)), a), dtype=d) if d == index:
            return _flatten(a, k * c, atoms)
        case _:
            atoms.append((e, k))
            return 0


def fits_s32(low: int, high: int) -> bool:
    """True if the range ``low`` to ``high`` fits in 32 signed bits."""
    return low >= -(1 << 31) and high < 1 << 31


def _outside_in(form: LinearForm) -> list[tuple[IRValue, int]]:
    """Return the terms, those of outer regions first."""
    return sorted(form.terms.values(), key=lambda t: t[0].depth)
