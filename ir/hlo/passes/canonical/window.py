"""Pooling in canonical form: a ``pad`` of the input becomes padding of the window."""

from __future__ import annotations

from dataclasses import replace

from ....elementwise import identity
from ...meaning.values import simple_op
from ...nodes import HloModule, Instruction, PadDim, Window
from ...patterns.match import all_static, splat
from ...patterns.ranges import interval
from ...rewrite import map_computations, rebuild, with_attrs, with_operands

_IDEMPOTENT = frozenset({"maximum", "minimum", "and", "or"})
_SUMS = frozenset({"add", "multiply", "xor"})


def canonical_window(module: HloModule) -> HloModule:
    """``reduce-window(pad(x, init), init)``  ->  ``reduce-window(x, init)`` with padding"""
    return map_computations(module, lambda c: rebuild(c, _rewrite))


def _rewrite(i: Instruction) -> Instruction | None:
    if i.opcode != "reduce-window" or len(i.operands) != 2 or not all_static(i):
        return None
    x, init = i.operands
    window: Window = i.attrs["window"]
    if x.opcode != "pad" or not _harmless(i, x.operands[1]):
        return None
    padding: tuple[PadDim, ...] = x.attrs["padding"]
    if any(p.low < 0 or p.high < 0 or p.interior for p in padding):
        return None
    if any(w.lhs_dilate != 1 for w in window):
        return None
    wider = tuple(
        replace(w, pad_low=w.pad_low + p.low, pad_high=w.pad_high + p.high)
        for w, p in zip(window, padding, strict=True)
    )
    # Every window must still contain an element of `x`; an empty one would give the init.
    if any(max(w.pad_low, w.pad_high) >= w.size and w.size > 1 for w in wider):
        return None
    if any(w.size == 1 and (p.low or p.high) for w, p in zip(wider, padding, strict=True)):
        return None
    if any(w.rhs_dilate != 1 for w in wider):
        return None
    return with_operands(with_attrs(i, window=wider), (x.operands[0], init))


def _harmless(i: Instruction, padded: Instruction) -> bool:
    """True if the init can replace the padded value: it is equal and counts once however often it
    is combined, or the reducer is a maximum of nonnegative elements and zeros."""
    a, b = splat(padded), splat(i.operands[1])
    op = simple_op(i.attrs["to_apply"])
    if a is None or b is None or op is None:
        return False
    if a.tobytes() == b.tobytes():
        return op in _IDEMPOTENT or (op in _SUMS and bool(a == identity(op, i.array.dtype)))
    return op == "maximum" and bool(a == 0) and is_nonnegative(i.operands[0].operands[0])


def is_nonnegative(x: Instruction, depth: int = 8) -> bool:
    """True if no element of ``x`` can be negative; NaN is ignored. Looks ``depth`` steps back.

    Integers wrap: of those the bounds that are known decide.
    """
    if not x.array.dtype.is_float:
        bounds = interval(x, depth)
        return bounds is not None and bounds[0] >= 0
    if depth == 0:
        return False
    if (value := splat(x)) is not None:
        return bool(value >= 0)
    match x.opcode:
        case "abs" | "exponential" | "logistic" | "sqrt":
            return True
        case "maximum":
            return any(is_nonnegative(o, depth - 1) for o in x.operands)
        case "minimum" | "add":
            return all(is_nonnegative(o, depth - 1) for o in x.operands)
        case "reshape" | "transpose" | "broadcast" | "slice" | "reverse":
            return is_nonnegative(x.operands[0], depth - 1)
        case "clamp":
            return all(is_nonnegative(x.operands[n], depth - 1) for n in (0, 2))
        case "multiply":
            return x.operands[0] is x.operands[1]
        case _:
            return False
