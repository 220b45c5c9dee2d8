"""Tensors as a loop function: one block per computation, in the order of their dependence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..ir.errors import ArgumentError
from ..ir.loop.nodes import AxisKind, Expr, Func, Load, Stmt, Var
from ..ir.loop.visit import seq
from . import blocks
from .blocks import Axis
from .sharing import replace_vars
from .tensor import ComputeOp, Tensor, Value


def create_func(tensors: Sequence[Tensor], name: str = "main") -> Func:
    """Return a function on ``tensors``: inputs first, then the computed tensors, which are its
    outputs.

    Every input that an output needs must be listed; other tensors on the way become intermediate
    buffers. ``ArgumentError`` where one is missing, listed twice or out of order.
    """
    if not isinstance(tensors, Iterable) or not all(isinstance(t, Tensor) for t in tensors):
        what = f"function `{name}` of {tensors!r:.60}"
        why = "it is made of a list of tensors"
        raise ArgumentError(what, why, hint="te.placeholder, te.compute")
    inputs = [t for t in tensors if t.computation is None]
    outputs = [t for t in tensors if t.computation is not None]
    if not outputs:
        raise ArgumentError(f"function `{name}` computes nothing", hint="list a computed tensor")
    if list(tensors) != [*inputs, *outputs] or len({t.buffer for t in tensors}) != len(tensors):
        raise ArgumentError(
            f"the tensors of function `{name}` are out of order",
            "inputs come first, then outputs, each once",
        )
    order = _in_order(outputs, inputs, name)
    taken: dict[str, int] = {}
    body = [_block(c, blocks.unique(c.buffers[0].name, taken)) for c in order]
    params = tuple(t.buffer for t in tensors)
    allocs = tuple(b for c in order for b in c.buffers if b not in params)
    return Func(name, params, len(outputs), seq(*body), allocs)


def _in_order(outputs: Sequence[Tensor], inputs: Sequence[Tensor], name: str) -> list[ComputeOp]:
    """Return the computations that the outputs need, each after those whose results it reads."""
    order: dict[ComputeOp, None] = {}
    given = {t.buffer for t in inputs}
    stack = [(t, False) for t in reversed(outputs)]
    while stack:
        tensor, done = stack.pop()
        how = tensor.computation
        if how is None:
            if tensor.buffer not in given:
                what = f"function `{name}` needs the input `{tensor.name}`"
                raise ArgumentError(what, "it is not listed", hint="list it among the tensors")
        elif done:
            order[how] = None
        elif how not in order:
            stack.append((tensor, True))
            sources = frozenset[Tensor]().union(*(v.tensors for v in how.values))
            listed = sorted(sources, key=lambda t: t.name, reverse=True)
            stack.extend((t, False) for t in listed)
    return list(order)


def _block(c: ComputeOp, name: str) -> Stmt:
    """Return the nest of one computation, over new axes: two may share a reduce axis."""
    axes = [
        *(Axis(Var(f"v{v.name}"), n) for v, n in zip(c.axes, c.buffers[0].shape, strict=True)),
        *(Axis(Var(f"v{a.var.name}"), a.extent, AxisKind.REDUCE) for a in c.reduce_axes),
    ]
    old = (*c.axes, *(a.var for a in c.reduce_axes))
    by: dict[Var, Expr] = {v: a.var for v, a in zip(old, axes, strict=True)}
    at = tuple(by[v] for v in c.axes)
    values = c.values
    init: Stmt | None = None
    if c.combine is not None:
        before = tuple(Value(Load(b, at)) for b in c.buffers)
        values = _combined(c, name, before)
        init = blocks.stores(c.buffers, at, c.identity)
    exprs = replace_vars([v.expr for v in values], by)
    return blocks.nest(name, axes, blocks.stores(c.buffers, at, exprs), init)


def _combined(c: ComputeOp, name: str, before: tuple[Value, ...]) -> tuple[Value, ...]:
    assert c.combine is not None
    values = tuple(c.combine(before, c.values))
    types = [v.dtype for v in values]
    if types != [b.dtype for b in c.buffers]:
        want = ", ".join(str(b.dtype) for b in c.buffers)
        got = ", ".join(map(str, types))
        raise ArgumentError(f"the combiner of `{name}` returns ({got})", f"expected ({want})")
    return values
