"""The nests that put the parts of a softmax together, and what a sum of them is proportional to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...ir.loop.names import called
from ...ir.loop.nodes import Block, Buffer, Cast, Const, Expr, For, Load, Op, Seq, Stmt, Store
from ...ir.loop.visit import loads_in, walk
from ..cursor import Path, blocks_under, loop_of
from ..errors import Reason
from ..stores import single_store, update_of


@dataclass(frozen=True, slots=True)
class Total:
    """A nest that puts the partial sums ``term`` together, each times a scale of its part."""

    nest: Stmt
    block: Block
    store: Store
    term: Load
    scale: Load

    @property
    def part(self) -> int:
        """The dimension of the part in the partial sums."""
        (at,) = [n for n, e in enumerate(self.term.index) if e not in self.store.index]
        return at


@dataclass(frozen=True, slots=True)
class RunningSoftmax:
    """An online softmax in parts: the nests after the loop over parts, by what they do.

    ``part`` is the dimension of the part in the maxima ``largest``; ``shift`` is what the scales
    ``exp(largest - shift)`` are relative to. ``starts`` begin the totals.
    """

    maximum: Stmt
    update: Store
    largest: Load
    part: int
    scales: Stmt
    scale: Store
    shift: Expr
    totals: tuple[Total, ...]
    starts: Mapping[Buffer, Stmt]


def blocks_in(s: Stmt) -> list[Block]:
    """Return the blocks of a statement, in order."""
    return [x for x in walk(s) if isinstance(x, Block)]


def _alone(s: Stmt, extent: Expr) -> Block | None:
    """Return the block of a loop of this extent, if it is its only one."""
    found = blocks_in(s)
    over = isinstance(s, For) and s.extent == extent
    return found[0] if over and len(found) == 1 else None


def running_softmax(path: Path) -> RunningSoftmax | Reason:
    """Return what follows a loop over the parts of rows, if it puts a softmax together."""
    loop = loop_of(path)
    parent = path[-2] if len(path) > 1 else None
    after: Sequence[Stmt] = ()
    if isinstance(parent, Seq):
        after = parent.stmts[[id(s) for s in parent.stmts].index(id(loop)) + 1 :]
    written = {r.buffer for p in blocks_under(path) for r in blocks_in(p[-1])[0].writes}
    alone = [(s, b) for s in after if (b := _alone(s, loop.extent)) is not None]
    nests = [(s, b) for s, b in alone if b.init is None]
    updates = [(s, b, u) for s, b in nests if (u := update_of(b)) is not None]
    most = [(s, b, u) for s, b, u in updates if u.op == "maximum" and _of(u.term, written)]
    scales = [(s, b, x) for s, b in nests if (x := _scale(b, written)) is not None]
    if len(most) != 1 or len(scales) != 1:
        return _no_parts(loop)
    (maximum, _, (update, _, largest)), (nest, block, shift) = most[0], scales[0]
    assert isinstance(largest, Load)
    assert isinstance(block.body, Store)
    totals: list[Total] = []
    for s, b, (store, name, term) in updates:
        match term:
            case Op(name="multiply", args=(Load() as x, factor_)) if name == "add":
                by = factor_.value if isinstance(factor_, Cast) else factor_
                if isinstance(by, Load) and by.buffer is block.body.buffer:
                    totals.append(Total(s, b, store, x, by))
    mine = {update.buffer, *(t.store.buffer for t in totals)}
    starts = {
        b.writes[0].buffer: s
        for s in after
        for b in blocks_in(s)
        if b.writes[0].buffer in mine and not b.reads and len(blocks_in(s)) == 1
    }
    parts = [n for n, e in enumerate(largest.index) if e not in update.index]
    if len(parts) != 1 or starts.keys() != mine:
        return _no_parts(loop)
    return RunningSoftmax(
        maximum=maximum,
        update=update,
        largest=largest,
        part=parts[0],
        scales=nest,
        scale=block.body,
        shift=shift,
        totals=tuple(totals),
        starts=starts,
    )


def _of(e: Expr, buffers: set[Buffer]) -> bool:
    return isinstance(e, Load) and e.buffer in buffers


def _scale(block: Block, written: set[Buffer]) -> Expr | None:
    """Return what the scales that a block computes are relative to."""
    match block.body:
        case Store(value=Op(name="exponential", args=(Op(name="subtract", args=(x, shift)),))):
            return shift if _of(x, written) else None
        case _:
            return None


@dataclass(frozen=True, slots=True)
class PartExponentials:
    """``exp(scores - base)`` as `rescale` makes it: the base is the maximum, or 0 for -inf."""

    store: Store
    scores: Load
    largest: Load


def part_exponentials(block: Block) -> PartExponentials | None:
    """Return the exponentials that a block computes relative to the maxima of parts, if any."""
    match single_store(block):
        case (
            Store(
                value=Op(
                    name="exponential",
                    args=(
                        Op(
                            name="subtract",
                            args=(
                                Load() as scores,
                                Op(name="select", args=(_, Const(), Load() as largest)),
                            ),
                        ),
                    ),
                )
            ) as store
        ):
            return PartExponentials(store, scores, largest)
        case _:
            return None


def _no_parts(loop: For) -> Reason:
    return Reason(
        f"loop `{called(loop)}` is not followed by nests that put the parts of a softmax together",
        (loop,),
        hint="rescale, merge the loops over parts, and decompose the reductions over the parts",
    )


def factor(e: Expr, buffer: Buffer) -> Load | None:
    """Return the load of ``buffer`` that ``e`` is proportional to; None for any other ``e``."""
    match e:
        case Load() if e.buffer is buffer:
            return e
        case Cast(value=value, dtype=dtype, bits=False) if dtype.is_float:
            return factor(value, buffer)
        case Op(name="multiply", args=(a, b)):
            sides = [x for x in (a, b) if not _mentions(x, buffer)]
            return factor(b if sides[0] is a else a, buffer) if len(sides) == 1 else None
        case _:
            return None


def _mentions(e: Expr, buffer: Buffer) -> bool:
    return any(x.buffer is buffer for x in loads_in(e))
