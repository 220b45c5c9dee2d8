"""Combiners of reductions: how two partial results become one, so that threads can share the work.

A reduction block updates its elements term by term. If its update is a monoid's operation, each
thread can start from the identity, take some of the terms, and have its partial result combined
with the others. A single commutative operation of the table is known to be a monoid's. Any other
update, such as the pairs of an argmax, is rewritten as an operation on (left, right) and tested on
many values. NaN is excluded if it makes a difference how terms are grouped: a reduction of NaN has
always depended on that. Else terms with NaN are reordered only if that makes none either.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, permutations, product
from typing import Any

import numpy as np

from ..ir.accuracy import tolerance
from ..ir.conversion import convert
from ..ir.dtypes import to_numpy
from ..ir.elementwise import TABLE, identity
from ..ir.loop.build import op
from ..ir.loop.interp.scalar import constant
from ..ir.loop.nodes import Block, Buffer, Cast, Const, Expr, Let, Load, Op, Seq, Stmt, Store, Var
from ..ir.loop.visit import loads_in, map_expr, seq, substitute_expr, walk_expr
from .stores import update_of

MAX_NODES = 2000
MAX_VALUES = 4  # accumulators of one reduction
MAX_CASES = 50_000
SAMPLES = (-2, -1, 0, 1, 3)


@dataclass(frozen=True, slots=True)
class Combiner:
    """``acc = combined(left=acc, right=terms)``, where ``acc`` is one element of each buffer.

    A partial result starts as ``neutral``; ``starts`` is what the init stores, and the result is
    ``combined(left=starts, right=partial)``. If ``commutes``, the terms may be reordered.
    """

    buffers: tuple[Buffer, ...]
    index: tuple[Expr, ...]
    left: tuple[Var, ...]
    right: tuple[Var, ...]
    combined: tuple[Expr, ...]
    terms: tuple[Expr, ...]
    starts: tuple[Expr, ...]
    neutral: tuple[Expr, ...]
    commutes: bool


@lru_cache(maxsize=256)
def combiner_of(block: Block) -> Combiner | None:
    """Return the combiner of a reduction block with an init; None if it is unknown."""
    if block.init is None:
        return None
    starts = _stores(block.init, {})
    if starts is None:
        return None
    simple = update_of(block)
    return _simple(block, starts) if simple is not None else _general(block, starts)


def _simple(block: Block, starts: Sequence[Store]) -> Combiner | None:
    update = update_of(block)
    stores = _stores(block.body, {})
    if update is None or stores is None or len(stores) != 1 or len(starts) != 1:
        return None
    name, store = update.op, stores[0]
    assert isinstance(store.value, Op)
    own = Load(store.buffer, store.index)
    term = next((a for a in store.value.args if a != own), None)
    if term is None or starts[0].buffer is not store.buffer or starts[0].index != store.index:
        return None
    return by_operation(name, store, term, starts[0].value)


def by_operation(name: str, store: Store, term: Expr, start: Expr) -> Combiner:
    """Return the combiner of ``B[i] = op(B[i], term)``, where ``B[i]`` begins with ``start``."""
    dtype = store.buffer.dtype
    zero = identity(name, dtype)
    left, right = Var("left", dtype), Var("right", dtype)
    return Combiner(
        buffers=(store.buffer,),
        index=store.index,
        left=(left,),
        right=(right,),
        combined=(op(name, left, right),),
        terms=(term,),
        starts=(start,),
        neutral=(Const(float(zero) if dtype.is_float else zero, dtype),),
        commutes=True,
    )


def _general(block: Block, starts: Sequence[Store]) -> Combiner | None:
    stores = _stores(block.body, {})
    if stores is None or not 1 <= len(stores) <= MAX_VALUES:
        return None
    index, buffers = stores[0].index, tuple(s.buffer for s in stores)
    first = {s.buffer: s for s in starts}
    same = all(s.index == index for s in (*stores, *starts))
    if not same or len({*buffers}) < len(buffers) or first.keys() != {*buffers}:
        return None
    left = tuple(Var(f"left{n}", b.dtype) for n, b in enumerate(buffers))
    of = {Load(b, index): v for b, v in zip(buffers, left, strict=True)}
    values = tuple(_replaced(s.value, of) for s in stores)
    if any(x.buffer in first for v in values for x in loads_in(v)):
        return None  # it also reads another element
    right = tuple(Var(f"right{n}", b.dtype) for n, b in enumerate(buffers))
    begin = tuple(first[b].value for b in buffers)
    for terms, combined in (*_apart(values, left, right), *_together(values, left, right)):
        commutes = _monoid(left, right, combined, begin)
        if commutes is not None:
            return Combiner(
                buffers=buffers,
                index=index,
                left=left,
                right=right,
                combined=combined,
                terms=terms,
                starts=begin,
                neutral=begin,
                commutes=commutes,
            )
    return None


def _stores(s: Stmt, names: Mapping[Var, Expr]) -> list[Store] | None:
    """Return the stores of a body with its ``Let``s substituted; None for any other body.

    No store's value depends on an earlier store.
    """
    match s:
        case Let(var=var, value=value, body=body):
            value = substitute_expr(value, names)
            if sum(1 for _ in walk_expr(value)) > MAX_NODES:
                return None
            return _stores(body, {**names, var: value})
        case Store(index=index, value=value):
            at = tuple(substitute_expr(e, names) for e in index)
            return [Store(s.buffer, at, substitute_expr(value, names))]
        case Seq(stmts=stmts) if all(isinstance(x, Store) for x in stmts):
            plain = [x for x in stmts if isinstance(x, Store)]
            written = {x.buffer for x in plain}
            for x in plain:
                loads = [*loads_in(x.value)]
                if any(y.buffer in written for y in loads):
                    return None  # an earlier store may have overwritten it
            found = [_stores(x, names) for x in plain]
            return [y for part in found if part is not None for y in part]
        case _:
            return None


def _replaced(e: Expr, by: Mapping[Any, Var]) -> Expr:
    if e in by:
        return by[e]
    return map_expr(e, lambda x: _replaced(x, by))


def _apart(
    values: Sequence[Expr], left: Sequence[Var], right: Sequence[Var]
) -> Iterator[tuple[tuple[Expr, ...], tuple[Expr, ...]]]:
    """Yield the terms of values that each depend on their own accumulator, and the values of them.

    They may use the same elements: a sum of x beside a maximum of x, or a sum of squares.
    """
    terms: list[Expr] = []
    for v, own in zip(values, left, strict=True):
        used = {x for x in walk_expr(v) if x in left}
        found: dict[Expr, None] = {}
        _without(v, frozenset({own}), found)
        if used != {own} or [e.dtype for e in found] != [own.dtype]:
            return
        terms += found
    some = zip(values, terms, right, strict=True)
    yield tuple(terms), tuple(_replaced(v, {term: r}) for v, term, r in some)


def _together(
    values: Sequence[Expr], left: Sequence[Var], right: Sequence[Var]
) -> Iterator[tuple[tuple[Expr, ...], tuple[Expr, ...]]]:
    """Yield the ways to assign one term, free of accumulators, to each of the values, and the
    values of these terms.
    """
    for terms in _terms(values, left):
        whole = dict(zip(terms, right, strict=True))
        yield terms, tuple(_replaced(v, whole) for v in values)


def _terms(values: Sequence[Expr], left: Sequence[Var]) -> Iterator[tuple[Expr, ...]]:
    """Yield the ways to assign one term, free of accumulators, to each of the values."""
    found: dict[Expr, None] = {}
    for v in values:
        _without(v, frozenset(left), found)
    atoms = [e for e in found if not _made_of(e, [x for x in found if x is not e])]
    if len(atoms) > len(left):
        return
    fixed = {x: None for v in values for x in walk_expr(v) if isinstance(x, Const)}
    for others in combinations(fixed, len(left) - len(atoms)):  # as the 1 by which elements count
        for some in permutations((*atoms, *others)):
            if all(e.dtype == v.dtype for e, v in zip(some, left, strict=True)):
                yield some


def _without(e: Expr, left: frozenset[Var], found: dict[Expr, None]) -> bool:
    """True if ``e`` uses none of ``left``; else its largest parts that do not go to ``found``."""
    if isinstance(e, Var | Const | Load):
        return e not in left
    parts = e.args if isinstance(e, Op) else (e.value,)
    free = [p for p in parts if _without(p, left, found)]
    if len(free) == len(parts):
        return True
    found.update((p, None) for p in free if not isinstance(p, Const))
    return False


def _made_of(e: Expr, others: Sequence[Expr]) -> bool:
    """True if ``e`` can be computed from ``others`` and constants."""
    if e in others or isinstance(e, Const):
        return True
    if isinstance(e, Var | Load):
        return False
    parts = e.args if isinstance(e, Op) else (e.value,)
    return all(_made_of(p, others) for p in parts)


def combined_stores(
    c: Combiner,
    left: Sequence[Expr],
    right: Sequence[Expr],
    places: Sequence[tuple[Buffer, tuple[Expr, ...]]],
) -> Stmt:
    """Stores of what two groups of values combine to; all are read before any is written."""
    if len(places) == 1:
        by = dict(zip((*c.left, *c.right), (*left, *right), strict=True))
        return Store(*places[0], substitute_expr(c.combined[0], by))
    names = {v: Var(v.name, v.dtype) for v in (*c.left, *c.right)}
    results = [Var(f"{b.name}_new", b.dtype) for b, _ in places]
    body: Stmt = seq(*(Store(b, at, v) for (b, at), v in zip(places, results, strict=True)))
    for v, e in reversed([*zip(results, c.combined, strict=True)]):
        body = Let(v, substitute_expr(e, dict(names)), body)
    for v, e in reversed([*zip((*c.left, *c.right), (*left, *right), strict=True)]):
        body = Let(names[v], e, body)
    return body


# Testing an operation on sample values.


def _monoid(
    left: Sequence[Var], right: Sequence[Var], combined: Sequence[Expr], begin: Sequence[Expr]
) -> bool | None:
    """True if the operation commutes; None unless it is associative and its start is neutral.

    The start need only be neutral to results that it is already part of: an argmax starts at
    index 0.
    """
    if not all(isinstance(e, Const) for e in begin):
        return None
    start = [e.value for e in begin if isinstance(e, Const)]

    def join(a: Sequence[Any], b: Sequence[Any]) -> list[Any]:
        env = dict(zip((*left, *right), (*a, *b), strict=True))
        return [_value(e, env) for e in combined]

    zero = [np.asarray(constant(s, v.dtype))[None] for s, v in zip(start, left, strict=True)]

    def triples(*floats: float) -> list[list[Any]]:
        cases = _cases(left, start, floats)
        return [join(zero, [x[:, k] for x in cases]) for k in range(3)]

    def associates(a: Sequence[Any], b: Sequence[Any], c: Sequence[Any], nan: bool) -> bool:
        return _same(join(join(a, b), c), join(a, join(b, c)), left, nan)

    with np.errstate(all="ignore"):
        a, b, c = triples()
        fine = (
            associates(a, b, c, False)
            and _same(join(zero, zero), zero, left)
            and _same(join(zero, a), a, left)
            and _same(join(a, zero), a, left)
        )
        if not fine:
            return None
        x, y, z = triples(math.nan)
        if associates(x, y, z, True):  # the first of several NaN may decide what is beside it
            a, b = x, y
        return _same(join(a, b), join(b, a), left, nan=True)


def _cases(left: Sequence[Var], start: Sequence[Any], floats: Sequence[float]) -> list[Any]:
    """Return three columns of samples per value: all triples of combinations, or a random set.

    ``floats`` are among the samples of values of a floating-point type.
    """
    pools = []
    for v, s in zip(left, start, strict=True):
        some = (False, True) if v.dtype.kind == "pred" else (*SAMPLES, s)
        some = (*some, *floats) if v.dtype.is_float else some
        kind = to_numpy(v.dtype)
        low = 0 if v.dtype.kind == "unsigned" else None
        pools.append(np.array([x if low is None else max(x, low) for x in some]).astype(kind))
    points = list(product(*(range(len(p)) for p in pools)))
    if len(points) ** 3 <= MAX_CASES:
        triples = np.array(list(product(range(len(points)), repeat=3)))
    else:
        triples = np.random.default_rng(0).integers(0, len(points), (MAX_CASES, 3))
    where = np.array(points)
    return [p[where[:, n]][triples] for n, p in enumerate(pools)]


def _same(a: Sequence[Any], b: Sequence[Any], like: Sequence[Var], nan: bool = False) -> bool:
    """True if values are equal, or near for floats; with ``nan``, NaN is equal to itself."""
    for x, y, v in zip(a, b, like, strict=True):
        if not v.dtype.is_float:
            if not np.array_equal(x, y):
                return False
            continue
        x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
        near = np.abs(x - y) <= tolerance(v.dtype) * np.maximum(np.abs(y), 1.0)
        if not np.all((x == y) | near | (nan & (x != x) & (y != y))):
            return False
    return True


def _value(e: Expr, env: Mapping[Var, Any]) -> Any:
    match e:
        case Var():
            return env[e]
        case Const(value=value, dtype=dtype):
            return np.asarray(constant(value, dtype)).astype(to_numpy(dtype))
        case Op(name=name, args=args):
            return TABLE[name].numpy(*np.broadcast_arrays(*(_value(a, env) for a in args)))
        case Cast(value=value, dtype=dtype, bits=bits):
            inner = np.asarray(_value(value, env))
            to = to_numpy(dtype)
            return inner.view(to) if bits else convert(inner, to)
        case Load():
            raise AssertionError("a combiner cannot load from buffers")
