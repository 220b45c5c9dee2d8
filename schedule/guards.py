"""What the predicate of a block says: tails of loops, limits of an axis, domains left.

Splits and moved blocks guard a block against running too far. Under other loops most of these
guards are made anew; those that say something about the block's own axes have to last.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from ..ir.loop.build import FALSE, both
from ..ir.loop.nodes import AxisKind, Block, Const, Expr, Op, Var
from ..ir.loop.simplify import prove, simplify
from ..ir.loop.visit import free_vars, map_expr, substitute_expr
from .bindings import (
    Digit,
    Limits,
    Mark,
    Source,
    Sum,
    limits_of,
    parse,
    source_variables,
    variables,
)
from .cursor import Path, block_of, loops_of, ranges_of


def starting_guard(
    block: Block, extents: Mapping[Var, int] | None = None, over: Collection[Var] | None = None
) -> Expr | None:
    """The predicate where the reduction loops (or those in ``over``) are at 0.

    There an element is initialised. The literal false when the guard might fail there and hold
    later in the reduction. What always holds, given the loops' ``extents``, is left out.
    """
    ranges = {v: (0, max(n - 1, 0)) for v, n in (extents or {}).items()}
    if over is None:
        values = [a.value for a in block.axes if a.kind is AxisKind.REDUCE]
        over = frozenset[Var]().union(*map(free_vars, values))
    if block.predicate is None or not over:
        return block.predicate
    parts: list[Expr | None] = []
    for c in conjuncts(block.predicate):
        if not free_vars(c).isdisjoint(over):
            if not _grows(c, over):
                return FALSE
            c = simplify(substitute_expr(c, dict.fromkeys(over, Const(0))), ranges)
        parts.append(c)
    return both(*parts)


def _grows(c: Expr, over: Collection[Var]) -> bool:
    """Whether a condition is ``e < n`` with an ``e`` that never falls as the variables grow."""

    def rises(e: Expr) -> bool:
        if free_vars(e).isdisjoint(over):
            return True
        match e:
            case Var():
                return True
            case Op(name="add", args=(a, b)):
                return rises(a) and rises(b)
            case Op(name="multiply" | "floordiv", args=(a, Const(value=int(k)))) if k >= 0:
                return rises(a)
            case _:
                return False

    return (
        isinstance(c, Op) and c.name == "lt" and isinstance(c.args[1], Const) and rises(c.args[0])
    )


def lasting_guards(path: Path) -> tuple[Expr, ...] | None:
    """The conjuncts of a block's predicate that say something about its axes, over the axes.

    They stay when the loops around the block are made anew; the others only cut what the loops
    ran too far. None if it cannot be told which is which.
    """
    block = block_of(path)
    if block.predicate is None:
        return ()
    own = {a.var: (0, max(a.extent - 1, 0)) for a in block.axes}
    extents = ranges_of(loops_of(path))
    limits = limits_of(block.predicate, extents)
    forms = [parse(a.value, extents, limits) for a in block.axes]
    sources = {s for f in forms if f is not None for d, _ in f.terms for s in _sources(d.source)}
    driving = frozenset[Var]().union(*(free_vars(a.value) for a in block.axes))
    kept = []
    for c in conjuncts(block.predicate):
        over = _over_axes(c, block)
        if free_vars(c).isdisjoint(driving):
            continue  # it only skips repetitions
        if free_vars(over) <= own.keys():
            if prove(over, own) is not True:
                kept.append(over)
        elif not _cuts_one_axis(c, extents, limits, sources):
            return None
    return tuple(kept)


def _over_axes(e: Expr, block: Block) -> Expr:
    for a in block.axes:
        if e == a.value and not isinstance(e, Const):
            return a.var
    return map_expr(e, lambda x: _over_axes(x, block))


def _cuts_one_axis(
    c: Expr, extents: Mapping[Var, int], limits: Limits, sources: Collection[Source]
) -> bool:
    match c:
        case Op(name="lt", args=(e, Const(value=int(n)))):
            smaller = {t: m for t, m in limits.items() if Mark(t, 0, m) != Mark(t, 0, n)}
            form = parse(e, extents, smaller)
            if form is None:
                return False
            return n > form.high() or Mark(form.terms, 0, n) in sources
        case _:
            return False


def inner_limits(block: Block, extents: Mapping[Var, int], inner: Collection[Var]) -> Limits:
    """What a block's predicate says about sums of inner loops only."""
    known = limits_of(block.predicate, extents)
    return {t: n for t, n in known.items() if variables(Sum(t)) <= set(inner)}


def tails_counted(
    block: Block,
    extents: Mapping[Var, int],
    limits: Limits,
    digits: Iterable[Digit],
    given: Collection[Expr],
    within: Collection[Var],
) -> bool:
    """Whether the predicate cuts only what the digits account for, or what nobody misses.

    Conditions that are ``given`` hold anyway. What lies off an axis of ``within`` is not read.
    """
    sources = {s for d in digits for s in _sources(d.source)}
    used = {v for s in sources for v in source_variables(s)}
    for terms, n in limits.items():
        idle = n > Sum(terms).high() or variables(Sum(terms)).isdisjoint(used)
        if not idle and Mark(terms, 0, n) not in sources:
            return False
    inner = {v for terms in limits for v in variables(Sum(terms))}
    kept = (a for a in block.axes if a.var in within)
    domain = {f: a.extent for a in kept if (f := parse(a.value, extents)) is not None}
    for c in conjuncts(block.predicate):
        match c:
            case _ if c in given:
                pass
            case Op(name="lt", args=(e, Const(value=int(n)))):
                form = parse(e, extents)
                if form is None or not (variables(form) <= inner or domain.get(form, n + 1) <= n):
                    return False
            case Op(name="ge", args=(e, Const(value=0))):
                if parse(e, extents) not in domain:
                    return False
            case _:
                return False
    return True


def _sources(source: Source) -> frozenset[Source]:
    if not isinstance(source, Mark):
        return frozenset((source,))
    return frozenset((source,)).union(*(_sources(d.source) for d, _ in source.terms))


def conjuncts(predicate: Expr | None) -> tuple[Expr, ...]:
    """The parts of a conjunction."""
    match predicate:
        case None:
            return ()
        case Op(name="and", args=(a, b)):
            return conjuncts(a) + conjuncts(b)
        case _:
            return (predicate,)
