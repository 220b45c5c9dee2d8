"""Raising of JAX's polynomial expansion of single-precision ``erfc`` to one operation.

Without it, every exact GELU is about eighty instructions with three divisions. The expansion is
that of the Cephes library (``ndtrf.c``): with s = x * x and w = 1 / s,

    |x| < 1:   1 - x * T(s)
    else:      y = exp(-s) / |x| * (P(w) if |x| < 2 else R(w)), 0 once exp(-s) would underflow;
               2 - y for x < 0, y for x > 0

Only an expansion with exactly these steps and coefficients matches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from ....dtypes import f32
from ...nodes import HloModule, Instruction
from ...patterns.match import is_pointwise, splat
from ...rewrite import make, map_computations, rebuild

# Coefficients, the highest power first.
_T = (
    7.853861353153693e-5,
    -8.010193625184903e-4,
    5.188327685732524e-3,
    -2.685381193529856e-2,
    1.128358514861418e-1,
    -3.761262582423300e-1,
    1.128379165726710,
)
_P = (
    2.326819970068386e-2,
    -1.387039388740657e-1,
    3.687424674597105e-1,
    -5.824733027278666e-1,
    6.210004621745983e-1,
    -4.944515323274145e-1,
    3.404879937665872e-1,
    -2.741127028184656e-1,
    5.638259427386472e-1,
)
_R = (
    -1.047766399936249e1,
    1.297719955372516e1,
    -7.495518717768503,
    2.921019019210786,
    -1.015265279202700,
    4.218463358204948e-1,
    -2.820767439740514e-1,
    5.641895067754075e-1,
)
_UNDERFLOW = -88.72283905206835
_TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class _Step:
    """An operation to match; operands are steps, or numbers for splats."""

    opcode: str
    operands: tuple[_Step | float, ...]
    direction: str = ""


_Pattern: TypeAlias = _Step | float
_Found: TypeAlias = dict[_Step, Instruction]


def raise_erfc(module: HloModule) -> HloModule:
    """``select(|x| < 1, 1 - x * T(x * x), ..)``  ->  ``erfc(x)``"""
    return map_computations(module, lambda c: rebuild(c, _raise))


def _raise(i: Instruction) -> Instruction | None:
    if i.opcode != "select" or i.array.dtype != f32 or not is_pointwise(i):
        return None
    found = _match(_ERFC, i, {})
    if found is None:
        return None
    return make("erfc", i.array, (found[_X],), name=i.name, metadata=i.metadata)


def _match(pattern: _Pattern, i: Instruction, found: _Found) -> _Found | None:
    """Extend ``found`` by the instruction that each step of the pattern matches, starting at ``i``;
    None if the pattern does not match."""
    if isinstance(pattern, float):
        value = splat(i)
        near = value is not None and abs(float(value) - pattern) <= _TOLERANCE * abs(pattern)
        return found if near else None
    if pattern in found:
        return found if found[pattern] is i else None
    if pattern is _X:
        return {**found, _X: i}
    if i.opcode != pattern.opcode or i.attrs.get("direction", "") != pattern.direction:
        return None
    orders = [i.operands]
    if i.opcode in ("add", "multiply"):
        orders.append(i.operands[::-1])
    for operands in orders:
        deeper: _Found | None = {**found, pattern: i}
        for part, operand in zip(pattern.operands, operands, strict=True):
            deeper = None if deeper is None else _match(part, operand, deeper)
        if deeper is not None:
            return deeper
    return None


def _polynomial(x: _Step, coefficients: tuple[float, ...]) -> _Step:
    """Return the steps of Horner's rule, the highest power first."""
    first, second, *rest = coefficients
    total = _Step("add", (_Step("multiply", (x, first)), second))
    for c in rest:
        total = _Step("add", (_Step("multiply", (total, x)), c))
    return total


def _expansion(x: _Step) -> _Step:
    size, square = _Step("abs", (x,)), _Step("multiply", (x, x))
    near = _Step("subtract", (1.0, _Step("multiply", (x, _polynomial(square, _T)))))
    minus = _Step("negate", (square,))
    w = _Step("divide", (1.0, square))
    scale = _Step("multiply", (_Step("exponential", (minus,)), _Step("divide", (1.0, size))))
    middle = _Step("compare", (size, 2.0), "LT")
    tail = _Step("select", (middle, _polynomial(w, _P), _polynomial(w, _R)))
    tiny = _Step("compare", (minus, _UNDERFLOW), "LT")
    y = _Step("select", (tiny, 0.0, _Step("multiply", (scale, tail))))
    below = _Step("compare", (x, 0.0), "LT")
    far = _Step("select", (below, _Step("subtract", (2.0, y)), y))
    return _Step("select", (_Step("compare", (size, 1.0), "LT"), near, far))


_X = _Step("any value", ())
_ERFC = _expansion(_X)
