"""Products of f32 as products of bf16, for processors that multiply pairs of these in each lane.

``dot(f32, f32)  ->  dot(bf16, bf16)``, whose sums stay f32, where the target's accuracy allows the
rounding of both operands. What makes an operand rounds it, so that half the bytes move, and its
other readers take what was rounded (``stored_once``); a constant is rounded when the model is
built.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .....accuracy import bf16_dot
from .....dtypes import bf16, f32
from .....target import Target
from ....nodes import HloModule, Instruction
from ....patterns import build
from ....patterns.match import all_static
from ....rewrite import constant, map_computations, rebuild, with_operands
from ...canonical.attention import attention_roles
from ..narrow.quantize import FORMS, Narrowed, refusal
from ..narrow.report import NarrowWeight
from .stored_once import VIEWS, stored_once

FORM = "bf16"

FEWEST = 16
"""Rows, columns and terms of a product of computed operands that is worth a pass over both."""


def bf16_products(
    module: HloModule, target: Target, weights: str | None = None
) -> tuple[HloModule, tuple[NarrowWeight, ...]]:
    """Return an optimized module that multiplies bf16, and what became of each weight.

    The module itself where ``bf16_dot`` says that none of its products is to.
    """
    dot = bf16_dot(target, weights)
    if dot is None:
        return module, ()
    rounding = _Rounding(dot.depth)
    new = map_computations(module, lambda c: rebuild(c, rounding.rule))
    new = map_computations(new, stored_once)
    return new, tuple(rounding.rows.values())


@dataclass(slots=True)
class _Rounding:
    """The operands of a module's products that were met so far: rounded, or None if they stay.

    ``depth`` is the number of terms that a lane adds up. ``made`` has the constants among them, or
    why they stay; ``rows`` those that are rounded in a product, or keep it from that.
    """

    depth: int
    known: dict[Instruction, Instruction | None] = field(default_factory=dict)
    made: dict[Instruction, Narrowed | str] = field(default_factory=dict)
    rows: dict[Instruction, NarrowWeight] = field(default_factory=dict)

    def rule(self, i: Instruction) -> Instruction | None:
        """Rewrite a canonical product, if both operands can be rounded and it gains by that."""
        if not _gains(i, self.depth):
            return None
        rounded = [self._rounded(o) for o in i.operands]
        operands = tuple(o for o in rounded if o is not None)
        whole = len(operands) == len(i.operands)
        for x in map(_viewed, i.operands):
            made = self.made.get(x)
            if x not in self.rows and made is not None and (whole or isinstance(made, str)):
                self.rows[x] = _row(i, x, made)
        return with_operands(i, operands) if whole else None

    def _rounded(self, x: Instruction) -> Instruction | None:
        if x not in self.known:
            self.known[x] = self._new(x)
        return self.known[x]

    def _new(self, x: Instruction) -> Instruction | None:
        """Return an operand in bf16; a view shows what was rounded, so that its maker does it."""
        match x.opcode:
            case "constant":
                return self._weight(x)
            case "reshape":
                inner = self._rounded(x.operands[0])
                return None if inner is None else build.reshape(inner, x.array.dims)
            case "transpose":
                inner = self._rounded(x.operands[0])
                return None if inner is None else build.transpose(inner, x.attrs["dimensions"])
            case "convert" if x.operands[0].array.dtype == bf16:
                return x.operands[0]
            case "convert" if x.operands[0].opcode == "constant":
                return None
            case _:
                return build.convert(x, bf16)

    def _weight(self, x: Instruction) -> Instruction | None:
        values = x.attrs["literal"]
        made = self.made[x] = refusal(values) or FORMS[FORM](values, ())
        return None if isinstance(made, str) else constant(made.codes, name=f"{x.name}_{FORM}")


def _viewed(x: Instruction) -> Instruction:
    """Return what an operand shows in another shape or order."""
    while x.opcode in VIEWS:
        x = x.operands[0]
    return x


def _row(product: Instruction, weight: Instruction, made: Narrowed | str) -> NarrowWeight:
    dims, before = weight.array.dims, weight.array.bytes
    if isinstance(made, str):
        return NarrowWeight(product.name, dims, before, before, kept=made)
    errors = made.largest, made.relative
    return NarrowWeight(product.name, dims, before, made.nbytes, *errors, made.form)


def _gains(i: Instruction, depth: int) -> bool:
    """True for a product of f32 that the instruction takes, and that is worth the rounding."""
    if i.opcode not in ("dot", "convolution") or i.array.dtype != f32 or not all_static(i):
        return False
    if any(o.array.dtype != f32 for o in i.operands) or not i.array.size:
        return False
    x, w = i.operands
    terms, columns = w.array.dims[-2:]
    if i.opcode == "convolution":
        whole = i.attrs.get("feature_group_count", 1) == i.attrs.get("batch_group_count", 1) == 1
        return whole and (terms % depth == 0 or w.opcode == "constant")
    rows = x.array.dims[-2]
    least = min(terms, columns) if w.opcode == "constant" else min(rows, terms, columns)
    return least >= FEWEST and (terms % depth == 0 or attention_roles(i) is not None)
