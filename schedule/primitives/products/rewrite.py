"""Replacing a sum by several blocks: what to_matmul, strassen, in_pieces and winograd share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ....ir.dtypes import DType
from ....ir.loop.build import floordiv, floormod, op, point, var
from ....ir.loop.nodes import (
    AxisKind,
    Block,
    BlockAxis,
    Buffer,
    Const,
    Expr,
    For,
    Func,
    Load,
    Region,
    Seq,
    Stmt,
    Store,
    Var,
)
from ....ir.loop.visit import lets, seq, substitute_expr
from ...cursor import Path, block_of, blocks_under, edit, fresh_name, loops_of
from ...domains import regenerate
from ...errors import Reason, require
from ...guards import lasting_guards
from ...legality import computes_once, not_opaque, plain_loops, sole_writer
from ...stores import is_zero, with_body


def check_replaceable(func: Func, asked: str, path: Path, arguments: Reason | None) -> None:
    """Require a sum from 0, under loops of its own, that no other block writes.

    ``arguments`` is the reason why the primitive's other arguments are invalid, if they are.
    """
    block = block_of(path)
    require(
        func,
        asked,
        not_opaque((path,)),
        computes_once(block),
        sole_writer(func, block),
        arguments,
        _begins_with_zero(block),
        _alone(path),
    )


def _begins_with_zero(block: Block) -> Reason | None:
    if isinstance(block.init, Store) and is_zero(block.init.value):
        return None
    return Reason(
        f"block `{block.name}` does not start from 0",
        (block,),
        hint="only a sum that begins with 0 can include padding",
    )


def _alone(path: Path) -> Reason | None:
    """Require that the block is under serial loops of its own that cover its whole domain."""
    block, loops = block_of(path), loops_of(path)
    shared = [p for p in blocks_under(_top(path)) if p[-1] is not block]
    if shared:
        other = block_of(shared[0])
        return Reason(
            f"block `{other.name}` is under the same loops",
            (loops[0], other, block),
            hint="do this before compute_at",
        )
    if lasting_guards(path) != ():
        return Reason(
            f"block `{block.name}` is guarded",
            (block,),
            hint="do this before a split whose factors do not divide the extent",
        )
    return plain_loops(loops)


def _top(path: Path) -> Path:
    """Return the path to the outermost loop around a block, or to the block if there is none."""
    return path[: 1 + next(n for n, s in enumerate(path) if isinstance(s, For | Block))]


def replaced(func: Func, path: Path, blocks: Sequence[Block]) -> Func:
    """Return the function with blocks in default order in place of a block and its loops.

    What they write becomes an intermediate buffer, if it is none and no parameter yet.
    """
    known = {*func.params, *func.allocs}
    made = dict.fromkeys(r.buffer for b in blocks for r in b.writes if r.buffer not in known)
    new = edit(func, [(_top(path), lambda _: seq(*(regenerate(b, {}) for b in blocks)))])
    return replace(new, allocs=(*func.allocs, *made))


def new_axis(name: str, extent: int, kind: AxisKind = AxisKind.SPATIAL) -> BlockAxis:
    """Return a new axis, not yet driven by a loop."""
    return BlockAxis(var(f"v{name}"), extent, kind, Const(0))


@dataclass(frozen=True, slots=True)
class Maker:
    """Makes the blocks that replace ``block``; ``asked`` is what errors say was asked."""

    func: Func
    asked: str
    block: Block

    def buffer(self, part: str, shape: Sequence[int], dtype: DType) -> Buffer:
        """Return a buffer named after the block and a part."""
        return Buffer(f"{self.block.name}_{part}", tuple(shape), dtype)

    def new(self, part: str, axes: Sequence[BlockAxis], write: Region, body: Stmt) -> Block:
        """Return a block named after the old one and a part; what it reads follows from it."""
        name = fresh_name(self.func, f"{self.block.name}_{part}")
        return with_body(
            self.func, self.asked, Block(name, tuple(axes), (), (write,), Seq(())), body
        )

    def updating(
        self, axes: Sequence[BlockAxis], own: Load, term: Expr, factors: Sequence[Load]
    ) -> Block:
        """Return the old block as a sum of other terms, from 0, into the element ``own``."""
        init = self.block.init
        assert isinstance(init, Store)
        return replace(
            self.block,
            axes=tuple(axes),
            reads=tuple(point(x.buffer, x.index) for x in (own, *factors)),
            writes=(point(own.buffer, own.index),),
            body=Store(own.buffer, own.index, op("add", own, term)),
            init=Store(own.buffer, own.index, init.value),
        )

    def copying(
        self,
        part: str,
        store: Store,
        source: Buffer,
        place: Callable[[Mapping[Var, Expr]], Sequence[Expr]],
    ) -> Block:
        """Return a block that copies ``source`` to where ``store`` is, over its spatial axes.

        ``place`` is the index in the source at given values of the old block's axes.
        """
        old = [a for a in self.block.axes if a.kind is AxisKind.SPATIAL]
        axes = tuple(replace(a, var=var(a.var.name), value=Const(0)) for a in old)
        by: dict[Var, Expr] = {a.var: Const(0) for a in self.block.axes}
        by |= {a.var: x.var for a, x in zip(old, axes, strict=True)}
        index = tuple(substitute_expr(e, by) for e in store.index)
        body = replace(store, index=index, value=Load(source, tuple(place(by))))
        return self.new(part, axes, point(store.buffer, index), body)


@dataclass(frozen=True, slots=True)
class Lets:
    """Values that statements use more than once, each under a name."""

    dtype: DType
    values: list[tuple[Var, Expr]] = field(default_factory=list)

    def name(self, value: Expr) -> Var:
        """Return a new variable that stands for a value."""
        self.values.append((var("t", self.dtype), value))
        return self.values[-1][0]

    def around(self, body: Stmt) -> Stmt:
        """Return a statement under the definitions of all names."""
        return lets(self.values, body)


def digits(number: Expr, extents: Sequence[int]) -> list[Expr]:
    """Return the digits of a number in the mixed radix ``extents``, the last one the fastest."""
    found: list[Expr] = []
    step = 1
    for n, extent in reversed([*enumerate(extents)]):
        digit = floordiv(number, step)
        found.insert(0, digit if n == 0 else floormod(digit, extent))
        step *= extent
    return found
