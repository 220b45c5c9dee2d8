"""Reductions, sorts, maps and products of complex arrays.

A reducer of complex numbers becomes one of twice as many real ones. If it treats the parts
independently, as a sum does, there are two reductions instead, each by a known operation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import TypeAlias

from ....dtypes import s32
from ...nodes import Computation, Instruction, Shape, TupleShape
from ...patterns import build
from ...rewrite import assemble, make, parameter, post_order
from ..prepare.inline_calls import inline
from .values import (
    Parts,
    Value,
    elements,
    flat_shapes,
    flatten,
    has_complex,
    join,
    make_tuple,
    part_shape,
    unflatten,
)

Rewrite: TypeAlias = Callable[[Computation], Computation]


def combined(i: Instruction, operands: list[Value], rewrite: Rewrite) -> Value:
    """Rewrite an operation whose called computations combine, compare or map complex elements.

    ``rewrite`` returns a called computation as one that takes and returns the parts.
    """
    match i.opcode:
        case "map":
            return _map(i, operands, rewrite)
        case "select-and-scatter":
            return _select_and_scatter(i, operands, rewrite)
        case _:
            return _reduction(i, operands, rewrite)


def _reduction(i: Instruction, operands: list[Value], rewrite: Rewrite) -> Value:
    """Rewrite ``reduce``, ``reduce-window``, ``scatter`` and ``sort`` to take parts as operands."""
    body = rewrite(i.attrs["to_apply"])
    if (separate := _separate_reducers(i, body)) is not None:
        re, im = (_on_part(i, operands, n, c) for n, c in enumerate(separate))
        return Parts(re, im)
    attrs = {**i.attrs, "to_apply": body}
    shapes = flat_shapes(i.shape)
    many = len(shapes) > 1 or isinstance(i.shape, TupleShape)
    shape = TupleShape(shapes) if many else shapes[0]
    new = make(i.opcode, shape, tuple(flatten(operands)), metadata=i.metadata, **attrs)
    return unflatten(iter(elements(new) if many else (new,)), i.shape)


def _on_part(i: Instruction, operands: list[Value], n: int, c: Computation) -> Instruction:
    parts = tuple((v.re, v.im)[n] if isinstance(v, Parts) else join(v) for v in operands)
    attrs = {**i.attrs, "to_apply": c}
    return make(i.opcode, part_shape(i.array), parts, metadata=i.metadata, **attrs)


def _separate_reducers(i: Instruction, body: Computation) -> tuple[Computation, Computation] | None:
    """Split a reducer into one for each part, if neither needs the other part; None otherwise."""
    if not isinstance(i.shape, Shape) or i.opcode == "sort" or len(body.parameters) != 4:
        return None
    if body.root.opcode != "tuple":
        return None
    made = []
    for n, root in enumerate(body.root.operands):
        pair = (body.parameters[n], body.parameters[n + 2])
        needed = [x for x in post_order([root]) if x.opcode == "parameter"]
        if any(p not in pair for p in needed):
            return None
        new = [parameter(k, p.shape, p.name) for k, p in enumerate(pair)]
        unused = {p: new[0] for p in body.parameters}
        bound = [{**unused, pair[0]: new[0], pair[1]: new[1]}[p] for p in body.parameters]
        half = inline(replace(body, root=root), bound)
        made.append(assemble(body.name, new, half))
    return made[0], made[1]


def _select_and_scatter(i: Instruction, operands: list[Value], rewrite: Rewrite) -> Value:
    """Find the place that each window selects by a ``reduce-window``, then ``scatter`` to it.

    The reduction carries places along with the values. Place -1 means no element: padding is never
    selected, and a window without elements scatters out of bounds.
    """
    operand, source, start = operands
    assert isinstance(operand, Parts) and isinstance(source, Parts) and isinstance(start, Parts)
    dims, windows = operand.re.array.dims, source.re.array.dims
    size, count = prod(dims), prod(windows)
    line = build.iota(s32, (size,))
    values = (operand.re, operand.im, build.reshape(line, dims))
    neutral = (start.re, start.im, build.scalar(-1, s32))
    shape = TupleShape(tuple(Shape(v.array.dtype, windows) for v in values))
    attrs = {"window": i.attrs["window"], "to_apply": _selector(rewrite(i.attrs["select"]))}
    best = make("reduce-window", shape, (*values, *neutral), metadata=i.metadata, **attrs)
    places = build.reshape(elements(best)[2], (count, 1))
    rule = {
        "update_window_dims": (),
        "inserted_window_dims": (0,),
        "scatter_dims_to_operand_dims": (0,),
        "index_vector_dim": 1,
        "to_apply": i.attrs["scatter"],
    }
    written = replace(i, opcode="scatter", shape=Shape(i.array.dtype, (size,)), attrs=rule)
    begun = Parts(*(build.broadcast(x, (), (size,)) for x in (start.re, start.im)))
    added = Parts(*(build.reshape(x, (count,)) for x in (source.re, source.im)))
    out = _reduction(written, [begun, places, added], rewrite)
    assert isinstance(out, Parts)
    return Parts(build.reshape(out.re, dims), build.reshape(out.im, dims))


def _selector(select: Computation) -> Computation:
    """Return a reducer of values and places that keeps the value that ``select`` prefers."""
    types = [*(p.array.dtype for p in select.parameters[:2]), s32]
    given = [parameter(n, Shape(t), f"p{n}") for n, t in enumerate((*types, *types))]
    keeps = inline(select, (*given[0:2], *given[3:5]))
    zero = build.scalar(0, s32)
    some = build.pointwise("compare", given[2], zero, direction="GE")
    none = build.pointwise("compare", given[5], zero, direction="LT")
    stays = build.pointwise("or", none, build.pointwise("and", some, keeps))
    chosen = tuple(
        make("select", a.array, (stays, a, b)) for a, b in zip(given[:3], given[3:], strict=True)
    )
    return assemble(select.name, given, make_tuple(chosen))


def _map(i: Instruction, operands: list[Value], rewrite: Rewrite) -> Value:
    """Rewrite a map into one for each part of the result."""
    body = rewrite(i.attrs["to_apply"])
    parts = tuple(flatten(operands))

    def mapped(root: Instruction) -> Instruction:
        c = assemble(body.name, body.parameters, root)
        shape = part_shape(i.array)
        attrs = {**i.attrs, "to_apply": c}
        return make("map", shape, parts, metadata=i.metadata, **attrs)

    if not has_complex(i.shape):
        return mapped(body.root)
    re, im = map(mapped, elements(body.root))
    return Parts(re, im)


def product(i: Instruction, operands: list[Value]) -> Value:
    """Rewrite ``dot`` and ``convolution`` into one product of arrays for each product of parts."""
    shape = part_shape(i.array)

    def multiplied(a: Instruction, b: Instruction) -> Instruction:
        return make(i.opcode, shape, (a, b), metadata=i.metadata, **i.attrs)

    match operands:
        case [Parts(re=a, im=b), Parts(re=c, im=d)]:
            re = build.pointwise("subtract", multiplied(a, c), multiplied(b, d))
            return Parts(re, build.pointwise("add", multiplied(a, d), multiplied(b, c)))
        case [Parts(re=a, im=b), real]:
            return Parts(multiplied(a, join(real)), multiplied(b, join(real)))
        case [real, Parts(re=c, im=d)]:
            return Parts(multiplied(join(real), c), multiplied(join(real), d))
        case _:
            a, b = map(join, operands)
            zero = build.full(0, shape.dtype, shape.dims)
            return Parts(multiplied(a, b), zero)
