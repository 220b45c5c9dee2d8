"""Random chains of operations on arrays of bounded size: native against the interpreter.

Values are small whole numbers, so that sums are exact in any order.
"""

from __future__ import annotations

import random
from math import prod

import numpy as np
import pytest

from nestwright.codegen.driver.build import build
from nestwright.ir.arrays import Array
from nestwright.ir.dtypes import f32, pred, s32
from nestwright.ir.errors import UnsupportedError
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.nodes import (
    Computation,
    HloModule,
    Instruction,
    PadDim,
    Shape,
    SliceDim,
    TupleShape,
    WindowDim,
)
from nestwright.ir.hlo.ops.registry import infer
from nestwright.ir.hlo.rewrite import assemble, constant, make, parameter, reachable
from nestwright.ir.hlo.text import parse, show

CELL, INT = Shape(f32), Shape(s32)


def scalars(name: str, op: str) -> Computation:
    a, b = (parameter(n, CELL, f"p{n}") for n in range(2))
    if op in ("LT", "GT"):
        return assemble(name, (a, b), make("compare", Shape(pred), (a, b), direction=op))
    if op == "last":  # the second unless it is below 0: associative, not commutative
        below = make("compare", Shape(pred), (b, constant(np.float32(0))), direction="LT")
        return assemble(name, (a, b), make("select", CELL, (below, a, b)))
    return assemble(name, (a, b), make(op, CELL, (a, b)))


def marked(x: Shape, dynamic: list[bool]) -> Shape:
    return Shape(x.dtype, x.dims, None, tuple(dynamic) if any(dynamic) else ())


def marks(x: Instruction) -> list[bool]:
    return list(x.array.dynamic or (False,) * x.array.rank)


class Chain:
    """A pool of arrays, and steps that add one more."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.pool: list[Instruction] = []
        self.parameters: list[Instruction] = []
        self.made = 0
        for _ in range(self.rng.randrange(1, 4)):
            self.parameter(self.shape())

    def shape(self) -> Shape:
        dims = tuple(self.rng.randrange(1, 5) for _ in range(self.rng.randrange(1, 4)))
        return marked(Shape(f32, dims), [self.rng.random() < 0.6 for _ in dims])

    def parameter(self, shape: Shape) -> Instruction:
        p = parameter(len(self.parameters), shape, f"x{len(self.parameters)}")
        self.parameters.append(p)
        if shape.dtype == f32:
            self.pool.append(p)
        return p

    def module(self, steps: int) -> HloModule:
        while steps:
            x = self.rng.choice(self.pool)
            y = self.rng.choice(STEPS)(self, x)
            if y is not None and y.array.size <= 500:
                self.pool.append(y)
                steps -= 1
        last = [x for x in self.pool if x.opcode != "parameter"][-4:]
        root = make("tuple", TupleShape(tuple(x.shape for x in last)), last)
        entry = assemble("e", self.parameters, root)
        return parse(show(HloModule("chain", reachable(entry), entry)))

    def reducer(self, *ops: str) -> Computation:
        self.made += 1
        return scalars(f"f{self.made}", self.rng.choice(ops))

    def axis(self, x: Instruction) -> int | None:
        return self.rng.randrange(x.array.rank) if x.array.rank else None


def pointwise(c: Chain, x: Instruction) -> Instruction:
    like = [y for y in c.pool if y.array.dims == x.array.dims]
    y = c.rng.choice(like)
    both = [a or b for a, b in zip(marks(x), marks(y), strict=True)]
    return make(c.rng.choice(("add", "maximum", "subtract")), marked(x.array, both), (x, y))


def transpose(c: Chain, x: Instruction) -> Instruction:
    order = c.rng.sample(range(x.array.rank), x.array.rank)
    shape = Shape(f32, tuple(x.array.dims[d] for d in order))
    return make(
        "transpose", marked(shape, [marks(x)[d] for d in order]), (x,), dimensions=tuple(order)
    )


def reverse(c: Chain, x: Instruction) -> Instruction:
    dims = tuple(d for d in range(x.array.rank) if c.rng.random() < 0.5)
    return make("reverse", x.array, (x,), dimensions=dims)


def broadcast(c: Chain, x: Instruction) -> Instruction:
    at, n = c.rng.randrange(x.array.rank + 1), c.rng.randrange(1, 4)
    dims = (*x.array.dims[:at], n, *x.array.dims[at:])
    dynamic = [*marks(x)[:at], False, *marks(x)[at:]]
    to = tuple(d for d in range(len(dims)) if d != at)
    return make("broadcast", marked(Shape(f32, dims), dynamic), (x,), dimensions=to)


def merge(c: Chain, x: Instruction) -> Instruction | None:
    """Two neighboring dimensions become one."""
    if x.array.rank < 2:
        return None
    d = c.rng.randrange(x.array.rank - 1)
    dims = (*x.array.dims[:d], prod(x.array.dims[d : d + 2]), *x.array.dims[d + 2 :])
    dynamic = [*marks(x)[:d], any(marks(x)[d : d + 2]), *marks(x)[d + 2 :]]
    return make("reshape", marked(Shape(f32, dims), dynamic), (x,))


def divide(c: Chain, x: Instruction) -> Instruction | None:
    """One dimension becomes two, of which one varies if it did."""
    d = c.axis(x)
    if d is None or x.array.dims[d] % 2:
        return None
    half = x.array.dims[d] // 2
    dims = (*x.array.dims[:d], *c.rng.choice([(half, 2), (2, half)]), *x.array.dims[d + 1 :])
    varies = marks(x)[d]
    pair = c.rng.choice([[varies, False], [False, varies]])
    return make(
        "reshape", marked(Shape(f32, dims), [*marks(x)[:d], *pair, *marks(x)[d + 1 :]]), (x,)
    )


def slice_(c: Chain, x: Instruction) -> Instruction:
    cuts = []
    for n in x.array.dims:
        start = c.rng.randrange(n) if n else 0
        cuts.append(
            SliceDim(start, c.rng.randrange(start, n) + 1 if n else 0, c.rng.randrange(1, 3))
        )
    shape = infer("slice", (x.shape,), {"slice": tuple(cuts)})
    assert isinstance(shape, Shape)
    return make("slice", marked(shape, marks(x)), (x,), slice=tuple(cuts))


def pad(c: Chain, x: Instruction) -> Instruction:
    padding = tuple(
        PadDim(c.rng.randrange(-1, 3) if n > 2 else 0, c.rng.randrange(3), c.rng.randrange(2))
        for n in x.array.dims
    )
    value = constant(np.float32(7))
    shape = infer("pad", (x.shape, value.shape), {"padding": padding})
    assert isinstance(shape, Shape)
    return make("pad", marked(shape, marks(x)), (x, value), padding=padding)


def concatenate(c: Chain, x: Instruction) -> Instruction | None:
    d = c.axis(x)
    if d is None:
        return None

    def rest(y: Instruction) -> tuple[int, ...]:
        return tuple(n for k, n in enumerate(y.array.dims) if k != d)

    like = [y for y in c.pool if y.array.rank == x.array.rank and rest(y) == rest(x)]
    parts = [x, *c.rng.choices(like, k=c.rng.randrange(1, 3))]
    shape = infer("concatenate", [p.shape for p in parts], {"dimensions": (d,)})
    assert isinstance(shape, Shape)
    dynamic = [any(ms) for ms in zip(*(marks(p) for p in parts), strict=True)]
    return make("concatenate", marked(shape, dynamic), parts, dimensions=(d,))


def reduce(c: Chain, x: Instruction) -> Instruction:
    dims = tuple(d for d in range(x.array.rank) if c.rng.random() < 0.5)
    kept = [d for d in range(x.array.rank) if d not in dims]
    shape = marked(Shape(f32, tuple(x.array.dims[d] for d in kept)), [marks(x)[d] for d in kept])
    init = constant(np.float32(c.rng.randrange(-2, 3)))
    f = c.reducer("add", "maximum", "minimum", "last")
    return make("reduce", shape, (x, init), dimensions=dims, to_apply=f)


def window(c: Chain, x: Instruction) -> Instruction:
    sizes = tuple(
        WindowDim(c.rng.randrange(1, 4), c.rng.randrange(1, 3), c.rng.randrange(2), 1)
        for _ in x.array.dims
    )
    f = c.reducer("add", "maximum", "last")
    init = constant(np.float32(0))
    attrs = {"window": sizes, "to_apply": f}
    shape = infer("reduce-window", (x.shape, init.shape), attrs)
    assert isinstance(shape, Shape)
    return make("reduce-window", marked(shape, marks(x)), (x, init), **attrs)


def sort(c: Chain, x: Instruction) -> Instruction | None:
    d = c.axis(x)
    if d is None:
        return None
    f = c.reducer("LT", "GT")
    return make("sort", x.array, (x,), dimensions=(d,), is_stable=True, to_apply=f)


def dot(c: Chain, x: Instruction) -> Instruction | None:
    d = c.axis(x)
    if d is None:
        return None
    other = [(y, k) for y in c.pool for k, n in enumerate(y.array.dims) if n == x.array.dims[d]]
    y, k = c.rng.choice(other)
    attrs = {"lhs_contracting_dims": (d,), "rhs_contracting_dims": (k,)}
    shape = infer("dot", (x.shape, y.shape), attrs)
    assert isinstance(shape, Shape)
    left, right = marks(x), marks(y)
    del left[d], right[k]
    return make("dot", marked(shape, left + right), (x, y), **attrs)


def resize(c: Chain, x: Instruction) -> Instruction | None:
    d = c.axis(x)
    if d is None:
        return None
    n: Instruction = c.parameter(INT)
    if c.rng.random() < 0.5:
        y = c.rng.choice([y for y in c.pool if y.array.rank])
        n = make("get-dimension-size", INT, (y,), dimensions=(c.rng.randrange(y.array.rank),))
    dynamic = [m or k == d for k, m in enumerate(marks(x))]
    return make("set-dimension-size", marked(x.array, dynamic), (x, n), dimensions=(d,))


def dynamic_slice(c: Chain, x: Instruction) -> Instruction:
    starts = [c.parameter(INT) for _ in x.array.dims]
    sizes = tuple(
        n if c.rng.random() < 0.4 or not n else c.rng.randrange(1, n + 1) for n in x.array.dims
    )
    dynamic = [m and s == n for m, s, n in zip(marks(x), sizes, x.array.dims, strict=True)]
    shape = marked(Shape(f32, sizes), dynamic)
    return make("dynamic-slice", shape, (x, *starts), dynamic_slice_sizes=sizes)


def update(c: Chain, x: Instruction) -> Instruction | None:
    small = [
        y
        for y in c.pool
        if y.array.rank == x.array.rank
        and all(a <= b for a, b in zip(y.array.dims, x.array.dims, strict=True))
    ]
    starts = [c.parameter(INT) for _ in x.array.dims]
    return make("dynamic-update-slice", x.array, (x, c.rng.choice(small), *starts))


def take(c: Chain, x: Instruction) -> Instruction | None:
    d = c.axis(x)
    if d is None:
        return None
    at = c.parameter(marked(Shape(s32, (3,)), [c.rng.random() < 0.5]))
    dims = (*x.array.dims[:d], 3, *x.array.dims[d + 1 :])
    dynamic = [*marks(x)[:d], marks(at)[0], *marks(x)[d + 1 :]]
    return make(
        "gather",
        marked(Shape(f32, dims), dynamic),
        (x, at),
        offset_dims=tuple(k for k in range(len(dims)) if k != d),
        collapsed_slice_dims=(d,),
        start_index_map=(d,),
        index_vector_dim=1,
        slice_sizes=tuple(1 if k == d else n for k, n in enumerate(x.array.dims)),
    )


STEPS = (
    pointwise,
    transpose,
    reverse,
    broadcast,
    merge,
    divide,
    slice_,
    pad,
    concatenate,
    reduce,
    window,
    sort,
    dot,
    resize,
    dynamic_slice,
    update,
    take,
)


def arguments(module: HloModule, round_: int) -> list[Array]:
    rng = np.random.default_rng(round_)
    found = []
    for p in module.entry.parameters:
        pairs = zip(p.array.dims, p.array.dynamic or (False,) * p.array.rank, strict=True)
        middle = {0: lambda n: 0, 1: lambda n: n}.get(round_, lambda n: int(rng.integers(n + 1)))
        dims = [middle(n) if m else n for n, m in pairs]
        values = rng.integers(-3, 4, dims)
        found.append(np.asarray(values).astype(np.float32 if p.array.dtype == f32 else np.int32))
    return found


def agree(seed: int, steps: int) -> bool:
    """Whether the module could be compiled; it then agrees."""
    module = Chain(seed).module(steps)
    try:
        exe = build(module)
    except UnsupportedError as error:
        assert "is not clear" in str(error)
        return False
    for round_ in range(5):
        args = arguments(module, round_)
        for found, wanted in zip(exe(*args), evaluate(module, args), strict=True):
            np.testing.assert_array_equal(found, wanted)
    return True


@pytest.mark.parametrize("seed", range(10))
def test_chains_of_bounded_arrays(seed: int) -> None:
    assert agree(seed, 5)
