"""Products of canonical form of which one operand is a constant of f32: its weight."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from .....accuracy import LEAST_WEIGHTS
from .....dtypes import f32
from ....nodes import HloModule, Instruction


@dataclass(frozen=True, slots=True)
class WeightedProduct:
    """A dot or convolution and the number of the operand that is its weight."""

    product: Instruction
    side: int

    @property
    def weight(self) -> Instruction:
        """The constant."""
        return self.product.operands[self.side]

    @property
    def contracted(self) -> tuple[int, ...]:
        """The dimensions of the weight that the product sums over."""
        i = self.product
        if i.opcode == "convolution":
            output = i.attrs["dim_labels"].rhs_output
            return tuple(d for d in range(self.weight.array.rank) if d != output)
        names = "lhs_contracting_dims", "rhs_contracting_dims"
        dims: tuple[int, ...] = i.attrs[names[self.side]]
        return dims

    @property
    def channels(self) -> tuple[int, ...]:
        """The dimensions of the product that the weight's other dimensions become."""
        i = self.product
        if i.opcode == "convolution":
            return (i.attrs["dim_labels"].out_feature,)
        batch = tuple(range(len(i.attrs.get("lhs_batch_dims", ()))))
        return (*batch, i.array.rank - 2 + self.side)

    @property
    def uses(self) -> float:
        """How often each element of the weight is multiplied."""
        dims = self.weight.array.dims
        terms = self.product.array.size * math.prod(dims[d] for d in self.contracted)
        return terms / self.weight.array.size


def weighted_product(i: Instruction) -> WeightedProduct | None:
    """Return an f32 product with a constant of ``LEAST_WEIGHTS`` elements or more, else None."""
    if i.opcode not in ("dot", "convolution") or i.array.dtype != f32:
        return None
    for side in (1, 0) if i.opcode == "dot" else (1,):
        w = i.operands[side]
        if w.opcode == "constant" and w.array.dtype == f32 and w.array.size >= LEAST_WEIGHTS:
            return WeightedProduct(i, side)
    return None


def weighted_products(module: HloModule) -> Iterator[WeightedProduct]:
    """Yield those of a module."""
    for c in module.computations:
        for i in c.instructions:
            if (found := weighted_product(i)) is not None:
                yield found
