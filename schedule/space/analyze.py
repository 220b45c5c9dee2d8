"""Analysis of the blocks of an unscheduled function: axes, accesses, arithmetic."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ...ir.elementwise import TABLE
from ...ir.loop.affine import linear
from ...ir.loop.build import as_int, both
from ...ir.loop.nodes import (
    AxisKind,
    Block,
    BlockAxis,
    Buffer,
    Cast,
    Const,
    Expr,
    For,
    Func,
    Let,
    Load,
    Op,
    Stmt,
    Store,
    Var,
)
from ...ir.loop.notes import FROZEN
from ...ir.loop.unclamped import unclamped
from ...ir.loop.visit import children, exprs, exprs_under, free_vars, loads_in, walk
from ..legality import is_opaque
from ..stores import single_store

LINE = 64  # bytes that an access brings which has no neighbors


@dataclass(frozen=True, slots=True)
class AccessPattern:
    """A load or store: the buffer and one linear form per dimension.

    ``coefficients[d]`` maps axis variables to their integer coefficient in dimension d; None
    where the index is not linear in the axes.
    """

    buffer: Buffer
    coefficients: tuple[dict[Var, int] | None, ...]
    steps: Mapping[Var, int | None] = field(default_factory=dict)

    def step(self, var: Var) -> int | None:
        """Return the stride along ``var``; only the terms that depend on it have to be linear."""
        return self.steps.get(var, 0)

    def stride(self, var: Var) -> int | None:
        """Return the stride along ``var`` in elements, row-major; None if not linear."""
        total, step = 0, 1
        for extent, form in zip(
            reversed(self.buffer.shape), reversed(self.coefficients), strict=True
        ):
            if form is None:
                return None
            total += form.get(var, 0) * step
            step *= extent
        return total

    def uses(self, var: Var) -> bool:
        """True if the index depends on ``var``, or may because it is not linear."""
        return any(form is None or var in form for form in self.coefficients)


@dataclass(frozen=True, slots=True)
class BlockInfo:
    """One block of a function in default order.

    ``touched`` has for each buffer at least as many elements as the loads and stores of all
    instances access: of a table of which one row is read, those of the row.
    """

    block: Block
    spatial: tuple[BlockAxis, ...]
    reduce: tuple[BlockAxis, ...]
    loads: tuple[AccessPattern, ...]
    stores: tuple[AccessPattern, ...]
    flops: float
    transcendental: bool
    touched: Mapping[Buffer, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The block's name."""
        return self.block.name

    @property
    def opaque(self) -> bool:
        """True if the block may only be annotated."""
        return is_opaque(self.block)

    @property
    def points(self) -> int:
        """The number of instances of the block."""
        n = 1
        for axis in self.block.axes:
            n *= axis.extent
        return n

    @property
    def terms(self) -> int:
        """The number of terms of each result; 1 if the block reduces nothing."""
        return math.prod(a.extent for a in self.reduce)

    @property
    def inputs(self) -> tuple[AccessPattern, ...]:
        """The loads, except of buffers that the block itself writes."""
        own = {s.buffer for s in self.stores}
        return tuple(a for a in self.loads if a.buffer not in own)


def _form(e: Expr) -> dict[Var, int] | None:
    """Return the coefficient of each axis in an index; None if it is not linear in the axes."""
    terms = linear(e).terms
    form = {atom: k for atom, k in terms.items() if isinstance(atom, Var)}
    return form if len(form) == len(terms) else None


def _access(buffer: Buffer, index: tuple[Expr, ...]) -> AccessPattern:
    return AccessPattern(buffer, tuple(map(_form, index)), _steps(buffer, index))


def _steps(buffer: Buffer, index: tuple[Expr, ...]) -> dict[Var, int | None]:
    """Return the stride along each axis of an index, in elements; None where it is not linear."""
    steps: dict[Var, int | None] = {}
    for stride, e in zip(buffer.strides, index, strict=True):
        for atom, k in linear(e).terms.items():
            for v in (atom,) if isinstance(atom, Var) else free_vars(atom):
                old = steps.get(v, 0)
                steps[v] = old + k * stride if v is atom and old is not None else None
    return steps


def _stmt_flops(s: Stmt) -> tuple[float, bool]:
    """Return the FLOPs of one point, and True if it evaluates a transcendental function.

    This counts loop nests, where integers are mostly indices; ``ir/hlo/ops`` counts the FLOPs of
    HLO, which a nest no longer shows. Both use the costs in ``TABLE``.
    """
    flops, slow = 0.0, False
    for x in exprs_under(s):
        if isinstance(x, Op) and (x.dtype.is_float or x.name == "select"):
            flops += TABLE[x.name].flops
            slow |= TABLE[x.name].transcendental
    return flops, slow


def describe(block: Block) -> BlockInfo:
    """Return the axes, accesses and arithmetic of one block."""
    points = math.prod(axis.extent for axis in block.axes)
    uses = tuple(_uses(block.body, points))
    patterns = {(x.buffer, x.index): _access(x.buffer, x.index) for x, _ in uses}
    loads = dict.fromkeys((x.buffer, x.index) for x, _ in uses if isinstance(x, Load))
    stores = [patterns[x.buffer, x.index] for x, _ in uses if isinstance(x, Store)]
    flops, slow = _stmt_flops(block.body)
    touched: dict[Buffer, float] = defaultdict(float)
    for x, n in uses:
        touched[x.buffer] += n * _brought(patterns[x.buffer, x.index])
    return BlockInfo(
        block=block,
        spatial=tuple(a for a in block.axes if a.kind is AxisKind.SPATIAL),
        reduce=tuple(a for a in block.axes if a.kind is AxisKind.REDUCE),
        loads=tuple(patterns[x] for x in loads),
        stores=tuple(stores),
        flops=max(1.0, flops) * points,
        transcendental=slow,
        touched={b: min(n, math.prod(b.shape)) for b, n in touched.items()},
    )


def _uses(s: Stmt, times: float) -> Iterator[tuple[Load | Store, float]]:
    """Yield each access in a statement that runs so many times, and how often it happens."""
    if isinstance(s, Store):
        yield s, times
    yield from ((x, times) for e in exprs(s) for x in loads_in(e))
    if isinstance(s, For):
        trips = as_int(s.extent)
        times *= math.inf if trips is None else trips
    for inside in children(s):
        yield from _uses(inside, times)


def _brought(a: AccessPattern) -> int:
    """Return the elements that an access brings into cache: a line, if it has no neighbors."""
    dense = any(n in (1, -1) for n in a.steps.values())
    return 1 if dense else max(1, LINE // a.buffer.dtype.bytes)


def frozen_inputs(func: Func) -> frozenset[Buffer]:
    """Return the inputs that are constants of the module, as the function's notes say."""
    return frozenset(func.params[n] for n in FROZEN.of(func) or ())


def blocks_of(func: Func) -> tuple[BlockInfo, ...]:
    """Return every block of a function, in program order."""
    return tuple(describe(s) for s in walk(func.body) if isinstance(s, Block))


def work_share(func: Func, scheduled: Func) -> float:
    """Return the part of a function's arithmetic in reductions that a schedule of it does, to 1.

    Sums of narrower floats do not count, which a processor may multiply faster.
    """
    before, after = (sum(b.flops for b in blocks_of(f) if _is_work(b)) for f in (func, scheduled))
    return min(1.0, after / before) if before else 1.0


def _is_work(b: BlockInfo) -> bool:
    narrow = any(a.buffer.dtype.is_float and a.buffer.dtype.bits < 32 for a in b.inputs)
    return bool(b.reduce) and not b.opaque and not narrow


def straight_inputs(info: BlockInfo) -> tuple[AccessPattern, ...]:
    """Return a block's inputs, with the indices that they have where a selection reads them.

    A padded read is clamped to the array, and what lies outside is not selected.
    """
    store = single_store(info.block)
    if store is None:
        return info.inputs
    own = {s.buffer for s in info.stores}
    return tuple(
        _access(x.buffer, tuple(unclamped(e, cond) for e in x.index))
        for x, cond in _selected(store.value, None)
        if x.buffer not in own
    )


def _selected(e: Expr, cond: Expr | None) -> Iterator[tuple[Load, Expr | None]]:
    """Yield the loads of an expression, each with the condition that selects it."""
    match e:
        case Load():
            yield e, cond
        case Op(name="select", args=(where, yes, no)):
            yield from _selected(where, cond)
            yield from _selected(yes, both(cond, where))
            yield from _selected(no, cond)
        case Op(args=args):
            for a in args:
                yield from _selected(a, cond)
        case Cast(value=value):
            yield from _selected(value, cond)


def product_operands(info: BlockInfo) -> tuple[AccessPattern, AccessPattern] | None:
    """Return the operands of ``C += A * B``, conversions allowed; None for any other block."""
    match _plain_store(info.block.body):
        case Store(buffer=out, value=Op(name="add", args=(Load(buffer=acc), product))) if (
            acc is out and info.reduce
        ):
            match _strip(product):
                case Op(name="multiply", args=(a, b)):
                    x, y = _strip(a), _strip(b)
                    if isinstance(x, Load) and isinstance(y, Load):
                        return _access(x.buffer, x.index), _access(y.buffer, y.index)
    return None


def weight_in_parts(info: BlockInfo) -> tuple[AccessPattern, AccessPattern] | None:
    """Return both parts of the second operand of ``C += A * (upper * scale + lower)``.

    They are read at one place; None for any other block, and where both operands are such.
    """
    match _plain_store(info.block.body):
        case Store(buffer=out, value=Op(name="add", args=(Load(buffer=acc), product))) if (
            acc is out and info.reduce
        ):
            match _strip(product):
                case Op(name="multiply", args=(a, b)):
                    found = [p for p in map(_parts, (_strip(a), _strip(b))) if p is not None]
                    return found[0] if len(found) == 1 else None
    return None


def _parts(e: Expr) -> tuple[AccessPattern, AccessPattern] | None:
    match e:
        case Op(name="add", args=(Op(name="multiply", args=(upper, Const())), lower)):
            x, y = _strip(upper), _strip(lower)
            if isinstance(x, Load) and isinstance(y, Load) and x.index == y.index:
                return _access(x.buffer, x.index), _access(y.buffer, y.index)
    return None


def _plain_store(s: Stmt) -> Store | None:
    """Return the store that a block is, a ``let`` around it allowed; None for anything else."""
    inner = s.body if isinstance(s, Let) else s
    return inner if isinstance(inner, Store) else None


def _strip(e: Expr) -> Expr:
    return _strip(e.value) if isinstance(e, Cast) and not e.bits else e


def point_reads(consumer: BlockInfo, anchor: BlockInfo) -> dict[Var, tuple[Var, int]] | None:
    """Map each axis of ``consumer`` to an axis of ``anchor`` and a factor, if it reads pointwise.

    The consumer must read every element of the anchor exactly once. After a transposition all
    factors are 1; for a dimension split in two, the outer part's factor is the inner extent. None
    for any other consumer.
    """
    buffer = anchor.stores[0].buffer
    reads = [a.coefficients for a in consumer.loads if a.buffer is buffer]
    extents = {a.var: a.extent for a in consumer.spatial}
    if consumer.reduce or not reads or any(r != reads[0] for r in reads):
        return None
    found: dict[Var, tuple[Var, int]] = {}
    for form, axis in zip(reads[0], anchor.spatial, strict=True):
        if form is None:
            return None
        reach = 1
        for var, factor in sorted(form.items(), key=lambda item: item[1]):
            if var in found or var not in extents or factor != reach:
                return None
            found[var] = (axis.var, factor)
            reach *= extents[var]
        if reach != axis.extent:
            return None
    return found if all(v in found or n == 1 for v, n in extents.items()) else None
