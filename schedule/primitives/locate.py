"""Moving blocks into loops of their consumers or producers: compute_at, reverse_compute_at."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.loop.names import called
from ...ir.loop.nodes import (
    AxisKind,
    Block,
    Func,
    Seq,
)
from ...ir.loop.visit import seq
from ..concurrent import check_loop_kinds
from ..cursor import (
    BlockRef,
    LoopRef,
    Path,
    block_of,
    consumers,
    contains,
    edit,
    extent_of,
    find_block,
    find_loop,
    is_before,
    loop_of,
    loops_of,
    named,
    nest,
    producers,
)
from ..declare import primitive
from ..domains import needed_domain, provided_domain, regenerate, rounded_domain
from ..errors import Reason, obtain, require
from ..footprint import whole, writes_box
from ..guards import lasting_guards
from ..legality import (
    bound_vars,
    computes_once,
    depth_allows,
    not_an_output,
    not_opaque,
    self_contained,
    sole_writer,
    sound_order,
)


@primitive
def compute_at(
    func: Func,
    block: BlockRef,
    loop: LoopRef,
    keep_unit_loops: bool = False,
    multiples: tuple[int, ...] = (),
) -> Func:
    """Move a block into a loop of its consumers, to compute what one iteration needs.

    New serial loops, one per axis of the block in the order of its axes, cover what is needed;
    an axis with only one needed value gets no loop, unless ``keep_unit_loops``. A predicate masks
    points outside the block's domain. Elements needed in several iterations are recomputed.
    ``multiples``, one per axis, round up the extents that are computed.

    For a buffer that threads of a GPU share, the block computes what all of them need (see
    ``shared_loop_vars``).

    Refused:
        - a loop that is not around every consumer of the block: ``compute_inline`` serves several
        - an output of the function that would no longer be written completely
        - a block that runs after the loop, or is in it already
        - a reduction whose init is another block

    Example:
        sch = product()
        i, j = sch.get_loops("D")
        sch.compute_at("C", i)
    """
    asked = f"compute block `{block.name}` at loop `{named(func, loop)}`"
    path, target = find_block(func, block, asked), find_loop(func, loop, asked)
    node = block_of(path)
    require(
        func,
        asked,
        not_opaque((path,)),
        computes_once(node),
        sole_writer(func, node),
        _consumers_inside(func, path, target),
        _guards_last(path),
        _one_per_axis(node, multiples),
        depth_allows(target, len(node.axes)),
    )
    users = consumers(func, node)
    domain = rounded_domain(node, needed_domain(node, users, target), multiples)
    moved = regenerate(node, domain, keep_unit_loops, lasting_guards(path) or ())
    first = _first_child(target, users)
    new = edit(func, [(path, lambda _: None), (first, lambda s: seq(moved, s))])
    index = nest(new)
    here = index.blocks[node.name]
    feeders = [index.blocks[n] for r in node.reads for n in index.writers.get(r.buffer, ())]
    users = tuple(index.blocks[block_of(u).name] for u in users)
    require(
        func,
        asked,
        _outputs_whole(new, here),
        self_contained(new, _distinct((*feeders, here, *users))),
        check_loop_kinds(new, (*feeders, here, *users)),
    )
    return new


def _one_per_axis(block: Block, multiples: Sequence[int]) -> Reason | None:
    if not multiples or (len(multiples) == len(block.axes) and all(c > 0 for c in multiples)):
        return None
    return Reason(
        f"block `{block.name}` takes {len(block.axes)} positive multiples",
        (block,),
        hint=f"give one for each of the {len(block.axes)} axes, in order",
    )


def _outputs_whole(func: Func, path: Path) -> Reason | None:
    """Require that a moved block still writes every element of the function's outputs."""
    for r in block_of(path).writes:
        if r.buffer in func.params:
            box = writes_box(path, 0, r)
            shape = r.buffer.shape
            if box is None or any(x != whole(n) for x, n in zip(box, shape, strict=True)):
                return not_an_output(func, block_of(path))
    return None


def _guards_last(path: Path) -> Reason | None:
    if lasting_guards(path) is not None:
        return None
    block = block_of(path)
    return Reason(
        f"the guard of block `{block.name}` cannot be kept under other loops",
        (block,),
        hint="move it before it is guarded: compute_at first, then split",
    )


def _distinct(paths: Sequence[Path]) -> list[Path]:
    return list({id(p[-1]): p for p in paths}.values())


def _consumers_inside(func: Func, path: Path, target: Path) -> Reason | None:
    block, loop = block_of(path), loop_of(target)
    if contains(path, loop):
        return Reason(
            f"the block is already inside loop `{named(func, loop)}`",
            (loop, block),
            hint="choose a loop of its consumers that is not around it",
        )
    users = consumers(func, block)
    outside = [u for u in users if not contains(u, loop)]
    if not users or len(outside) == len(users):
        return Reason(
            f"loop `{named(func, loop)}` is not around a consumer of `{block.name}`",
            (block, loop),
            hint=_loops_around(users),
        )
    if outside:
        return Reason(
            f"its consumer `{block_of(outside[0]).name}` is outside loop `{named(func, loop)}`",
            (block, loop, block_of(outside[0])),
            hint=_loops_around(users),
        )
    if not is_before(path, target):
        return Reason(
            f"loop `{named(func, loop)}` runs before the block",
            (loop, block),
            hint="choose a loop that comes after it",
        )
    return None


def _loops_around(users: Sequence[Path]) -> str:
    if not users:
        return "nothing reads what the block writes"
    shared = [x for x in loops_of(users[0]) if all(contains(u, x) for u in users)]
    names = ", ".join(f"`{called(x)}`" for x in shared)
    if not names:
        return "compute_inline inlines it into each of its consumers"
    return f"loops around all its consumers: {names}"


def _first_child(target: Path, users: Sequence[Path]) -> Path:
    """Return the path of the first statement in the target's body that contains a user."""
    depth = len(target)
    body = loop_of(target).body
    if not isinstance(body, Seq):
        return (*target, body)
    kids = {id(u[depth + 1]) for u in users}
    child = next(s for s in body.stmts if id(s) in kids)
    return (*target, body, child)


@primitive
def reverse_compute_at(
    func: Func, block: BlockRef, loop: LoopRef, keep_unit_loops: bool = False
) -> Func:
    """Move a block into a loop of its producer, after it, to consume what one iteration writes.

    The block's axes that index what the producer writes cover what one iteration wrote; the
    others have their whole extent.

    Refused:
        - a reduction loop of the producer: the result is not final there
        - a loop that is not around a producer of the block, or already around the block
        - a producer that does not write a box of the block's domain in one iteration

    Example:
        sch = product()
        i, j, k = sch.get_loops("C")
        sch.reverse_compute_at("D", i)
    """
    asked = f"compute block `{block.name}` after its producer at loop `{named(func, loop)}`"
    path, target = find_block(func, block, asked), find_loop(func, loop, asked)
    node, host = block_of(path), loop_of(target)
    feeders = producers(func, node)
    inside = [p for p in feeders if contains(p, host)]
    require(
        func,
        asked,
        not_opaque((path,)),
        computes_once(node),
        sole_writer(func, node),
        _after_producer(path, target, feeders),
        _guards_last(path),
        _finished(inside, target, path),
        depth_allows(target, len(node.axes)),
    )
    domain = obtain(func, asked, provided_domain(func, node, inside, len(target)))
    moved = regenerate(node, domain, keep_unit_loops, lasting_guards(path) or ())
    last = _last_child(target, inside)
    new = edit(func, [(path, lambda _: None), (last, lambda s: seq(s, moved))])
    index = nest(new)
    here = index.blocks[node.name]
    again = [index.blocks[block_of(p).name] for p in feeders]
    users = [index.blocks[block_of(u).name] for u in consumers(func, node)]
    require(
        func,
        asked,
        self_contained(new, _distinct((*again, here, *users))),
        sound_order(block_of(here), loops_of(here)),
        check_loop_kinds(new, (*again, here, *users)),
    )
    return new


def _loops_of(feeders: Sequence[Path]) -> str:
    if not feeders:
        return "no block writes what this one reads"
    names = dict.fromkeys(f"`{called(x)}`" for p in feeders for x in loops_of(p))
    return f"loops around its producers: {', '.join(names) or 'none'}"


def _after_producer(path: Path, target: Path, feeders: Sequence[Path]) -> Reason | None:
    block, loop = block_of(path), loop_of(target)
    inside = [p for p in feeders if contains(p, loop)]
    if contains(path, loop):
        return Reason(
            f"the block is already inside loop `{called(loop)}`",
            (loop, block),
            hint="choose a loop of its producer that is not around it",
        )
    if not inside:
        return Reason(
            f"loop `{called(loop)}` is not around a producer of `{block.name}`",
            (loop, block),
            hint=_loops_of(feeders),
        )
    if not is_before(target, path):
        return Reason(
            f"loop `{called(loop)}` runs after the block",
            (loop, block),
            hint="choose a loop that comes before it",
        )
    return None


def _finished(inside: Sequence[Path], target: Path, path: Path) -> Reason | None:
    """Require that the producers' results are final after each iteration of the target loop."""
    for producer in inside:
        block = block_of(producer)
        reduce = bound_vars(block, AxisKind.REDUCE)
        for loop in loops_of(target):
            if loop.var in reduce and extent_of(loop) != 1 and not contains(path, loop):
                return Reason(
                    f"loop `{called(loop)}` is a reduction loop of `{block.name}`: there the "
                    "result is not final",
                    (loop, block, path[-1]),
                    hint=f"move it to a loop outside `{called(loop)}`, or reorder first",
                )
    return None


def _last_child(target: Path, inside: Sequence[Path]) -> Path:
    depth = len(target)
    body = loop_of(target).body
    if not isinstance(body, Seq):
        return (*target, body)
    kids = {id(p[depth + 1]) for p in inside}
    child = [s for s in body.stmts if id(s) in kids][-1]
    return (*target, body, child)
