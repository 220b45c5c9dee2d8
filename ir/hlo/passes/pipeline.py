"""The pipeline of graph passes, in order, and what holds after each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from ...accuracy import byte_rows
from ...errors import VerifyError
from ...lane_dots import takes_unsigned
from ...passes import Instrument, LegalIR, Pass, Pipeline, repeat
from ...target import Target
from ..analysis.support import require_supported
from ..analysis.verify import verify
from ..interp.flushing import flushing_as
from ..limits import require_limits
from ..nodes import HloModule
from .bounded.pad import pad_dynamic
from .canonical.convolution import canonical_convolution
from .canonical.dot import canonical_dot, expand_dots
from .canonical.window import canonical_window
from .complex.split import split_complex
from .expand.batch_norm import expand_batch_norm
from .expand.custom_calls import expand_custom_calls
from .expand.fourier.lanes import lane_transforms
from .expand.fourier.products import expand_transforms, product_transforms
from .expand.product_kinds import expand_product_kinds
from .expand.ragged_dot import expand_ragged_dot
from .expand.random_bits import expand_random_bits
from .expand.rng import expand_rng
from .expand.scan import expand_scan
from .expand.small_factors import expand_small_factors
from .expand.stochastic_convert import expand_stochastic_convert
from .invariants import (
    BY_ELEMENT,
    CANONICAL,
    EXPANDED,
    FLAT,
    INLINED,
    OPTIMIZED,
    PADDED,
    PLAIN,
    REAL,
    WHOLE,
    WIDENED,
    WRITTEN,
)
from .prepare.flatten_devices import flatten_devices
from .prepare.inline_calls import inline_calls
from .prepare.join_async import join_async
from .prepare.keep_effects import keep_effects
from .prepare.normalize_layouts import normalize_layouts
from .prepare.widen_narrow import widen_narrow
from .simplify.algebra import simplify_algebra
from .simplify.cse import cse
from .simplify.dce import dce
from .simplify.fold_batch_norm import fold_batch_norm
from .simplify.fold_constants import fold_constants
from .simplify.hoist_products import hoist_products
from .simplify.move_transposes import move_transposes
from .simplify.online_softmax import online_softmax
from .simplify.order_argmax import order_argmax
from .simplify.raise_erfc import raise_erfc
from .simplify.raise_ragged_dot import raise_ragged_dot
from .simplify.raise_reshapes import raise_reshapes
from .simplify.raise_slices import raise_slices
from .simplify.raise_top_k import raise_top_k
from .simplify.shapes import simplify_shapes
from .simplify.sink_constants import sink_constants
from .simplify.sink_products import sink_products
from .simplify.sink_reshapes import sink_reshapes
from .simplify.split_argmax import split_argmax
from .simplify.split_sums import split_sums
from .simplify.tuples import explicit_tuples, simplify_tuples
from .simplify.unroll_loops import unroll_loops
from .simplify.values_alone import values_alone
from .weights.blocks.products import blocked_products
from .weights.narrow.computed import computed_weights
from .weights.narrow.forms import check_form, narrow_weights
from .weights.narrow.report import NarrowWeight, followed
from .weights.quantized.integer_products import integer_products
from .weights.quantized.merged_taps import merged_taps
from .weights.quantized.requantized import requantized
from .weights.quantized.unsigned_codes import unsigned_codes
from .weights.rounded.bf16_products import bf16_products
from .weights.rounded.byte_products import byte_products
from .weights.rounded.f8_products import f8_products
from .weights.rounded.wide_products import wide_products


def _pass(
    run: Callable[[HloModule], HloModule], then: str, reaches: LegalIR[HloModule] | None = None
) -> Pass[HloModule]:
    """Return a function as a pass of its name, with what holds after it."""
    return Pass(run.__name__, run, then, reaches)


_TUPLES = _pass(simplify_tuples, "No element is taken of a tuple that was just made.")
_SHAPES = _pass(simplify_shapes, "Reshapes, broadcasts, slices and their kin are in simplest form.")
_ALGEBRA = _pass(simplify_algebra, "Arithmetic is in simplest form.")
_CSE = _pass(cse, "No two instructions are equal.")
_FOLD = _pass(fold_constants, "What depends on constants alone is one, unless it is too large.")
_DOTS = _pass(canonical_dot, "Every dot is [m, k] x [k, n] or [b, m, k] x [b, k, n].")
_DCE = _pass(dce, "Every instruction is needed.")
_COMPUTED = _pass(computed_weights, "Weights that follow from constants are constants.", OPTIMIZED)

SIMPLIFY: Pass[HloModule] = repeat(
    "simplify",
    (_TUPLES, _SHAPES, _ALGEBRA, _CSE),
    limit=6,
    then="The module is as small as exact rules make it.",
)

CANONICALIZE: Pass[HloModule] = repeat(
    "canonicalize",
    (
        _pass(canonical_convolution, "Every convolution is b01f_01io->b01f, or a dot."),
        _pass(canonical_window, "Padding of pooling inputs is the window's own."),
        _pass(move_transposes, "Transposes are as late as they can be, or cancelled."),
        _pass(sink_reshapes, "Element-wise work after a product has the product's shape."),
        _SHAPES,
        _ALGEBRA,
    ),
    limit=6,
    then="Convolutions are canonical, and data moves as little as the rules know.",
)

PIPELINE: Pipeline[HloModule] = Pipeline(
    (
        _pass(keep_effects, "The result needs what runs for its effect, so no pass drops it."),
        _pass(join_async, "No operation is cut in a start and a done.", WHOLE),
        _pass(normalize_layouts, "Arrays are row-major; transposes say what layouts did.", PLAIN),
        _pass(inline_calls, "There are no calls and no fusions.", INLINED),
        _TUPLES,
        _pass(
            flatten_devices, "Collectives are between devices, by number, and over several.", FLAT
        ),
        _pass(pad_dynamic, "Only the entry's parameters and results are bounded.", PADDED),
        _pass(expand_custom_calls, "Custom calls that HLO can express are HLO."),
        _pass(expand_small_factors, "Factors of matrices of a few rows are arithmetic."),
        _pass(expand_transforms, "Short Fourier transforms that need products are products."),
        _pass(expand_batch_norm, "Batch normalization is arithmetic and reductions."),
        _pass(expand_stochastic_convert, "Stochastic rounding is a comparison with random bits."),
        _pass(expand_rng, "Random numbers are made of random bits, whose counter is state."),
        _pass(expand_random_bits, "Random bits are integer arithmetic."),
        _pass(raise_ragged_dot, "JAX's masked products over all groups are ragged products."),
        _pass(expand_ragged_dot, "A product of groups of rows is a loop over tiles of them."),
        _pass(expand_scan, "A scan is a loop.", EXPANDED),
        _pass(expand_product_kinds, "Sums of products are of their factors' kind."),
        _pass(split_complex, "Only library calls compute on complex values.", REAL),
        _pass(widen_narrow, "Floats of 8 and integers of 4 bits have no arithmetic.", WIDENED),
        _pass(expand_dots, "Every dot contracts something."),
        _DCE,
        _pass(unroll_loops, "Short loops of element-wise work are written out."),
        SIMPLIFY,
        _pass(raise_erfc, "JAX's polynomials for erfc are one operation."),
        _pass(raise_top_k, "No row is sorted of which only the first elements are read."),
        _FOLD,
        _pass(raise_slices, "No slice is written element by element."),
        _pass(hoist_products, "Products of a loop's given rows are made at once, before it."),
        _pass(values_alone, "No vectors are computed of which only the values are read."),
        _pass(sink_products, "What loops add up of products is one product, after them."),
        _pass(sink_constants, "Loops and branches have their constants in them."),
        _DOTS,
        CANONICALIZE,
        _DOTS,
        _FOLD,
        _pass(requantized, "No codes are dequantized and quantized alike."),
        _pass(integer_products, "Products of dequantized operands multiply integers."),
        _pass(fold_batch_norm, "Scales and offsets after constant weights are part of them."),
        replace(CANONICALIZE, reaches=CANONICAL),
        _pass(raise_reshapes, "Arithmetic on parameters has the shape in which it is read."),
        _SHAPES,
        _pass(split_sums, "Long sums over columns run in steps, so that they stay exact."),
        _pass(explicit_tuples, "Each element of a computed tuple has a buffer.", BY_ELEMENT),
        _CSE,
        replace(_DCE, reaches=OPTIMIZED),
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
    return PIPELINE.checked(module, WRITTEN, f"optimizing {module.name}", instruments)


def optimize_narrow(
    module: HloModule,
    weights: str | None,
    target: Target | None = None,
    *,
    excess_precision: bool = True,
    instruments: Sequence[Instrument[HloModule]] = (),
) -> tuple[HloModule, tuple[NarrowWeight, ...]]:
    """Return the optimized module with its weights in a narrow form, and what became of each.

    ``weights`` names a form of ``weights.narrow``; with None those that wait for memory take one
    that the accuracy of ``target`` allows, and other products multiply bf16 if it allows that; with
    "f32" none does. Products of bytes, of f16 and of 8-bit floats take the form that ``target``
    multiplies fastest; without ``excess_precision`` none that rounds less. What is computed on the
    way flushes denormals if the target does. Errors as for ``optimize``, and ``ArgumentError`` for
    an unknown form.
    """
    check_form(weights, target)
    with flushing_as(target):
        optimized = optimize(module, instruments=instruments)
    return finish(optimized, weights, target, excess_precision=excess_precision)


def finish(
    module: HloModule,
    weights: str | None,
    target: Target | None = None,
    *,
    excess_precision: bool = True,
) -> tuple[HloModule, tuple[NarrowWeight, ...]]:
    """Run the passes of ``optimize_narrow`` that depend on its options, on an optimized module."""
    found: tuple[NarrowWeight, ...] = ()

    def narrow(ir: HloModule) -> HloModule:
        nonlocal found
        new, found = narrow_weights(ir, weights, target)
        return new

    def rounded(ir: HloModule, to: Target, by: Rounding) -> HloModule:
        nonlocal found
        new, rows = by(ir, to, weights)
        found = followed(found, rows)
        return new

    then = "Weights of products are converted from a narrow form where they are used."
    steps = [Pass("narrow_weights", narrow, then, OPTIMIZED)]
    if target is not None and takes_unsigned(target):
        steps.append(_pass(unsigned_codes, "Weights of s8 multiply u8, not s8.", OPTIMIZED))
    if target is not None and target.row.work == "threads":
        rounding = tuple(
            Pass(by.__name__, partial(rounded, to=target, by=by), then, OPTIMIZED)
            for by, then in _ROUNDING
        )
        blocks = _blocks(target, weights, excess_precision)
        steps = [*blocks, *steps, *_for_threads(target, rounding)]
    if target is not None and target.row.work == "launches":
        steps += _for_launches(target, excess_precision)
    last: Pipeline[HloModule] = Pipeline(tuple(steps))
    with flushing_as(target):
        return last.checked(module, OPTIMIZED, f"finishing {module.name}"), found


Rounding: TypeAlias = Callable[
    [HloModule, Target, str | None], tuple[HloModule, tuple[NarrowWeight, ...]]
]
_ROUNDING: tuple[tuple[Rounding, str], ...] = (
    (byte_products, "Products of f32 multiply bytes, where their error is allowed."),
    (bf16_products, "Products of f32 multiply bf16, where their error is allowed."),
)


def _blocks(
    target: Target, weights: str | None, excess_precision: bool
) -> tuple[Pass[HloModule], ...]:
    """Return the passes of constant weights that follow from codes, before others are narrowed."""
    rounds = byte_rows(target, weights) is not None
    by_block = partial(blocked_products, rounds=rounds, excess_precision=excess_precision)
    then = "Weights with a scale for each block of rows are multiplied as codes."
    return Pass("blocked_products", by_block, then, OPTIMIZED), _COMPUTED


def _for_threads(
    target: Target, rounding: tuple[Pass[HloModule], ...]
) -> tuple[Pass[HloModule], ...]:
    """Return the last passes for processors, with those that round operands."""
    merge = partial(merged_taps, target=target)
    then = "Channels of narrow convolutions fill the lanes of an instruction."
    return (
        _pass(wide_products, "Products of many rows of f16 are of f32.", OPTIMIZED),
        *rounding,
        Pass("merged_taps", merge, then, OPTIMIZED),
        _pass(split_argmax, "The largest value of a row is found before its place."),
        _pass(lane_transforms, "Fourier transforms are along one dimension, by vectors of rows."),
        replace(_TUPLES, reaches=OPTIMIZED),
    )


def _for_launches(target: Target, excess_precision: bool) -> tuple[Pass[HloModule], ...]:
    """Return the last passes for GPUs."""
    f8 = partial(f8_products, gpu=target.gpu, excess_precision=excess_precision)
    then = "Scaled products of floats of 8 bits multiply what the GPU takes."
    sums = "A few long rows of exponentials are summed up with their maxima."
    return (
        _pass(_transforms, "Fourier transforms are products.", OPTIMIZED),
        Pass("f8_products", f8, then, OPTIMIZED),
        _COMPUTED,
        _pass(order_argmax, "An argmax takes its terms in any order.", OPTIMIZED),
        _pass(online_softmax, sums, OPTIMIZED),
    )


def _transforms(module: HloModule) -> HloModule:
    """Return a module whose Fourier transforms are products, as simple as others."""
    found = product_transforms(module)
    return module if found is module else _AGAIN.run(found)


_AGAIN: Pipeline[HloModule] = Pipeline((SIMPLIFY, _DOTS, CANONICALIZE, _DOTS, _CSE, _DCE))


def require_optimized(module: HloModule, source: str = "") -> HloModule:
    """Return a module that was optimized before; ``VerifyError`` if it breaks a rule of that stage.

    Other errors as for ``optimize``. ``source`` is where the module was read.
    """
    verify(module)
    require_limits(module)
    require_supported(module)
    module = normalize_layouts(module)  # text gives row-major ones, too
    for rule in OPTIMIZED.rules:
        if broken := rule.broken(module):
            why = f"{broken} is there, but {rule.says}"
            raise VerifyError("this module is not optimized", why, source, "start at stage hlo")
    return module


def instructions(module: HloModule) -> int:
    """Return the number of instructions in all computations of a module."""
    return sum(len(c.instructions) for c in module.computations)
