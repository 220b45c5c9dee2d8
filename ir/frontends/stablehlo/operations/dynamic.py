"""Operations whose sizes are operands: constants give them, or types bound them; else refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ....dtypes import s32
from ....hlo.nodes import Instruction, PadDim, Shape, SliceDim
from ....hlo.shape_text import UNKNOWN, too_large
from .linear import convolve, gather_of
from .plain import broadcast_to, operands
from .to_hlo import Handler, OpSite, Results, is_settled


def shape_of(site: OpSite, n: int, result: int = 0) -> Shape:
    """The shape that operand ``n`` lists, in the element type of a result.

    A result whose type is complete has that shape, whatever the operand turns out to be.
    """
    like, sizes = site.element(result), site.operands[n]
    if is_settled(like) and not like.dynamic and site.builder.known(sizes) is None:
        return like
    dims = site.sizes(sizes, "the shape of its result")
    if any(d < 0 for d in dims) or too_large(dims, like.dtype.bytes):
        site.fail(f"{list(dims)[:16]} is not a shape")
    fits = len(dims) == like.rank and all(
        w in (UNKNOWN, d) or (like.dynamic and d <= w) for w, d in zip(like.dims, dims, strict=True)
    )
    if not fits:
        site.fail(f"its sizes {list(dims)} do not fit the type of its result")
    return Shape(like.dtype, dims)


def live_sizes(site: OpSite, n: int) -> list[Instruction]:
    """The sizes that operand ``n`` lists, if they are known at run time only, within bounds."""
    like, given = site.element(), site.operands[n]
    if not is_settled(like) or not like.dynamic or site.builder.known(given) is not None:
        return []
    found = _numbers(site, given)
    if given.array.dtype == s32:
        return found
    return [site.add("convert", Shape(s32), (size,)) for size in found]


def _numbers(site: OpSite, given: Instruction) -> list[Instruction]:
    """The elements of a list of numbers."""
    one = Shape(given.array.dtype, (1,))
    places = [SliceDim(d, d + 1) for d in range(given.array.size)]
    cuts = [site.add("slice", one, (given,), slice=(place,)) for place in places]
    return [site.add("reshape", Shape(one.dtype), (cut,)) for cut in cuts]


def resized(site: OpSite, value: Instruction, sizes: Sequence[Instruction]) -> Instruction:
    """``value``, which is as large as the bounds, with the live sizes that its type asks for."""
    like = site.element()
    for d, size in enumerate(sizes):
        if like.dynamic[d]:
            old = value.array.marks
            dynamic = tuple(m or k == d for k, m in enumerate(old))
            shape = replace(like, dynamic=dynamic)
            value = site.add("set-dimension-size", shape, (value, size), dimensions=(d,))
    return value


def dynamic_reshape(site: OpSite) -> Results:
    """Make a ``reshape``, or a ``dynamic-reshape`` where sizes are known at run time only."""
    if sizes := live_sizes(site, 1):
        return site.add("dynamic-reshape", site.element(), (*operands(site, 2)[:1], *sizes))
    return site.add("reshape", shape_of(site, 1), operands(site, 2)[:1])


def dynamic_broadcast_in_dim(site: OpSite) -> Results:
    """Broadcast to the bounds, then set the sizes that are known at run time only."""
    value = operands(site, 2)[0]
    if sizes := live_sizes(site, 1):
        bound = replace(site.element(), dynamic=())
        spread = broadcast_to(site, value, bound, site.ints("broadcast_dimensions"))
        return resized(site, spread, sizes)
    return broadcast_to(site, value, shape_of(site, 1), site.ints("broadcast_dimensions"))


def dynamic_iota(site: OpSite) -> Results:
    """Make an ``iota`` of the bounds, then set the sizes that are known at run time only."""
    operands(site, 1)
    if sizes := live_sizes(site, 0):
        bound, d = replace(site.element(), dynamic=()), site.integer("iota_dimension")
        return resized(site, site.add("iota", bound, iota_dimension=d), sizes)
    return site.add("iota", shape_of(site, 0), iota_dimension=site.integer("iota_dimension"))


def _columns(site: OpSite, first: int, what: str) -> Sequence[tuple[int, ...]]:
    """The lists that the operands from ``first`` on are known to hold, all of one length."""
    columns = [site.sizes(o, what) for o in site.operands[first:]]
    if len({len(c) for c in columns}) != 1:
        site.fail(f"the parts of {what} differ in number")
    return columns


def dynamic_pad(site: OpSite) -> Results:
    """Make a ``pad`` whose padding is known from constants."""
    columns = _columns(site, 2, "its padding") if operands(site, 5) else ()
    rows = tuple(PadDim(*row) for row in zip(*columns, strict=True))
    return site.make("pad", site.operands[:2], padding=rows)


def _window(site: OpSite) -> Sequence[int]:
    """The sizes of a slice without gaps that starts at places known at run time only; else none.

    They follow from the type of the result, or from a limit that is the start and known sizes.
    """
    _, start, limit, strides = site.operands
    steps, like = site.known(strides), site.element()
    if site.known(start) is not None or steps is None or (steps != 1).any():
        return ()
    if is_settled(like):
        return () if like.dynamic else like.dims
    if limit.opcode != "add" or start not in limit.operands:
        return ()
    (*_, size) = sorted(limit.operands, key=lambda o: o is not start)
    return () if site.known(size) is None else site.sizes(size, "the size of its slice")


def real_dynamic_slice(site: OpSite) -> Results:
    """Make a ``slice`` whose range is known from constants, or a ``dynamic-slice`` where only its
    size is.
    """
    operands(site, 4)
    if sizes := _window(site):
        starts = _numbers(site, site.operands[1])
        given = (site.operands[0], *starts)
        return site.make("dynamic-slice", given, dynamic_slice_sizes=tuple(sizes))
    columns = _columns(site, 1, "its range")
    cuts = tuple(SliceDim(*row) for row in zip(*columns, strict=True))
    return site.make("slice", site.operands[:1], slice=cuts)


def dynamic_gather(site: OpSite) -> Results:
    """Make a ``gather`` whose slice sizes are known from constants."""
    return gather_of(site, site.sizes(operands(site, 3)[2], "the size of its slices"))


def dynamic_conv(site: OpSite) -> Results:
    """Make a ``convolution`` whose padding is known from constants."""
    return convolve(site, site.sizes(operands(site, 3)[2], "its padding"))


TABLE: Mapping[str, Handler] = {
    "dynamic_reshape": dynamic_reshape,
    "dynamic_broadcast_in_dim": dynamic_broadcast_in_dim,
    "dynamic_iota": dynamic_iota,
    "dynamic_pad": dynamic_pad,
    "real_dynamic_slice": real_dynamic_slice,
    "dynamic_gather": dynamic_gather,
    "dynamic_conv": dynamic_conv,
}
"""By the operation's name in the dialects StableHLO and MHLO."""
