"""Simplification: data movement, arithmetic, integer ranges, tuples."""

from __future__ import annotations

import pytest

from nestwright.ir.hlo import parse
from nestwright.ir.hlo.passes.simplify.algebra import simplify_algebra
from nestwright.ir.hlo.passes.simplify.shapes import simplify_shapes
from nestwright.ir.hlo.passes.simplify.tuples import explicit_tuples, simplify_tuples
from nestwright.ir.hlo.patterns.ranges import interval

SUM = "sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }\n"

SHAPES = {
    "reshape of reshape": (
        "x = f32[2,6] parameter(0)  y = f32[12] reshape(x)  ROOT z = f32[3,4] reshape(y)",
        "x = f32[2,6] parameter(0)  ROOT z = f32[3,4] reshape(x)",
    ),
    "reshape there and back": (
        "x = f32[2,6] parameter(0)  y = f32[12] reshape(x)  z = f32[2,6] reshape(y)"
        "  ROOT n = f32[2,6] negate(z)",
        "x = f32[2,6] parameter(0)  ROOT n = f32[2,6] negate(x)",
    ),
    "transpose of transpose": (
        "x = f32[2,3,4] parameter(0)  y = f32[4,2,3] transpose(x), dimensions={2,0,1}"
        "  ROOT z = f32[3,4,2] transpose(y), dimensions={2,0,1}",
        "x = f32[2,3,4] parameter(0)  ROOT z = f32[3,4,2] transpose(x), dimensions={1,2,0}",
    ),
    "transpose of unit dimensions": (
        "x = f32[1,3,4] parameter(0)  ROOT z = f32[3,1,4] transpose(x), dimensions={1,0,2}",
        "x = f32[1,3,4] parameter(0)  ROOT z = f32[3,1,4] reshape(x)",
    ),
    "transpose of a transpose that was split": (
        "x = f32[4,5,6] parameter(0)  y = f32[6,4,5] transpose(x), dimensions={2,0,1}"
        "  z = f32[2,3,4,5] reshape(y)  ROOT t = f32[4,2,5,3] transpose(z), dimensions={2,0,3,1}",
        "x = f32[4,5,6] parameter(0)  z = f32[4,5,2,3] reshape(x)"
        "  ROOT t = f32[4,2,5,3] transpose(z), dimensions={0,2,1,3}",
    ),
    "transposes that cancel around a split": (
        "x = f32[4,5,6] parameter(0)  y = f32[6,4,5] transpose(x), dimensions={2,0,1}"
        "  z = f32[2,3,4,5] reshape(y)  ROOT t = f32[4,5,2,3] transpose(z), dimensions={2,3,0,1}",
        "x = f32[4,5,6] parameter(0)  ROOT t = f32[4,5,2,3] reshape(x)",
    ),
    "transpose of parts that stay neighbors": (
        "x = f32[20,6] parameter(0)  y = f32[4,5,2,3] reshape(x)"
        "  z = f32[5,4,2,3] transpose(y), dimensions={1,0,2,3}  ROOT t = f32[20,6] reshape(z)",
        "x = f32[20,6] parameter(0)  y = f32[4,5,6] reshape(x)"
        "  z = f32[5,4,6] transpose(y), dimensions={1,0,2}  ROOT t = f32[20,6] reshape(z)",
    ),
    "transpose of an uneven split": (
        "x = f32[4,6] parameter(0)  y = f32[6,4] transpose(x), dimensions={1,0}"
        "  z = f32[4,6] reshape(y)  ROOT t = f32[6,4] transpose(z), dimensions={1,0}",
        "x = f32[4,6] parameter(0)  y = f32[6,4] transpose(x), dimensions={1,0}"
        "  z = f32[4,6] reshape(y)  ROOT t = f32[6,4] transpose(z), dimensions={1,0}",
    ),
    "broadcast, reshape, broadcast": (
        "x = f32[8] parameter(0)  a = f32[1,1,8] reshape(x)"
        "  b = f32[1,1,8] broadcast(a), dimensions={0,1,2}  c = f32[8] reshape(b)"
        "  ROOT d = f32[2,4,8] broadcast(c), dimensions={2}",
        "x = f32[8] parameter(0)  ROOT d = f32[2,4,8] broadcast(x), dimensions={2}",
    ),
    "broadcast of unit dimensions": (
        "x = f32[2,1,3] parameter(0)  ROOT d = f32[2,1,3,4] broadcast(x), dimensions={0,1,2}",
        "x = f32[2,1,3] parameter(0)  y = f32[2,3] reshape(x)"
        "  ROOT d = f32[2,1,3,4] broadcast(y), dimensions={0,2}",
    ),
    "broadcast of broadcast": (
        "x = f32[3] parameter(0)  a = f32[3,4] broadcast(x), dimensions={0}"
        "  ROOT b = f32[3,2,4] broadcast(a), dimensions={0,2}",
        "x = f32[3] parameter(0)  ROOT b = f32[3,2,4] broadcast(x), dimensions={0}",
    ),
    "reshape of broadcast": (
        "x = f32[6] parameter(0)  a = f32[4,6] broadcast(x), dimensions={1}"
        "  ROOT b = f32[2,2,3,2] reshape(a)",
        "x = f32[6] parameter(0)  y = f32[3,2] reshape(x)"
        "  ROOT b = f32[2,2,3,2] broadcast(y), dimensions={2,3}",
    ),
    "transpose of broadcast": (
        "x = f32[3] parameter(0)  a = f32[3,4] broadcast(x), dimensions={0}"
        "  ROOT b = f32[4,3] transpose(a), dimensions={1,0}",
        "x = f32[3] parameter(0)  ROOT b = f32[4,3] broadcast(x), dimensions={1}",
    ),
    "constant of equal elements": (
        "ROOT c = f32[2,2] constant({ {3, 3}, {3, 3} })",
        "c = f32[] constant(3)  ROOT b = f32[2,2] broadcast(c), dimensions={}",
    ),
    "slice of all": (
        "x = f32[4,4] parameter(0)  y = f32[4,4] slice(x), slice={[0:4], [0:4]}"
        "  ROOT n = f32[4,4] negate(y)",
        "x = f32[4,4] parameter(0)  ROOT n = f32[4,4] negate(x)",
    ),
    "slice of slice": (
        "x = f32[20] parameter(0)  y = f32[8] slice(x), slice={[2:18:2]}"
        "  ROOT z = f32[3] slice(y), slice={[1:7:2]}",
        "x = f32[20] parameter(0)  ROOT z = f32[3] slice(x), slice={[4:13:4]}",
    ),
    "slice of one part": (
        "x = f32[4] parameter(0)  y = f32[6] parameter(1)"
        "  c = f32[10] concatenate(x, y), dimensions={0}  ROOT z = f32[3] slice(c), slice={[5:8]}",
        "x = f32[4] parameter(0)  y = f32[6] parameter(1)  ROOT z = f32[3] slice(y), slice={[1:4]}",
    ),
    "pad of nothing": (
        "x = f32[4] parameter(0)  v = f32[] parameter(1)  p = f32[4] pad(x, v), padding=0_0"
        "  ROOT n = f32[4] negate(p)",
        "x = f32[4] parameter(0)  v = f32[] parameter(1)  ROOT n = f32[4] negate(x)",
    ),
    "pad of pad": (
        "x = f32[4] parameter(0)  v = f32[] parameter(1)  p = f32[7] pad(x, v), padding=1_2"
        "  ROOT q = f32[8] pad(p, v), padding=1_0",
        "x = f32[4] parameter(0)  v = f32[] parameter(1)  ROOT q = f32[8] pad(x, v), padding=2_2",
    ),
    "concatenate of one": (
        "x = f32[4] parameter(0)  c = f32[4] concatenate(x), dimensions={0}"
        "  ROOT n = f32[4] negate(c)",
        "x = f32[4] parameter(0)  ROOT n = f32[4] negate(x)",
    ),
    "reverse of a unit dimension": (
        "x = f32[1,4] parameter(0)  ROOT r = f32[1,4] reverse(x), dimensions={0,1}",
        "x = f32[1,4] parameter(0)  ROOT r = f32[1,4] reverse(x), dimensions={1}",
    ),
    "iota of several dimensions": (
        "ROOT i = s32[3,4] iota(), iota_dimension=1",
        "i = s32[4] iota(), iota_dimension=0  ROOT b = s32[3,4] broadcast(i), dimensions={1}",
    ),
    "a constant of equal elements": (
        "ROOT c = f32[2,3] constant({{7, 7, 7}, {7, 7, 7}})",
        "c = f32[] constant(7)  ROOT b = f32[2,3] broadcast(c), dimensions={}",
    ),
    "a complex constant of equal elements": (
        "ROOT c = c64[2] constant({(1, 2), (1, 2)})",
        "c = f32[] constant(1)  b = f32[2] broadcast(c), dimensions={}"
        "  d = f32[] constant(2)  e = f32[2] broadcast(d), dimensions={}"
        "  ROOT z = c64[2] complex(b, e)",
    ),
    "dynamic-slice at constants": (
        "x = f32[9] parameter(0)  i = s32[] constant(7)"
        "  ROOT d = f32[4] dynamic-slice(x, i), dynamic_slice_sizes={4}",
        "x = f32[9] parameter(0)  ROOT d = f32[4] slice(x), slice={[5:9]}",
    ),
    "bitcast-convert to its own type": (
        "x = f32[4] parameter(0)  b = f32[4] bitcast-convert(x)  ROOT n = f32[4] negate(b)",
        "x = f32[4] parameter(0)  ROOT n = f32[4] negate(x)",
    ),
    "a size that is known": (
        "x = f32[3,5] parameter(0)  ROOT s = s32[] get-dimension-size(x), dimensions={1}",
        "x = f32[3,5] parameter(0)  ROOT s = s32[] constant(5)",
    ),
    "clamp by scalars": (
        "a = f32[] parameter(0)  x = f32[3] parameter(1)  b = f32[] parameter(2)"
        "  ROOT c = f32[3] clamp(a, x, b)",
        "a = f32[] parameter(0)  x = f32[3] parameter(1)  b = f32[] parameter(2)"
        "  s = f32[3] broadcast(a), dimensions={}  t = f32[3] broadcast(b), dimensions={}"
        "  ROOT c = f32[3] clamp(s, x, t)",
    ),
}

REDUCTIONS = {
    "over a unit dimension": (
        "x = f32[3,1] parameter(0)  z = f32[] constant(0)"
        "  ROOT r = f32[3] reduce(x, z), dimensions={1}, to_apply=sum",
        "x = f32[3,1] parameter(0)  ROOT r = f32[3] reshape(x)",
    ),
    "over a unit dimension and another": (
        "x = f32[3,1,4] parameter(0)  z = f32[] constant(0)"
        "  ROOT r = f32[3] reduce(x, z), dimensions={1,2}, to_apply=sum",
        "x = f32[3,1,4] parameter(0)  y = f32[3,4] reshape(x)  z = f32[] constant(0)"
        "  ROOT r = f32[3] reduce(y, z), dimensions={1}, to_apply=sum",
    ),
    "of a reduction": (
        "x = f32[3,5,4] parameter(0)  z = f32[] constant(0)"
        "  r = f32[3,4] reduce(x, z), dimensions={1}, to_apply=sum"
        "  ROOT s = f32[3] reduce(r, z), dimensions={1}, to_apply=sum",
        "x = f32[3,5,4] parameter(0)  z = f32[] constant(0)"
        "  ROOT s = f32[3] reduce(x, z), dimensions={1,2}, to_apply=sum",
    ),
    "with an init that counts": (
        "x = f32[3,1] parameter(0)  z = f32[] constant(2)"
        "  ROOT r = f32[3] reduce(x, z), dimensions={1}, to_apply=sum",
        "x = f32[3,1] parameter(0)  z = f32[] constant(2)"
        "  b = f32[3] broadcast(z), dimensions={}  y = f32[3] reshape(x)"
        "  ROOT s = f32[3] add(b, y)",
    ),
}


def entry(body: str) -> str:
    return f"ENTRY main {{ {body} }}"


@pytest.mark.parametrize("name", SHAPES)
def test_data_movement(name, becomes):
    before, after = SHAPES[name]
    becomes(simplify_shapes, entry(before), entry(after))


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name, becomes):
    before, after = REDUCTIONS[name]
    becomes(simplify_shapes, SUM + entry(before), SUM + entry(after))


def unary(op: str, *, before: str = "", dtype: str = "f32") -> str:
    return f"x = {dtype}[4] parameter(0) {before} ROOT r = {dtype}[4] {op}"


def splat(value: object, dtype: str = "f32", name: str = "c") -> str:
    return (
        f" k{name} = {dtype}[] constant({value})"
        f" {name} = {dtype}[4] broadcast(k{name}), dimensions={{}} "
    )


ONE_TO_X = [
    ("multiply(x, c)", splat(1), "f32"),
    ("multiply(c, x)", splat(1), "f32"),
    ("add(x, c)", splat(0), "f32"),
    ("subtract(x, c)", splat(0), "f32"),
    ("divide(x, c)", splat(1), "f32"),
    ("power(x, c)", splat(1), "f32"),
    ("maximum(x, c)", splat("-inf"), "f32"),
    ("minimum(c, x)", splat("inf"), "f32"),
    ("maximum(x, x)", "", "f32"),
    ("negate(n)", " n = f32[4] negate(x) ", "f32"),
    ("maximum(x, c)", splat(-2147483648, "s32"), "s32"),
    ("and(x, c)", splat("true", "pred"), "pred"),
    ("or(x, c)", splat("false", "pred"), "pred"),
    ("not(n)", " n = pred[4] not(x) ", "pred"),
    ("select(c, x, n)", splat("true", "pred") + " n = f32[4] negate(x) ", "f32"),
    ("select(c, n, x)", splat("false", "pred") + " n = f32[4] negate(x) ", "f32"),
    ("convert(w)", " w = f64[4] convert(x) ", "f32"),
    ("reduce-precision(x), exponent_bits=8, mantissa_bits=23", "", "f32"),
]


@pytest.mark.parametrize("op, before, dtype", ONE_TO_X, ids=[o[0] for o in ONE_TO_X])
def test_gives_its_operand(op, before, dtype, becomes):
    wanted = f"ROOT x = {dtype}[4] parameter(0)"
    becomes(simplify_algebra, entry(unary(op, before=before, dtype=dtype)), entry(wanted))


BECOME = [
    ("power(a, c)", splat(2), "multiply(a, a)"),
    ("power(a, c)", splat(-0.5), "rsqrt(a)"),
    ("divide(c, s)", splat(1) + " s = f32[4] sqrt(a) ", "rsqrt(a)"),
    ("multiply(a, c)", splat(-1), "negate(a)"),
]


@pytest.mark.parametrize("op, more, after", BECOME, ids=[b[0] for b in BECOME])
def test_becomes_another_operation(op, more, after, becomes):
    positive = " a = f32[4] abs(x) "
    before = entry(unary(op, before=positive + more))
    becomes(simplify_algebra, before, entry(unary(after, before=positive)))


def test_division_by_a_power_of_two(becomes):
    before = unary("divide(x, c)", before=splat(8))
    becomes(simplify_algebra, entry(before), entry(unary("multiply(x, c)", before=splat(0.125))))
    becomes(simplify_algebra, entry(unary("divide(x, c)", before=splat(3))), None)


@pytest.mark.parametrize("dtype", ["f32", "s32"])
def test_minus_one_times_a_number_is_its_negative(dtype, becomes):
    before = unary("multiply(x, c)", before=splat(-1, dtype), dtype=dtype)
    becomes(simplify_algebra, entry(before), entry(unary("negate(x)", dtype=dtype)))


def test_zero_times_an_integer_alone_is_zero(becomes):
    becomes(simplify_algebra, entry(unary("multiply(x, c)", before=splat(0))), None)
    before = unary("multiply(x, c)", before=splat(0, "s32"), dtype="s32")
    after = "x = s32[4] parameter(0) k = s32[] constant(0)"
    after += " ROOT r = s32[4] broadcast(k), dimensions={}"
    becomes(simplify_algebra, entry(before), entry(after))


def test_an_integer_less_itself_is_zero(becomes):
    """A float is not: it may be infinite or NaN."""
    after = "x = s32[4] parameter(0) k = s32[] constant(0)"
    after += " ROOT r = s32[4] broadcast(k), dimensions={}"
    becomes(simplify_algebra, entry(unary("subtract(x, x)", dtype="s32")), entry(after))
    becomes(simplify_algebra, entry(unary("subtract(x, x)")), None)


@pytest.mark.parametrize("dtype", ["s32", "f32"])
def test_differences_of_integers_are_negated_by_their_order(dtype, becomes):
    """Floats that are equal have a difference of another sign in the other order."""
    rows = f"x = {dtype}[4] parameter(0) y = {dtype}[4] parameter(1)"
    before = f"{rows} d = {dtype}[4] subtract(x, y) ROOT r = {dtype}[4] negate(d)"
    after = f"{rows} ROOT r = {dtype}[4] subtract(y, x)"
    becomes(simplify_algebra, entry(before), entry(after) if dtype == "s32" else None)


def test_splats_are_folded(becomes):
    before = splat(2) + splat(3, name="d") + "ROOT r = f32[4] multiply(c, d)"
    after = "k = f32[] constant(6) ROOT r = f32[4] broadcast(k), dimensions={}"
    becomes(simplify_algebra, entry(before), entry(after))


def test_arithmetic_is_done_before_the_broadcast(becomes):
    before = (
        "x = f32[2] parameter(0)  b = f32[2,3] broadcast(x), dimensions={0}"
        "  k = f32[] constant(5)  c = f32[2,3] broadcast(k), dimensions={}"
        "  ROOT r = f32[2,3] add(b, c)"
    )
    after = (
        "x = f32[2] parameter(0)  k = f32[] constant(5)  c = f32[2] broadcast(k), dimensions={}"
        "  r = f32[2] add(x, c)  ROOT b = f32[2,3] broadcast(r), dimensions={0}"
    )
    becomes(simplify_algebra, entry(before), entry(after))


RANGES = {
    "i": (0, 7),
    "clamp": (2, 5),
    "between": (0, 8),
    "remainder": (0, 2),
    "sum": (1, 8),
    "chosen": (-3, 7),
    "unknown": (-(2**31), 2**31 - 1),
    "wraps": (-(2**31), 2**31 - 1),
}


@pytest.mark.parametrize("name", RANGES)
def test_integer_ranges(name):
    module = parse(
        """HloModule ranges
        ENTRY main {
          unknown = s32[8] parameter(0)
          p = pred[8] parameter(1)
          i = s32[8] iota(), iota_dimension=0
          k1 = s32[] constant(1)
          one = s32[8] broadcast(k1), dimensions={}
          k2 = s32[] constant(2)
          two = s32[8] broadcast(k2), dimensions={}
          k3 = s32[] constant(3)
          three = s32[8] broadcast(k3), dimensions={}
          minus = s32[8] negate(three)
          k4 = s32[] constant(-3)
          low = s32[8] broadcast(k4), dimensions={}
          k5 = s32[] constant(5)
          five = s32[8] broadcast(k5), dimensions={}
          clamp = s32[8] clamp(two, unknown, five)
          remainder = s32[8] remainder(i, three)
          sum = s32[8] add(i, one)
          between = s32[8] clamp(remainder, unknown, sum)
          chosen = s32[8] select(p, i, low)
          wraps = s32[8] add(unknown, one)
          ROOT t = (s32[8], s32[8], s32[8], s32[8], s32[8], s32[8], s32[8]) tuple(clamp, between,
            remainder, sum, chosen, wraps, minus)
        }"""
    )
    (found,) = (i for i in module.entry.instructions if i.name == name)
    assert interval(found) == RANGES[name]


@pytest.mark.parametrize(
    "direction, bound, answer",
    [("LT", 8, "true"), ("GE", 8, "false"), ("LT", 7, None), ("NE", -1, "true"), ("LE", 7, "true")],
)
def test_guards_on_an_iota(direction, bound, answer, becomes):
    line = " i = s32[4] iota(), iota_dimension=0 ".replace("4", "8")
    before = line + splat(bound, "s32").replace("[4]", "[8]")
    before += f"ROOT r = pred[8] compare(i, c), direction={direction}"
    after = f"k = pred[] constant({answer}) ROOT r = pred[8] broadcast(k), dimensions={{}}"
    becomes(simplify_algebra, entry(before), None if answer is None else entry(after))


def test_tuple_elements(becomes):
    before = (
        "x = f32[2] parameter(0)  n = f32[2] negate(x)  t = (f32[2], f32[2]) tuple(x, n)"
        "  ROOT e = f32[2] get-tuple-element(t), index=1"
    )
    becomes(
        simplify_tuples, entry(before), entry("x = f32[2] parameter(0)  ROOT n = f32[2] negate(x)")
    )


def test_whole_tuples_are_taken_apart(becomes):
    less = (
        "less { a = f32[] parameter(0) b = f32[] parameter(1) c = f32[] parameter(2)"
        " d = f32[] parameter(3) ROOT l = pred[] compare(a, b), direction=LT }\n"
    )
    sort = (
        "x = f32[4] parameter(0)  y = f32[4] parameter(1)"
        "  {} s = (f32[4], f32[4]) sort(x, y), dimensions={{0}}, to_apply=less"
    )
    taken = (
        "  a = f32[4] get-tuple-element(s), index=0  b = f32[4] get-tuple-element(s), index=1"
        "  ROOT t = (f32[4], f32[4]) tuple(a, b)"
    )
    becomes(
        explicit_tuples, less + entry(sort.format("ROOT")), less + entry(sort.format("") + taken)
    )
