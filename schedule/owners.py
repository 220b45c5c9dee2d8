"""Which thread touches which element: what the index of an element says about its thread.

Each access writes an index as a sum of digits. Where all accesses to a buffer find the digits of a
thread index at the same place of an element's index, the element belongs to one thread: whoever
touches it is that thread. Loops are told apart by where they stand, not by name, so that two nests
of the same shape say the same.
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
from .cursor import Path, block_of, extent_of, loops_of
from .footprint import axis_values
from .legality import bound_vars

Place: TypeAlias = tuple[int, int, int, Digit]
"""``index[dimension] // scale - shift`` is the digit, up to multiples of a modulus."""

INDEX_VARS: Mapping[str, Var] = {name: Var(name) for name in THREADS}


def thread_loops(path: Path) -> dict[str, For]:
    """The loop over each thread index that counts at the end of a path: the innermost."""
    return {x.thread: x for x in loops_of(path) if x.kind is Kind.THREAD}


def writing_loops(path: Path) -> dict[str, For]:
    """The same, of a block that writes: threads that share a reduction all have its result."""
    over = bound_vars(block_of(path), AxisKind.REDUCE)
    return {name: x for name, x in thread_loops(path).items() if x.var not in over}


def depends(block: Block, var: Var) -> bool:
    """Whether what an instance of the block does depends on a loop variable."""
    exprs = [a.value for a in block.axes] + ([] if block.predicate is None else [block.predicate])
    return any(var in free_vars(e) for e in exprs)


def owned(paths: Sequence[Path], buffer: Buffer) -> frozenset[str]:
    """The thread indices that an element of ``buffer`` determines, for all blocks that touch it."""
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
    """For the loops on a path, variables that are the same on other paths of the same shape."""
    inner = thread_loops(path)
    by: dict[Var, Expr] = {}
    for n, x in enumerate(x for x in loops_of(path) if inner.get(x.thread) is not x):
        size = extent_of(x)
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
    """Where an access has each digit of its index; the moduli, 0 for none."""
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
    """What the terms of larger scale are multiples of, in steps of ``k``; None if they are not."""
    scales = [m for _, m in larger]
    if any(m % k for m in scales):
        return None
    return gcd(*(m // k for m in scales)) if scales else 0


def _agreed(a: Mapping[Place, int], b: Mapping[Place, int]) -> dict[Place, int]:
    return {place: gcd(m, b[place]) for place, m in a.items() if place in b}
