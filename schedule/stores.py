"""Stores of blocks: the only one of a block, the update of a reduction, another body."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from ..ir.elementwise import TABLE
from ..ir.loop.nodes import (
    Block,
    Buffer,
    Const,
    Expr,
    Func,
    Let,
    Load,
    Op,
    Region,
    Stmt,
    Store,
    Var,
)
from ..ir.loop.regions import Spans, accesses, loop_ranges
from ..ir.loop.visit import exprs_under, loads_in, substitute_expr, walk_expr
from .errors import ScheduleError

MAX_NODES = 2000  # of one expression: primitives that inline would let it grow exponentially


def single_store(block: Block) -> Store | None:
    """Return a block's only store with its ``Let``s substituted; None for any other body.

    None also where a value would have more than ``MAX_NODES`` nodes.
    """
    return _store_under_lets(block.body, {})


def _store_under_lets(s: Stmt, by: Mapping[Var, Expr]) -> Store | None:
    match s:
        case Let(var=var, value=value, body=body):
            value = substitute_expr(value, by)
            if _size(value) > MAX_NODES:
                return None
            return _store_under_lets(body, {**by, var: value})
        case Store(index=index, value=value):
            at = tuple(substitute_expr(e, by) for e in index)
            return replace(s, index=at, value=substitute_expr(value, by))
        case _:
            return None


def _size(e: Expr) -> int:
    return sum(1 for _ in walk_expr(e))


class ReductionUpdate(NamedTuple):
    """The parts of ``B[i] = op(B[i], term)``, whose store may be under ``Let``s."""

    store: Store
    op: str
    term: Expr


def update_of(block: Block) -> ReductionUpdate | None:
    """Return the update of a reduction by a commutative operation; None for any other body.

    The term may name the block's ``Let``s: ``single_store`` has them substituted.
    """
    body = block.body
    while isinstance(body, Let):
        if any(r.buffer in _loaded(body.value) for r in block.writes):
            return None
        body = body.body
    if not isinstance(body, Store) or not isinstance(body.value, Op):
        return None
    value, own = body.value, Load(body.buffer, body.index)
    op = TABLE[value.name]
    if not (op.commutative and op.associative and len(value.args) == 2):
        return None
    a, b = value.args
    if b == own:
        a, b = b, a
    if a != own or body.buffer in _loaded(b):
        return None
    return ReductionUpdate(body, value.name, b)


def _loaded(e: Expr) -> frozenset[Buffer]:
    return frozenset(x.buffer for x in loads_in(e))


def is_zero(e: Expr) -> bool:
    """True if an expression is the literal 0, and not -0.0."""
    return isinstance(e, Const) and e.value == 0 and not str(e.value).startswith("-")


def with_body(func: Func, asked: str, block: Block, body: Stmt) -> Block:
    """Return a block with another body, and the reads of its init and that body.

    ScheduleError if the body is too large; ``func`` and ``asked`` are for its text.
    """
    if sum(1 for _ in exprs_under(body)) > 4 * MAX_NODES:
        raise ScheduleError(
            asked,
            "the result would be too large",
            nest=func,
            blame=(block,),
            hint="compute one of the blocks at a loop of its consumer instead",
        )
    ranges = {a.var: (0, max(a.extent - 1, 0)) for a in block.axes}
    found: dict[Region, None] = {}
    for s in (body,) if block.init is None else (block.init, body):
        spans = Spans(loop_ranges(s, ranges), ranges)
        found.update((spans.box(a.region), None) for a in accesses(s) if not a.write)
    return replace(block, body=body, reads=tuple(found))
