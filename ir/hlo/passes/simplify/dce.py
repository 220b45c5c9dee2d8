"""Dead code elimination: instructions that the root does not need, computations never called."""

from __future__ import annotations

from ...nodes import HloModule
from ...rewrite import assemble, map_computations, post_order


def dce(module: HloModule) -> HloModule:
    """Drop everything that the result does not depend on; parameters stay."""
    return map_computations(
        module,
        lambda c: (
            c
            if len(set(post_order([*c.parameters, c.root]))) == len(c.instructions)
            else assemble(c.name, c.parameters, c.root)
        ),
    )
