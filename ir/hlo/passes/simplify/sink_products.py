"""Products that a loop adds up: one product after it, of what all its iterations multiply.

The gradient of a recurrent layer's weights is such a sum. Each iteration's product has few terms,
and reads and writes all of the sum; one of all terms writes it once, and runs at the machine's
peak.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from ....dtypes import f32, f64, s32
from ...nodes import Computation, HloModule, Instruction, TupleShape
from ...patterns import build
from ...patterns.loops import hands_on, parts_of_loop, trip_count, with_more_state
from ...patterns.match import all_static
from ...rewrite import assemble, make, map_computations, rebuild, users, with_attrs

LIMIT = 64 << 20
"""Most bytes of the factors of all iterations, for one loop."""

GAIN = 1.5
"""Elements of a product for each of its factors from which keeping these pays."""

CONTRACTED = ("lhs_contracting_dims", "rhs_contracting_dims")
BATCHED = ("lhs_batch_dims", "rhs_batch_dims")


@dataclass(frozen=True, slots=True)
class _AddedProduct:
    """The part of a loop's state, by number, that is a sum of products.

    ``turned`` are the transpositions of each product before it is added, the first one first.
    """

    number: int
    dot: Instruction
    turned: tuple[Instruction, ...]


def sink_products(module: HloModule) -> HloModule:
    """s = s + dot(a, b) in a loop  ->  s + dot(as, bs), multiplied after the loop

    ``as`` and ``bs`` are what all iterations multiply, kept in order. The terms of the sum are the
    same; their order is that of the larger product.
    """
    return map_computations(module, lambda c: rebuild(c, _loop))


def _loop(i: Instruction) -> Instruction | None:
    loop_parts = parts_of_loop(i)
    if loop_parts is None:
        return None
    condition, body, start = loop_parts
    trips = trip_count(i)
    found = tuple(_sums(condition, body)) if trips is not None and trips > 1 else ()
    if trips is None or not found:
        return None
    factors = tuple(dict.fromkeys(o for s in found for o in s.dot.operands))
    if trips * sum(o.array.bytes for o in factors) > LIMIT:
        return None
    kept = (build.full(0, o.array.dtype, (trips, *o.array.dims)) for o in factors)
    given = (*start.operands, build.scalar(0, s32), *kept)
    shape = TupleShape(tuple(x.shape for x in given))
    attrs = {
        "condition": with_more_state(condition, shape),
        "body": _keeping(body, shape, found, factors),
    }
    loop = replace(i, shape=shape, operands=(replace(start, shape=shape, operands=given),))
    loop = with_attrs(loop, **attrs)
    before = len(start.operands)
    every = {o: build.element(loop, before + 1 + n) for n, o in enumerate(factors)}
    results = [build.element(loop, n) for n in range(before)]
    for s in found:
        results[s.number] = build.pointwise("add", start.operands[s.number], _product(s, every))
    return make("tuple", i.shape, results, name=i.name)


def _sums(condition: Computation, body: Computation) -> Iterator[_AddedProduct]:
    """Yield the parts of the state that nothing reads but the addition of a product."""
    using, elements, tested = users(body), _elements(body), _elements(condition)
    for number, total in enumerate(body.root.operands):
        if number in tested or total.opcode != "add" or using[total] != (body.root,):
            continue
        if body.root.operands.count(total) > 1 or total.array.dtype not in (f32, f64):
            continue
        readers = {u for e in elements.get(number, ()) for u in using[e]}
        for old, term in (total.operands, total.operands[::-1]):
            turned = _turned(term, using)
            dot = turned[0].operands[0] if turned else term
            mine = old.opcode == "get-tuple-element" and int(old.attrs["index"]) == number
            if mine and readers == {total} and old is not term and _pays(dot, body, using):
                yield _AddedProduct(number, dot, turned)
                break


def _elements(c: Computation) -> dict[int, list[Instruction]]:
    """Return the instructions that take each element of a computation's parameter."""
    found: dict[int, list[Instruction]] = {}
    for i in c.instructions:
        if i.opcode == "get-tuple-element" and i.operands[0] in c.parameters:
            found.setdefault(int(i.attrs["index"]), []).append(i)
    return found


def _turned(
    x: Instruction, using: Mapping[Instruction, Sequence[Instruction]]
) -> tuple[Instruction, ...]:
    """Return the transpositions that make ``x``, the first one first."""
    found: list[Instruction] = []
    while x.opcode == "transpose" and len(using[x]) == 1:
        found.append(x)
        x = x.operands[0]
    return tuple(reversed(found))


def _pays(
    dot: Instruction, body: Computation, using: Mapping[Instruction, Sequence[Instruction]]
) -> bool:
    """True if both factors of a product differ between iterations, and are small beside it."""
    if dot.opcode != "dot" or len(using[dot]) != 1 or not all_static(dot):
        return False
    if any(_is_fixed(o, body) for o in dot.operands):
        return False
    factors = sum(o.array.size for o in dot.operands)
    return prod(dot.array.dims) > GAIN * factors


def _is_fixed(x: Instruction, body: Computation) -> bool:
    """True if ``x`` is a constant, or a part of the state that stays as it is."""
    while x.opcode in ("transpose", "reshape", "broadcast", "convert"):
        x = x.operands[0]
    if x.opcode == "get-tuple-element" and x.operands[0] in body.parameters:
        return hands_on(body, int(x.attrs["index"]))
    return x.opcode == "constant"


def _keeping(
    body: Computation,
    shape: TupleShape,
    sums: Sequence[_AddedProduct],
    factors: Sequence[Instruction],
) -> Computation:
    """Return a body that keeps each iteration's factors, and leaves the sums alone."""
    names = [o.name for o in factors]
    body = with_more_state(body, shape)
    (state,) = body.parameters
    made = {i.name: i for i in body.instructions}
    root = list(body.root.operands)
    for s in sums:
        root[s.number] = build.element(state, s.number)
    iteration = build.element(state, len(root))
    rows = []
    for n, name in enumerate(names):
        new = build.reshape(made[name], (1, *made[name].array.dims))
        rows.append(build.put_rows(build.element(state, len(root) + 1 + n), new, iteration))
    after = build.pointwise("add", iteration, build.scalar(1, s32))
    parts = (*root, after, *rows)
    return assemble(body.name, body.parameters, replace(body.root, shape=shape, operands=parts))


def _product(s: _AddedProduct, every: Mapping[Instruction, Instruction]) -> Instruction:
    """Return the product of all iterations, its transpositions done."""
    attrs = {k: v for k, v in s.dot.attrs.items() if k not in (*CONTRACTED, *BATCHED)}
    for name in BATCHED:
        if s.dot.attrs.get(name):
            attrs[name] = tuple(d + 1 for d in s.dot.attrs[name])
    for name in CONTRACTED:
        attrs[name] = (0, *(d + 1 for d in s.dot.attrs.get(name, ())))
    both = tuple(every[o] for o in s.dot.operands)
    found = make("dot", s.dot.shape, both, name=s.dot.name, metadata=s.dot.metadata, **attrs)
    for t in s.turned:
        found = build.transpose(found, t.attrs["dimensions"])
    return found
