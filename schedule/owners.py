"""Ownership of buffer elements by threads, derived from the indices of all accesses.

Each access has an index that is a sum of digits. If all accesses to a buffer have the digits of a
thread index at the same place of the element's index, the element is owned by one thread: no other
accesses it. Loops are identified by position, not by name, so that nests of the same shape agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import gcd
from typing import TypeAlias

from ..ir.loop.build import as_int
from ..ir.loop.nodes import THREADS, AxisKind, Block, Buffer, Expr, For, Kind, Region, Var
from ..ir.loop.visit import free_vars, substitute_expr
from .bindings import Digit, Sum, Term, determined, parse
from .cursor import Path, block_of, extent_of, loops_of, reaches_of
from .footprint import axis_values
from .legality import bound_vars

Place: TypeAlias = tuple[int, int, int, Digit]
"""``index[dimension] // scale - shift`` is the digit, up to multiples of a modulus."""

INDEX_VARS: Mapping[str, Var] = {name: Var(name) for name in THREADS}


def thread_loops(path: Path) -> dict[str, For]:
    """Return the innermost loop over each thread index on a path, the one that is in effect."""
    return {x.thread: x for x in loops_of(path) if x.kind is Kind.THREAD}


def writing_loops(path: Path) -> dict[str, For]:
    """Return ``thread_loops`` without shared reductions, of which every thread has the result."""
    over = bound_vars(block_of(path), AxisKind.REDUCE)
    return {name: x for name, x in thread_loops(path).items() if x.var not in over}


def depends(block: Block, var: Var) -> bool:
    """True if the axes or the predicate of the block depend on a loop variable."""
    exprs = [a.value for a in block.axes] + ([] if block.predicate is None else [block.predicate])
    return any(var in free_vars(e) for e in exprs)


def owned(paths: Sequence[Path], buffer: Buffer) -> frozenset[str]:
    """Return the thread indices that an element's index determines, in all accesses to it."""
    extents = dict.fromkeys(INDEX_VARS.values(), 1)
    for path in paths:
        for name, x in thread_loops(path).items():
            v = INDEX_VARS[name]
            extents[v] = max(extents[v], extent_of(x) or 1)
    common: dict[Place, int] | None = None
    for path in paths:
        by = _standins(path, extents)
        block = block_of(path)
        for r in (*block.reads, *block.writes):
            if r.buffer is buffer:
                here = _places(block, r, by, extents)
                common = here if common is None else _agreed(common, here)
    facts = [d for (_, _, _, d), m in (common or {}).items() if m == 0 or m >= d.size]
    known = determined([Sum(((d, 1),)) for d in facts], extents)
    return frozenset(name for name, v in INDEX_VARS.items() if v in known)


def _standins(path: Path, extents: dict[Var, int]) -> dict[Var, Expr]:
    """Map the loops on a path to variables that are the same for paths of the same shape."""
    inner, loops = thread_loops(path), loops_of(path)
    reaches = reaches_of(loops)
    by: dict[Var, Expr] = {}
    for n, x in enumerate(x for x in loops if inner.get(x.thread) is not x):
        size = reaches.get(x.var)
        if size is not None:
            v = _standin(n, size)
            extents[v] = size
            by[x.var] = v
    by.update((x.var, INDEX_VARS[name]) for name, x in inner.items())
    return by


@lru_cache(maxsize=1024)
def _standin(depth: int, extent: int) -> Var:
    return Var(f"loop{depth}_{extent}")


def _places(
    block: Block, region: Region, by: Mapping[Var, Expr], extents: Mapping[Var, int]
) -> dict[Place, int]:
    """Return the places of the digits in an access's index, with their moduli (0 for none)."""
    values = axis_values(block)
    found: dict[Place, int] = {}
    for dim, r in enumerate(region.ranges):
        length = as_int(r.extent)
        form = parse(substitute_expr(substitute_expr(r.start, values), by), extents)
        if form is None or length is None:
            continue
        terms = sorted(form.terms, key=lambda t: t[1])
        if any(k < 0 for _, k in terms):
            continue
        reach = length - 1
        for n, (digit, k) in enumerate(terms):
            shift, low = divmod(form.constant, k)
            modulus = _modulus(terms[n + 1 :], k)
            if low + reach < k and modulus is not None:
                found[dim, k, shift, digit] = modulus
            reach += k * (digit.size - 1)
    return found


def _modulus(larger: Iterable[Term], k: int) -> int | None:
    """Return the gcd of the larger terms' scales in units of ``k``; None if there is none."""
    scales = [m for _, m in larger]
    if any(m % k for m in scales):
        return None
    return gcd(*(m // k for m in scales)) if scales else 0


def _agreed(a: Mapping[Place, int], b: Mapping[Place, int]) -> dict[Place, int]:
    return {place: gcd(m, b[place]) for place, m in a.items() if place in b}
