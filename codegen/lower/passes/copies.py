"""A second copy of a statement, with names of its own: every variable is introduced once."""

from __future__ import annotations

from dataclasses import replace

from ....ir.loop.nodes import Alloc, Buffer, Expr, For, Let, Stmt, Var
from ....ir.loop.visit import map_stmt, replace_buffers, substitution, walk


def renamed(s: Stmt) -> Stmt:
    """``s`` over fresh loop variables, names and buffers where it introduces them."""
    new: dict[Var, Expr] = {}
    buffers: dict[Buffer, Buffer] = {}
    for x in walk(s):
        match x:
            case For(var=var) | Let(var=var):
                new[var] = Var(var.name, var.dtype)
            case Alloc(buffer=b):
                buffers[b] = replace(b)

    value = substitution(new)

    def stmt(x: Stmt) -> Stmt:
        x = map_stmt(x, stmt, value)
        if isinstance(x, For | Let):
            var = new[x.var]
            assert isinstance(var, Var)
            return replace(x, var=var)
        return x

    s = stmt(s) if new else s
    return replace_buffers(s, buffers) if buffers else s
