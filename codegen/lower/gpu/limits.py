"""Check a launch against the GPU: threads, blocks, shared memory, a thread's own memory."""

from __future__ import annotations

from ....ir.errors import UnsupportedError
from ....ir.loop.build import as_int
from ....ir.loop.intrinsics import WARP, warp_results
from ....ir.loop.nodes import (
    SHARED_ALIGN,
    Alloc,
    AllReduce,
    Buffer,
    For,
    Func,
    Intrinsic,
    Kind,
    Scope,
    Stmt,
)
from ....ir.loop.notes import CLUSTER
from ....ir.loop.visit import children, walk
from ....ir.loop.warpgroups import descriptors_of
from ....ir.target import Target
from .products.groups import is_group_product, shared_operands
from .products.mbarriers import PATTERN_BYTES

_DESCRIBED = ("wgmma.", "tcgen05.", "tma_")
LOCAL = 512 << 10  # bytes of memory that a thread may have for itself


def check_limits(func: Func, target: Target) -> Func:
    """Return the flat function; ``UnsupportedError`` if the target cannot run its launches."""
    align = shared_alignment(func.body)
    for s in _launches(func.body):
        _check(s, f"function {func.name}", target, align)
    return func


def memory(s: Stmt, scopes: tuple[Scope, ...], align: int) -> int:
    """Return the bytes of flat buffers of some scopes that exist at once, each rounded up."""
    inner = max((memory(c, scopes, align) for c in children(s)), default=0)
    if not isinstance(s, Alloc) or s.buffer.scope not in scopes:
        return inner
    return -(-s.buffer.shape[0] * s.buffer.dtype.bytes // align) * align + inner


def shared_alignment(s: Stmt) -> int:
    """Return the alignment of shared memory that launches need, for descriptors and bulk copies."""
    called = (x.name for x in walk(s) if isinstance(x, Intrinsic))
    return PATTERN_BYTES if any(name.startswith(_DESCRIBED) for name in called) else SHARED_ALIGN


def reduction_bytes(s: Stmt, threads: int, align: int = SHARED_ALIGN) -> int:
    """Return the bytes of shared memory, beside buffers, through which the warps of a block of so
    many threads put their results together: two places, which reductions use in turn.

    The buffers begin behind them, at a multiple of their alignment, which is that of all launches
    of a module.
    """
    reductions = [x for x in walk(s) if isinstance(x, AllReduce) and x.threads > WARP]
    sizes = [sum(warp_results(b.dtype, threads) for b in x.values) for x in reductions]
    found = max(sizes[::2], default=0) + max(sizes[1::2], default=0)
    return -(-found // align) * align


def _launches(s: Stmt) -> list[For]:
    if isinstance(s, For) and s.kind is Kind.THREAD:
        return [s]
    return [x for c in children(s) for x in _launches(c)]


def _check(s: For, where: str, target: Target, align: int) -> None:
    gpu = target.gpu
    extents: dict[str, int] = {}
    body: Stmt = s
    cluster = 1
    while isinstance(body, For) and body.kind is Kind.THREAD:
        cluster *= as_int(body.extent) or 1 if CLUSTER.of(body) else 1
        extents[body.thread] = as_int(body.extent) or 0
        body = body.body
    threads = 1
    for name, n in extents.items():
        axis = "xyz".index(name[-1])
        grid = name.startswith("blockIdx")
        most = (gpu.grid_extents if grid else gpu.block_extents)[axis]
        threads *= 1 if grid else n
        if n > most:
            _refuse(f"{n} iterations over {name}", f"{gpu.arch} takes at most {most}", where)
    if threads > gpu.threads_per_block:
        _refuse(f"a block of {threads} threads", f"{gpu.threads_per_block} is the most", where)
    if cluster > max(gpu.clusters, 1):
        why = f"{gpu.arch} has clusters of at most {gpu.clusters}"
        _refuse(f"a cluster of {cluster} blocks", why, where)
    if cluster > 1 and threads % WARP:
        _refuse(f"clusters of blocks of {threads} threads", "they are of whole warps", where)
    shared = memory(body, (Scope.SHARED,), SHARED_ALIGN) + reduction_bytes(body, threads, align)
    if shared > gpu.shared_per_block:
        most = gpu.shared_per_block
        _refuse(f"{shared} bytes of shared memory", f"{gpu.arch} gives a block {most}", where)
    _check_patterns(body, where)
    own = memory(body, (Scope.GLOBAL, Scope.REGISTER), 1)
    if own > LOCAL:
        _refuse(f"{own} bytes of memory for each thread", f"{LOCAL} is the most", where)


def _check_patterns(s: Stmt, where: str) -> None:
    """Refuse operands of warp groups whose place is no multiple of eight rows of their swizzle."""
    places: dict[Buffer, int] = {}

    def stmt(x: Stmt, at: int) -> None:
        if isinstance(x, Alloc) and x.buffer.scope is Scope.SHARED:
            places[x.buffer] = at
            at += -(-x.buffer.shape[0] * x.buffer.dtype.bytes // SHARED_ALIGN) * SHARED_ALIGN
        if is_group_product(x) and isinstance(x, Intrinsic):
            for r, d in zip(shared_operands(x), descriptors_of(x.args), strict=True):
                if places[r.buffer] % (8 * d.swizzle):
                    what = f"buffer {r.buffer.name} at byte {places[r.buffer]} of shared memory"
                    _refuse(what, f"a product takes multiples of {8 * d.swizzle}", where)
        for c in children(x):
            stmt(c, at)

    stmt(s, 0)


def _refuse(what: str, why: str, where: str) -> None:
    hint = "smaller tiles, fewer stages, or other loops bound to threads"
    raise UnsupportedError(f"a launch asks for {what}", why, where, hint)
