"""Horizontal fusion: independent launches become one, whose blocks share out the work.

``for b in blockIdx.x (4): f`` and ``for b in blockIdx.x (6): g``  ->  ``for b in blockIdx.x (10):
if b < 4: f else: g[b - 4]``. A launch takes a few microseconds whatever it does, and small ones
leave most of the GPU idle. What is joined here are flat functions, each scheduled for itself: the
products of queries, keys and values, say, whose weights and results stay where they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from ....ir.errors import UnsupportedError
from ....ir.gpus import Gpu
from ....ir.loop.build import as_int, both, floordiv, floormod, lt, maximum, minimum, sub
from ....ir.loop.nodes import (
    SHARED_ALIGN,
    THREADS,
    Alloc,
    AllReduce,
    Buffer,
    Const,
    Expr,
    For,
    Func,
    If,
    Intrinsic,
    Kind,
    Let,
    Notes,
    Scope,
    Seq,
    Stmt,
    Var,
)
from ....ir.loop.notes import BESIDE, IN_PLACE, MIN_BLOCKS, WORKSPACE_BYTES
from ....ir.loop.parser import parse
from ....ir.loop.printer import show
from ....ir.loop.visit import seq, substitute, walk
from ....ir.target import Target
from ..passes.launches import opened
from ..passes.workspace import workspace_bytes
from .limits import check_limits, memory

PARTS = 8
"""Launches that become one, at most."""


@dataclass(frozen=True, slots=True)
class LaunchNeeds:
    """A launch as the GPU sees it: blocks, threads of a block in x, y and z, bytes of shared
    memory; ``notes`` are those of its thread loops. If it ``exchanges``, its threads wait for each
    other.
    """

    blocks: int
    block: tuple[int, int, int]
    shared: int
    notes: tuple[tuple[str, object], ...]
    exchanges: bool


def shapes(flat: Func) -> tuple[LaunchNeeds, ...]:
    """Return the shapes of a flat function's launches, in order."""
    return tuple(_shape(s) for s in _apart(flat.body)[1])


def may_fuse(parts: Sequence[Sequence[LaunchNeeds]], gpu: Gpu) -> bool:
    """True if functions with launches of these shapes may run side by side, and it pays.

    A block takes the threads, the shared memory and the registers of the part that takes most, so
    launches of different needs are joined only if the GPU holds all of their blocks at once. Of a
    larger block some threads have nothing to do, which must not be waited for.
    """
    rows = ([p[n] for p in parts if n < len(p)] for n in range(max(map(len, parts))))
    return all(_fits(row, gpu) for row in rows)


def _fits(launches: Sequence[LaunchNeeds], gpu: Gpu) -> bool:
    first, block = launches[0], _block(s.block for s in launches)
    if any(s.notes != first.notes or {key for key, _ in s.notes} - _KNOWN for s in launches):
        return False
    if any(s.block != block and s.exchanges for s in launches):
        return False
    alike = all((s.block, s.shared) == (block, first.shared) for s in launches)
    if prod(block) > gpu.threads_per_block:
        return False
    return alike or _at_once(launches, prod(block), gpu)


_KNOWN = {MIN_BLOCKS.key}
"""Notes of thread loops that a fused launch keeps."""


def _block(blocks: Iterable[tuple[int, int, int]]) -> tuple[int, int, int]:
    """Return the block that has room for each of these."""
    x, y, z = (max(extents) for extents in zip(*blocks, strict=True))
    return x, y, z


def _at_once(launches: Sequence[LaunchNeeds], threads: int, gpu: Gpu) -> bool:
    """True if the GPU holds all blocks of some launches at the same time, of so many threads."""
    shared = max(s.shared for s in launches)
    held = gpu.threads_per_multiprocessor // threads
    held = min(held, gpu.shared_per_multiprocessor // shared) if shared else held
    return sum(s.blocks for s in launches) <= gpu.multiprocessors * held


def fuse_functions(parts: Sequence[Func], name: str, target: Target) -> Func:
    """Return flat functions as one, whose n-th launch does the n-th of each.

    It takes their inputs, in order, then their outputs. ``UnsupportedError`` if the GPU cannot run
    it.
    """
    own = [parse(show(part)) for part in parts]  # equal parts must not share variables
    around, launches = zip(*(_apart(part.body) for part in own), strict=True)
    most = max(map(len, launches))
    body = seq(*(_joined([x[n] for x in launches if n < len(x)]) for n in range(most)))
    for buffer in (b for buffers in reversed(around) for b in reversed(buffers)):
        body = Alloc(buffer, body)
    inputs = [b for p in own for b in p.params[: len(p.params) - p.outputs]]
    outputs = [b for p in own for b in p.params[len(p.params) - p.outputs :]]
    made = Func(name, (*inputs, *outputs), len(outputs), body)
    if any(IN_PLACE.of(p) for p in own):
        made = IN_PLACE.put(made, 1)
    size = workspace_bytes(body)
    return check_limits(WORKSPACE_BYTES.put(made, size) if size else made, target)


def join_launches(func: Func, target: Target) -> Func:
    """Return a flat function whose launches that may run beside each other, if it pays, are one."""
    first = BESIDE.of(func)
    if first is None:
        return func
    around, found = _apart(func.body)
    if len(found) != len(first):
        return BESIDE.drop(func)
    rows = [[s for s, f in zip(found, first, strict=True) if f == n] for n in sorted({*first})]
    body = seq(*(s for row in rows for s in _if_they_fit(row, target.gpu)))
    for buffer in reversed(around):
        body = Alloc(buffer, body)
    return BESIDE.drop(replace(func, body=body))


def _if_they_fit(launches: Sequence[Stmt], gpu: Gpu) -> Sequence[Stmt]:
    if not 1 < len(launches) <= PARTS:
        return launches
    own = [_shape(s) for s in launches]
    return [_joined(launches)] if _fits(own, gpu) or _follow(own) else launches


def _follow(launches: Sequence[LaunchNeeds]) -> bool:
    """True if no launch needs more than the first: its blocks are held as alone, others behind."""
    first = launches[0]
    alike = all((s.block, s.notes) == (first.block, first.notes) for s in launches)
    known = not {key for key, _ in first.notes} - _KNOWN
    return alike and known and all(s.shared <= first.shared for s in launches)


def _apart(s: Stmt) -> tuple[list[Buffer], list[Stmt]]:
    """Return the buffers that launches share, outer ones first, and the launches in order."""
    match s:
        case Alloc(buffer=buffer, body=body) if buffer.scope in (Scope.GLOBAL, Scope.COUNTER):
            around, found = _apart(body)
            return [buffer, *around], found
        case Seq(stmts=stmts):
            parts = [_apart(x) for x in stmts]
            return [b for p in parts for b in p[0]], [x for p in parts for x in p[1]]
        case _:
            return [], [s]


def _shape(s: Stmt) -> LaunchNeeds:
    extents = _extents(s)
    x, y, z = (extents.get(f"threadIdx.{d}", 1) for d in "xyz")
    blocks = prod(extents.get(f"blockIdx.{d}", 1) for d in "xyz")
    shared = memory(s, (Scope.SHARED,), SHARED_ALIGN)
    exchanges = any(isinstance(x, Intrinsic | AllReduce) for x in walk(s))
    return LaunchNeeds(blocks, (x, y, z), shared, tuple(sorted(_notes(s).items())), exchanges)


def _extents(s: Stmt) -> dict[str, int]:
    found = {x.thread: as_int(x.extent) for x in opened(s)[0]}
    if None in found.values():
        raise UnsupportedError("a launch without a constant extent", "its blocks are not known")
    return {t: n for t, n in found.items() if n is not None}


def _joined(launches: Sequence[Stmt]) -> Stmt:
    """Return one launch that does all of these, the first ones in its first blocks."""
    if len(launches) == 1:
        return launches[0]
    extents = _block(_shape(s).block for s in launches)
    block = {f"threadIdx.{d}": n for d, n in zip("xyz", extents, strict=True) if n > 1}
    index = {t: Var(f"t{t[-1]}") for t in THREADS if t in block}
    blocks, last = Var("bx"), len(launches) - 1
    starts = [0]
    for s in launches:
        starts.append(starts[-1] + _shape(s).blocks)
    parts = [_part(s, index, blocks, n) for s, n in zip(launches, starts, strict=False)]
    parts = [_by(p, _shape(s), block, index) for p, s in zip(parts, launches, strict=True)]
    body = parts[last]
    for n in reversed(range(last)):
        body = If(lt(blocks, starts[n + 1]), parts[n], body)
    for t in reversed(index):
        body = For(index[t], Const(block[t]), body, Kind.THREAD, t)
    return For(blocks, Const(starts[-1]), body, Kind.THREAD, "blockIdx.x", _notes(launches[0]))


def _by(part: Stmt, needs: LaunchNeeds, block: Mapping[str, int], index: Mapping[str, Var]) -> Stmt:
    """Return a part that the first threads of a larger block do."""
    mine = {f"threadIdx.{d}": n for d, n in zip("xyz", needs.block, strict=True)}
    cond = both(*(lt(index[t], mine[t]) for t, n in block.items() if mine[t] < n))
    return part if cond is None else If(cond, part)


def _notes(s: Stmt) -> Notes:
    return {key: value for x in opened(s)[0] for key, value in x.notes.items()}


def _part(s: Stmt, index: Mapping[str, Var], blocks: Var, start: int) -> Stmt:
    """Return a launch's body in blocks from number ``start`` on, over the fused launch's indices.

    The bounds of the block's number are spelled out, so that addresses are known to be in bounds.
    """
    extents, (loops, body) = _extents(s), opened(s)
    threads = [x for x in loops if x.over_threads]
    own: dict[Var, Expr] = {x.var: index.get(x.thread, Const(0)) for x in threads}
    total = _shape(s).blocks
    number = Var("part")
    place: Expr = minimum(maximum(sub(blocks, start), 0), total - 1)
    body = substitute(body, own)
    before = 1
    for x in reversed([x for x in loops if x.over_blocks]):  # x varies fastest
        rest = floordiv(number, before)
        before *= extents[x.thread]
        value = rest if before == total else floormod(rest, extents[x.thread])
        body = Let(x.var, value, body)
    return Let(number, place, body)
