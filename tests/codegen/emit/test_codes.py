"""Floats rounded to codes, and codes that become floats at once: as the interpreter has them."""

from __future__ import annotations

import numpy as np
import pytest

import nestwright as nw
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.target import Target

TARGETS = [
    t for t in map(Target.parse, ("cpu", "cpu -mcpu=haswell", "cpu -mcpu=x86-64")) if t.is_host
]
NUMBERS = [n + d for n in range(-300, 301) for d in (-0.5, -0.49999, -0.25, 0.0, 0.3, 0.5)]
ENDS = [s * 2.0**n + d for n in (7, 8, 15, 16, 31, 63, 100) for s in (1, -1) for d in (-1, 0, 0.5)]
SPECIAL = [0.0, -0.0, -0.3, np.inf, -np.inf, np.nan, 1e-40, 3e38, -3e38]
X = np.array([*NUMBERS, *ENDS, *SPECIAL], np.float32)
DIMS = f"[{len(X)}]"

CODES = """
  x = f32N parameter(0)
  r = f32N round-nearest-even(x)
  zero = f32[] constant(ZERO)
  zeros = f32N broadcast(zero), dimensions={}
  s = f32N add(r, zeros)
"""
CLAMPED = """
  low = f32[] constant(LOW)
  high = f32[] constant(HIGH)
  kept = f32N clamp(low, s, high)
"""
INTEGERS = "  ROOT q = CODEN convert(KEPT)\n"
FLOATS = """
  q = CODEN convert(KEPT)
  f = f32N convert(q)
  shift = f32[] constant(SHIFT)
  shifts = f32N broadcast(shift), dimensions={}
  d = f32N subtract(f, shifts)
  one = f32[] constant(1)
  ones = f32N broadcast(one), dimensions={}
  ROOT i = f32N divide(ones, d)
"""  # so that zeros show their signs


Ends = tuple[float, float]


def module(rest: str, code: str, zero: float, ends: Ends | None, shift: float) -> str:
    low, high = ends or (0, 0)
    kept = "kept" if ends else "s"
    facts = {"CODE": code, "ZERO": zero, "LOW": low, "HIGH": high, "SHIFT": shift, "KEPT": kept}
    text = CODES + (CLAMPED if ends else "") + rest
    for name, value in {**facts, "N": DIMS}.items():
        text = text.replace(name, str(value))
    return f"HloModule codes\nENTRY main {{{text}}}\n"


@pytest.mark.parametrize(
    ("target", "code"),
    [(t, code) for t in TARGETS for code in ("s8", "u16", "s32")]
    + [(t, code) for t in TARGETS[:1] for code in ("u8", "s16")],
    ids=lambda v: v if isinstance(v, str) else v.spec,
)
@pytest.mark.parametrize(
    ("zero", "ends"),
    [(0, None), (0, (0, 6)), (7, None), (-128, None), (129, (-128, 127)), (2, (5, 90))],
)
def test_codes_and_their_floats(code: str, zero: float, ends: Ends | None, target: Target) -> None:
    for rest, shift in ((INTEGERS, 0), *((FLOATS, n) for n in sorted({0, zero, 3}))):
        parsed = nw.parse(module(rest, code, zero, ends, shift))
        with np.errstate(all="ignore"):
            want = evaluate(parsed, [X])
        np.testing.assert_array_equal(nw.build(parsed, target)(X), want, f"less {shift}")


@pytest.mark.parametrize(
    ("zero", "ends", "taken"),
    [(0, None, True), (-7, (-20, 9), True), (0.5, None, False), (0, (5, 90), False)],
)
def test_which_are_rounded_by_the_conversion(zero: float, ends: Ends | None, taken: bool) -> None:
    """A zero point that is no whole number is not, nor is what never is the code of NaN."""
    for rest, name in ((INTEGERS, "llvm.lrint"), (FLOATS, "fptosi")):
        lowered = nw.lower(nw.parse(module(rest, "u8", zero, ends, 3)), target="cpu")
        assert (name in lowered.as_text("llvm")) == (taken == (rest is INTEGERS))


@pytest.mark.parametrize("code", ["u8", "s8", "s16"])
def test_a_zero_point_behind_the_ends_is_added_there(code: str) -> None:
    n = len(X)
    parsed = nw.parse(f"""HloModule codes
ENTRY main {{
  x = f32[{n}] parameter(0)
  r = f32[{n}] round-nearest-even(x)
  low = f32[] constant(-4)
  high = f32[] constant(11)
  kept = f32[{n}] clamp(low, r, high)
  zero = f32[] constant(4)
  zeros = f32[{n}] broadcast(zero), dimensions={{}}
  s = f32[{n}] add(kept, zeros)
  ROOT q = {code}[{n}] convert(s)
}}""")
    np.testing.assert_array_equal(nw.build(parsed)(X), evaluate(parsed, [X]))
