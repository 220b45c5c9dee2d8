"""Products of dequantized operands: which become products of integers, and the same values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nestwright.ir.arrays import Array
from nestwright.ir.hlo import freeze, optimize, optimize_narrow, parse
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.nodes import HloModule
from nestwright.ir.target import Target

VNNI, PLAIN = "cpu -mcpu=sapphirerapids", "cpu -mcpu=haswell"
M, K, N = 5, 72, 66
DEQUANTIZED = """HloModule qdq
ENTRY main {
  q = CODE[5,72] parameter(0)
  w = s8[66,72] parameter(1)
  t = f32[SCALES] parameter(2)
  f = f32[5,72] convert(q)
  z = f32[] constant(ZERO)
  zs = f32[5,72] broadcast(z), dimensions={}
  d = f32[5,72] subtract(f, zs)
  s = f32[] constant(0.25)
  ss = f32[5,72] broadcast(s), dimensions={}
  x = f32[5,72] multiply(d, ss)
  g = f32[66,72] convert(w)
  ts = f32[66,72] broadcast(t), dimensions={AXIS}
  v = f32[66,72] multiply(g, ts)
  ROOT y = f32[5,66] dot(x, v), lhs_contracting_dims={1}, rhs_contracting_dims={1}
}
"""
FLOAT = """HloModule weights_only
ENTRY main {
  x = f32[5,72] parameter(0)
  w = u8[72,66] parameter(1)
  t = f32[66] parameter(2)
  g = f32[72,66] convert(w)
  z = f32[] constant(ZERO)
  zs = f32[72,66] broadcast(z), dimensions={}
  d = f32[72,66] subtract(g, zs)
  ts = f32[72,66] broadcast(t), dimensions={1}
  v = f32[72,66] multiply(d, ts)
  ROOT y = f32[5,66] dot(x, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
INTEGERS = """HloModule integers
ENTRY main {
  q = s8[5,72] parameter(0)
  w = s8[72,66] parameter(1)
  ROOT y = s32[5,66] dot(q, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


def text(code: str = "s8", zero: str = "3", axis: str = "0") -> str:
    scales = {"0": "66", "1": "72", "": ""}[axis]
    named = {"CODE": code, "ZERO": zero, "AXIS": axis, "SCALES": scales}
    made = DEQUANTIZED
    for word, value in named.items():
        made = made.replace(word, value)
    return made


def codes(dtype: Any, *shape: int, seed: int = 0) -> Array:
    info = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(info.min, info.max + 1, shape).astype(dtype)


def scales(*shape: int) -> Array:
    return np.random.default_rng(9).uniform(0.5, 2, shape).astype(np.float32)


def multiplied(module: HloModule) -> list[str]:
    """Return the types that each product multiplies, of the operands before conversions."""
    found = []
    for i in module.entry.instructions:
        if i.opcode in ("dot", "convolution"):
            sides = [o.operands[0] if o.opcode == "convert" else o for o in i.operands]
            found.append(" ".join(str(o.array.dtype) for o in sides) + f" {i.array.dtype}")
    return found


@pytest.mark.parametrize(("code", "dtype"), [("s8", np.int8), ("u8", np.uint8)])
@pytest.mark.parametrize("zero", ["0", "3", "-128", "255"])
@pytest.mark.parametrize("axis", ["0", ""])
def test_products_of_codes_are_exact(code: str, dtype: Any, zero: str, axis: str) -> None:
    q, w = codes(dtype, M, K), codes(np.int8, N, K, seed=1)
    t = scales(N) if axis else scales()
    module = optimize(freeze(parse(text(code, zero, axis)), {1: w, 2: t}))
    assert multiplied(module) == ["s8 s8 s32"]
    whole = (q.astype(np.int64) - int(zero)) @ w.astype(np.int64).T
    exact = whole.astype(np.float64) * 0.25 * t.astype(np.float64)
    np.testing.assert_allclose(evaluate(module, [q]), exact, rtol=1e-6)


@pytest.mark.parametrize(
    ("code", "zero", "axis", "want"),
    [
        ("s8", "0", "", ["s8 s8 s32"]),
        ("s8", "3", "", ["f32 f32 f32"]),  # would need the sums of the columns
        ("u8", "0", "", ["f32 f32 f32"]),
    ],
)
def test_codes_that_are_given_are_multiplied_too(
    code: str, zero: str, axis: str, want: list[str]
) -> None:
    q, w = codes(np.dtype(f"{'u' * (code == 'u8')}int8").type, M, K), codes(np.int8, N, K, seed=1)
    t = scales(N) if axis else scales()
    module = optimize(freeze(parse(text(code, zero, axis)), {2: t}))
    assert multiplied(module) == want
    expected = evaluate(parse(text(code, zero, axis)), [q, w, t])
    np.testing.assert_allclose(evaluate(module, [q, w]), expected, rtol=1e-4, atol=0.05)


def test_zero_points_of_integers_count_too() -> None:
    there = text().replace("f = f32[5,72] convert(q)", "i = s32[5,72] convert(q)")
    there = there.replace("z = f32[] constant", "z = s32[] constant")
    there = there.replace("zs = f32[5,72]", "zs = s32[5,72]")
    there = there.replace(
        "d = f32[5,72] subtract(f, zs)", "j = s32[5,72] subtract(i, zs)\n  d = f32[5,72] convert(j)"
    )
    w, t = codes(np.int8, N, K, seed=1), scales(N)
    module = optimize(freeze(parse(there), {1: w, 2: t}))
    assert multiplied(module) == ["s8 s8 s32"]
    q = codes(np.int8, M, K)
    expected = evaluate(parse(there), [q, w, t])
    np.testing.assert_allclose(evaluate(module, [q]), expected, rtol=1e-4, atol=0.05)


@pytest.mark.parametrize(
    ("there", "frozen"),
    [
        (text(zero="0.5"), True),  # no whole number
        (text(zero="1000"), True),  # no code
        (text(axis="1"), True),  # a scale per term cannot leave the sum
        (text(), False),
    ],
)
def test_other_products_stay_floats(there: str, frozen: bool) -> None:
    w, t = codes(np.int8, N, K), scales(K if "f32[72] " in there else N)
    module = optimize(freeze(parse(there), {1: w, 2: t} if frozen else {2: t}))
    assert all(m.endswith("f32") for m in multiplied(module))


def test_sums_that_could_overflow_stay_floats() -> None:
    deep = text().replace("72", "32772")
    module = optimize(freeze(parse(deep), {1: codes(np.int8, N, 32772), 2: scales(N)}))
    assert all(m.endswith("f32") for m in multiplied(module))


@pytest.mark.parametrize("zero", ["128", "130"])
def test_scales_of_weights_alone_leave_the_product(zero: str) -> None:
    w, t = codes(np.uint8, K, N) // 2 + 64, scales(N)
    there = FLOAT.replace("ZERO", zero)
    module = optimize(freeze(parse(there), {1: w.astype(np.uint8), 2: t}))
    assert multiplied(module) == ["f32 s8 f32"]
    x = np.random.default_rng(2).standard_normal((M, K)).astype(np.float32)
    expected = evaluate(parse(there), [x, w.astype(np.uint8), t])
    np.testing.assert_allclose(evaluate(module, [x]), expected, rtol=1e-4, atol=1e-2)


def test_weights_beyond_signed_bytes_stay() -> None:
    w = codes(np.uint8, K, N)
    module = optimize(freeze(parse(FLOAT.replace("ZERO", "3")), {1: w, 2: scales(N)}))
    assert multiplied(module) != ["f32 s8 f32"]


@pytest.mark.parametrize("spec", [VNNI, PLAIN])
def test_signed_bytes_become_unsigned_ones_where_the_processor_multiplies_those(spec: str) -> None:
    q, w = codes(np.int8, M, K), codes(np.int8, K, N, seed=1)
    target = Target.parse(spec)
    module, _ = optimize_narrow(freeze(parse(INTEGERS), {1: w}), None, target)
    assert multiplied(module) == ["u8 s8 s32" if spec == VNNI else "s8 s8 s32"]
    assert np.array_equal(evaluate(module, [q]), q.astype(np.int32) @ w.astype(np.int32))
    assert multiplied(optimize_narrow(parse(INTEGERS), None, target)[0]) == ["s8 s8 s32"]


@pytest.mark.parametrize(("code", "dtype"), [("s8", np.int8), ("u8", np.uint8)])
def test_unsigned_codes_are_not_flipped_twice(code: str, dtype: Any) -> None:
    q, w, t = codes(dtype, M, K), codes(np.int8, N, K, seed=1), scales(N)
    frozen = freeze(parse(text(code)), {1: w, 2: t})
    module, _ = optimize_narrow(frozen, None, Target.parse(VNNI))
    assert multiplied(module) == ["u8 s8 s32"]
    flips = [i.opcode for i in module.entry.instructions].count("xor")
    assert flips == (code == "s8")
    np.testing.assert_allclose(evaluate(module, [q]), evaluate(optimize(frozen), [q]), rtol=1e-6)


CONVOLUTION = """HloModule layer
ENTRY main {
  q = CODE[2,6,7,DEEP] parameter(0)
  w = s8[OUT,PART,SIZE] parameter(1)
  t = f32[OUT] parameter(2)
  f = f32[2,6,7,DEEP] convert(q)
  z = f32[] constant(ZERO)
  zs = f32[2,6,7,DEEP] broadcast(z), dimensions={}
  d = f32[2,6,7,DEEP] subtract(f, zs)
  s = f32[] constant(0.25)
  ss = f32[2,6,7,DEEP] broadcast(s), dimensions={}
  x = f32[2,6,7,DEEP] multiply(d, ss)
  g = f32[OUT,PART,SIZE] convert(w)
  ts = f32[OUT,PART,SIZE] broadcast(t), dimensions={0}
  v = f32[OUT,PART,SIZE] multiply(g, ts)
  ROOT y = f32[RESULT] convolution(x, v), window={WINDOW}, dim_labels=b01f_oi01->b01f,
      feature_group_count=GROUPS
}
"""
LAYERS = {
    "same": ((12, 12, 9, 1), "3,3", "2,6,7,9", "size=3x3 pad=1_1x1_1"),
    "strided": ((12, 12, 9, 1), "3,2", "2,3,4,9", "size=3x2 stride=2x2 pad=1_0x0_2"),
    "cropped": ((12, 12, 9, 1), "3,3", "2,3,6,9", "size=3x3 pad=-1_0x1_0"),
    "dilated": ((12, 12, 9, 1), "3,3", "2,11,13,9", "size=3x3 pad=1_1x1_1 lhs_dilate=2x2"),
    "pixels": ((12, 12, 9, 1), "1,1", "2,6,7,9", "size=1x1"),
    "channels": ((9, 1, 9, 9), "3,3", "2,6,7,9", "size=3x3 pad=1_1x1_1"),
    "groups": ((12, 4, 6, 3), "3,3", "2,6,7,6", "size=3x3 pad=1_1x1_1"),
}


def layer(name: str, code: str, zero: int) -> tuple[HloModule, Array, dict[int, Array]]:
    """Return a quantized layer, its input and its weights."""
    (deep, part, wide, groups), size, result, window = LAYERS[name]
    made = CONVOLUTION
    named = {"CODE": code, "ZERO": zero, "DEEP": deep, "PART": part, "OUT": wide, "SIZE": size}
    for word, value in {**named, "RESULT": result, "WINDOW": window, "GROUPS": groups}.items():
        made = made.replace(word, str(value))
    taps = tuple(map(int, size.split(",")))
    q = codes(np.int8 if code == "s8" else np.uint8, 2, 6, 7, deep)
    return parse(made), q, {1: codes(np.int8, wide, part, *taps, seed=1), 2: scales(wide)}


@pytest.mark.parametrize(
    ("name", "code", "zero", "spec"),
    [
        (name, code, zero, (VNNI, PLAIN)[(n + flip) % 2])
        for n, name in enumerate(LAYERS)
        for code, zero, flip in (("s8", 0, 0), ("s8", -7, 1), ("u8", 0, 1), ("u8", 131, 0))
    ],
)
def test_convolutions_of_codes_are_exact(name: str, code: str, zero: int, spec: str) -> None:
    module, q, frozen = layer(name, code, zero)
    found, _ = optimize_narrow(freeze(module, frozen), None, Target.parse(spec))
    mixed = code == "u8" if name in ("channels", "groups") else spec == VNNI
    phases = 4 if name == "dilated" else 1
    assert multiplied(found) == phases * ["u8 s8 s32" if mixed else "s8 s8 s32"]
    wide = evaluate(module, [q, *frozen.values()])
    np.testing.assert_allclose(evaluate(found, [q]), wide, rtol=1e-5, atol=1e-2)
    steps = [i.opcode for i in found.entry.instructions]
    assert steps.count("subtract") <= phases and steps.count("xor") <= phases


@pytest.mark.parametrize("name", ["same", "channels", "groups"])
@pytest.mark.parametrize(("code", "zero"), [("u8", 0), ("s8", -128)])
def test_codes_padded_with_their_least_are_padded_by_the_window(
    name: str, code: str, zero: int
) -> None:
    module, _, frozen = layer(name, code, zero)
    found, _ = optimize_narrow(freeze(module, frozen), None, Target.parse(VNNI))
    assert "pad" not in [i.opcode for i in found.entry.instructions]


@pytest.mark.parametrize(("code", "zero"), [("s8", 128), ("u8", -5)])
def test_padding_is_with_codes_or_not_with_integers(code: str, zero: int) -> None:
    """Where no code is the zero point, padding would have to be another number than zero."""
    for name, kept in (("same", "f32 s8 f32"), ("pixels", "s8 s8 s32")):
        module, q, frozen = layer(name, code, zero)
        found = optimize(freeze(module, frozen))
        assert multiplied(found) == [kept]
        wide = evaluate(module, [q, *frozen.values()])
        np.testing.assert_allclose(evaluate(found, [q]), wide, rtol=1e-5, atol=1e-2)
