"""Operations on complex arrays that call a computation of scalars, and products of arrays.

A reducer of complex numbers becomes one of twice as many real ones; where it works on the parts
apart, as sums do, there are two reductions instead, each by an operation that is known.
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
    Pair,
    Value,
    elements,
    flat,
    flat_shapes,
    gathered,
    grouped,
    has_complex,
    join,
    part_shape,
)

Rewrite: TypeAlias = Callable[[Computation], Computation]
Rule: TypeAlias = Callable[[Instruction, list[Value], Rewrite], Value]


def _reduction(i: Instruction, operands: list[Value], rewrite: Rewrite) -> Value:
    """``reduce``, ``reduce-window``, ``scatter``, ``sort``: on as many arrays as parts."""
    body = rewrite(i.attrs["to_apply"])
    if (apart := _apart(i, body)) is not None:
        re, im = (_on_part(i, operands, n, c) for n, c in enumerate(apart))
        return Pair(re, im)
    attrs = {**i.attrs, "to_apply": body}
    shapes = flat_shapes(i.shape)
    many = len(shapes) > 1 or isinstance(i.shape, TupleShape)
    shape = TupleShape(shapes) if many else shapes[0]
    new = make(i.opcode, shape, tuple(flat(operands)), metadata=i.metadata, **attrs)
    return grouped(iter(elements(new) if many else (new,)), i.shape)


def _on_part(i: Instruction, operands: list[Value], n: int, c: Computation) -> Instruction:
    parts = tuple((v.re, v.im)[n] if isinstance(v, Pair) else join(v) for v in operands)
    attrs = {**i.attrs, "to_apply": c}
    return make(i.opcode, part_shape(i.array), parts, metadata=i.metadata, **attrs)


def _apart(i: Instruction, body: Computation) -> tuple[Computation, Computation] | None:
    """The reducer's two halves, if neither needs the other's part, as those of a sum do not."""
    if not isinstance(i.shape, Shape) or i.opcode == "sort" or len(body.parameters) != 4:
        return None
    if body.root.opcode != "tuple":
        return None
    made = []
    for n, root in enumerate(body.root.operands):
        own = (body.parameters[n], body.parameters[n + 2])
        needed = [x for x in post_order([root]) if x.opcode == "parameter"]
        if any(p not in own for p in needed):
            return None
        new = [parameter(k, p.shape, p.name) for k, p in enumerate(own)]
        spare = {p: new[0] for p in body.parameters}
        bound = [{**spare, own[0]: new[0], own[1]: new[1]}[p] for p in body.parameters]
        half = inline(replace(body, root=root), bound)
        made.append(assemble(body.name, new, half))
    return made[0], made[1]


def _select_and_scatter(i: Instruction, operands: list[Value], rewrite: Rewrite) -> Value:
    """The place that each window selects, by a reduction that takes places along; then a scatter.

    A place of -1 is that of no element: padding never wins, and what a window without elements
    would add is out of bounds.
    """
    operand, source, start = operands
    assert isinstance(operand, Pair) and isinstance(source, Pair) and isinstance(start, Pair)
    dims, windows = operand.re.array.dims, source.re.array.dims
    size, count = prod(dims), prod(windows)
    line = make("iota", Shape(s32, (size,)), iota_dimension=0)
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
    begun = Pair(*(build.broadcast(x, (), (size,)) for x in (start.re, start.im)))
    added = Pair(*(build.reshape(x, (count,)) for x in (source.re, source.im)))
    out = _reduction(written, [begun, places, added], rewrite)
    assert isinstance(out, Pair)
    return Pair(build.reshape(out.re, dims), build.reshape(out.im, dims))


def _selector(select: Computation) -> Computation:
    """A reducer of values with their places, by whether ``select(kept, candidate)`` keeps."""
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
    return assemble(select.name, given, gathered(chosen))


def _map(i: Instruction, operands: list[Value], rewrite: Rewrite) -> Value:
    """One map for each part of the result."""
    body = rewrite(i.attrs["to_apply"])
    parts = tuple(flat(operands))

    def mapped(root: Instruction) -> Instruction:
        c = assemble(body.name, body.parameters, root)
        shape = part_shape(i.array)
        attrs = {**i.attrs, "to_apply": c}
        return make("map", shape, parts, metadata=i.metadata, **attrs)

    if not has_complex(i.shape):
        return mapped(body.root)
    re, im = map(mapped, elements(body.root))
    return Pair(re, im)


def _product(i: Instruction, operands: list[Value], rewrite: Rewrite) -> Value:
    """``dot`` and ``convolution``: a product of arrays for each product of parts."""
    shape = part_shape(i.array)

    def product(a: Instruction, b: Instruction) -> Instruction:
        return make(i.opcode, shape, (a, b), metadata=i.metadata, **i.attrs)

    match operands:
        case [Pair(re=a, im=b), Pair(re=c, im=d)]:
            re = build.pointwise("subtract", product(a, c), product(b, d))
            return Pair(re, build.pointwise("add", product(a, d), product(b, c)))
        case [Pair(re=a, im=b), real]:
            return Pair(product(a, join(real)), product(b, join(real)))
        case [real, Pair(re=c, im=d)]:
            return Pair(product(join(real), c), product(join(real), d))
        case _:
            a, b = map(join, operands)
            zero = build.full(0, shape.dtype, shape.dims)
            return Pair(product(a, b), zero)


RULES: dict[str, Rule] = {
    "reduce": _reduction,
    "reduce-window": _reduction,
    "scatter": _reduction,
    "sort": _reduction,
    "map": _map,
    "select-and-scatter": _select_and_scatter,
    "dot": _product,
    "convolution": _product,
}
