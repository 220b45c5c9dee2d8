"""Operations on complex arrays that call a computation of scalars, and products of arrays.

A reducer of complex numbers becomes one of twice as many real ones; where it works on the parts
apart, as sums do, there are two reductions instead, each by an operation that is known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from ..nodes import Computation, Instruction, Shape, TupleShape
from ..rewrite import assemble, make, parameter, post_order
from . import build
from .complex_values import (
    Pair,
    Value,
    elements,
    flat,
    flat_shapes,
    grouped,
    has_complex,
    join,
    part_shape,
)
from .inline_calls import inline

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
    "dot": _product,
    "convolution": _product,
}
