"""Products of all steps at once: what a loop multiplies by fixed weights, one row at a time.

A recurrent layer's input part needs nothing of the state. One product of many rows reads the
weights once and runs at the machine's peak; one of each step's row reads them every time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from ...nodes import Computation, HloModule, Instruction, Shape, TupleShape
from ...patterns import build
from ...patterns.loops import hands_on, parts_of_loop, trip_count, with_more_state
from ...patterns.match import all_static
from ...rewrite import assemble, make, map_computations, rebuild, with_attrs

ROWS = 64
"""Rows of a step from which on its product has enough work by itself."""

LIMIT = 64 << 20
"""Most bytes of a product of all steps."""

SIDES = ("lhs_contracting_dims", "rhs_contracting_dims")


@dataclass(frozen=True, slots=True)
class _Hoisted:
    """The product of all steps, and which operand of the body's ``dot`` is a step's rows."""

    value: Instruction
    side: int


def hoist_products(module: HloModule) -> HloModule:
    """dot(xs[i], w) in a loop  ->  dot(xs, w)[i], multiplied before the loop

    Where ``xs`` and ``w`` stay the same all the time, and the loop runs for at least as many times
    as there are steps; likewise dot(w, xs[i]). Sums are of the same terms; their order is that of
    the larger product.
    """
    return map_computations(module, lambda c: rebuild(c, _loop))


def _loop(i: Instruction) -> Instruction | None:
    loop_parts = parts_of_loop(i)
    if loop_parts is None:
        return None
    condition, body, start = loop_parts
    found = dict(_products(i))
    if not found:
        return None
    given = (*start.operands, *(h.value for h in found.values()))
    shape = TupleShape(tuple(x.shape for x in given))
    attrs = {"condition": with_more_state(condition, shape), "body": _reading(body, shape, found)}
    loop = replace(i, shape=shape, operands=(replace(start, shape=shape, operands=given),))
    loop = with_attrs(loop, **attrs)
    results = (build.element(loop, k) for k in range(len(start.operands)))
    return make("tuple", i.shape, results, name=i.name)


def _products(loop: Instruction) -> Iterator[tuple[str, _Hoisted]]:
    """Yield the products that leave a loop, by the names of those in its body."""
    trips = trip_count(loop)
    for dot in loop.attrs["body"].instructions:
        if trips is None or dot.opcode != "dot" or not all_static(dot):
            continue
        for side in range(len(SIDES)):
            value = _hoisted(loop, dot, side, trips)
            if value is not None:
                yield dot.name, _Hoisted(value, side)
                break


def _hoisted(loop: Instruction, dot: Instruction, side: int, trips: int) -> Instruction | None:
    """Return the product of all steps, if an operand of ``dot`` is a step and the other fixed."""
    cut, weights = _step(dot.operands[side]), _outside(loop, dot.operands[1 - side])
    xs = None if cut is None else _outside(loop, cut.operands[0])
    if xs is None or weights is None or dot.attrs.get("lhs_batch_dims"):
        return None
    fits = xs.array.dims[0] <= trips and _pays(dot, side, xs.array.dims[0])
    return _every(dot, side, xs, weights) if fits else None


def _step(x: Instruction) -> Instruction | None:
    """Return the ``dynamic-slice`` of one step, along the first dimension, that ``x`` is."""
    while x.opcode == "reshape":
        x = x.operands[0]
    if x.opcode != "dynamic-slice" or not all_static(x):
        return None
    dims = x.operands[0].array.dims
    return x if x.array.dims == (1, *dims[1:]) and dims[0] > 1 else None


def _outside(loop: Instruction, x: Instruction) -> Instruction | None:
    """Return the value before the loop of what the body has as ``x``, if it never changes."""
    if x.opcode == "constant":
        return replace(x)
    body = loop.attrs["body"]
    if x.opcode != "get-tuple-element" or x.operands[0] not in body.parameters:
        return None
    k: int = x.attrs["index"]
    return loop.operands[0].operands[k] if hands_on(body, k) else None


def _pays(dot: Instruction, side: int, steps: int) -> bool:
    shape, contracted = dot.operands[side].array, dot.attrs.get(SIDES[side], ())
    rows = np.prod([d for n, d in enumerate(shape.dims) if n not in contracted])
    size = steps * np.prod(dot.array.dims) * dot.array.dtype.bits // 8
    return bool(rows < ROWS and size <= LIMIT and contracted)


def _every(dot: Instruction, side: int, xs: Instruction, weights: Instruction) -> Instruction:
    """Return the product of all steps: that of one, with a first dimension more."""
    steps, one = xs.array.dims[0], dot.operands[side].array.dims
    rows = build.reshape(xs, (steps, *one))
    contracted = tuple(d + 1 for d in dot.attrs[SIDES[side]])
    attrs = {k: v for k, v in dot.attrs.items() if not (side and k == "operand_precision")}
    attrs |= {SIDES[0]: contracted, SIDES[1]: dot.attrs[SIDES[1 - side]]}
    free = len(one) - len(contracted)
    before = len(dot.array.dims) - free if side else 0  # dimensions of the weights, in a step's
    dims = (steps, *dot.array.dims[before:], *dot.array.dims[:before])
    shape, both = Shape(dot.array.dtype, dims), (rows, weights)
    product = make("dot", shape, both, name=dot.name, metadata=dot.metadata, **attrs)
    turned = (0, *range(1 + free, len(dims)), *range(1, 1 + free))
    return build.transpose(product, turned) if side else product


def _reading(body: Computation, shape: TupleShape, products: Mapping[str, _Hoisted]) -> Computation:
    """Return a body that reads the products, and hands them on."""
    body = with_more_state(body, shape)
    (state,) = body.parameters
    before = len(body.root.operands)
    rows = {name: build.element(state, before + n) for n, name in enumerate(products)}

    def rule(i: Instruction) -> Instruction | None:
        if i.opcode != "dot" or i.name not in rows:
            return None
        cut = _step(i.operands[products[i.name].side])
        assert cut is not None
        return build.reshape(build.rows(rows[i.name], cut.operands[1], 1), i.array.dims)

    body = rebuild(body, rule)
    root = replace(body.root, shape=shape, operands=(*body.root.operands, *rows.values()))
    return assemble(body.name, body.parameters, root)
