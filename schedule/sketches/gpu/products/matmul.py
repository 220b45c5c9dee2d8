"""Analysis of matrix products for a GPU: operands, their memory layout, and the epilogue."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from .....ir.dtypes import DType
from .....ir.loop.affine import linear
from .....ir.loop.nodes import CHUNK, BlockAxis, Buffer, Const, Expr, Load, Op, Stmt, Store, Var
from .....ir.loop.visit import free_vars, loads_in, loads_under, walk, walk_expr
from ....errors import ScheduleError
from ....language.schedule import Schedule
from ....primitives.products.matmul import Product, product_of
from ....space.analyze import BlockInfo, describe, frozen_inputs, point_reads
from ....stores import is_zero
from ..launches.inlining import LARGEST, may_inline, nodes_of
from ..launches.machine import vector_width

LEAST = 16  # rows and columns below which tiles are mostly padding
LEAST_DEPTH = 8
LEAST_WORK = 1 << 15  # multiplications below which one thread per result is as fast
CHEAP = 4.0  # FLOPs of an element that may be recomputed for every tile that uses it


@dataclass(frozen=True, slots=True)
class MatmulOperand:
    """One of the factors.

    Vectors have ``across`` elements along the rows (of the left operand; along the columns of the
    right one), or ``along`` elements along the depth. A ``plain`` operand is only loaded, and at
    most padded with zeros. ``bytes`` is its size in memory. A ``frozen`` one is a constant that
    only the product reads, so it can be packed ahead of time. A ``matrix`` is one in memory, read
    at its own indices, of which boxes can be copied.
    """

    dtype: DType
    across: int
    along: int
    plain: bool
    bytes: float
    frozen: bool = False
    matrix: bool = False

    @property
    def transposed(self) -> bool:
        """True if memory is contiguous along the rows or columns rather than along the depth."""
        return self.across > self.along


@dataclass(frozen=True, slots=True)
class MatmulResult:
    """The epilogue: the block that writes the result, and its axes by role, outermost first.

    ``consumer`` is None if it is a copy of the sums. Vectors of ``vector`` elements run along the
    last axis of the role ``last``. ``spatial`` are all axes in order, of these ``extents``.
    ``bytes`` is the memory that it accesses. Elements are of ``dtype``; a ``matrix`` is a parameter
    (or some of one), whose rows begin at multiples of a chunk. ``copy`` is the block that brings
    results there from shared memory, where it was made before the product is scheduled.
    """

    consumer: BlockInfo | None
    spatial: tuple[Var, ...]
    extents: tuple[int, ...]
    axes: Mapping[str, tuple[Var, ...]]
    last: str
    vector: int
    bytes: float
    dtype: DType
    matrix: bool = False
    copy: str | None = None


@dataclass(frozen=True, slots=True)
class Matmul:
    """``C[b, m, n] += A[b, m, k] * B[b, n, k]`` with its extents; ``feeders`` are inlined first."""

    anchor: str
    feeders: tuple[str, ...]
    extents: Mapping[str, int]
    left: MatmulOperand
    right: MatmulOperand
    sums: DType
    result: MatmulResult

    @property
    def covered(self) -> frozenset[str]:
        """The blocks that the product's schedule includes."""
        own = {self.anchor, *self.feeders}
        return frozenset(own | ({self.result.consumer.name} if self.result.consumer else set()))

    @property
    def flops(self) -> float:
        """The FLOPs of the product."""
        return 2.0 * math.prod(self.extents.values())


def find_matmul(sch: Schedule) -> Matmul | None:
    """Return the heaviest sum of products of a function, if it is large enough for tiles."""
    return find_product(sch, _fits)


def find_product(sch: Schedule, fits: Callable[[Product | None, BlockInfo], bool]) -> Matmul | None:
    """Return the heaviest sum of products of a function that starts from 0 and ``fits``."""
    blocks = [describe(sch.block(ref)) for ref in sch.blocks()]
    products = [b for b in blocks if _starts_from_zero(b) and fits(product_of(b.block), b)]
    if not products:
        return None
    anchor = max(products, key=lambda b: b.flops)
    trial = sch.copy()
    feeders = _inline_feeders(trial, anchor.name)
    found = product_of(trial.block(anchor.name))
    if found is None or not _alone(blocks, anchor):
        return None
    result = _result(sch, blocks, anchor, found)
    readers = [a.buffer for ref in trial.blocks() for a in describe(trial.block(ref)).loads]
    constants = frozenset(b for b in frozen_inputs(sch.func) if readers.count(b) == 1)
    return Matmul(
        anchor=anchor.name,
        feeders=feeders,
        extents={r: found.points(r) for r in "bmnk"},
        left=_operand(found.a, found.roles["m"], found.roles["k"], constants),
        right=_operand(found.b, found.roles["n"], found.roles["k"], constants),
        sums=found.store.buffer.dtype,
        result=result,
    )


def _fits(found: Product | None, info: BlockInfo) -> bool:
    if found is None:
        return False
    b, m, n, k = (found.points(r) for r in "bmnk")
    large = min(m, n) >= LEAST and k >= LEAST_DEPTH and b * m * n * k >= LEAST_WORK
    return large and b < 1 << 16


def _starts_from_zero(info: BlockInfo) -> bool:
    init = info.block.init
    return not info.opaque and isinstance(init, Store) and is_zero(init.value)


def _alone(blocks: Sequence[BlockInfo], one: BlockInfo) -> bool:
    """True if no other block writes what one of them writes."""
    written = {s.buffer for s in one.stores}
    return not any(s.buffer in written for b in blocks if b is not one for s in b.stores)


def _inline_feeders(sch: Schedule, anchor: str) -> tuple[str, ...]:
    """Inline the cheap element-wise blocks that only the product reads; return their names."""
    done: list[str] = []
    refused: set[str] = set()
    while True:
        infos = [describe(sch.block(p)) for p in sch.get_producers(anchor)]
        ready = [b for b in infos if b.name not in refused and _is_cheap_feeder(b, sch, anchor)]
        if not ready:
            return tuple(done)
        try:
            sch.compute_inline(ready[0].name)
            done.append(ready[0].name)
        except ScheduleError:
            refused.add(ready[0].name)


def _is_cheap_feeder(info: BlockInfo, sch: Schedule, anchor: str) -> bool:
    cheap = not info.transcendental and info.flops <= CHEAP * info.points
    small = nodes_of(info.block) + nodes_of(sch.block(anchor)) <= LARGEST
    return may_inline(info, sch) and len(sch.get_consumers(info.name)) == 1 and cheap and small


def _operand(
    e: Expr, rows: Sequence[BlockAxis], depth: Sequence[BlockAxis], constants: frozenset[Buffer]
) -> MatmulOperand:
    loads = [*loads_in(e)]
    buffers = {x.buffer: None for x in loads}
    return MatmulOperand(
        dtype=e.dtype,
        across=_width(e, rows),
        along=_width(e, depth),
        plain=_plain(e),
        bytes=float(sum(math.prod(b.shape) * b.dtype.bytes for b in buffers)),
        frozen=buffers.keys() <= constants and _plain(e),
        matrix=_is_matrix(e, rows, depth),
    )


def _is_matrix(e: Expr, rows: Sequence[BlockAxis], depth: Sequence[BlockAxis]) -> bool:
    """True if an operand is one of some matrices, whose rows begin at multiples of a chunk."""
    if not isinstance(e, Load) or len(rows) != 1 or len(depth) != 1:
        return False
    own = set(e.index[-2:]) == {rows[0].var, depth[0].var}
    return own and e.buffer.shape[-1] * e.dtype.bytes % CHUNK == 0


def _plain(e: Expr) -> bool:
    match e:
        case Load():
            return True
        case Op(name="select", args=(_, Load(), other)):
            return is_zero(other)
        case _:
            return False


def _width(e: Expr, axes: Sequence[BlockAxis]) -> int:
    """Return the vector width of an expression along the last one of some axes."""
    if not axes:
        return 1
    return _narrowed(e, axes[-1], vector_width([e.dtype.bytes], axes[-1].extent))


def _narrowed(e: Expr, axis: BlockAxis, width: int) -> int:
    """Return the largest width up to ``width`` at which loads are aligned vectors or broadcasts."""
    for x in walk_expr(e):
        match x:
            case Load():
                width = aligned(x.buffer, x.index, axis.var, width)
            case Op(name="select", args=(cond, _, _)) if axis.var in free_vars(cond):
                return 1
    return width


def aligned(buffer: Buffer, index: Sequence[Expr], axis: Var, width: int) -> int:
    """Return the largest width, up to ``width``, of aligned vectors along an axis."""
    if all(axis not in free_vars(e) for e in index):
        return width
    rank = max((n for n, extent in enumerate(buffer.shape, 1) if extent != 1), default=1)
    index = index[:rank]  # dimensions of extent 1 after those take no memory
    if any(axis in free_vars(e) for e in index[:-1]):
        return 1
    form = linear(index[-1])
    steps = [k for atom, k in form.terms.items() if atom is not axis] + [form.constant]
    steps += [n for e in index[:-1] if not isinstance(e, Const) for n in (buffer.shape[rank - 1],)]
    nested = any(atom is not axis and axis in free_vars(atom) for atom in form.terms)
    if form.terms.get(axis) != 1 or nested:
        return 1
    return math.gcd(width, *steps)


def _result(
    sch: Schedule, blocks: Sequence[BlockInfo], anchor: BlockInfo, found: Product
) -> MatmulResult:
    """Return the epilogue: the only reader of the sums if it reads pointwise, else a copy."""
    buffer = found.store.buffer
    readers = [b for b in blocks if b is not anchor and any(a.buffer is buffer for a in b.loads)]
    kept = buffer in sch.func.allocs
    own = found.store.index == tuple(a.var for a in anchor.spatial)
    if kept and own and len(readers) == 1 and not readers[0].opaque:
        part = point_reads(readers[0], anchor)
        if part is not None and _alone(blocks, readers[0]):
            result = _of_consumer(readers[0], part, found, buffer)
            return replace(result, matrix=_is_result_matrix(sch, result, readers[0].block))
    axes = {r: tuple(a.var for a in found.roles[r]) for r in "bmn"}
    result = _described(None, anchor, axes, [found.store])
    return replace(result, matrix=_is_result_matrix(sch, result, found.store))


def _is_result_matrix(sch: Schedule, result: MatmulResult, made: Stmt) -> bool:
    """True if results go to one parameter of the function, each row of theirs to one of it."""
    stores = [s for s in walk(made) if isinstance(s, Store)]
    if len(stores) != 1 or stores[0].buffer not in sch.func.params:
        return False
    store, roles = stores[0], (result.axes["m"], result.axes["n"])
    ends = store.index[-2:] == tuple(v for own in roles for v in own)
    pitch = store.buffer.shape[-1] * store.buffer.dtype.bytes
    return all(len(own) == 1 for own in roles) and ends and pitch % CHUNK == 0


def _of_consumer(
    consumer: BlockInfo, part: Mapping[Var, tuple[Var, int]], found: Product, sums: Buffer
) -> MatmulResult:
    axes: dict[str, tuple[Var, ...]] = {}
    for role in "bmn":
        mine: list[Var] = []
        for a in found.roles[role]:
            pieces = [(factor, v) for v, (whole, factor) in part.items() if whole is a.var]
            mine += [v for _, v in sorted(pieces, key=lambda p: -p[0])]
        wide = {a.var for a in consumer.spatial if a.extent > 1}
        axes[role] = tuple(v for v in mine if v in wide)
    body = consumer.block.body
    accesses: list[Store | Load] = [s for s in walk(body) if isinstance(s, Store)]
    accesses += [x for x in loads_under(body) if x.buffer is not sums]
    return _described(consumer, consumer, axes, accesses)


def _described(
    consumer: BlockInfo | None,
    info: BlockInfo,
    axes: Mapping[str, tuple[Var, ...]],
    accesses: Sequence[Store | Load],
) -> MatmulResult:
    """Return the epilogue, vectorized along the last axis if that is a row or column axis."""
    by = {a.var: a for a in info.spatial}
    end = [a.var for a in info.spatial if a.extent > 1][-1:]
    last = next((r for r in "nm" if list(axes[r][-1:]) == end), "n")
    width = 1
    if axes[last] and not any(free_vars(e) - by.keys() for x in accesses for e in x.index):
        sizes = (x.buffer.dtype.bytes for x in accesses if isinstance(x, Store))
        width = vector_width(sizes, by[axes[last][-1]].extent)
    for x in accesses if width > 1 else ():
        width = aligned(x.buffer, x.index, axes[last][-1], width)
    buffers = {x.buffer: None for x in accesses}
    moved = float(sum(math.prod(b.shape) * b.dtype.bytes for b in buffers))
    dtype = next(x.buffer.dtype for x in accesses if isinstance(x, Store))
    extents = tuple(a.extent for a in info.spatial)
    return MatmulResult(consumer, tuple(by), extents, axes, last, width, moved, dtype)
