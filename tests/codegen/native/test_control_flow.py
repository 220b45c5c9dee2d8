"""Loops, branches and calls nested in any way: random modules, native against the interpreter.

The arithmetic is exact (sums, differences, maxima), so that results are equal to the bit and no
branch hangs on a rounding.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from nestwright.codegen.driver.build import build
from nestwright.codegen.plan.nodes import CopyThunk, walk
from nestwright.ir.arrays import Array
from nestwright.ir.dtypes import f32, pred, s32, to_numpy
from nestwright.ir.errors import UnsupportedError, VerifyError
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.nodes import (
    AnyShape,
    Computation,
    HloModule,
    Instruction,
    Shape,
    SliceDim,
    TokenShape,
    TupleShape,
)
from nestwright.ir.hlo.rewrite import assemble, constant, make, parameter, reachable
from nestwright.ir.hlo.shape_text import show_shape
from nestwright.ir.hlo.text import parse, show

INT, FLAG, CELL, ROW = Shape(s32), Shape(pred), Shape(f32), Shape(f32, (3,))
ARRAYS = (CELL, ROW, INT, Shape(s32, (2, 2)), FLAG, Shape(f32, (2, 0)))


def tuple_shape(*elements: AnyShape) -> TupleShape:
    return TupleShape(elements)


@dataclass
class Writer:
    """Draws modules; ``left`` is how many more instructions it may spend on interesting things."""

    rng: random.Random
    left: int = 40
    made: int = 0

    def shape(self, depth: int = 2) -> AnyShape:
        kind = self.rng.random()
        if kind < 0.3 and depth:
            return TupleShape(tuple(self.shape(depth - 1) for _ in range(self.rng.randrange(4))))
        return TokenShape() if kind < 0.34 else self.rng.choice(ARRAYS)

    def module(self) -> HloModule:
        shapes = [self.shape() for _ in range(self.rng.randrange(1, 4))]
        entry = self.computation(shapes, self.shape(), 3)
        return HloModule("random", reachable(entry), entry)

    def computation(self, given: list[AnyShape], result: AnyShape, depth: int) -> Computation:
        parameters = [parameter(n, s, f"p{n}") for n, s in enumerate(given)]
        body = Body(self, depth, list(parameters))
        self.made += 1
        return assemble(f"c{self.made}", parameters, body.value(result))

    def spend(self) -> bool:
        self.left -= 1
        return self.left > 0


@dataclass
class Body:
    """One computation while it is written: values at hand, and how deep it may still nest."""

    writer: Writer
    depth: int
    pool: list[Instruction]
    spread: set[Instruction] = field(default_factory=set)

    def value(self, shape: AnyShape) -> Instruction:
        """A value of this shape, made anew or at hand."""
        rng = self.writer.rng
        found = [v for v in self.known() if v.shape == shape]
        if found and rng.random() < 0.35:
            return rng.choice(found)
        if self.writer.spend() and self.depth and rng.random() < 0.45:
            made = rng.choice((self.loop, self.branch, self.chosen, self.call))(shape)
        elif isinstance(shape, TupleShape):
            made = self.tuple(shape)
        elif isinstance(shape, TokenShape):
            made = make("after-all", shape)
        else:
            made = self.array(shape, found)
        self.pool.append(made)
        return made

    def known(self) -> list[Instruction]:
        """What is at hand, tuples taken apart."""
        for v in list(self.pool):
            if isinstance(v.shape, TupleShape) and v not in self.spread:
                self.spread.add(v)
                self.pool += [
                    make("get-tuple-element", s, (v,), index=n)
                    for n, s in enumerate(v.shape.elements)
                ]
        return self.pool

    def tuple(self, shape: TupleShape) -> Instruction:
        if self.writer.rng.random() < 0.1 and "token" not in show_shape(shape):
            return make("constant", shape, literal=self.numbers(shape))
        parts = [self.value(s) for s in shape.elements]
        whole = make("tuple", shape, parts)
        return make("opt-barrier", shape, (whole,)) if self.writer.rng.random() < 0.1 else whole

    def array(self, shape: Shape, found: list[Instruction]) -> Instruction:
        rng = self.writer.rng
        if not self.writer.spend() or rng.random() < 0.2:
            return self.literal(shape)
        if shape.dtype == pred:
            a, b = (self.value(INT) for _ in range(2))
            return make("compare", shape, (a, b), direction=rng.choice(("LT", "GE", "NE")))
        if shape == INT and rng.random() < 0.3:
            bits = make("convert", INT, (self.value(FLAG),))
            return make("add", INT, (bits, self.value(INT)))
        if shape in (ROW, CELL) and rng.random() < 0.4:
            return self.moved(shape)
        if rng.random() < 0.2:
            return make("select", shape, (self.flags(shape), self.value(shape), self.value(shape)))
        op = rng.choice(("add", "subtract", "maximum", "minimum"))
        return make(op, shape, (self.value(shape), self.value(shape)))

    def moved(self, shape: Shape) -> Instruction:
        """Elements that change places: what is done in place must mind them."""
        row = self.value(ROW)
        if shape == CELL and self.writer.rng.random() < 0.5:
            zero = constant(np.float32(0))
            return make("reduce", CELL, (row, zero), dimensions=(0,), to_apply=self.add())
        one = Shape(f32, (1,))
        at = self.value(INT)
        if shape == CELL:
            cut = make("dynamic-slice", one, (row, at), dynamic_slice_sizes=(1,))
            return make("reshape", CELL, (cut,))
        kind = self.writer.rng.randrange(3)
        if kind == 0:
            return make("reverse", ROW, (row,), dimensions=(0,))
        if kind == 1:
            first = make("slice", one, (row,), slice=(SliceDim(0, 1),))
            rest = make("slice", Shape(f32, (2,)), (row,), slice=(SliceDim(1, 3),))
            return make("concatenate", ROW, (rest, first), dimensions=(0,))
        update = make("reshape", one, (self.value(CELL),))
        return make("dynamic-update-slice", ROW, (row, update, at))

    def add(self) -> Computation:
        a, b = (parameter(n, CELL, f"p{n}") for n in range(2))
        return self.named((a, b), make("add", CELL, (a, b)))

    def flags(self, shape: Shape) -> Instruction:
        wide = Shape(pred, shape.dims)
        flag = self.value(FLAG)
        return flag if not shape.dims else make("broadcast", wide, (flag,), dimensions=())

    def literal(self, shape: Shape) -> Instruction:
        return constant(self.numbers(shape))

    def numbers(self, shape: AnyShape) -> Any:
        if isinstance(shape, TupleShape):
            return tuple(map(self.numbers, shape.elements))
        assert isinstance(shape, Shape)
        low = [self.writer.rng.randrange(-3, 5) for _ in range(shape.size)]
        return np.array(low).reshape(shape.dims).astype(to_numpy(shape.dtype))

    def loop(self, shape: AnyShape) -> Instruction:
        """``while (i < n and ..) (i + 1, n, ..)``, of up to three turns; the limit may be known."""
        rng = self.writer.rng
        if shape == INT and rng.random() < 0.3:
            return self.count()
        state = tuple_shape(INT, INT, shape)
        most = constant(np.int32(3))
        limit = self.literal(INT) if rng.random() < 0.5 else self.value(INT)
        limit = make("minimum", INT, (limit, most))
        zero = constant(np.int32(0))
        start = make("tuple", state, (zero, limit, self.value(shape)))
        inner = self.deeper(state)
        i, n = (make("get-tuple-element", INT, (inner.pool[0],), index=k) for k in range(2))
        more: Instruction = make("compare", FLAG, (i, n), direction="LT")
        if rng.random() < 0.4:
            more = make("and", FLAG, (more, inner.value(FLAG)))
        condition = self.finish(inner, more)
        turn = self.deeper(state)
        i, n = (make("get-tuple-element", INT, (turn.pool[0],), index=k) for k in range(2))
        i = make("add", INT, (i, constant(np.int32(1))))
        body = self.finish(turn, make("tuple", state, (i, n, turn.value(shape))))
        done = make("while", state, (start,), condition=condition, body=body)
        self.pool.append(done)
        return make("get-tuple-element", shape, (done,), index=2)

    def count(self) -> Instruction:
        """A loop of which the state is not a tuple: up to a limit, or none."""
        i = parameter(0, INT, "i")
        less = make("compare", FLAG, (i, constant(np.int32(4))), direction="LT")
        more = make("add", INT, (i, constant(np.int32(2))))
        test, turn = self.named((i,), less), self.named((i,), more)
        return make("while", INT, (self.value(INT),), condition=test, body=turn)

    def deeper(self, shape: AnyShape) -> Body:
        return Body(self.writer, self.depth - 1, [parameter(0, shape, "p0")])

    def finish(self, body: Body, root: Instruction) -> Computation:
        return self.named((body.pool[0],), root)

    def named(self, parameters: tuple[Instruction, ...], root: Instruction) -> Computation:
        self.writer.made += 1
        return assemble(f"c{self.writer.made}", parameters, root)

    def branch(self, shape: AnyShape) -> Instruction:
        """Two branches by a truth value."""
        flag = self.value(FLAG)
        given = [self.value(self.writer.shape()) for _ in range(2)]
        yes, no = (self.writer.computation([g.shape], shape, self.depth - 1) for g in given)
        return make(
            "conditional", shape, (flag, *given), true_computation=yes, false_computation=no
        )

    def chosen(self, shape: AnyShape) -> Instruction:
        """Up to four branches by a number, which may be none of them."""
        given = [self.value(self.writer.shape()) for _ in range(self.writer.rng.randrange(1, 5))]
        if self.writer.rng.random() < 0.3:
            given = [given[0]] * len(given)
        of = tuple(self.writer.computation([g.shape], shape, self.depth - 1) for g in given)
        return make("conditional", shape, (self.value(INT), *given), branch_computations=of)

    def call(self, shape: AnyShape) -> Instruction:
        given = [self.value(self.writer.shape()) for _ in range(self.writer.rng.randrange(3))]
        callee = self.writer.computation([g.shape for g in given], shape, self.depth - 1)
        return make("call", shape, given, to_apply=callee)


def drawn(seed: int, left: int = 40) -> HloModule:
    """A module, by way of its text."""
    return parse(show(Writer(random.Random(seed), left).module()))


def argument(shape: AnyShape, rng: np.random.Generator) -> Any:
    match shape:
        case TupleShape(elements=elements):
            return tuple(argument(e, rng) for e in elements)
        case Shape(dims=dims, dtype=dtype):
            return np.asarray(rng.integers(-3, 5, dims)).astype(to_numpy(dtype))
        case _:
            return ()


def leaves(value: Any) -> list[Array]:
    return [a for v in value for a in leaves(v)] if isinstance(value, tuple) else [value]


def agree(seed: int, target: str, rounds: int = 2, left: int = 40) -> None:
    module = drawn(seed, left)
    exe = build(module, target)
    for round_ in range(rounds):
        rng = np.random.default_rng([seed, round_])
        args = [argument(p.shape, rng) for p in module.entry.parameters]
        wanted = evaluate(module, args)
        found = exe(*args)
        for f, w in zip(leaves(found), leaves(wanted), strict=True):
            np.testing.assert_array_equal(f, w)


@pytest.mark.parametrize("seed", range(30))
def test_random_control_flow(seed: int) -> None:
    agree(seed, "cpu")


@pytest.mark.parametrize("seed", range(3))
def test_random_control_flow_on_a_simulated_gpu(seed: int) -> None:
    agree(seed, "cuda-sim", 1)


REDUCERS = """HloModule m
first { p = (f32[], f32[]) parameter(0)
 ROOT a = f32[] get-tuple-element(p), index=0 }
second { p = (f32[], f32[]) parameter(0)
 ROOT a = f32[] get-tuple-element(p), index=1 }
larger { a = f32[] parameter(0)
 b = f32[] parameter(1)
 g = pred[] compare(a, b), direction=GE
 t = (f32[], f32[]) tuple(a, b)
 ROOT c = f32[] conditional(g, t, t), true_computation=first, false_computation=second }
called { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT r = f32[] call(a, b), to_apply=larger }
both { a = s32[] parameter(0)
 ROOT n = (s32[], s32[]) tuple(a, a) }
seven { a = s32[] parameter(0)
 c = s32[] constant(7)
 ROOT n = (s32[], s32[]) tuple(c, a) }
chosen { a = s32[] parameter(0)
 b = s32[] parameter(1)
 g = pred[] compare(a, b), direction=GE
 d = s32[] convert(g)
 t = (s32[], s32[]) conditional(d, b, a, b), branch_computations={both, seven, both}
 ROOT y = s32[] get-tuple-element(t), index=1 }
before { a = f32[] parameter(0)
 b = f32[] parameter(1)
 g = f32[] fusion(a, b), kind=kLoop, calls=larger
 e = pred[] compare(g, b), direction=EQ
 s = pred[] compare(a, b), direction=NE
 ROOT l = pred[] and(e, s) }
ENTRY e { x = f32[5,7] parameter(0)
 y = s32[6] parameter(1)
 z = f32[] constant(-inf)
 w = s32[] constant(-100)
 r = f32[5] reduce(x, z), dimensions={1}, to_apply=called
 q = s32[] reduce(y, w), dimensions={0}, to_apply=chosen
 v = f32[5,4] reduce-window(x, z), window={size=1x4}, to_apply=called
 m = f32[5,7] map(x, x), dimensions={0,1}, to_apply=larger
 s = f32[5,7] sort(x), dimensions={1}, to_apply=before
 ROOT o = (f32[5], s32[], f32[5,4], f32[5,7], f32[5,7]) tuple(r, q, v, m, s) }"""


def test_scalar_computations_may_branch_and_call() -> None:
    module = parse(REDUCERS)
    rng = np.random.default_rng(0)
    args = [rng.standard_normal((5, 7)).astype(np.float32), np.arange(6, dtype=np.int32)]
    for found, wanted in zip(build(module)(*args), evaluate(module, args), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_a_loop_in_a_reducer_is_refused_by_name() -> None:
    text = """HloModule m
more { a = f32[] parameter(0)
 z = f32[] constant(9)
 ROOT l = pred[] compare(a, z), direction=LT }
turn { a = f32[] parameter(0)
 ROOT b = f32[] add(a, a) }
slow { a = f32[] parameter(0)
 b = f32[] parameter(1)
 c = f32[] add(a, b)
 ROOT w = f32[] while(c), condition=more, body=turn }
ENTRY e { x = f32[5] parameter(0)
 z = f32[] constant(1)
 ROOT r = f32[] reduce(x, z), dimensions={0}, to_apply=slow }"""
    with pytest.raises(UnsupportedError) as found:
        build(parse(text))
    assert "`w` in `slow`" in str(found.value)


@pytest.mark.parametrize("dtype", ["s64[]", "u8[]", "f32[]", "pred[]"])
def test_listed_branches_are_chosen_by_an_s32(dtype: str) -> None:
    text = f"""HloModule m
a {{ ROOT p = f32[] parameter(0) }}
b {{ p = f32[] parameter(0)
 ROOT n = f32[] negate(p) }}
ENTRY e {{ i = {dtype} parameter(0)
 x = f32[] parameter(1)
 ROOT c = f32[] conditional(i, x, x), branch_computations={{a, b}} }}"""
    with pytest.raises(VerifyError, match="chooses"):
        build(parse(text))


HANDED_ON = """HloModule m
less {
  s = (s32[], f32[4,50], f32[50,50], f32[4,50]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  three = s32[] constant(3)
  ROOT p = pred[] compare(n, three), direction=LT
}
step {
  s = (s32[], f32[4,50], f32[50,50], f32[4,50]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  x = f32[4,50] get-tuple-element(s), index=1
  w = f32[50,50] get-tuple-element(s), index=2
  y = f32[4,50] get-tuple-element(s), index=3
  one = s32[] constant(1)
  k = s32[] add(n, one)
  d = f32[4,50] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT t = (s32[], f32[4,50], f32[50,50], f32[4,50]) tuple(k, d, w, x)
}
ENTRY e {
  x = f32[4,50] parameter(0)
  w = f32[50,50] parameter(1)
  zero = s32[] constant(0)
  s = (s32[], f32[4,50], f32[50,50], f32[4,50]) tuple(zero, x, w, x)
  l = (s32[], f32[4,50], f32[50,50], f32[4,50]) while(s), condition=less, body=step
  a = f32[4,50] get-tuple-element(l), index=1
  b = f32[50,50] get-tuple-element(l), index=2
  c = f32[4,50] get-tuple-element(l), index=3
  ROOT t = (f32[4,50], f32[50,50], f32[4,50]) tuple(a, b, c)
}
"""


@pytest.mark.parametrize("target", ["cpu", "cuda-sim -arch=sm_80"])
def test_what_a_body_hands_on_is_not_copied(target: str) -> None:
    """Weights in a loop's state are read where they are, and copied once if they are a result."""
    module = parse(HANDED_ON)
    exe = build(module, target)
    rng = np.random.default_rng(0)
    args = [rng.integers(-2, 3, s).astype(np.float32) for s in ((4, 50), (50, 50))]
    for found, wanted in zip(exe(*args), evaluate(module, args), strict=True):
        np.testing.assert_array_equal(found, wanted)
    copies = [t for t in walk(exe.bundle.plan.thunks) if isinstance(t, CopyThunk)]
    assert [t.target.memory for t in copies if t.source.bytes == 4 * 50 * 50] == ["result"]
