"""Which iterations of a loop may run in another order: tests that are sufficient, never wrong."""

from __future__ import annotations

from collections import Counter

from .nodes import Buffer, For, Func, Load, Stmt, Store
from .visit import exprs, walk, walk_expr


def private_buffers(func: Func) -> dict[int, frozenset[Buffer]]:
    """For each loop, by ``id``, the intermediate buffers that only its body uses.

    Lowering makes such a buffer inside the loop, one for each iteration.
    """
    total = _uses(func.body)
    result = {}
    for loop in walk(func.body):
        if isinstance(loop, For):
            here = _uses(loop.body)
            result[id(loop)] = frozenset(b for b in func.allocs if here[b] and here[b] == total[b])
    return result


def _uses(s: Stmt) -> Counter[Buffer]:
    found: Counter[Buffer] = Counter()
    for x in walk(s):
        if isinstance(x, Store):
            found[x.buffer] += 1
        found.update(y.buffer for e in exprs(x) for y in walk_expr(e) if isinstance(y, Load))
    return found
