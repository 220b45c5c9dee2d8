"""Dead code elimination: instructions that the root does not need, computations never called."""

from __future__ import annotations

from ...nodes import Computation, HloModule
from ...rewrite import assemble, map_computations, post_order, with_entry


def dce(module: HloModule) -> HloModule:
    """Drop everything that the result does not depend on; parameters stay."""
    needed = map_computations(module, _needed)
    return with_entry(needed, needed.entry)


def _needed(c: Computation) -> Computation:
    """Return a computation of what its root needs."""
    whole = len(set(post_order([*c.parameters, c.root]))) == len(c.instructions)
    return c if whole else assemble(c.name, c.parameters, c.root)
