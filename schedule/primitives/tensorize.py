"""Replacing loops by a hardware intrinsic: tensorize."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...ir.loop.affine import Linear, linear, to_expr
from ...ir.loop.build import mul, var
from ...ir.loop.intrinsics import TABLE, misfit
from ...ir.loop.names import called
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
    Intrinsic,
    Load,
    Op,
    Range,
    Region,
    Store,
    Var,
)
from ...ir.loop.simplify import simplify
from ...ir.loop.visit import free_vars, loads_in, substitute_expr
from ..cursor import (
    LoopRef,
    Path,
    block_of,
    blocks_under,
    consumers,
    edit,
    extent_of,
    find_loop,
    loop_of,
    loops_of,
    named,
    ranges_of,
)
from ..declare import primitive
from ..errors import Reason, obtain, require
from ..legality import constant_extent, not_opaque, plain_loops
from ..stores import is_zero, single_store, update_of


@primitive
def tensorize(func: Func, loop: LoopRef, intrinsic: str) -> Func:
    """Replace the nest under a loop by a hardware intrinsic on boxes.

    ``for i: for j: C[i0 * 16 + i, j0 * 8 + j] = ...``  ->  ``name(C[i0 * 16 : + 16, ...])``. The
    loops from ``loop`` inward contain one block and cover exactly the box of the intrinsic. The
    block keeps its name; its axes count boxes. It must compute what the intrinsic computes.

    Refused:
        - a nest of several blocks, a block with a guard or an init, and loops of other extents
        - a block that computes something else, or has types or memory scopes that the hardware does
          not support
        - a loop inside one over ``threadIdx.x``, whose threads execute the intrinsic together

    Example:
        sch = tile()
        sch.cache_write("C", 0, "warp")
        init = sch.decompose_reduction("C", "i")
        sch.tensorize(sch.get_loops(init)[0], "zero_matrix")
    """
    asked = f"make loop `{named(func, loop)}` the intrinsic {intrinsic!r}"
    path = find_loop(func, loop, asked)
    below = blocks_under(path)
    inner = loops_of(below[0])[len(loops_of(path)) - 1 :] if len(below) == 1 else ()
    require(
        func,
        asked,
        _known(intrinsic),
        _one_block(path, below),
        plain_loops(inner),
        *(constant_extent(x) for x in inner),
        not_opaque(below),
        _outside_of_lanes(path, intrinsic),
    )
    block = block_of(below[0])
    require(func, asked, _unguarded(block))
    boxes = obtain(func, asked, _boxes(block, loops_of(below[0]), inner))
    call = obtain(func, asked, _call(func, block, boxes, intrinsic))
    wrong = misfit(call)
    why = f"block `{block.name}` does not fit: {wrong}"
    require(
        func,
        asked,
        Reason(
            why,
            (block,),
            hint="split by the intrinsic's extents; set_scope moves its operands",
        )
        if wrong
        else None,
    )
    done = replace(block, axes=boxes.axes, reads=call.reads, writes=call.writes, body=call)
    return edit(func, [(path, lambda _: done)])


def _known(name: str) -> Reason | None:
    row = TABLE.get(name)
    if row is not None and row.tile is not None:
        return None
    rows = (n for n, r in TABLE.items() if r.tile is not None)
    widths = (re.sub(r"(?<=^wgmma\.m64)n\d+", "n64..256", n) for n in rows)
    widths = (re.sub(r"(?<=^tcgen05\.m128)n\d+", "n16..256", n) for n in widths)
    have = ", ".join(dict.fromkeys(widths))
    return Reason(f"unknown intrinsic {name!r} for tiles", (), hint=f"known: {have}")


def _one_block(path: Path, below: Sequence[Path]) -> Reason | None:
    loop = loop_of(path)
    if len(below) == 1 and all(isinstance(s, For | Block) for s in below[0][len(path) - 1 :]):
        return None
    return Reason(
        f"loop `{called(loop)}` is not around one block alone",
        (loop,),
        hint="give a loop with nothing but loops and one block inside",
    )


def _outside_of_lanes(path: Path, intrinsic: str) -> Reason | None:
    row = TABLE.get(intrinsic)
    if row is not None and row.tile is not None and row.tile.threads == 1:
        return None
    for x in loops_of(path):
        if x.thread == "threadIdx.x":
            return Reason(
                f"loop `{called(x)}` is bound to threadIdx.x, whose threads execute this together",
                (x, loop_of(path)),
                hint="bind the loops over warps to threadIdx.y and threadIdx.z",
            )
    return None


def _unguarded(block: Block) -> Reason | None:
    if block.predicate is not None:
        return Reason(
            f"block `{block.name}` is guarded",
            (block,),
            hint="pad it: to_matmul takes multiples, and so does compute_at",
        )
    if block.init is not None:
        return Reason(
            f"block `{block.name}` has an init",
            (block,),
            hint="decompose_reduction makes it a block",
        )
    return None


@dataclass(frozen=True, slots=True)
class _Boxes:
    """Axes that count boxes, and the first element and extent in the box of each old axis."""

    axes: tuple[BlockAxis, ...]
    spans: Mapping[Var, tuple[Expr, int]]

    def region(self, buffer: Buffer, index: Sequence[Expr]) -> Region:
        """Return the box of a buffer that is accessed at an index over the old axes."""
        first = {v: start for v, (start, _) in self.spans.items()}
        extents = [max((self.spans[v][1] for v in self.wide(e)), default=1) for e in index]
        starts = [substitute_expr(e, first) for e in index]
        ranges = (Range(e, Const(n)) for e, n in zip(starts, extents, strict=True))
        return Region(buffer, tuple(ranges))

    def wide(self, e: Expr) -> list[Var]:
        """Return the axes of an index that have several values in a box."""
        return [v for v in free_vars(e) if v in self.spans and self.spans[v][1] > 1]

    def steps(self, e: Expr) -> bool:
        """True if an index steps by one along at most one such axis."""
        wide, form = self.wide(e), linear(e)
        return not wide or (
            len(wide) == 1
            and form.terms.get(wide[0]) == 1
            and not any(wide[0] in free_vars(t) for t in form.terms if t is not wide[0])
        )


def _boxes(block: Block, around: Sequence[For], inner: Sequence[For]) -> _Boxes | Reason:
    """Return the block's axes in units of the boxes that the inner loops cover.

    Each inner loop runs along one axis.
    """
    ranges = {v: (0, n - 1) for v, n in ranges_of(around).items()}
    mine = {x.var: extent_of(x) or 1 for x in inner}
    axes: list[BlockAxis] = []
    spans: dict[Var, tuple[Expr, int]] = {}
    used: list[Var] = []
    for a in block.axes:
        form = linear(simplify(a.value, ranges))
        own = [v for v in form.terms if isinstance(v, Var) and v in mine]
        rest = Linear({t: k for t, k in form.terms.items() if t not in own}, form.constant)
        n = mine[own[0]] if own else 1
        if len(own) > 1 or any(form.terms[v] != 1 for v in own) or not _is_invariant(rest, mine):
            return Reason(
                f"axis `{a.var.name}` of block `{block.name}` does not step by one loop's elements",
                (*inner, block),
                hint="split and reorder so that the loops inside step by one element",
            )
        if a.extent % n or any(k % n for k in (*rest.terms.values(), rest.constant)):
            return Reason(
                f"axis `{a.var.name}` of block `{block.name}` does not start at multiples of {n}",
                (*inner, block),
                hint="split its loop by the extent of the box",
            )
        count = Linear({t: k // n for t, k in rest.terms.items()}, rest.constant // n)
        v = var(a.var.name)
        axes.append(BlockAxis(v, a.extent // n, a.kind, to_expr(count)))
        spans[a.var] = mul(v, n), n
        used += own
    idle = [x for x in inner if mine[x.var] > 1 and used.count(x.var) != 1]
    if idle:
        why = f"loop `{called(idle[0])}` does not run along one axis of block `{block.name}`"
        return Reason(
            why,
            (idle[0], block),
            hint="split and reorder: each loop inside runs along one axis, one element a step",
        )
    return _Boxes(tuple(axes), spans)


def _is_invariant(form: Linear, inner: Mapping[Var, int]) -> bool:
    return all(free_vars(t).isdisjoint(inner) for t in form.terms)


def _call(func: Func, block: Block, boxes: _Boxes, name: str) -> Intrinsic | Reason:
    """Return the intrinsic on the block's boxes, if the block computes the same."""
    store, row = single_store(block), TABLE[name]
    if store is None:
        return Reason(
            f"block `{block.name}` does more than store one value",
            (block,),
            hint="an intrinsic stores one value per element of its box",
        )
    loads = [*loads_in(store.value)]
    at = [e for index in (store.index, *(x.index for x in loads)) for e in index]
    if not all(map(boxes.steps, at)):
        return Reason(
            f"block `{block.name}` does not access its buffers in boxes",
            (block,),
            hint="index them by the axes themselves, each at most once",
        )
    if row.matrix or row.group or row.product:
        return _product(block, boxes, store, name)
    assert row.tile is not None
    if not row.tile.signatures[0].reads:
        if is_zero(store.value):
            return Intrinsic(name, (boxes.region(store.buffer, store.index),))
        return Reason(
            f"block `{block.name}` does not store 0",
            (block,),
            hint="zero_matrix sets a tile to 0: decompose_reduction makes such a block",
        )
    return _copy(func, block, boxes, store, name)


def _copy(func: Func, block: Block, boxes: _Boxes, store: Store, name: str) -> Intrinsic | Reason:
    source = store.value
    if not isinstance(source, Load):
        return Reason(
            f"block `{block.name}` is not a copy",
            (block,),
            hint="cache_read and cache_write make copies",
        )
    order = [[e for e in index if boxes.wide(e)] for index in (store.index, source.index)]
    if order[0] != order[1]:
        return Reason(
            f"block `{block.name}` copies a box in another order",
            (block,),
            hint="give both buffers the same layout with transform_layout",
        )
    args: tuple[int, ...] = ()
    if name in _SIDES:
        transposed = _transposed(func, block, _SIDES[name])
        if transposed is None:
            return Reason(
                f"no matrix product takes `{store.buffer}` as its {_NAMES[_SIDES[name]]} operand",
                (block, *map(block_of, consumers(func, block))),
                hint="make the product of its consumer first: to_matmul, then tensorize that",
            )
        args = (transposed,)
    to, of = (boxes.region(x.buffer, x.index) for x in (store, source))
    return Intrinsic(name, (to,), (of,), args)


_SIDES = {"load_matrix_a": 0, "load_matrix_b": 1}
_NAMES = ("left", "right")


def _transposed(func: Func, block: Block, side: int) -> int | None:
    """Return 1 or 0: whether the products that read a block's buffer take it transposed.

    None if they do not take it as the operand of that side, or do not agree.
    """
    buffer, found = block.writes[0].buffer, set()
    for user in map(block_of, consumers(func, block)):
        match user.body:
            case Intrinsic(name=name, reads=(_, *operands), args=args) if TABLE[name].matrix:
                found.add(args[side] if operands[side].buffer is buffer else None)
            case _:
                operand = _operands(user)
                load = None if operand is None else operand[side]
                found.add(None if load is None or load[0].buffer is not buffer else load[1])
    return found.pop() if len(found) == 1 else None


def _operands(block: Block) -> tuple[tuple[Load, int], tuple[Load, int]] | None:
    """Return the factors of ``C[.., m, n] += a * b``, the one along m first.

    Each is paired with 1 if its index has k before m or n, else 0.
    """
    store = single_store(block)
    update = None if store is None else update_of(replace(block, body=store))
    if store is None or update is None or update.op != "add" or len(store.index) < 2:
        return None
    match update.term:
        case Op(name="multiply", args=(x, y)):
            factors = [f for e in (x, y) if (f := _factor(e, store.buffer)) is not None]
        case _:
            return None
    sides = []
    for row in store.index[-2:]:
        mine = [f for f in factors if row in f.index[-2:]]
        if len(factors) != 2 or len(mine) != 1 or not isinstance(row, Var):
            return None
        sides.append((mine[0], int(mine[0].index[-1] == row)))
    return None if sides[0][0] is sides[1][0] else (sides[0], sides[1])


def _factor(e: Expr, sums: Buffer) -> Load | None:
    """Return the load in a factor, under at most a conversion to the type of the sums."""
    if isinstance(e, Cast) and not e.bits and e.dtype == sums.dtype:
        e = e.value
    return e if isinstance(e, Load) and len(e.index) >= 2 else None


def _product(block: Block, boxes: _Boxes, store: Store, name: str) -> Intrinsic | Reason:
    operands = _operands(block)
    if operands is None:
        return Reason(
            f"block `{block.name}` is not an update C[.., m, n] += a * b of matrices",
            (block,),
            hint="to_matmul makes a sum of products one",
        )
    (a, a_transposed), (b, b_transposed) = operands
    depth = {x.index[-1 - transposed] for x, transposed in ((a, a_transposed), (b, b_transposed))}
    reduced = {x.var for x in block.axes if x.kind is AxisKind.REDUCE}
    if len(depth) != 1 or not reduced.issuperset(boxes.wide(next(iter(depth)))):
        return Reason(
            f"the operands of block `{block.name}` do not share their depth",
            (block,),
            hint="index both operands by one reduction axis, as to_matmul does",
        )
    c, left, right = (boxes.region(x.buffer, x.index) for x in (store, a, b))
    return Intrinsic(name, (c,), (c, left, right), (a_transposed, b_transposed))
