"""Expressions as graphs: equal ones become one object, and shared ones are bound by a ``Let``.

A tensor expression may use a value many times. As a tree it would grow exponentially; as a graph
it stays as small as its source. ``Interner`` keeps it small while it is built, ``bind`` turns
the graph into nested ``Let`` statements around a statement. Both are linear in the graph.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ..ir.dtypes import index as index_type
from ..ir.loop.nodes import Cast, Const, Expr, Load, Op, Stmt, Var
from ..ir.loop.visit import lets, map_expr

DEEP = 24  # levels of one expression; walkers downstream recurse once or more per level
LARGE_INDEX = 24  # nodes of index arithmetic that are worth a name


@dataclass(slots=True)
class Interner:
    """Equal expressions as one object, so that identity decides equality from then on."""

    _known: dict[Hashable, Expr] = field(default_factory=dict)
    _members: dict[int, Expr] = field(default_factory=dict)

    def intern(self, e: Expr) -> Expr:
        """Return the one object equal to ``e``; its children are interned as well."""
        if id(e) in self._members:
            return e
        e = map_expr(e, self.intern)
        one = self._known.setdefault(_key(e), e)
        self._members[id(one)] = one
        return one


def _key(e: Expr) -> Hashable:
    """Equality of nodes whose children are interned.

    Floats are equal if their bits are: 0.0 is apart from -0.0, and NaN from one of the other sign.
    """
    match e:
        case Var():
            return id(e)
        case Const(value=float() as value, dtype=dtype):
            return "const", struct.pack("<d", value), dtype
        case Const(value=value, dtype=dtype):
            return "const", repr(value), dtype
        case Op(name=name, args=args, dtype=dtype):
            return name, dtype, tuple(map(id, args))
        case Cast(value=value, dtype=dtype, bits=bits):
            return "cast", id(value), dtype, bits
        case Load(buffer=buffer, index=index):
            return "load", id(buffer), tuple(map(id, index))


def operands(e: Expr) -> tuple[Expr, ...]:
    """Return the child expressions of a node."""
    match e:
        case Op(args=args) | Load(index=args):
            return args
        case Cast(value=value):
            return (value,)
        case _:
            return ()


def postorder(roots: Sequence[Expr]) -> Iterator[Expr]:
    """Yield every node of a graph once, children first, without recursion: it may be deep."""
    seen: set[int] = set()
    stack = [(e, False) for e in reversed(roots)]
    while stack:
        e, done = stack.pop()
        if done:
            yield e
        elif id(e) not in seen:
            seen.add(id(e))
            stack.append((e, True))
            stack.extend((x, False) for x in reversed(operands(e)))


@dataclass(frozen=True, slots=True)
class _Weight:
    """``plain``: index arithmetic over variables. ``size`` counts nodes, ``depth`` levels."""

    plain: bool
    size: int
    depth: int


def _weigh(e: Expr, parts: Sequence[_Weight]) -> _Weight:
    plain = all(p.plain for p in parts) and (
        isinstance(e, Var | Const) or (isinstance(e, Op) and e.dtype == index_type)
    )
    depth = 1 + max((p.depth for p in parts), default=-1)
    return _Weight(plain, 1 + sum(p.size for p in parts), depth)


def _worth_naming(e: Expr, weight: _Weight, shared: bool) -> bool:
    """True if a node gets a name: shared work and nodes too deep do, small indices do not."""
    if weight.plain:
        return shared and weight.size > LARGE_INDEX
    match e:
        case Load(index=index):
            simple = weight.size <= 1 + LARGE_INDEX * len(index) and weight.depth <= 1 + DEEP // 2
            data_dependent = any(not _is_index(i) for i in index)
            return shared and (data_dependent or not simple)
        case Cast(value=Load()):
            return False
        case _:
            return shared or weight.depth >= DEEP


def _is_index(e: Expr) -> bool:
    return all(
        isinstance(x, Var | Const) or (isinstance(x, Op) and x.dtype == index_type)
        for x in postorder((e,))
    )


def replace_vars(roots: Sequence[Expr], by: Mapping[Var, Expr]) -> list[Expr]:
    """Return the graph with variables replaced; what is shared stays shared."""
    new: dict[int, Expr] = {}
    for e in postorder(roots):
        new[id(e)] = by.get(e, e) if isinstance(e, Var) else map_expr(e, lambda x: new[id(x)])
    return [new[id(r)] for r in roots]


def bind(values: Sequence[Expr], use: Callable[[tuple[Expr, ...]], Stmt]) -> Stmt:
    """Return ``use(values)`` with a ``Let`` around it for each subexpression used repeatedly."""
    nodes = list(postorder(values))
    uses = dict.fromkeys(map(id, nodes), 0)
    for e in (*(x for n in nodes for x in operands(n)), *values):
        uses[id(e)] += 1
    new: dict[int, Expr] = {}
    weights: dict[int, _Weight] = {}
    names: list[tuple[Var, Expr]] = []
    for e in nodes:
        weight = _weigh(e, [weights[id(x)] for x in operands(e)])
        rebuilt = map_expr(e, lambda x: new[id(x)])
        if _worth_naming(e, weight, uses[id(e)] > 1):
            name = Var(f"t{len(names)}", e.dtype)
            names.append((name, rebuilt))
            rebuilt, weight = name, _Weight(plain=False, size=1, depth=0)
        new[id(e)], weights[id(e)] = rebuilt, weight
    return lets(names, use(tuple(new[id(v)] for v in values)))
