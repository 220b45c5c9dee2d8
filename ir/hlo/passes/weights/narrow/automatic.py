"""The choice of narrow forms for weights, where nobody named one but an error is allowed.

A product of few rows waits for its weights. If those of a whole module exceed the last cache they
come from memory each time, and each takes the form of the fewest bytes whose error is within the
target's accuracy. A sum's error is to the sum as the weights' errors are to the weights, as root
mean squares.
"""

from __future__ import annotations

from collections.abc import Callable

from .....arrays import Array
from .....target import Target
from ....nodes import HloModule
from .quantize import FORMS, Narrowed, expected_errors
from .weighted import WeightedProduct, weighted_products

WAITS = 1.5  # times the arithmetic's time is a product's least time in memory, to wait for it


def waits(module: HloModule, target: Target) -> Callable[[WeightedProduct], bool]:
    """Return the test for products of a module that wait for memory on a target."""
    core = target.core
    weights = {id(p.weight): p.weight.array.bytes for p in weighted_products(module)}
    far = target.accuracy > 0 and sum(weights.values()) > target.l3
    read, flops = core.bandwidth(target.threads), core.flops(target.vector_bits) * target.threads

    def waiting(p: WeightedProduct) -> bool:
        loads, work = p.weight.array.dtype.bytes / read, 2 * p.uses / flops
        return far and p.product.opcode == "dot" and loads > WAITS * work

    return waiting


def narrowest(weights: Array, contracted: tuple[int, ...], accuracy: float) -> Narrowed | str:
    """Return weights in the narrowest form of integers within an error; or why there is none."""
    expected = expected_errors(weights, contracted)
    for form, error in expected.items():
        if error <= accuracy:
            made = FORMS[form](weights, contracted)
            if isinstance(made, str) or made.relative <= accuracy:
                return made
    return f"its relative error would be {min(expected.values()):.1e} or more"
