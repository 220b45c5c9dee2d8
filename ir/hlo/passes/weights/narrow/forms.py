"""Narrow weights of products: f32 constants become bf16, or integers with a scale per channel.

``dot(x, constant)  ->  dot(x, convert(narrow constant))``, times the scales of the output channels
for integers; those of 24 bits are in two constants. This runs on an optimized module: there every
weight is one constant in the order in which its product takes it, with transposes, batch
normalization and the like folded into it. A constant that has other users stays for them, as f32.
"""

from __future__ import annotations

from dataclasses import dataclass

from .....accuracy import BLOCKED, WIDE, byte_rows
from .....dtypes import f32
from .....errors import ArgumentError
from .....target import Target
from ....nodes import HloModule, Instruction
from ....patterns import build
from ....patterns.parts import joined
from ....rewrite import constant, map_computations, rebuild, with_operands
from ..blocks.products import (
    BlockedWeight,
    product_in_blocks,
    takes_blocks,
)
from .automatic import narrowest, waits
from .quantize import FORMS, Narrowed, refusal, to_blocks
from .report import NarrowWeight
from .weighted import WeightedProduct, weighted_product

INSTEAD = {"int24": "int16 has an error of about 4e-5", BLOCKED: "int8 has one of about 1e-2"}
"""What to take in place of forms in several arrays."""


def check_form(form: str | None, target: Target | None = None) -> None:
    """Raise ``ArgumentError`` unless ``form`` is None or one that a target's kernels read."""
    if form is not None and form not in (WIDE, BLOCKED, *FORMS):
        hint = f"use {', '.join((BLOCKED, *FORMS))}, or {WIDE} to leave them as they are"
        raise ArgumentError(f"weights={form!r}", "there is no such form", hint=hint)
    if form in INSTEAD and target is not None and target.row.work != "threads":
        why = f"kernels for {target.spec!r} read weights from one array, and these are two"
        raise ArgumentError(f"weights={form!r}", why, hint=INSTEAD[form])


def narrow_weights(
    module: HloModule, form: str | None, target: Target | None = None
) -> tuple[HloModule, tuple[NarrowWeight, ...]]:
    """Return an optimized module with its weights in a form of ``FORMS``, and what became of each.

    Weights are constants of f32 that a dot or a convolution takes. One of several products is
    listed once. Without a form, those that the ``target`` waits for take the narrowest whose error
    is within its accuracy.
    """
    check_form(form, target)
    if form == WIDE or (form is None and (target is None or not target.accuracy)):
        return module, ()
    accuracy = 0.0 if target is None else target.accuracy
    waiting = waits(module, target) if form is None and target is not None else None
    rounds = target is not None and byte_rows(target, form) is not None
    known: dict[tuple[Instruction, tuple[int, ...]], _Operand] = {}

    def rule(i: Instruction) -> Instruction | None:
        p = weighted_product(i)
        if p is None or not (waiting is None or waiting(p)):
            return None
        key = p.weight, p.contracted
        if key not in known:
            known[key] = _operand(p, form, accuracy)
        return _product(p, known[key], rounds)

    new = map_computations(module, lambda c: rebuild(c, rule))
    return new, tuple(x.row for x in known.values())


@dataclass(frozen=True, slots=True)
class _Operand:
    """A product's operand in the place of its weight, the scales (None: none), and the report.

    One in ``blocks`` has scales of its own.
    """

    value: Instruction
    scale: Instruction | None
    row: NarrowWeight
    blocks: BlockedWeight | None = None


def _operand(p: WeightedProduct, form: str | None, accuracy: float) -> _Operand:
    weight, name = p.weight, p.product.name
    dims, before = weight.array.dims, weight.array.bytes
    if form == BLOCKED:
        if p.side == 1 and takes_blocks(p.product) and not refusal(weight.attrs["literal"]):
            blocks, largest, relative = to_blocks(weight.attrs["literal"])
            row = NarrowWeight(name, dims, before, blocks.nbytes, largest, relative, form)
            return _Operand(weight, None, row, BlockedWeight(blocks))
        form = "int8"
    made = _narrowed(p, form, accuracy)
    if isinstance(made, str):
        return _Operand(weight, None, NarrowWeight(name, dims, before, before, kept=made))
    row = NarrowWeight(name, dims, before, made.nbytes, made.largest, made.relative, made.form)
    codes = constant(made.codes, name=f"{weight.name}_{made.form}")
    scale = None if made.scale is None else constant(made.scale, name=f"{weight.name}_scale")
    if made.lower is None:
        return _Operand(build.convert(codes, f32), scale, row)
    lower = constant(made.lower, name=f"{weight.name}_lower")
    return _Operand(joined(codes, lower), scale, row)


def _narrowed(p: WeightedProduct, form: str | None, accuracy: float) -> Narrowed | str:
    values = p.weight.attrs["literal"]
    if why := refusal(values):
        return why
    if form is not None:
        return FORMS[form](values, p.contracted)
    return narrowest(values, p.contracted, accuracy)


def _product(p: WeightedProduct, operand: _Operand, rounds: bool) -> Instruction | None:
    """Return a product of the narrow weight, times its scales; None if it stays as it is.

    If it ``rounds``, what it multiplies blocks with becomes bytes.
    """
    i = p.product
    if operand.blocks is not None:
        return product_in_blocks(i.operands[0], operand.blocks, rounds)
    if operand.value is p.weight:
        return None
    operands = tuple(operand.value if n == p.side else o for n, o in enumerate(i.operands))
    product = with_operands(i, operands)
    if operand.scale is None:
        return product
    spread = build.broadcast(operand.scale, p.channels, i.array.dims)
    return build.pointwise("multiply", product, spread)
