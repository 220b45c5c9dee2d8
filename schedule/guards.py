"""Analysis of block predicates: tails of split loops, bounds on axes, restricted domains.

Splitting a loop or moving a block adds a predicate that keeps the block in range. When the loops
around a block are rebuilt, most of these predicates are rebuilt too; those that restrict the
block's own axes must be kept.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from ..ir.loop.build import FALSE, both, conjuncts
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
    """Return the predicate with the reduction loops (or those in ``over``) at 0.

    That is where an element is initialized. Returns the literal false if the predicate could fail
    there and hold later in the reduction. Conjuncts that always hold, given the loops'
    ``extents``, are dropped.
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
    """True if a condition is ``e < n`` with an ``e`` that is monotonic in the variables."""

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
    """Return the conjuncts of a block's predicate that restrict its axes, in terms of the axes.

    They must be kept when the loops around the block are rebuilt; the others only mask iterations
    beyond an axis. None if the two kinds cannot be told apart.
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
            continue  # it only masks repeated instances
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
    """Return the bounds in a block's predicate that involve only ``inner`` loops."""
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
    """True if the predicate masks only what ``digits`` account for, or elements never read.

    Conditions in ``given`` are assumed to hold. Elements beyond an axis of ``within`` are not read.
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
