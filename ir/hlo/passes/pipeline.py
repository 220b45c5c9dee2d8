"""The pipeline of graph passes, in order."""

from __future__ import annotations

from collections.abc import Sequence

from ...passes import Instrument, Pass, Pipeline, repeat
from ..analysis.support import require_supported
from ..analysis.verify import verify
from ..limits import require_limits
from ..nodes import HloModule
from .bounded.pad import pad_dynamic
from .canonical.convolution import canonical_convolution
from .canonical.dot import canonical_dot, expand_dots
from .canonical.window import canonical_window
from .complex.split import split_complex
from .expand.batch_norm import expand_batch_norm
from .expand.custom_calls import expand_custom_calls
from .expand.random_bits import expand_random_bits
from .expand.rng import expand_rng
from .expand.scan import expand_scan
from .expand.stochastic_convert import expand_stochastic_convert
from .prepare.inline_calls import inline_calls
from .prepare.join_async import join_async
from .prepare.keep_effects import keep_effects
from .prepare.normalize_layouts import normalize_layouts
from .prepare.single_replica import single_replica
from .prepare.widen_narrow import widen_narrow
from .simplify.algebra import simplify_algebra
from .simplify.cse import cse
from .simplify.dce import dce
from .simplify.fold_batch_norm import fold_batch_norm
from .simplify.fold_constants import fold_constants
from .simplify.move_transposes import move_transposes
from .simplify.raise_erfc import raise_erfc
from .simplify.shapes import simplify_shapes
from .simplify.sink_reshapes import sink_reshapes
from .simplify.split_sums import split_sums
from .simplify.tuples import explicit_tuples, simplify_tuples

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

CANONICALIZE: Pass[HloModule] = repeat(
    "canonicalize",
    (
        Pass("canonical_convolution", canonical_convolution),
        Pass("canonical_window", canonical_window),
        Pass("move_transposes", move_transposes),
        Pass("sink_reshapes", sink_reshapes),
        Pass("simplify_shapes", simplify_shapes),
        Pass("simplify_algebra", simplify_algebra),
    ),
    limit=6,
)

PIPELINE: Pipeline[HloModule] = Pipeline(
    (
        Pass("keep_effects", keep_effects),
        Pass("join_async", join_async),
        Pass("normalize_layouts", normalize_layouts),
        Pass("inline_calls", inline_calls),
        Pass("simplify_tuples", simplify_tuples),
        Pass("single_replica", single_replica),
        Pass("pad_dynamic", pad_dynamic),
        Pass("expand_custom_calls", expand_custom_calls),
        Pass("expand_batch_norm", expand_batch_norm),
        Pass("expand_stochastic_convert", expand_stochastic_convert),
        Pass("expand_rng", expand_rng),
        Pass("expand_random_bits", expand_random_bits),
        Pass("expand_scan", expand_scan),
        Pass("split_complex", split_complex),
        Pass("widen_narrow", widen_narrow),
        Pass("expand_dots", expand_dots),
        Pass("dce", dce),
        SIMPLIFY,
        Pass("raise_erfc", raise_erfc),
        Pass("fold_constants", fold_constants),
        Pass("canonical_dot", canonical_dot),
        CANONICALIZE,
        Pass("canonical_dot", canonical_dot),
        Pass("fold_constants", fold_constants),
        Pass("fold_batch_norm", fold_batch_norm),
        CANONICALIZE,
        Pass("split_sums", split_sums),
        Pass("explicit_tuples", explicit_tuples),
        Pass("cse", cse),
        Pass("dce", dce),
    )
)


def optimize(module: HloModule, *, instruments: Sequence[Instrument[HloModule]] = ()) -> HloModule:
    """Return an equivalent module in canonical form, which docs/contract.md defines.

    ``VerifyError`` if the module is not well formed: wrong shapes would become reads and writes out
    of bounds. ``UnsupportedError`` lists the instructions that cannot be compiled, ``LimitError``
    names one that exceeds a limit of ``limits``.
    """
    verify(module)
    require_limits(module)
    require_supported(module)
    return PIPELINE.run(module, instruments)


def instructions(module: HloModule) -> int:
    """Return the number of instructions in all computations of a module."""
    return sum(len(c.instructions) for c in module.computations)
