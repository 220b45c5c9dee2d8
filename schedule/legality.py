"""Preconditions that primitives share: each returns the reason for a refusal, or None."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ..ir.loop.affine import linear
from ..ir.loop.build import as_int, sub
from ..ir.loop.names import called
from ..ir.loop.nodes import (
    AxisKind,
    Block,
    Buffer,
    For,
    Func,
    Kind,
    Let,
    Region,
    Seq,
    Stmt,
    Store,
    Var,
)
from ..ir.loop.notes import OPAQUE
from ..ir.loop.visit import walk_expr
from .bindings import Sum, determined, limits_of, parse
from .cursor import (
    Path,
    block_of,
    extent_of,
    is_before,
    loop_of,
    nest,
    ranges_of,
)
from .errors import Reason
from .footprint import covers
from .stores import update_of

MAX_UNROLL = 1024
MAX_DEPTH = 64


def is_opaque(block: Block) -> bool:
    """True if the block may only be annotated."""
    return OPAQUE.of(block) is not None


def reduces(block: Block) -> bool:
    """True if the block has reduction axes."""
    return any(a.kind is AxisKind.REDUCE for a in block.axes)


def bound_vars(block: Block, kind: AxisKind) -> frozenset[Var]:
    """Return the loop variables that the axes of a kind depend on."""
    found: set[Var] = set()
    for a in block.axes:
        if a.kind is kind:
            found.update(v for v in walk_expr(a.value) if isinstance(v, Var))
    return frozenset(found)


def not_opaque(paths: Iterable[Path]) -> Reason | None:
    """Require that none of the blocks is opaque."""
    for path in paths:
        block = block_of(path)
        if is_opaque(block):
            return Reason(
                f"block `{block.name}` is opaque",
                (block,),
                hint="an opaque block can only be annotated; schedule the blocks around it",
            )
    return None


def fills(paths: Iterable[Path]) -> Reason | None:
    """Require that opaque blocks write all that they declare of what the others read.

    Their stores are then known like those of other blocks: places of each region that constant
    loops inside step through, under no condition.
    """
    every = [*map(block_of, paths)]
    for block in filter(is_opaque, every):
        read = {r.buffer for b in every if b is not block for r in b.reads}
        stores = [*_sure_stores(block.body, {})]
        for r in block.writes:
            if r.buffer in read and not any(_at(r, s, loops) for s, loops in stores):
                return Reason(
                    f"block `{block.name}` is opaque, and may write less of `{r.buffer}` than it "
                    "declares",
                    (block,),
                    hint="an opaque block can only be annotated; schedule the blocks around it",
                )
    return None


def _sure_stores(s: Stmt, loops: Mapping[Var, int]) -> Iterator[tuple[Store, Mapping[Var, int]]]:
    """Yield the stores that happen under no condition, with the loops around them."""
    match s:
        case Store():
            yield s, loops
        case For(var=var, body=body):
            if (n := extent_of(s)) is not None:
                yield from _sure_stores(body, {**loops, var: n})
        case Let(body=body):
            yield from _sure_stores(body, loops)
        case Seq(stmts=stmts):
            for x in stmts:
                yield from _sure_stores(x, loops)


def _at(r: Region, s: Store, loops: Mapping[Var, int]) -> bool:
    """True if a store runs through a region, a loop of its own for each dimension."""
    if s.buffer is not r.buffer:
        return False
    seen: set[Var] = set()
    for x, e in zip(r.ranges, s.index, strict=True):
        step = linear(sub(e, x.start))
        inner = [v for v in step.terms if isinstance(v, Var) and v in loops]
        steps = dict.fromkeys(inner, 1) == step.terms and step.constant == 0
        length = loops[inner[0]] if inner else 1
        if not steps or len(inner) > 1 or seen & {*inner} or as_int(x.extent) != length:
            return False
        seen |= {*inner}
    return True


def no_opaque_reduction(paths: Iterable[Path], loops: Iterable[For]) -> Reason | None:
    """Require that the loops drive no reduction axis of an opaque block.

    An opaque block is independent at different points of its spatial axes only.
    """
    shared = {loop.var for loop in loops}
    ordered = [p for p in paths if shared & bound_vars(block_of(p), AxisKind.REDUCE)]
    return not_opaque(ordered)


def plain_loops(loops: Iterable[For]) -> Reason | None:
    """Require that the loops are serial, so that they can be reshaped."""
    for loop in loops:
        if loop.kind is not Kind.SERIAL:
            return Reason(
                f"loop `{called(loop)}` is already {KINDS[loop.kind]}",
                (loop,),
                hint="split, fuse and rfactor first; parallel, vectorize and unroll come last",
            )
    return None


KINDS = {
    Kind.SERIAL: "serial",
    Kind.PARALLEL: "parallel",
    Kind.VECTOR: "vectorized",
    Kind.UNROLLED: "unrolled",
    Kind.THREAD: "bound to a thread",
}


def chain(paths: Sequence[Path]) -> tuple[For, ...] | Reason:
    """Return the loops from the outermost to the innermost of ``paths``.

    Each is the only child of the one above it; a ``Reason`` if there is no such chain.
    """
    longest = max(paths, key=len)
    for path in paths:
        if longest[len(path) - 1] is not path[-1]:
            a, b = loop_of(longest), loop_of(path)
            return Reason(
                f"loops `{called(a)}` and `{called(b)}` are not nested",
                (a, b),
                hint="only loops around the same block can be reordered",
            )
    first = min(len(path) for path in paths) - 1
    for s in longest[first:]:
        if not isinstance(s, For):
            return Reason(
                f"loop `{called(loop_of(longest))}` shares its outer loop with other statements",
                (longest[first], *(s.stmts if isinstance(s, Seq) else (s,))),
                hint="move the other statements away first, or choose loops below them",
            )
    return tuple(s for s in longest[first:] if isinstance(s, For))


def rectangular(loops: Sequence[For]) -> Reason | None:
    """Require that no loop's extent depends on another of the loops."""
    for loop in loops:
        for v in walk_expr(loop.extent):
            if any(v is other.var for other in loops):
                return Reason(
                    f"the extent of loop `{called(loop)}` depends on `{v}`",
                    (loop,),
                    hint="keep the loop inside the one that its extent depends on",
                )
    return None


def constant_extent(loop: For, limit: int | None = None) -> Reason | None:
    """Require that the extent is a literal, at most ``limit``."""
    n = extent_of(loop)
    if n is None:
        return Reason(
            f"the extent of loop `{called(loop)}` is not a constant",
            (loop,),
            hint="this needs a loop with a constant trip count",
        )
    if limit is not None and n > limit:
        return Reason(
            f"loop `{called(loop)}` runs {n} times, more than {limit}",
            (loop,),
            hint=f'split it first: sch.split("{called(loop)}", [None, 8])',
        )
    return None


def only_blocks(path: Path) -> Reason | None:
    """Require that everything under a node is in blocks, so that it can be guarded."""

    def visit(s: Stmt) -> Stmt | None:
        match s:
            case Block():
                return None
            case For(body=body):
                return visit(body)
            case Seq(stmts=stmts):
                return next((x for x in map(visit, stmts) if x is not None), None)
            case _:
                return s

    bare = visit(path[-1])
    return (
        None
        if bare is None
        else Reason(
            "a statement under it is not in a block",
            (bare,),
            hint="choose factors that divide the extent, so that no guard is needed",
        )
    )


# Blocks, and how loops bind them.


def computes_once(block: Block) -> Reason | None:
    """Require that the block does not read what it writes, or is a reduction with an init."""
    own = {r.buffer for r in block.writes}
    reads_own = any(r.buffer in own for r in block.reads)
    if reads_own and not reduces(block):
        return Reason(
            f"block `{block.name}` reads what it writes",
            (block,),
            hint="only a reduction with an init may read what it writes here",
        )
    if reads_own and block.init is None:
        return Reason(
            f"block `{block.name}` only updates what another block initializes",
            (block,),
            hint="do this before decompose_reduction",
        )
    return None


def sole_writer(func: Func, block: Block) -> Reason | None:
    """Require that no other block writes what this one writes."""
    for r in block.writes:
        others = [n for n in nest(func).writers[r.buffer] if n != block.name]
        if others:
            return Reason(
                f"`{r.buffer}` is also written by block `{others[0]}`",
                (block, nest(func).block(others[0])),
                hint="do this before decompose_reduction",
            )
    return None


def has_region(regions: Sequence[Region], index: int, block: Block, verb: str) -> Reason | None:
    """Require that ``index`` selects one of the regions that the block ``verb`` ("writes")."""
    if 0 <= index < len(regions):
        return None
    have = ", ".join(f"{n} is `{r.buffer}`" for n, r in enumerate(regions)) or "there is none"
    return Reason(f"block `{block.name}` {verb} {len(regions)} regions", (block,), hint=have)


def not_a_parameter(func: Func, buffer: Buffer, block: Block) -> Reason | None:
    """Require that a buffer which the block writes is not a parameter of the function."""
    if buffer not in func.params:
        return None
    why = f"`{buffer}` is a parameter of the function"
    return Reason(why, (block,), hint="use cache_write first")


def not_an_output(func: Func, block: Block) -> Reason | None:
    """Require that the block writes no parameter of the function."""
    for r in block.writes:
        if r.buffer in func.params:
            return Reason(
                f"block `{block.name}` writes `{r.buffer}`, an output of the function",
                (block,),
                hint="cache_write gives it an intermediate buffer first",
            )
    return None


def sound_order(block: Block, loops: Sequence[For], before: Sequence[For] = ()) -> Reason | None:
    """Require that a reduction is correct under ``loops``, outermost first.

    Each update happens once and after the init of its element: no loop drives both spatial and
    reduction axes, no point is visited twice within the outermost reduction loop, and updates to
    one element keep their order under ``before`` unless the operation is commutative, and not in an
    opaque block.
    """
    if not reduces(block):
        return None
    reduce, spatial = bound_vars(block, AxisKind.REDUCE), bound_vars(block, AxisKind.SPATIAL)
    inside = None
    for loop in loops:
        if extent_of(loop) == 1:
            continue
        if loop.var in reduce and loop.var in spatial:
            return Reason(
                f"loop `{called(loop)}` drives both spatial and reduction axes of `{block.name}`",
                (loop, block),
                hint="use separate loops for spatial and reduction axes",
            )
        if loop.var in reduce:
            inside = loop
        elif inside is not None and loop.var not in spatial:
            return Reason(
                f"loop `{called(loop)}` only repeats block `{block.name}`; inside the reduction "
                f"loop `{called(inside)}` it would add every term again",
                (inside, loop, block),
                hint=f"keep `{called(loop)}` outside `{called(inside)}`",
            )
    first = next((n for n, x in enumerate(loops) if x.var in reduce and extent_of(x) != 1), None)
    if first is not None:
        reason = visits_once(block, loops, loops[first:])
        if reason is not None:
            return reason
    if before and (update_of(block) is None or is_opaque(block)):
        old = [x.var for x in before if x.var in reduce and extent_of(x) != 1]
        new = [x.var for x in loops if x.var in reduce and extent_of(x) != 1]
        if any(a is not b for a, b in zip(old, new, strict=True)):
            kind = OPAQUE.key if is_opaque(block) else "not a sum, product, maximum or minimum"
            return Reason(
                f"block `{block.name}` is {kind}: its updates must stay in order",
                (block,),
                hint="keep its reduction loops in their order",
            )
    return None


def sums_of_axes(
    block: Block, extents: Mapping[Var, int], kind: AxisKind | None = None
) -> list[Sum]:
    """Return the values of a block's axes (of a kind) as sums of digits, under its predicate."""
    limits = limits_of(block.predicate, extents)
    forms = (parse(a.value, extents, limits) for a in block.axes if kind in (None, a.kind))
    return [f for f in forms if f is not None]


def visits_once(block: Block, loops: Sequence[For], inner: Sequence[For]) -> Reason | None:
    """Require that ``inner`` visits each point of the block once, the other ``loops`` fixed."""
    extents = ranges_of(loops)
    outer = [x.var for x in loops if not any(x is y for y in inner)]
    known = determined(sums_of_axes(block, extents), extents, outer)
    for loop in inner:
        if loop.var not in known:
            return Reason(
                f"loop `{called(loop)}` may visit the same element of block `{block.name}` twice",
                (loop, block),
                hint="keep the reduction loops inside those that repeat it",
            )
    return None


def self_contained(func: Func, paths: Sequence[Path]) -> Reason | None:
    """Require that each iteration writes what it reads, before it reads it.

    That holds for each writer and reader of a buffer among the blocks and the loops common to both,
    whose iterations may then run in any order.
    """
    written = _writers(paths)
    for reader in paths:
        for buffer in _buffers_read(reader):
            reason = _contained(reader, buffer, written.get(buffer, ()), every=True)
            if reason is not None:
                return reason
    return None


def in_step(paths: Sequence[Path], joined: Sequence[Path]) -> Reason | None:
    """Require that each iteration reads what it writes itself, where blocks exchange values with
    those that have ``joined`` them.

    Their iterations run in order: others may write later what was read.
    """
    written, new = _writers(paths), _writers(joined)
    for reader in paths:
        for buffer in _buffers_read(reader):
            apart = reader in joined or buffer in new
            writers = written.get(buffer, ()) if apart else ()
            if (reason := _contained(reader, buffer, writers, every=False)) is not None:
                return reason
    return None


def _writers(paths: Sequence[Path]) -> dict[Buffer, list[Path]]:
    """Return the blocks that write each buffer, in order."""
    found: dict[Buffer, list[Path]] = {}
    for path in paths:
        for buffer in {r.buffer: None for r in block_of(path).writes}:
            found.setdefault(buffer, []).append(path)
    return found


def _buffers_read(path: Path) -> dict[Buffer, None]:
    return {r.buffer: None for r in block_of(path).reads}


def _contained(reader: Path, buffer: Buffer, writers: Sequence[Path], every: bool) -> Reason | None:
    """Require that an iteration reads of a buffer what it wrote before, and ``every`` block wrote
    before.
    """
    block, others = block_of(reader), [w for w in writers if w is not reader]
    earlier = [w for w in others if is_before(w, reader)]
    enough = len(earlier) == len(others) if every else earlier or not others
    if not enough and not writes(block, buffer):
        return Reason(
            f"block `{block.name}` reads what `{buffer}` holds from an earlier iteration",
            (block,),
            hint="a loop that carries values to the next iteration has to stay serial",
        )
    if earlier and not covers(earlier[-1], reader, buffer):
        return Reason(
            f"block `{block.name}` reads elements of `{buffer}` that "
            f"`{block_of(earlier[-1]).name}` writes in other iterations",
            (block_of(earlier[-1]), block),
            hint="choose a loop whose iterations write all that they read",
        )
    return None


def writes(block: Block, buffer: Buffer) -> bool:
    """True if the block writes the buffer."""
    return any(r.buffer is buffer for r in block.writes)


def depth_allows(path: Path, more: int) -> Reason | None:
    """Require that nests stay shallow enough for recursive passes."""
    if len(path) + more <= MAX_DEPTH:
        return None
    return Reason(
        f"more than {MAX_DEPTH} loops around one block", hint="fuse loops, or split into fewer"
    )
