"""Footprints: the elements that a block accesses in one iteration of the loops around it.

A footprint is a box: per dimension an ``Interval`` whose start may depend on the loops held fixed
(*outer*) while the other loops (*inner*) run. Reads are over-approximated; writes count only if
they are exactly the box.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from types import MappingProxyType

from ..ir.loop.affine import bounds
from ..ir.loop.build import as_int, both, compare, conjuncts, maximum, minimum
from ..ir.loop.nodes import AxisKind, Block, Buffer, Const, Expr, Op, Region, Var
from ..ir.loop.visit import free_vars, substitute_expr
from .bindings import (
    Atom,
    Digit,
    Limits,
    Mark,
    Source,
    Sum,
    Term,
    extent_of_source,
    parse,
    source_variables,
    to_expr,
    variables,
)
from .cursor import Path, block_of, common, loops_of, ranges_of, reaches_of
from .guards import inner_limits, starting_guard, tails_counted

LARGE = 2**63
NONE: Mapping[Var, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Interval:
    """``start + low .. start + high``, inclusive; ``start`` is a sum over outer loops."""

    start: tuple[Term, ...]
    low: int
    high: int

    @property
    def extent(self) -> int:
        """The number of values, at least 1."""
        return max(1, self.high - self.low + 1)

    def base(self) -> Expr:
        """Return the first value as an expression."""
        return to_expr(Sum(self.start, self.low))

    def starts_like(self, other: Interval) -> bool:
        """True if the starts differ by a constant at most."""
        return set(self.start) == set(other.start)

    def contains(self, other: Interval) -> bool:
        """True if this includes every value of ``other`` in every outer iteration."""
        if self.starts_like(other):
            return self.low <= other.low and other.high <= self.high
        ours = set(self.start)
        rest = replace(other, start=tuple(t for t in other.start if t not in ours))
        if len(rest.start) + len(ours) != len(other.start):
            return False
        return self.low <= rest.least() and rest.most() <= self.high

    def least(self) -> int:
        """Return the least value over all outer iterations."""
        return self.low + sum(min(0, k * (d.size - 1)) for d, k in self.start)

    def most(self) -> int:
        """Return the greatest value over all outer iterations."""
        return self.high + sum(max(0, k * (d.size - 1)) for d, k in self.start)

    def guard(self, value: Expr, extent: int) -> Expr | None:
        """Return a predicate that keeps ``value`` in 0 .. extent-1; None if it always is."""
        low = compare("ge", value, 0) if self.least() < 0 else None
        high = compare("lt", value, extent) if self.most() >= extent else None
        return both(low, high)


def whole(n: int) -> Interval:
    """Return the interval of a whole dimension of extent ``n``."""
    return Interval((), 0, n - 1)


def union(a: Interval, b: Interval) -> Interval | None:
    """Return an interval that contains both; None if their starts cannot be compared."""
    if a.starts_like(b):
        return replace(a, low=min(a.low, b.low), high=max(a.high, b.high))
    if not a.start or not b.start:
        return None
    return a if a.contains(b) else b if b.contains(a) else None


def clip(x: Interval | None, n: int) -> Interval:
    """Clip ``x`` to a dimension of extent ``n``; an unknown or larger one becomes all of it."""
    if x is None or x.extent >= n:
        return whole(n)
    if x.start:
        return x
    low, high = max(x.low, 0), min(x.high, n - 1)
    return Interval(x.start, low, high) if low <= high else Interval(x.start, 0, 0)


def span(
    e: Expr, extents: Mapping[Var, int], inner: Collection[Var], limits: Limits
) -> Interval | None:
    """Return an interval of the values of ``e`` over the inner variables; None if unknown."""
    form = parse(e, extents, limits)
    if form is None:
        return None
    start: dict[Digit, int] = {}
    low = high = form.constant
    for d, k in form.terms:
        free = source_variables(d.source)
        if free.isdisjoint(inner):
            start[d] = start.get(d, 0) + k
            continue
        fixed, lo, hi = (
            _clamped_span(d.source, extents, inner, limits)
            if isinstance(d.source, Atom) and d.size == d.source.extent
            else _digit_span(d, inner)
        )
        for t, m in fixed:
            start[t] = start.get(t, 0) + k * m
        low, high = low + min(k * lo, k * hi), high + max(k * lo, k * hi)
    return Interval(tuple((d, k) for d, k in start.items() if k), low, high)


def _clamped_span(
    source: Atom, extents: Mapping[Var, int], inner: Collection[Var], limits: Limits
) -> tuple[tuple[Term, ...], int, int]:
    """Return the span of a clamped index, which moves no faster than its argument."""
    everything = (), 0, source.extent - 1
    match source.expr:
        case (
            Op(name="minimum" | "maximum" as name, args=(a, Const(value=int(c))))
            | Op(name="minimum" | "maximum" as name, args=(Const(value=int(c)), a))
        ):
            x = span(a, extents, inner, limits)
        case _:
            return everything
    if x is None or x.extent > source.extent:
        return everything
    pick = min if name == "minimum" else max
    if not x.start:
        return (), pick(x.low, c) - source.low, pick(x.high, c) - source.low
    first = (minimum if name == "minimum" else maximum)(x.base(), c)
    form = parse(first, extents)
    if form is None:
        return everything
    low = form.constant - source.low
    return form.terms, low, low + x.extent - 1


def _digit_span(d: Digit, inner: Collection[Var]) -> tuple[tuple[Term, ...], int, int]:
    """Return the outer terms and the bounds of a digit that depends on inner variables."""
    source = d.source
    if not isinstance(source, Mark) or not d.top:
        return (), 0, d.size - 1
    fixed = tuple(t for t in source.terms if source_variables(t[0].source).isdisjoint(inner))
    if not fixed:
        return (), 0, d.size - 1
    reach = sum(
        k * (x.size - 1)
        for x, k in source.terms
        if not source_variables(x.source).isdisjoint(inner)
    )
    most = source.constant + sum(k * (x.size - 1) for x, k in fixed)
    mark = Mark(fixed, source.constant, most + 1)
    size = most // d.low + 1
    first = ((Digit(mark, d.low, size, True), 1),) if size > 1 else ()
    return first, 0, -(-reach // d.low)


def region_span(
    region: Region,
    values: Mapping[Var, Expr],
    extents: Mapping[Var, int],
    inner: Collection[Var],
    limits: Limits,
) -> tuple[Interval, ...]:
    """Return the box that a block's region covers over the inner loops, clipped to the buffer.

    ``values`` binds the block's axes. A start may be negative or past the end and need a guard.
    """
    box = []
    for r, n in zip(region.ranges, region.buffer.shape, strict=True):
        first = span(substitute_expr(r.start, values), extents, inner, limits)
        length = as_int(r.extent)
        if first is not None and length is None:
            extent = bounds(
                substitute_expr(r.extent, values), {v: (0, x - 1) for v, x in extents.items()}
            )
            length = extent[1]
        if first is not None and length is not None:
            first = replace(first, high=first.high + length - 1)
        box.append(clip(first, n))
    return tuple(box)


def axis_values(block: Block) -> dict[Var, Expr]:
    """Return the expressions that the axes of a block are bound to."""
    return {a.var: a.value for a in block.axes}


def reads_box(
    path: Path,
    depth: int,
    buffer: Buffer,
    moving: Collection[Var] = (),
    only: Region | None = None,
    reaches: Mapping[Var, int] = NONE,
) -> tuple[Interval, ...] | None:
    """Return the box of a buffer that the block at the end of a path reads; None if it does not.

    The loops on ``path[:depth]`` are fixed, except those over the variables ``moving``. With
    ``only`` the box is that of one of the block's reads. ``reaches`` are the most iterations of
    fixed loops whose extents are no numbers.
    """
    block = block_of(path)
    extents = {**reaches, **ranges_of(loops_of(path))}
    inner = {loop.var for loop in loops_of(path[depth:])}.union(moving)
    limits = inner_limits(block, extents, inner)
    boxes = [
        region_span(r, axis_values(block), extents, inner, limits)
        for r in block.reads
        if r.buffer is buffer and only in (None, r)
    ]
    return hull(boxes, buffer) if boxes else None


def hull(boxes: Iterable[tuple[Interval, ...]], buffer: Buffer) -> tuple[Interval, ...]:
    """Return the bounding box of boxes of one buffer."""
    result: tuple[Interval, ...] | None = None
    for box in boxes:
        if result is None:
            result = box
        else:
            pairs = zip(result, box, buffer.shape, strict=True)
            result = tuple(clip(union(a, b), n) for a, b, n in pairs)
    assert result is not None
    return result


def writes_box(
    path: Path,
    depth: int,
    region: Region,
    reader: Block | None = None,
    reaches: Mapping[Var, int] = NONE,
) -> tuple[Interval, ...] | None:
    """Return the box that the block writes, exactly, with the loops on ``path[:depth]`` fixed.

    None if the writes are not a box, or not known to be one. Elements may be missing where the
    ``reader``'s guard fails on the fixed loops, and beyond the axes, where the buffer has no
    elements or the reader does not read them. ``reaches`` are as for ``reads_box``.
    """
    block = block_of(path)
    block = replace(block, predicate=starting_guard(block))
    extents = {**reaches, **ranges_of(loops_of(path))}
    inner = {loop.var for loop in loops_of(path[depth:])}
    limits = inner_limits(block, extents, inner)
    values = axis_values(block)
    box: list[Interval] = []
    digits: list[Digit] = []
    for r in region.ranges:
        form = parse(substitute_expr(r.start, values), extents, limits)
        length = as_int(r.extent)
        found = None if form is None or length is None else _exact(form, length, inner)
        if form is None or found is None:
            return None
        box.append(found)
        digits += [d for d, _ in form.terms if not source_variables(d.source).isdisjoint(inner)]
    guards = conjuncts(reader.predicate) if reader is not None else ()
    given = {c for c in guards if free_vars(c).isdisjoint(inner)}
    within = _read_within(region, block, reader)
    exact = _independent(digits, extents)
    exact = exact and tails_counted(block, extents, limits, digits, given, within)
    return tuple(box) if exact else None


def _read_within(region: Region, block: Block, reader: Block | None) -> frozenset[Var]:
    """Return the axes that index a dimension directly, or through the same index as the reader.

    A packed buffer has padding beyond the axis that fills it; the reader does not touch it if it
    reads at the same quotients and remainders of an axis that is not longer.
    """
    plain = frozenset(r.start for r in region.ranges if isinstance(r.start, Var))
    if reader is None:
        return plain
    ours = {a.var: a.extent for a in block.axes}
    theirs = {a.var: a.extent for a in reader.axes}
    pairs = {
        pair
        for other in reader.reads
        if other.buffer is region.buffer
        for w, r in zip(region.ranges, other.ranges, strict=True)
        for pair in _matched(w.start, r.start)
    }
    loose = {v for v, e in pairs if not isinstance(e, Var) or theirs.get(e, LARGE) > ours.get(v, 0)}
    several = {v for v, e in pairs for w, f in pairs if v is w and e is not f}
    return plain | (frozenset(v for v, _ in pairs) - loose - several)


def _matched(w: Expr, r: Expr) -> set[tuple[Var, Expr]]:
    """Pair the variables of ``w`` with the expressions at the same positions of ``r``."""
    match w, r:
        case (Var(), _):
            return {(w, r)}
        case (Op(name=a, args=x), Op(name=b, args=y)) if a == b:
            return set().union(*(_matched(p, q) for p, q in zip(x, y, strict=True)))
        case (Const(), _) if w == r:
            return set()
        case _:
            return {(v, w) for v in free_vars(w)}


def _exact(form: Sum, length: int, inner: Collection[Var]) -> Interval | None:
    start, reach = [], length - 1
    for d, k in sorted(form.terms, key=lambda t: t[1]):
        free = source_variables(d.source)
        if free.isdisjoint(inner):
            start.append((d, k))
        elif not free <= set(inner) or not 0 < k <= reach + 1:
            return None
        else:
            reach += k * (d.size - 1)
    return Interval(tuple(start), form.constant, form.constant + reach)


def _independent(digits: Iterable[Digit], extents: Mapping[Var, int]) -> bool:
    """True if the digits take every combination of values, so that none overlaps another."""
    parts: dict[Source, list[Digit]] = {}
    for d in digits:
        parts.setdefault(d.source, []).append(d)
    seen: set[Var] = set()
    for source, own in parts.items():
        free = source_variables(source)
        if not seen.isdisjoint(free) or not _is_full(source, extents):
            return False
        seen |= free
        own.sort(key=lambda d: d.low)
        for a, b in pairwise(own):
            if b.low % (a.low * a.size) or (b.top and extent_of_source(source, extents) % b.low):
                return False
    return True


def _is_full(source: Source, extents: Mapping[Var, int]) -> bool:
    """True if a source takes all values in 0 .. extent-1."""
    if not isinstance(source, Mark):
        return isinstance(source, Var)
    reach = 0
    for d, k in sorted(source.terms, key=lambda t: t[1]):
        if not 0 < k <= reach + 1:
            return False
        reach += k * (d.size - 1)
    return source.constant == 0 and _independent([d for d, _ in source.terms], extents)


def covers(writer: Path, reader: Path, buffer: Buffer) -> bool:
    """True if each iteration of the common loops writes all of ``buffer`` that ``reader`` reads."""
    depth = common(writer, reader)
    shared = reaches_of(loops_of(writer[:depth]))
    if all(n == 1 for n in shared.values()) and len(shared) == len(loops_of(writer[:depth])):
        return True
    block = block_of(writer)
    extents = {**shared, **ranges_of(loops_of(writer))}
    for a in block.axes:
        if a.kind is AxisKind.REDUCE:
            form = parse(a.value, extents)
            if form is None or not variables(form).isdisjoint(shared):
                return False
    needed = reads_box(reader, depth, buffer, reaches=shared)
    if needed is None:
        return True
    for region in block.writes:
        if region.buffer is buffer:
            box = writes_box(writer, depth, region, block_of(reader), shared)
            if box is not None and all(
                has.contains(want) or _all_of(has, n)
                for has, want, n in zip(box, needed, buffer.shape, strict=True)
            ):
                return True
    return False


def _all_of(x: Interval, n: int) -> bool:
    return not x.start and x.low <= 0 and x.high >= n - 1
