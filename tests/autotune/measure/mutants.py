"""Plants faults in scheduled loop IR: each kind is what a bug of a schedule or of lowering may do.

A fault is (kind, number): the number says at which statement. Not every mutant computes something
else; who plants has to find that out by other means (``judged``).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from nestwright.ir.dtypes import BY_NAME
from nestwright.ir.loop.build import add, both, compare, const, op, sub
from nestwright.ir.loop.nodes import (
    AxisKind,
    Block,
    Buffer,
    Cast,
    Const,
    Expr,
    For,
    Func,
    If,
    Kind,
    Load,
    Op,
    Stmt,
    Store,
)
from nestwright.ir.loop.visit import (
    free_vars,
    map_expr,
    map_stmt,
    seq,
    substitute,
    walk,
    walk_expr,
)

PRED = BY_NAME["pred"]
SWAPPED = {
    "add": "subtract",
    "subtract": "add",
    "multiply": "add",
    "divide": "multiply",
    "maximum": "minimum",
    "minimum": "maximum",
    "lt": "le",
    "le": "lt",
    "gt": "ge",
    "ge": "gt",
    "and": "or",
    "or": "and",
    "exponential": "exponential-minus-one",
    "sine": "cosine",
}


@dataclass(frozen=True)
class Fault:
    """A kind of fault at the ``site``-th statement of a function; ``seed`` decides the rest."""

    kind: str
    site: int
    seed: int


def faults(func: Func) -> list[tuple[str, int]]:
    """Every kind of fault that can be planted, with its place."""
    reduced = _reduced(func)
    found: list[tuple[str, int]] = []
    for n, s in enumerate(walk(func.body)):
        match s:
            case Block():
                if s.init is not None:
                    found += [("lost init", n), ("rounded to bf16", n), ("rounded to f16", n)]
                if s.predicate is not None:
                    found += [("lost predicate", n), ("predicate one short", n)]
                if any(a.kind is AxisKind.SPATIAL and a.extent > 1 for a in s.axes):
                    found += [("lost tail", n), ("element never written", n)]
            case For(extent=Const(value=int(e)), kind=kind) if e > 1 and not s.thread:
                found.append(("reduction one short" if s.var in reduced else "loop one short", n))
                if s.var in reduced and kind is Kind.SERIAL:
                    found += [("reduction in parallel", n), ("loop reversed", n)]
            case Store():
                found += _of_store(func, s, n)
    return found


def _of_store(func: Func, s: Store, n: int) -> list[tuple[str, int]]:
    found = [("input overwritten", n)] if len(func.params) > func.outputs else []
    if s.index:
        found += [("store shifted", n), ("write out of bounds", n)]
    parts = [e for e in walk_expr(s.value)]
    if any(isinstance(e, Op) and e.name in SWAPPED for e in parts):
        found.append(("operator swapped", n))
    if any(_changeable(e) for e in parts):
        found.append(("constant changed", n))
    loads = [e for e in parts if isinstance(e, Load) and e.index]
    if any(e.buffer is not s.buffer for e in loads):
        found += [("read shifted", n), ("read out of bounds", n)]
    if any(_turnable(e) for e in loads):
        found.append(("stride swapped", n))
    return found


def _reduced(func: Func) -> set[object]:
    blocks = [s for s in walk(func.body) if isinstance(s, Block)]
    axes = [a for b in blocks for a in b.axes if a.kind is AxisKind.REDUCE]
    return {v for a in axes for v in free_vars(a.value)}


def _changeable(e: Expr) -> bool:
    return (
        isinstance(e, Const)
        and isinstance(e.value, float)
        and e.value != 0
        and math.isfinite(e.value)
    )


def _turnable(e: Expr) -> bool:
    return isinstance(e, Load) and any(
        a == b and a > 1 for a, b in zip(e.buffer.shape, e.buffer.shape[1:], strict=False)
    )


def plant(func: Func, fault: Fault) -> Func:
    """The function with the fault. ``ValueError`` where the site has no room for it."""
    site = list(walk(func.body))[fault.site]
    made = _MAKERS[fault.kind](func, site, random.Random(fault.seed))
    if made is site:
        raise ValueError(f"{fault.kind} changes nothing here")

    def stmt(s: Stmt) -> Stmt:
        return made if s is site else map_stmt(s, stmt, lambda e: e)

    return replace(func, body=stmt(func.body))


Maker = Callable[[Func, "Stmt", random.Random], Stmt]


def _lost_init(func: Func, s: Stmt, r: random.Random) -> Stmt:
    assert isinstance(s, Block)
    return replace(s, init=None)


def _lost_predicate(func: Func, s: Stmt, r: random.Random) -> Stmt:
    assert isinstance(s, Block)
    return replace(s, predicate=None)


def _short_predicate(func: Func, s: Stmt, r: random.Random) -> Stmt:
    assert isinstance(s, Block) and s.predicate is not None

    def less(e: Expr) -> Expr:
        match e:
            case Const(value=int(v)) if not isinstance(v, bool) and v > 1:
                return replace(e, value=v - 1)
            case _:
                return map_expr(e, less)

    return replace(s, predicate=less(s.predicate))


def _guarded(s: Block, condition: Expr) -> Block:
    return replace(s, predicate=both(s.predicate, condition))


def _lost_tail(func: Func, s: Stmt, r: random.Random) -> Stmt:
    assert isinstance(s, Block)
    axes = [a for a in s.axes if a.kind is AxisKind.SPATIAL and a.extent > 1]
    kept: Expr = compare("lt", axes[0].value, axes[0].extent - 1)
    for a in axes[1:]:
        kept = Op("or", (kept, compare("lt", a.value, a.extent - 1)), PRED)
    return _guarded(s, kept)


def _one_element(func: Func, s: Stmt, r: random.Random) -> Stmt:
    assert isinstance(s, Block)
    axes = [a for a in s.axes if a.kind is AxisKind.SPATIAL and a.extent > 1]
    place = [compare("ne", a.value, r.randrange(a.extent)) for a in axes]
    kept: Expr = place[0]
    for p in place[1:]:
        kept = Op("or", (kept, p), PRED)
    return _guarded(s, kept)


def _shorter(func: Func, s: Stmt, r: random.Random) -> Stmt:
    assert isinstance(s, For) and isinstance(s.extent, Const)
    assert isinstance(s.extent.value, int)
    return replace(s, extent=const(s.extent.value - 1))


def _in_parallel(func: Func, s: Stmt, r: random.Random) -> Stmt:
    assert isinstance(s, For)
    return replace(s, kind=Kind.PARALLEL)


def _reversed(func: Func, s: Stmt, r: random.Random) -> Stmt:
    assert isinstance(s, For) and isinstance(s.extent, Const)
    assert isinstance(s.extent.value, int)
    return replace(s, body=substitute(s.body, {s.var: sub(s.extent.value - 1, s.var)}))


def _narrowed(name: str) -> Maker:
    def make(func: Func, s: Stmt, r: random.Random) -> Stmt:
        assert isinstance(s, Block)

        def stmt(x: Stmt) -> Stmt:
            if isinstance(x, Store) and x.buffer.dtype.name == "f32":
                return replace(x, value=Cast(Cast(x.value, BY_NAME[name]), x.buffer.dtype))
            return map_stmt(x, stmt, lambda e: e)

        return replace(s, body=stmt(s.body))

    return make


def _shifted(func: Func, s: Stmt, r: random.Random) -> Stmt:
    assert isinstance(s, Store)
    at = r.randrange(len(s.index))
    index = list(s.index)
    index[at] = add(index[at], r.choice((1, -1)))
    return replace(s, index=tuple(index))


def _beyond(func: Func, s: Stmt, r: random.Random) -> Stmt:
    """The last element is written once more, one place further."""
    assert isinstance(s, Store)
    last = [compare("eq", i, e - 1) for i, e in zip(s.index, s.buffer.shape, strict=True)]
    further = (*s.index[:-1], add(s.index[-1], 1))
    extra = If(both(*last) or compare("eq", 0, 0), replace(s, index=further))
    return seq(s, extra)


def _overwritten(func: Func, s: Stmt, r: random.Random) -> Stmt:
    target = r.choice(func.params[: len(func.params) - func.outputs])
    place = tuple(const(r.randrange(max(1, e))) for e in target.shape)
    if 0 in target.shape:
        return s
    return seq(s, Store(target, place, _number(target)))


def _number(b: Buffer) -> Const:
    match b.dtype.kind:
        case "pred":
            return const(True, b.dtype)
        case "float":
            return const(0.75, b.dtype)
        case _:
            return const(1, b.dtype)


def _one_op(func: Func, s: Stmt, r: random.Random) -> Stmt:
    assert isinstance(s, Store)
    chosen = r.choice([e for e in walk_expr(s.value) if isinstance(e, Op) and e.name in SWAPPED])
    return replace(s, value=_exchanged(s.value, chosen, replace(chosen, name=SWAPPED[chosen.name])))


def _one_constant(func: Func, s: Stmt, r: random.Random) -> Stmt:
    assert isinstance(s, Store)
    chosen = r.choice([e for e in walk_expr(s.value) if _changeable(e)])
    assert isinstance(chosen, Const) and isinstance(chosen.value, float)
    changed = replace(chosen, value=chosen.value * (1 + r.choice((1e-2, 1e-3, -3e-3))))
    return replace(s, value=_exchanged(s.value, chosen, changed))


def _exchanged(e: Expr, old: Expr, new: Expr) -> Expr:
    return new if e is old else map_expr(e, lambda x: _exchanged(x, old, new))


def _read(s: Store, r: random.Random) -> Load:
    loads = [e for e in walk_expr(s.value) if isinstance(e, Load) and e.index]
    chosen = r.choice([e for e in loads if e.buffer is not s.buffer])
    assert isinstance(chosen, Load)
    return chosen


def _read_shifted(func: Func, s: Stmt, r: random.Random) -> Stmt:
    assert isinstance(s, Store)
    load = _read(s, r)
    at = r.randrange(len(load.index))
    index = list(load.index)
    index[at] = add(index[at], r.choice((1, -1)))
    return replace(s, value=_exchanged(s.value, load, replace(load, index=tuple(index))))


def _read_beyond(func: Func, s: Stmt, r: random.Random) -> Stmt:
    """The element behind the last one is read too, in a way that seldom changes the result."""
    assert isinstance(s, Store)
    load = _read(s, r)
    further = replace(load, index=(*load.index[:-1], add(load.index[-1], 1)))
    if load.dtype.kind not in ("float", "signed", "unsigned"):
        return s
    less = op("minimum", load, further)
    return replace(s, value=_exchanged(s.value, load, op("maximum", load, less)))


def _turned(func: Func, s: Stmt, r: random.Random) -> Stmt:
    assert isinstance(s, Store)
    load = r.choice([e for e in walk_expr(s.value) if _turnable(e)])
    assert isinstance(load, Load)
    shape = load.buffer.shape
    k = r.choice([k for k in range(len(shape) - 1) if shape[k] == shape[k + 1] > 1])
    index = list(load.index)
    index[k], index[k + 1] = index[k + 1], index[k]
    return replace(s, value=_exchanged(s.value, load, replace(load, index=tuple(index))))


_MAKERS: dict[str, Maker] = {
    "lost init": _lost_init,
    "lost predicate": _lost_predicate,
    "predicate one short": _short_predicate,
    "lost tail": _lost_tail,
    "element never written": _one_element,
    "reduction one short": _shorter,
    "loop one short": _shorter,
    "reduction in parallel": _in_parallel,
    "loop reversed": _reversed,
    "rounded to bf16": _narrowed("bf16"),
    "rounded to f16": _narrowed("f16"),
    "store shifted": _shifted,
    "write out of bounds": _beyond,
    "input overwritten": _overwritten,
    "operator swapped": _one_op,
    "constant changed": _one_constant,
    "read shifted": _read_shifted,
    "read out of bounds": _read_beyond,
    "stride swapped": _turned,
}
KINDS = tuple(_MAKERS)
