"""Narrow weights of products: f32 constants become bf16, or int8 with a scale per channel.

``dot(x, constant)  ->  dot(x, convert(narrow constant))``, times the scales of the output channels
for int8. This runs on an optimized module: there every weight is one constant in the order in which
its product takes it, with transposes, batch normalisation and the like folded into it. A constant
that has other users stays for them, as f32.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....dtypes import f32
from ....errors import ArgumentError
from ...nodes import HloModule, Instruction
from ...patterns import build
from ...rewrite import constant, map_computations, rebuild, with_operands
from .quantize import FORMS, refusal
from .report import NarrowWeight

LEAST = 4096
"""Weights of fewer elements stay f32: they are in cache, and reading them costs nothing."""


def check_form(form: str | None) -> None:
    """Raise ``ArgumentError`` unless ``form`` is None or the name of a narrow form."""
    if form is not None and form not in FORMS:
        raise ArgumentError(
            f"weights={form!r}", "there is no such form", hint=f"use {' or '.join(FORMS)}"
        )


def narrow_weights(module: HloModule, form: str) -> tuple[HloModule, tuple[NarrowWeight, ...]]:
    """Return an optimized module with its weights in a form of ``FORMS``, and what became of each.

    Weights are constants of f32 that a dot or a convolution takes, ``LEAST`` elements or more. A
    weight of several products is listed once.
    """
    check_form(form)
    known: dict[tuple[Instruction, tuple[int, ...]], _Operand] = {}

    def rule(i: Instruction) -> Instruction | None:
        side = _weight_side(i)
        if side is None:
            return None
        key = i.operands[side], _contracted(i, side)
        if key not in known:
            known[key] = _operand(i.name, *key, form)
        return _product(i, side, known[key])

    new = map_computations(module, lambda c: rebuild(c, rule))
    return new, tuple(x.row for x in known.values())


@dataclass(frozen=True, slots=True)
class _Operand:
    """A product's operand in the place of its weight, the scales (None: none), and the report."""

    value: Instruction
    scale: Instruction | None
    row: NarrowWeight


def _operand(name: str, weight: Instruction, contracted: tuple[int, ...], form: str) -> _Operand:
    dims, before = weight.array.dims, weight.array.bytes
    values = weight.attrs["literal"]
    made = refusal(values) or FORMS[form](values, contracted)
    if isinstance(made, str):
        return _Operand(weight, None, NarrowWeight(name, dims, before, before, kept=made))
    codes = constant(made.codes, name=f"{weight.name}_{form}")
    after = codes.array.bytes
    scale = None
    if made.scale is not None:
        scale = constant(made.scale, name=f"{weight.name}_scale")
        after += scale.array.bytes
    row = NarrowWeight(name, dims, before, after, made.largest, made.relative)
    return _Operand(build.convert(codes, f32), scale, row)


def _product(i: Instruction, side: int, operand: _Operand) -> Instruction | None:
    """Return a product of the narrow weight, times its scales; None if it stays as it is."""
    if operand.value is i.operands[side]:
        return None
    operands = tuple(operand.value if n == side else o for n, o in enumerate(i.operands))
    product = with_operands(i, operands)
    if operand.scale is None:
        return product
    spread = build.broadcast(operand.scale, _channels(i, side), i.array.dims)
    return build.pointwise("multiply", product, spread)


def _weight_side(i: Instruction) -> int | None:
    """Return the operand of an f32 product that is a constant worth narrowing; None if neither."""
    if i.opcode not in ("dot", "convolution") or i.array.dtype != f32:
        return None
    for side in (1, 0) if i.opcode == "dot" else (1,):
        w = i.operands[side]
        if w.opcode == "constant" and w.array.dtype == f32 and w.array.size >= LEAST:
            return side
    return None


def _contracted(i: Instruction, side: int) -> tuple[int, ...]:
    """Return the dimensions of a canonical product's weight that it sums over."""
    if i.opcode == "convolution":
        output = i.attrs["dim_labels"].rhs_output
        return tuple(d for d in range(i.operands[1].array.rank) if d != output)
    dims: tuple[int, ...] = i.attrs[("lhs_contracting_dims", "rhs_contracting_dims")[side]]
    return dims


def _channels(i: Instruction, side: int) -> tuple[int, ...]:
    """Return the dimensions of a canonical product that its weight's other dimensions become."""
    if i.opcode == "convolution":
        return (i.attrs["dim_labels"].out_feature,)
    batch = tuple(range(len(i.attrs.get("lhs_batch_dims", ()))))
    return (*batch, i.array.rank - 2 + side)
