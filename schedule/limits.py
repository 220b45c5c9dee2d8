"""Checks that a scheduled function can run on a GPU: complete, and within hardware limits.

Every primitive keeps the schedule correct, but some need another to follow: a copy is in shared
memory before compute_at moves it into its launch, or before its loops are bound. The checks here
list what is still missing, and what exceeds the hardware.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod

from ..ir.gpus import Gpu
from ..ir.loop.intrinsics import SPREAD
from ..ir.loop.names import called
from ..ir.loop.nodes import (
    CHUNK,
    OF_BLOCK,
    SHARED_ALIGN,
    Block,
    Buffer,
    For,
    Func,
    Intrinsic,
    Kind,
    Scope,
    Seq,
    Stmt,
)
from ..ir.loop.notes import ASYNC, PIPELINE
from ..ir.loop.visit import children, walk
from .cursor import (
    Path,
    block_of,
    blocks_under,
    common,
    extent_of,
    loop_of,
    loops_of,
    named,
    nest,
    ranges_of,
)
from .errors import Reason, require
from .footprint import axis_values, hull, region_span
from .fragments import WITHIN, holds
from .guards import inner_limits
from .launches import (
    BLOCK,
    ThreadLaunch,
    Traffic,
    is_own,
    is_scratch,
    launch_of,
    repeated_by_all,
    top_of,
)
from .legality import writes
from .owners import thread_loops, writing_loops
from .threads import is_grid, is_shared

OF_A_LAUNCH = (*OF_BLOCK, Scope.REGISTER, *SPREAD)


def check_limits(func: Func, gpu: Gpu) -> list[Reason]:
    """Return the reasons why the function cannot run on the GPU; empty if it can."""
    return list(_reasons(func, gpu))


def require_limits(func: Func, gpu: Gpu) -> None:
    """Raise ``ScheduleError`` with the first reason that ``check_limits`` finds."""
    require(func, f"run `{func.name}` on {gpu.arch}", next(_reasons(func, gpu), None))


def _reasons(func: Func, gpu: Gpu) -> Iterator[Reason]:
    yield from _across_launches(func)
    for path in nest(func).loops.values():
        if PIPELINE.of(loop_of(path)) and not _runs_ahead(func, path):
            yield Reason(
                f"nothing in the pipelined loop `{named(func, loop_of(path))}` can run ahead",
                (path[-1],),
                hint="a copy can run ahead if it fills a shared buffer of the iteration from "
                "memory that the loop does not write",
            )
    tops = {id(top_of(p)[-1]): top_of(p) for p in nest(func).blocks.values()}
    for top in tops.values():
        launch = launch_of(func, top)
        if launch is not None:
            yield from _of_launch(launch, top, gpu)


def _runs_ahead(func: Func, path: Path) -> bool:
    """True if a statement of a loop's body can run ahead in a pipeline.

    It fills shared buffers that only the loop uses, from memory that the loop does not write.
    """
    index, body = nest(func), loop_of(path).body
    inside = {block_of(p).name for p in blocks_under(path)}
    written = {r.buffer for n in inside for r in index.block(n).writes}
    for s in body.stmts if isinstance(body, Seq) else (body,):
        blocks = [x for x in walk(s) if isinstance(x, Block)]
        fills = {r.buffer for b in blocks for r in b.writes}
        users = {n for f in fills for n in (*index.readers.get(f, ()), *index.writers[f])}
        taken = {r.buffer for b in blocks for r in b.reads}
        shared = all(f.scope is Scope.SHARED for f in fills)
        if fills and shared and users <= inside and not taken & written:
            return True
    return False


def _across_launches(func: Func) -> Iterator[Reason]:
    index = nest(func)
    for b in func.allocs:
        names = {*index.writers.get(b, ()), *index.readers.get(b, ())}
        paths = [p for n, p in index.blocks.items() if n in names]
        if b.scope in OF_A_LAUNCH and len({id(top_of(p)[-1]) for p in paths}) > 1:
            yield Reason(
                f"`{b}` is in {b.scope.value} memory, which does not last from one launch to the "
                "next",
                tuple(map(block_of, paths)),
                hint="compute_at or reverse_compute_at puts the blocks into one nest",
            )


def _of_launch(launch: ThreadLaunch, top: Path, gpu: Gpu) -> Iterator[Reason]:
    yield from _too_many(launch, gpu)
    have = shared_bytes(launch, top[-1])
    if have > gpu.shared_per_block:
        yield Reason(
            f"a thread block needs {have} bytes of shared memory; {gpu.arch} has "
            f"{gpu.shared_per_block}",
            (top[-1],),
            hint="smaller tiles, or fewer stages of a pipeline",
        )
    for path in launch.blocks:
        yield from _all_present(launch, path)
        yield from _of_one_kind(launch, path)
    for b in dict.fromkeys(r.buffer for p in launch.blocks for r in block_of(p).writes):
        traffic = Traffic(launch, b, launch.users(b))
        if b.scope in SPREAD:
            yield from _by_warps(traffic)
        elif b.scope is Scope.SHARED or (b.scope is Scope.GLOBAL and not is_scratch(launch, b)):
            yield from _repeated(traffic)
            yield from _barred(traffic)
        if b.swizzle:
            yield from _whole_chunks(traffic)


def _too_many(launch: ThreadLaunch, gpu: Gpu) -> Iterator[Reason]:
    most = dict(zip(("threadIdx.x", "threadIdx.y", "threadIdx.z"), gpu.block_extents, strict=True))
    most |= zip(("blockIdx.x", "blockIdx.y", "blockIdx.z"), gpu.grid_extents, strict=True)
    for name, n in launch.threads.items():
        if n > most[name]:
            yield Reason(
                f"{name} has {n} iterations; {gpu.arch} takes {most[name]}",
                hint="split a loop bound to it and bind less",
            )
    total = prod(n for name, n in launch.threads.items() if not is_grid(name))
    if total > gpu.threads_per_block:
        yield Reason(
            f"a block has {total} threads; {gpu.arch} takes {gpu.threads_per_block}",
            (),
            hint="split the loops and bind smaller ones",
        )


def _partial(launch: ThreadLaunch, loops: Sequence[For]) -> For | None:
    """Return a loop that only some of the threads of a block enter; None if there is none."""
    return next(
        (
            x
            for x in loops
            if x.kind is Kind.THREAD
            and not is_grid(x.thread)
            and (extent_of(x) or 0) < launch.threads[x.thread]
        ),
        None,
    )


def _all_present(launch: ThreadLaunch, path: Path) -> Iterator[Reason]:
    """Yield a reason for each shared reduction that not all threads reach."""
    loops = loops_of(path)
    for n, x in enumerate(loops):
        part = _partial(launch, loops[:n]) if is_shared(block_of(path), x) else None
        if part is not None:
            yield _absent(launch, part, (x, block_of(path)))


def _of_one_kind(launch: ThreadLaunch, path: Path) -> Iterator[Reason]:
    """Yield a reason if a block writes both private and common memory.

    Every thread writes private memory; only the first writes what is common to them.
    """
    block, inner = block_of(path), thread_loops(path)
    one = [r.buffer for r in block.writes if is_own(launch, r.buffer)]
    if not one or len(one) == len(block.writes):
        return
    several = [t for t, n in launch.sizes.items() if n > 1 and t not in inner]
    if several:
        other = next(r.buffer for r in block.writes if r.buffer not in one)
        yield Reason(
            f"every thread of {several[0]} writes a `{one[0]}` of its own in block "
            f"`{block.name}`, and there is one `{other}` for all of them",
            (block,),
            hint="set_scope puts both into the same memory",
        )


def _absent(launch: ThreadLaunch, part: For, blame: tuple[Stmt, ...]) -> Reason:
    return Reason(
        f"threads wait for each other inside loop `{called(part)}`, which only "
        f"{extent_of(part)} of {launch.threads[part.thread]} threads of {part.thread} enter",
        (part, *blame),
        hint="give outer loops over the same index the same extent",
    )


def _repeated(t: Traffic) -> Iterator[Reason]:
    """Yield a reason for each block that all threads repeat on memory that they share."""
    for w in t.users:
        if not writes(block_of(w), t.buffer):
            continue
        for thread, loop in writing_loops(w).items():
            if thread in BLOCK and repeated_by_all(w, loop):
                yield Reason(
                    f"every thread of {thread} executes all of block `{block_of(w).name}`",
                    (loop, block_of(w)),
                    hint=f"fuse and split its own loops, and bind one of them to {thread}",
                )


def _barred(t: Traffic) -> Iterator[Reason]:
    """Yield a reason if not all threads reach the barrier of an exchange of values."""
    for w, r in t.pairs():
        part = _partial(t.launch, loops_of(w[: common(w, r)]))
        if part is not None and any(_goes_over(t, thread, w, r) for thread in BLOCK):
            yield _absent(t.launch, part, (block_of(w), block_of(r)))
            return


def _goes_over(t: Traffic, thread: str, w: Path, r: Path) -> bool:
    if t.launch.sizes.get(thread, 1) == 1 or t.owned(thread):
        return False
    a, b = writing_loops(w).get(thread), thread_loops(r).get(thread)
    return a is not b or a is None


def _by_warps(t: Traffic) -> Iterator[Reason]:
    for p in t.users:
        block, inner = block_of(p), thread_loops(p)
        alone = next((inner[x] for x in reversed(WITHIN) if x in inner), None)
        whole = any(isinstance(s, Intrinsic) for s in walk(block.body))
        if whole and (alone is None or "threadIdx.x" not in inner):
            continue
        if not whole and holds(p, t.buffer):
            continue
        if alone is not None:
            yield Reason(
                f"`{t.buffer}` is distributed over the threads of {alone.thread}, which access it "
                "together",
                (alone, block),
                hint="use the block outside loops over threadIdx.x, or give each thread the "
                "elements that it holds",
            )
        else:
            yield Reason(
                f"`{t.buffer}` is in warp memory, which only intrinsics access",
                (block,),
                hint="tensorize the block",
            )


def _whole_chunks(t: Traffic) -> Iterator[Reason]:
    row = box_of(t.buffer, t.users)[-1] * t.buffer.dtype.bytes
    if row % (CHUNK * t.buffer.swizzle):
        yield Reason(
            f"rows of `{t.buffer}` have {row} bytes; swizzling by {t.buffer.swizzle} takes "
            f"multiples of {CHUNK * t.buffer.swizzle}",
            tuple(map(block_of, t.users)),
            hint="choose a layout with longer rows, or a smaller swizzle",
        )


# Shared memory.


def box_of(buffer: Buffer, users: Sequence[Path]) -> tuple[int, ...]:
    """Return the extents of a buffer that all threads of a block access where it is allocated."""
    depth = min(common(users[0], p) for p in users) if len(users) > 1 else len(users[0]) - 1
    boxes = []
    for p in users:
        block, loops = block_of(p), loops_of(p)
        inner = {x.var for x in loops_of(p[depth:])}
        inner |= {x.var for x in loops if x.kind is Kind.THREAD and not is_grid(x.thread)}
        extents = ranges_of(loops)
        limits = inner_limits(block, extents, inner)
        for r in (*block.reads, *block.writes):
            if r.buffer is buffer:
                boxes.append(region_span(r, axis_values(block), extents, inner, limits))
    return tuple(x.extent for x in hull(boxes, buffer))


def buffer_bytes(buffer: Buffer, users: Sequence[Path]) -> int:
    """Return the bytes of a shared buffer, including all stages of a pipeline."""
    size = 1
    shape = box_of(buffer, users)
    for d in reversed(range(len(shape))):
        size = buffer.stride(d, size) * shape[d]
    depth = min(common(users[0], p) for p in users)
    taken = size * buffer.dtype.bytes * _stages(loops_of(users[0][:depth]))
    return -(-taken // SHARED_ALIGN) * SHARED_ALIGN


def _stages(loops: Sequence[For]) -> int:
    """Return the number of stages of a buffer in the innermost pipelined loop.

    At most the trip count, and two unless copies are asynchronous.
    """
    loop = next((x for x in reversed(loops) if PIPELINE.of(x)), None)
    if loop is None:
        return 1
    ahead = any(isinstance(s, Block) and ASYNC.of(s) for s in walk(loop))
    most, asked = extent_of(loop) or 1, PIPELINE.of(loop) or 1
    return min(most, asked if ahead else 2)


def shared_bytes(launch: ThreadLaunch, top: Stmt) -> int:
    """Return the shared memory of a block in bytes; buffers that are not live together overlap."""
    sizes: dict[Buffer, int] = {}
    for p in launch.blocks:
        for r in (*block_of(p).reads, *block_of(p).writes):
            if r.buffer.scope is Scope.SHARED and r.buffer not in sizes:
                sizes[r.buffer] = buffer_bytes(r.buffer, launch.users(r.buffer))
    return _peak(top, sizes) if sizes else 0


def _touched(s: Stmt) -> frozenset[Buffer]:
    blocks = [x for x in walk(s) if isinstance(x, Block)]
    return frozenset(r.buffer for b in blocks for r in (*b.reads, *b.writes))


def _peak(s: Stmt, sizes: Mapping[Buffer, int]) -> int:
    """Return the peak bytes of buffers that only ``s`` accesses."""
    if not sizes:
        return 0
    if isinstance(s, Block):
        return sum(sizes.values())
    kids = _steps(s)
    if len(kids) == 1 and kids[0] is s:
        return max((_peak(c, sizes) for c in children(s)), default=0)
    touched = [_touched(c) for c in kids]
    inside: list[dict[Buffer, int]] = [{} for _ in kids]
    spans: list[tuple[int, int, int]] = []
    for b, size in sizes.items():
        at = [n for n, t in enumerate(touched) if b in t]
        if len(at) == 1:
            inside[at[0]][b] = size
        elif at:
            spans.append((at[0], at[-1], size))
    own = [_peak(c, x) for c, x in zip(kids, inside, strict=True)]
    total = max(own)
    for first, last, size in _joined(spans):
        total = max(total, size + max(own[first : last + 1]))
    return total


def _steps(s: Stmt) -> tuple[Stmt, ...]:
    """Return the statements that a thread runs in sequence; thread loops vanish when lowered."""
    match s:
        case Seq(stmts=stmts):
            return tuple(x for c in stmts for x in _steps(c))
        case For(kind=Kind.THREAD, body=body):
            return _steps(body)
        case _:
            return (s,)


def _joined(spans: Sequence[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Merge overlapping spans, adding their sizes."""
    result: list[tuple[int, int, int]] = []
    for first, last, size in sorted(spans):
        if result and first <= result[-1][1]:
            a, b, n = result[-1]
            result[-1] = (a, max(b, last), n + size)
        else:
            result.append((first, last, size))
    return result
