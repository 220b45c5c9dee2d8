"""The bytes of a kernel's arrays that it leaves alone: rows of a table that nothing reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ..fuse.kinds import is_view
from ..nodes import Computation, Instruction, Shape
from ..ops.registry import definition
from ..rewrite import users

Using = Mapping[Instruction, Sequence[Instruction]]


def untouched(c: Computation, updates: Sequence[tuple[int, int]] = ()) -> int:
    """Return the bytes of parameters and results that one run neither reads nor writes, at least.

    Of a table from which a row is cut, the row counts. Of each ``(result, parameter)`` in
    ``updates`` the result is in the parameter's place, and only what changes is written.
    """
    using = users(c)
    results = c.root.operands if c.root.opcode == "tuple" else (c.root,)
    inside = {c.parameters[n] for _, n in updates}
    left = 0
    for p in c.parameters:
        if isinstance(p.shape, Shape) and p not in results:
            reads = (_read(user, value, p in inside) for user, value in _readers(p, using))
            left += max(0, p.shape.bytes - sum(reads))
    for n, _ in updates:
        made = results[n]
        if definition(made.opcode).changes_part:
            left += max(0, made.array.bytes - made.operands[1].array.bytes)
    return left


def _readers(p: Instruction, using: Using) -> Iterator[tuple[Instruction, Instruction]]:
    """Yield what reads a parameter, and the view of it that it reads."""
    for user in using[p]:
        if is_view(user) and using[user]:
            yield from _readers(user, using)
        else:
            yield user, p


def _read(user: Instruction, value: Instruction, inside: bool) -> int:
    """Return the bytes of a value that its user reads, at most; none of one that it changes."""
    op = definition(user.opcode)
    if value not in user.operands[1:]:
        if op.takes_part:
            return user.array.bytes
        if op.changes_part and inside:
            return 0
    return value.array.bytes
