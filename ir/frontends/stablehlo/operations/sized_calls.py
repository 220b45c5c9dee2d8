"""``custom_call``s that StableHLO's exporters use for want of an operation: sizes as operands.

JAX writes them where an exported function leaves sizes open. Constants give the sizes, once the
shapes of the arguments are known. An approximate top k is an exact one here, as in XLA's CPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ....hlo.nodes import SliceDim, TupleShape
from ....hlo.shape_text import show_shape
from ..mlir.syntax import MlirFunction, MlirOp, MlirRegion
from .chlo import largest
from .dynamic import shape_of
from .linear import algorithm, reduce_window
from .plain import array_of
from .to_hlo import Handler, OpSite, Results

SHAPES = "indices_of_shape_operands"
"""The attribute that says which operands list the sizes of the results, in order."""


def called_function(site: OpSite, name: Any) -> MlirFunction:
    """Return a function that a ``custom_call`` names; a ``ParseError`` if there is none."""
    function = site.low.module.functions.get(name) if isinstance(name, str) else None
    if function is None:
        site.fail(f"there is no function `{name}`")
    return function


def called_regions(site: OpSite) -> tuple[MlirRegion, ...]:
    """Return the bodies of the functions that a ``custom_call`` calls."""
    names = site.op.attrs.get("called_computations") or ()
    return tuple(called_function(site, name).body for name in names)


def with_listed_shapes(site: OpSite) -> OpSite:
    """Return the call without the operands that list the sizes of its results, and with these."""
    if SHAPES not in site.op.attrs:
        return site
    places, op = site.ints(SHAPES), site.op
    inside = all(0 <= n < len(op.operands) for n in places)
    if not inside or len(places) != len(op.result_types):
        site.fail(f"`{SHAPES}` does not name an operand for each of {len(op.result_types)} results")
    kinds = tuple(shape_of(site, place, n) for n, place in enumerate(places))
    return OpSite(site.low, site.builder, replace(_kept(site, places), result_types=kinds))


def _kept(site: OpSite, dropped: tuple[int, ...]) -> MlirOp:
    """Return the operation without some of its operands."""
    op = site.op
    kept = [n for n in range(len(op.operands)) if n not in dropped]
    types = op.operand_types and tuple(op.operand_types[n] for n in kept)
    attrs = {k: v for k, v in op.attrs.items() if k not in (SHAPES, "operand_layouts")}
    operands = tuple(op.operands[n] for n in kept)
    return replace(op, operands=operands, operand_types=types, attrs=attrs)


def _top_k(site: OpSite) -> Results:
    """Make a top k of the first operand, where the second is k."""
    if len(site.operands) != 2:
        site.fail(f"it has {len(site.operands)} operands, not 2")
    sizes = site.sizes(site.operands[1], "k")
    if len(sizes) != 1:
        site.fail(f"k is one number, not {len(sizes)}")
    return largest(site, site.operands[0], sizes[0])


def _bits(site: OpSite) -> Results:
    """Make random bits of the sizes that the second operand lists."""
    if len(site.operands) != 2 or len(site.op.result_types) != 2:
        site.fail("it has not two operands and two results")
    state = site.operands[0]
    both = TupleShape((state.shape, shape_of(site, 1, 1)))
    return site.results(site.add("rng-bit-generator", both, (state,), algorithm=algorithm(site)))


_WINDOW = ("window_dimensions", "window_strides", "base_dilations", "window_dilations", "padding")


def _reduce_window(site: OpSite) -> Results:
    """Make a ``reduce-window`` whose window the last five operands give."""
    count = len(site.operands) - len(_WINDOW)
    if count < 2:
        site.fail(f"it has {len(site.operands)} operands, too few for arrays and a window")
    attrs = {
        name: site.sizes(value, f"`{name}`")
        for name, value in zip(_WINDOW, site.operands[count:], strict=True)
    }
    op = _kept(site, tuple(range(count, len(site.operands))))
    op = replace(op, attrs=attrs, regions=called_regions(site))
    return reduce_window(OpSite(site.low, site.builder, op))


def _approximate_top_k(site: OpSite) -> Results:
    """Sort the arrays by the function that is called, and take as many as the results have."""
    results = len(site.op.result_types)
    regions, config = called_regions(site), site.attr("mhlo.backend_config")
    along = config.get("reduction_dim") if isinstance(config, Mapping) else None
    if len(site.operands) < 2 * results:
        site.fail(f"it has {len(site.operands)} operands, too few for {results} results")
    arrays = site.operands[:results]
    shapes = tuple(array_of(site, n) for n in range(results))
    rank = shapes[0].rank if shapes else 0
    if len(regions) != 1 or not isinstance(along, int) or not -rank <= along < rank:
        site.fail("it does not say how its operands are compared, or along which dimension")
    order = site.scalars(regions[0], "compare")
    shape = shapes[0] if results == 1 else TupleShape(shapes)
    found = site.add("sort", shape, arrays, dimensions=(along % rank,), to_apply=order)
    parts = [found] if results == 1 else site.builder.unpack(found, results)
    taken = []
    for n, part in enumerate(parts):
        wanted, given = site.array(n).dims, shapes[n].dims
        if len(wanted) != rank or any(w > d for w, d in zip(wanted, given, strict=True)):
            site.fail(f"result {n} of {show_shape(shapes[n])} cannot be {list(wanted)}")
        cut = tuple(SliceDim(0, d) for d in wanted)
        taken.append(site.add("slice", site.array(n), (part,), slice=cut))
    return taken


CALLS: Mapping[str, Handler] = {
    "ApproxTopK": _approximate_top_k,
    "stablehlo.dynamic_approx_top_k": _approximate_top_k,
    "stablehlo.dynamic_reduce_window": _reduce_window,
    "stablehlo.dynamic_rng_bit_generator": _bits,
    "stablehlo.dynamic_top_k": _top_k,
}
"""By the target of the call."""
