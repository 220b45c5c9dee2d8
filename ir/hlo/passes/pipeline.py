"""The order of the graph passes."""

from __future__ import annotations

from collections.abc import Sequence

from ...passes import Instrument, Pass, Pipeline, repeat
from ..nodes import HloModule
from .canonical_convolution import canonical_convolution
from .canonical_dot import canonical_dot
from .cse import cse
from .dce import dce
from .drop_layouts import drop_layouts
from .fold_constants import fold_constants
from .inline_calls import inline_calls
from .simplify_algebra import simplify_algebra
from .simplify_shapes import simplify_shapes
from .simplify_tuples import explicit_tuples, simplify_tuples

SIMPLIFY: Pass[HloModule] = repeat(
    "simplify",
    (
        Pass("simplify_tuples", simplify_tuples),
        Pass("simplify_shapes", simplify_shapes),
        Pass("simplify_algebra", simplify_algebra),
        Pass("cse", cse),
    ),
    limit=6,
)

PIPELINE: Pipeline[HloModule] = Pipeline(
    (
        Pass("drop_layouts", drop_layouts),
        Pass("inline_calls", inline_calls),
        Pass("dce", dce),
        SIMPLIFY,
        Pass("fold_constants", fold_constants),
        Pass("canonical_dot", canonical_dot),
        Pass("canonical_convolution", canonical_convolution),
        SIMPLIFY,
        Pass("fold_constants", fold_constants),
        SIMPLIFY,
        Pass("explicit_tuples", explicit_tuples),
        Pass("cse", cse),
    )
)


def optimize(module: HloModule, *, instruments: Sequence[Instrument[HloModule]] = ()) -> HloModule:
    """The module in canonical form (docs/contract.md says what that is), computing the same."""
    return PIPELINE.run(module, instruments)
