"""Complex arrays taken apart: what is left, what it means, how far off formulas are."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from nestwright.ir import complex_functions
from nestwright.ir.arrays import Array
from nestwright.ir.elementwise import TABLE
from nestwright.ir.errors import VerifyError
from nestwright.ir.hlo.analysis.verify import verify
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.nodes import HloModule
from nestwright.ir.hlo.passes.complex.elements import FORMULAS
from nestwright.ir.hlo.passes.complex.split import split_complex
from nestwright.ir.hlo.passes.complex.values import has_complex
from nestwright.ir.hlo.text import parse

TYPES = {"c64": np.complex64, "c128": np.complex128}
REAL = {"c64": "f32", "c128": "f64"}
EDGE = frozenset({"complex", "real", "imag", "parameter", "tuple", "get-tuple-element"})
LIBRARY = frozenset({"fft", "cholesky", "triangular-solve", "custom-call"})


def check(module: HloModule) -> HloModule:
    """The module split: well formed, complex only where it may be."""
    new = split_complex(module)
    verify(new)
    for c in new.computations:
        for i in c.instructions:
            shapes = (i.shape, *(o.shape for o in i.operands))
            if any(map(has_complex, shapes)):
                assert i.opcode in EDGE | LIBRARY, i
                assert c is new.entry, f"{i} in {c}"
    return new


def agree(text: str, *args: Array) -> None:
    """The split module computes what the module does."""
    module = parse(text)
    wanted, found = evaluate(module, args), evaluate(check(module), args)
    pairs = zip(_leaves(found), _leaves(wanted), strict=True)
    for a, b in pairs:
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def _leaves(value: Any) -> list[Array]:
    return [x for v in value for x in _leaves(v)] if isinstance(value, tuple) else [value]


def drawn(seed: int, *dims: int, dtype: str = "c64") -> Array:
    rng = np.random.default_rng(seed)
    parts = rng.standard_normal((2, *dims))
    return np.asarray(parts[0] + 1j * parts[1]).astype(TYPES[dtype])


def test_a_module_without_complex_numbers_is_left_alone() -> None:
    module = parse("HloModule m\nENTRY e { x = f32[2] parameter(0)  ROOT y = f32[2] sine(x) }")
    assert split_complex(module) is module


def test_what_only_passes_through_is_handed_on() -> None:
    text = "HloModule m\nENTRY e { z = c64[2] parameter(0)  ROOT w = c64[2] copy(z) }"
    new = check(parse(text))
    assert new.entry.root is new.entry.parameters[0]


def test_library_calls_keep_complex_operands() -> None:
    new = check(
        parse("""HloModule m
ENTRY e {
  z = c64[4,8] parameter(0)
  y = c64[4,8] fft(z), fft_type=FFT, fft_length={8}
  x = c64[4,8] fft(y), fft_type=IFFT, fft_length={8}
  ROOT w = c64[4,8] negate(x)
}
""")
    )
    second = next(i for i in new.entry.instructions if i.attrs.get("fft_type") == "IFFT")
    assert second.operands[0].opcode == "fft"  # nothing is taken apart between the two


def test_states_and_branches_carry_both_parts() -> None:
    agree(
        """HloModule m
double { z = c64[3] parameter(0)  ROOT r = c64[3] add(z, z) }
square { z = c64[3] parameter(0)  ROOT r = c64[3] multiply(z, z) }
test {
  s = (s32[], (c64[3], f32[3])) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3)
  ROOT r = pred[] compare(i, n), direction=LT
}
turn {
  s = (s32[], (c64[3], f32[3])) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  w = (c64[3], f32[3]) get-tuple-element(s), index=1
  z = c64[3] get-tuple-element(w), index=0
  c = c64[3] conditional(i, z, z, z), branch_computations={double, square, double}
  x = f32[3] abs(c)
  one = s32[] constant(1)
  j = s32[] add(i, one)
  v = (c64[3], f32[3]) tuple(c, x)
  ROOT r = (s32[], (c64[3], f32[3])) tuple(j, v)
}
ENTRY e {
  z = c64[3] parameter(0)
  i = s32[] constant(0)
  x = f32[3] real(z)
  v = (c64[3], f32[3]) tuple(z, x)
  s = (s32[], (c64[3], f32[3])) tuple(i, v)
  ROOT r = (s32[], (c64[3], f32[3])) while(s), condition=test, body=turn
}
""",
        drawn(0, 3),
    )


REDUCERS = {
    "add": "ROOT r = c64[] add(a, b)",
    "multiply": "ROOT r = c64[] multiply(a, b)",
    "larger": """x = f32[] abs(a)
  y = f32[] abs(b)
  w = pred[] compare(x, y), direction=GT
  ROOT r = c64[] select(w, a, b)""",
}


@pytest.mark.parametrize("name", REDUCERS)
def test_reductions(name: str) -> None:
    text = f"""HloModule m
f {{
  a = c64[] parameter(0)
  b = c64[] parameter(1)
  {REDUCERS[name]}
}}
ENTRY e {{
  z = c64[5,6] parameter(0)
  s = c64[] constant((1, -1))
  r = c64[6] reduce(z, s), dimensions={{0}}, to_apply=f
  w = c64[5,5] reduce-window(z, s), window={{size=1x2}}, to_apply=f
  at = s32[2,1] constant({{{{3}}, {{1}}}})
  u = c64[2,6] slice(z), slice={{[0:2], [0:6]}}
  v = c64[5,6] scatter(z, at, u), update_window_dims={{1}}, inserted_window_dims={{0}},
    scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=f
  ROOT t = (c64[6], c64[5,5], c64[5,6]) tuple(r, w, v)
}}
"""
    agree(text, drawn(1, 5, 6))
    parts = [i for i in check(parse(text)).entry.instructions if i.opcode == "reduce"]
    assert len(parts) == (2 if name == "add" else 1)  # sums are two sums, others are one of pairs


def test_products_with_real_arrays_take_two_products() -> None:
    text = """HloModule m
ENTRY e {
  x = f32[3,4] parameter(0)
  z = c64[4,5] parameter(1)
  ROOT d = c64[3,5] dot(x, z), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
    agree(text, drawn(2, 3, 4).real, drawn(3, 4, 5))
    assert sum(i.opcode == "dot" for i in check(parse(text)).entry.instructions) == 2


@pytest.mark.parametrize(
    ("source", "dims", "target", "to"),
    [
        ("c64", "3", "u64", "3"),
        ("c64", "3", "u16", "3,4"),
        ("c64", "3,2", "c128", "3"),
        ("c128", "3", "c64", "3,2"),
        ("c128", "3", "f64", "3,2"),
        ("f32", "3,2", "c64", "3"),
        ("u64", "3", "c64", "3"),
        ("u8", "3,8", "c64", "3"),
    ],
)
def test_bits_are_those_of_both_parts(source: str, dims: str, target: str, to: str) -> None:
    kinds = {**TYPES, "u64": np.uint64, "u8": np.uint8, "f32": np.float32}
    shape = tuple(map(int, dims.split(",")))
    x = np.random.default_rng(4).integers(0, 100, (*shape, np.dtype(kinds[source]).itemsize))
    given = x.astype(np.uint8).view(kinds[source])[..., 0]
    text = f"""HloModule m
ENTRY e {{
  x = {source}[{dims}] parameter(0)
  ROOT y = {target}[{to}] bitcast-convert(x)
}}
"""
    module = parse(text)
    assert evaluate(check(module), [given]).tobytes() == evaluate(module, [given]).tobytes()


def test_complex_numbers_have_no_order() -> None:
    text = """HloModule m
ENTRY e {
  z = c64[3] parameter(0)
  ROOT r = pred[3] compare(z, z), direction=LT
}
"""
    with pytest.raises(VerifyError, match="no order"):
        verify(parse(text))


def apply(name: str, dtype: str, *args: Array) -> Array:
    """One operation, split and interpreted."""
    dims = str(args[0].size)
    rows = [f"p{n} = {dtype}[{dims}] parameter({n})" for n in range(len(args))]
    result = REAL[dtype] if name == "abs" else dtype
    named = ", ".join(f"p{n}" for n in range(len(args)))
    rows.append(f"ROOT r = {result}[{dims}] {name}({named})")
    module = check(parse("HloModule m\nENTRY e {\n  " + "\n  ".join(rows) + "\n}\n"))
    return np.asarray(evaluate(module, args))


def spread(dtype: str, count: int, seed: int) -> Array:
    """Magnitudes over the whole range, points near the unit circle, whole and half numbers."""
    rng, real = np.random.default_rng(seed), np.dtype(TYPES[dtype]).char.lower()
    info = np.finfo(real)
    parts = []
    for _ in range(2):
        wide = np.exp(rng.uniform(math.log(info.tiny), math.log(info.max), count))
        wide *= rng.choice([-1, 1], count)
        near = 1 + rng.uniform(-1e-3, 1e-3, count)
        plain = rng.choice([0.0, -0.0, 1, -1, 0.5, 2, 3, 0.6, 0.8, -1.5], count)
        normal = rng.standard_normal(count) * 10.0 ** rng.integers(-6, 3, count)
        kinds = np.stack([wide, near, plain, normal, normal])
        parts.append(kinds[rng.integers(0, len(kinds), count), np.arange(count)])
    turn = rng.uniform(-np.pi, np.pi, count // 8)
    parts[0][: count // 8], parts[1][: count // 8] = np.cos(turn), np.sin(turn)
    with np.errstate(over="ignore"):
        return np.asarray(parts[0] + 0j).astype(TYPES[dtype]) + _imaginary(parts[1], dtype)


def _imaginary(x: Array, dtype: str) -> Array:
    z = np.zeros(x.shape, TYPES[dtype])
    z.imag = x
    return z


ROUGH = {"power": 500.0, "logistic": 16.0, "expm1": 8.0}
"""Largest errors where a formula's are more than a few units: of angles that grow, at poles."""


@pytest.mark.parametrize("name", sorted({*FORMULAS, "abs"} - {"atan2"}))
def test_formulas_are_right_over_the_whole_range(name: str) -> None:
    """Against c128 of the machine's library: a few units in the last place of ``|result|``."""
    args = [spread("c64", 4000, 5), spread("c64", 4000, 6)][: TABLE[name].arity]
    if name == "power":
        args[1] = drawn(7, 4000)
    found = apply(name, "c64", *args)
    with np.errstate(all="ignore"):
        wide = np.asarray(TABLE[name].numpy(*(a.astype(np.complex128) for a in args)))
        kept = wide.astype(found.dtype)
    finite = np.isfinite(kept)
    assert (finite == np.isfinite(found)).all()
    info = np.finfo(np.float32)
    gap = np.abs(found[finite].astype(wide.dtype) - wide[finite])
    size = np.maximum(np.abs(wide[finite]), float(info.tiny))
    assert (gap / size).max() / float(info.eps) < ROUGH.get(name, 4.0)


def same(found: Array, wanted: Array) -> None:
    """Equal numbers, NaN where NaN is, zeros of the same sign where the result is all zero."""
    np.testing.assert_array_equal(np.isnan(found.real), np.isnan(wanted.real))
    np.testing.assert_array_equal(np.isnan(found.imag), np.isnan(wanted.imag))
    np.testing.assert_allclose(found.real, wanted.real, rtol=1e-6)
    np.testing.assert_allclose(found.imag, wanted.imag, rtol=1e-6)


SPECIAL = {
    "abs": [(complex(np.inf, np.nan), np.inf), (complex(np.nan, -np.inf), np.inf)],
    "sqrt": [
        (complex(-4.0, 0.0), 2j),
        (complex(-4.0, -0.0), -2j),
        (complex(-np.inf, 1.0), complex(0, np.inf)),
        (complex(np.inf, 1.0), complex(np.inf, 0)),
        (complex(np.nan, np.inf), complex(np.inf, np.inf)),
    ],
    "log": [
        (0j, complex(-np.inf, 0)),
        (complex(-1, 0.0), complex(0, np.pi)),
        (complex(-1, -0.0), complex(0, -np.pi)),
        (complex(np.inf, np.inf), complex(np.inf, np.pi / 4)),
    ],
    "exponential": [
        (complex(-np.inf, np.nan), 0j),
        (complex(np.inf, 0.0), complex(np.inf, 0)),
        (complex(np.nan, 0.0), complex(np.nan, 0)),
    ],
    "asin": [
        (complex(2, 0.0), complex(np.pi / 2, 1.3169579)),
        (complex(2, -0.0), complex(np.pi / 2, -1.3169579)),
    ],
    "acos": [
        (complex(-2, 0.0), complex(np.pi, -1.3169579)),
        (complex(-2, -0.0), complex(np.pi, 1.3169579)),
    ],
    "atanh": [
        (complex(1, 0.0), complex(np.inf, 0)),
        (complex(2, 0.0), 0.54930615 + np.pi / 2 * 1j),
        (complex(2, -0.0), 0.54930615 - np.pi / 2 * 1j),
    ],
    "tanh": [
        (complex(np.inf, 1.0), 1),
        (complex(-np.inf, np.nan), -1),
        (complex(1e30, np.inf), complex(np.nan, np.nan)),
    ],
    "exponential-minus-one": [
        (complex(np.inf, 0.0), complex(np.inf, 0)),
        (complex(-np.inf, np.inf), -1),
    ],
    "logistic": [(complex(-200, 1.0), 0), (complex(200, 1.0), 1)],
    "sign": [(0j, 0j), (3 + 4j, 0.6 + 0.8j)],
}


@pytest.mark.parametrize("name", SPECIAL)
def test_branch_cuts_and_infinities(name: str) -> None:
    args = np.array([a for a, _ in SPECIAL[name]], np.complex64)
    wanted = np.array([b for _, b in SPECIAL[name]]).astype(np.complex64)
    same(apply(name, "c64", args).astype(np.complex64), wanted)


@pytest.mark.parametrize("name", sorted({*FORMULAS, "abs"} - {"atan2"}))
def test_formulas_and_reference_agree_on_zeros_infinities_and_nan(name: str) -> None:
    """Both parts, whatever the machine's C library and this version of NumPy give."""
    parts = np.array([0.0, -0.0, 1.0, -2.0, np.inf, -np.inf, np.nan], np.float32)
    z = np.repeat(parts, len(parts)).astype(np.complex64)
    z.imag = np.tile(parts, len(parts))
    args = [z] if TABLE[name].arity == 1 else [np.repeat(z, len(z)), np.tile(z, len(z))]
    with np.errstate(all="ignore"):
        found, wanted = apply(name, "c64", *args), np.asarray(TABLE[name].numpy(*args))
    for a, b in ((found.real, wanted.real), (found.imag, wanted.imag)):
        finite = np.isfinite(b)
        np.testing.assert_array_equal(a[~finite], b[~finite])
        size = np.maximum(np.abs(b[finite]), np.abs(np.nan_to_num(wanted[finite])))
        assert (np.abs(a[finite] - b[finite]) <= 1e-6 * size).all()


def test_quotients_of_infinities_and_zeros() -> None:
    a = np.array([1 + 1j, complex(np.inf, 1), 1 + 1j, complex(np.inf, 1), 3 - 1j], np.complex64)
    b = np.array([0, 2 + 1j, complex(1, -np.inf), complex(np.inf, 1), -0.0], np.complex64)
    found = apply("divide", "c64", a, b)
    assert np.isinf(found[[0, 1, 4]].real).all() and (found[2] == 0)
    assert np.isnan(found[3].real)
    same(found, complex_functions.evaluate("divide", (a, b)))


def test_selected_elements_are_scattered_to() -> None:
    agree(
        """HloModule m
longer {
  a = c64[] parameter(0)
  b = c64[] parameter(1)
  x = f32[] abs(a)
  y = f32[] abs(b)
  ROOT r = pred[] compare(x, y), direction=GE
}
add { a = c64[] parameter(0)  b = c64[] parameter(1)  ROOT r = c64[] add(a, b) }
ENTRY e {
  x = c64[6,5] parameter(0)
  s = c64[3,5] parameter(1)
  z = c64[] constant((1, 0))
  ROOT r = c64[6,5] select-and-scatter(x, s, z), window={size=3x2 stride=2x1 pad=0_1x0_1},
    select=longer, scatter=add
}
""",
        drawn(8, 6, 5),
        drawn(9, 3, 5),
    )


def test_effects_are_waited_for_by_both_parts() -> None:
    text = """HloModule m
ENTRY e {
  x = c64[4] parameter(0)
  y = c64[4] multiply(x, x)
  log = c64[4] custom-call(y), custom_call_target="log", custom_call_has_side_effect=true
  ROOT r = c64[4] add-dependency(y, log)
}
"""
    calls = [i for i in check(parse(text)).entry.instructions if i.opcode == "custom-call"]
    assert len(calls) == 1
