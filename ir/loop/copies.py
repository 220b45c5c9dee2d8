"""A second copy of a statement, with names of its own: every variable is introduced once."""

from __future__ import annotations

from dataclasses import replace

from .nodes import Alloc, Block, Buffer, Expr, For, Let, Stmt, Var
from .visit import map_stmt, replace_buffers, substitution, walk


def renamed(s: Stmt) -> Stmt:
    """Return ``s`` over fresh loop variables, axes, names and buffers where it introduces them.

    Blocks keep their names, which are unique in a function.
    """
    new: dict[Var, Expr] = {}
    buffers: dict[Buffer, Buffer] = {}
    for x in walk(s):
        match x:
            case For(var=var) | Let(var=var):
                new[var] = Var(var.name, var.dtype)
            case Block(axes=axes):
                new.update((a.var, Var(a.var.name, a.var.dtype)) for a in axes)
            case Alloc(buffer=b):
                buffers[b] = replace(b)

    value = substitution(new)

    def own(var: Var) -> Var:
        found = new[var]
        assert isinstance(found, Var)
        return found

    def stmt(x: Stmt) -> Stmt:
        x = map_stmt(x, stmt, value)
        match x:
            case For() | Let():
                return replace(x, var=own(x.var))
            case Block(axes=axes):
                return replace(x, axes=tuple(replace(a, var=own(a.var)) for a in axes))
            case _:
                return x

    s = stmt(s) if new else s
    return replace_buffers(s, buffers) if buffers else s
