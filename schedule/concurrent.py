"""Legality of concurrent loops: parallel, vector lanes, threads of a GPU."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..ir.loop.build import as_int
from ..ir.loop.names import called
from ..ir.loop.nodes import AxisKind, Block, Buffer, For, Func, Kind
from ..ir.loop.visit import substitute_expr
from .bindings import Sum, Term, determined, parse
from .cursor import Path, block_of, blocks_under, extent_of, loop_of, loops_of, nest, reaches_of
from .errors import Reason
from .footprint import axis_values, span
from .launches import check_launches
from .legality import (
    KINDS,
    bound_vars,
    constant_extent,
    is_opaque,
    no_opaque_reduction,
    self_contained,
    sound_order,
    sums_of_axes,
    writes,
)
from .stores import update_of

MAX_VECTOR = 1024


def lanes_disjoint(func: Func, path: Path, private: bool) -> Reason | None:
    """Require that no iteration of the loop at the end of ``path`` touches what another writes.

    With ``private``, a buffer used only in this loop's body counts as private to each iteration,
    because lowering privatizes it, unless the iterations are updates of one element.
    """
    loop, below = loop_of(path), blocks_under(path)
    if extent_of(loop) == 1:
        return None
    buffers = {r.buffer: None for p in below for r in block_of(p).writes}
    for buffer in buffers:
        users = [p for p in below if _touches(block_of(p), buffer)]
        index = nest(func)
        everyone = {*index.readers.get(buffer, ()), *index.writers.get(buffer, ())}
        alone = buffer not in func.params and len(everyone) == len(users)
        own = private and alone and not any(_reduced_over(loop, block_of(p), buffer) for p in users)
        if own and self_contained(func, users) is None:
            continue
        reason = _disjoint(loop, path, users, buffer)
        if reason is not None:
            return reason
    return None


def iterations_apart(path: Path, buffer: Buffer, blocks: Sequence[Path]) -> Reason | None:
    """Require that in each iteration of the loop at the end of ``path`` these ``blocks`` of it have
    elements of a buffer of their own.
    """
    loop = loop_of(path)
    users = [p for p in blocks if _touches(block_of(p), buffer)]
    return None if extent_of(loop) == 1 else _disjoint(loop, path, users, buffer)


def _touches(block: Block, buffer: Buffer) -> bool:
    return any(r.buffer is buffer for r in (*block.reads, *block.writes))


def _disjoint(loop: For, path: Path, users: Sequence[Path], buffer: Buffer) -> Reason | None:
    for user in users:
        block = block_of(user)
        if _reduced_over(loop, block, buffer):
            return Reason(
                f"its iterations update the same elements of `{buffer}`",
                (loop, block),
                hint="it is a reduction loop: rfactor to give each iteration a partial result",
            )
    if len(users) == 1 and not is_opaque(block_of(users[0])):
        return _spatial(loop, path, users[0], buffer)
    if _own_point(loop, path, users, buffer):
        return None
    keys = [_partitioning_sums(loop, path, user, buffer) for user in users]
    shared = set(keys[0]).intersection(*keys[1:])
    extents = reaches_of(loops_of(path))
    outer = [x.var for x in loops_of(path)[:-1]]
    if loop.var in determined([Sum(terms) for _, terms in shared], extents, outer):
        return None
    blocks = tuple(block_of(u) for u in users)
    return Reason(
        f"its iterations may access the same element of `{buffer}`",
        (loop, *blocks),
        hint="choose an inner or outer loop whose iterations touch different elements",
    )


def _reduced_over(loop: For, block: Block, buffer: Buffer) -> bool:
    """True if the iterations of a loop update the same elements of a buffer."""
    return writes(block, buffer) and loop.var in bound_vars(block, AxisKind.REDUCE)


def _own_point(loop: For, path: Path, users: Sequence[Path], buffer: Buffer) -> bool:
    """True if all blocks touch one and the same element of the buffer, another in each iteration.

    So it is where what one block writes another reads at the same place. ``(16 i + j) // 300`` is
    the row of several iterations ``i``, but row and column together are of one.
    """
    extents = reaches_of(loops_of(users[0]))
    if any(is_opaque(block_of(u)) for u in users):
        return False
    points = set()
    for user in users:
        block = block_of(user)
        values = axis_values(block)
        for r in (*block.reads, *block.writes):
            if r.buffer is buffer:
                if any(as_int(x.extent) != 1 for x in r.ranges):
                    return False
                points.add(tuple(substitute_expr(x.start, values) for x in r.ranges))
    if len(points) != 1:
        return False
    forms = [parse(e, extents) for e in points.pop()]
    outer = [x.var for x in loops_of(path)[:-1]]
    return loop.var in determined(forms, extents, outer)


def _spatial(loop: For, path: Path, user: Path, buffer: Buffer) -> Reason | None:
    block, loops = block_of(user), loops_of(user)
    extents = reaches_of(loops)
    outer = [x.var for x in loops_of(path)[:-1]]
    if loop.var in determined(sums_of_axes(block, extents, AxisKind.SPATIAL), extents, outer):
        return None
    return Reason(
        f"its iterations may write the same element of `{buffer}`",
        (loop, block),
        hint="it does not drive a spatial axis of the block",
    )


def _partitioning_sums(
    loop: For, path: Path, user: Path, buffer: Buffer
) -> set[tuple[int, tuple[Term, ...]]]:
    """Return (dimension, sum of outer loops) pairs that partition the buffer for this block.

    In such a dimension every access stays within the step that the loops down to ``path`` select.
    """
    block = block_of(user)
    extents = reaches_of(loops_of(user))
    inner = {x.var for x in loops_of(user)[len(loops_of(path)) :]}
    values = axis_values(block)
    found: set[tuple[int, tuple[Term, ...]]] | None = None
    for r in (*block.reads, *block.writes):
        if r.buffer is not buffer:
            continue
        here = set()
        for d, x in enumerate(r.ranges):
            at = span(substitute_expr(x.start, values), extents, inner, {})
            size = as_int(x.extent)
            if at is None or not at.start or size is None:
                continue
            step, last = min(k for _, k in at.start), at.high + size - 1
            if all(k % step == 0 for _, k in at.start) and at.low >= 0 and last < step:
                here.add((d, tuple(sorted(at.start, key=lambda t: t[1]))))
        found = here if found is None else found & here
    return found or set()


def _nesting_hint(wanted: Kind, there: Kind) -> str:
    if wanted is there:
        return "fuse the two loops first"
    return "a vectorized loop is innermost, and a nest is either for a CPU or for a GPU"


def nesting(path: Path, kind: Kind) -> Reason | None:
    """Require that only serial loops are inside vector loops, and parallel loops do not nest.

    Parallel loops do not mix with loops over threads either.
    """
    loop = loop_of(path)
    bad = {Kind.PARALLEL, Kind.THREAD} | ({Kind.VECTOR} if kind is Kind.VECTOR else set())
    above = {Kind.VECTOR} | ({Kind.PARALLEL, Kind.THREAD} if kind is Kind.PARALLEL else set())
    for x in loops_of(path)[:-1]:
        if x.kind in above:
            return Reason(
                f"loop `{called(x)}` around it is already {KINDS[x.kind]}",
                (x, loop),
                hint=_nesting_hint(kind, x.kind),
            )
    for p in blocks_under(path):
        for x in loops_of(p)[len(loops_of(path)) :]:
            if x.kind in bad:
                return Reason(
                    f"loop `{called(x)}` inside it is already {KINDS[x.kind]}",
                    (loop, x),
                    hint=_nesting_hint(kind, x.kind),
                )
    return None


def may_run_parallel(func: Func, path: Path) -> Reason | None:
    """Require that the iterations may run in any order, on several threads."""
    reason = no_opaque_reduction(blocks_under(path), (loop_of(path),))
    return reason or lanes_disjoint(func, path, private=True)


def may_vectorize(func: Func, path: Path) -> Reason | None:
    """Require that the iterations may run as lanes; a commutative reduction qualifies."""
    loop = loop_of(path)
    below = blocks_under(path)
    reason = no_opaque_reduction(below, (loop,)) or constant_extent(loop, MAX_VECTOR)
    if reason is not None:
        return reason
    if len(below) == 1 and loop.var in bound_vars(block_of(below[0]), AxisKind.REDUCE):
        block = block_of(below[0])
        if update_of(block) is None:
            return Reason(
                f"block `{block.name}` is not a sum, product, maximum or minimum, which lanes "
                "could share",
                (loop, block),
                hint="vectorize a spatial loop, or leave the reduction in order",
            )
        return sound_order(block, loops_of(below[0]))
    return lanes_disjoint(func, path, private=False)


def check_loop_kinds(func: Func, paths: Iterable[Path]) -> Reason | None:
    """Require that parallel, vector and thread loops on ``paths`` are still legal."""
    paths = list(paths)
    done: set[int] = set()
    for path in paths:
        for n, s in enumerate(path):
            if not isinstance(s, For) or id(s) in done:
                continue
            done.add(id(s))
            here = path[: n + 1]
            if s.kind is Kind.PARALLEL:
                reason = may_run_parallel(func, here)
            elif s.kind is Kind.VECTOR:
                reason = may_vectorize(func, here)
            else:
                reason = None
            if reason is not None:
                return reason
    return check_launches(func, paths)
