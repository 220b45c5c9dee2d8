"""Operations that are one HLO instruction, or nearly so: element-wise ones, shaping, constants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ....dtypes import to_numpy
from ....elementwise import dialect_names
from ....hlo.nodes import Instruction, PadDim, Shape, SliceDim, TokenShape, TupleShape
from ....hlo.ops.elementwise import COMPARISONS
from ....hlo.shape_text import show_shape
from ..mlir.syntax import Dense
from .to_hlo import Handler, OpSite, Results


def elementwise(site: OpSite) -> Results:
    """Make the element-wise instruction of the same name."""
    opcode = site.op.name.partition(".")[2].replace("_", "-")
    return site.make(opcode, site.operands)


def extreme(site: OpSite) -> Results:
    """``maximum`` and ``minimum``; complex numbers compare by their real, then imaginary part."""
    shape = array_of(site, 0)
    if shape.dtype.kind != "complex":
        return elementwise(site)
    first = in_order(site, "GT" if site.op.name.endswith("maximum") else "LT")
    return site.infer("select", [first, *site.operands])


def in_order(site: OpSite, direction: str) -> Instruction:
    """Compare complex numbers by their real parts, and where these are equal by the others."""
    real, imag = ([site.infer(n, [o]) for o in operands(site, 2)] for n in ("real", "imag"))
    equal = site.infer("compare", real, direction="EQ")
    second = site.infer("and", [equal, site.infer("compare", imag, direction=direction)])
    strict = site.infer("compare", real, direction=direction[0] + "T")
    return site.infer("or", [strict, second])


def operands(site: OpSite, count: int) -> Sequence[Instruction]:
    """The operands, which must be ``count``."""
    if len(site.operands) != count:
        site.fail(f"it takes {count} operands and has {len(site.operands)}")
    return site.operands


def array_of(site: OpSite, n: int) -> Shape:
    """The shape of operand ``n``, an array."""
    if n >= len(site.operands):
        site.fail(f"operand {n} is missing")
    shape = site.operands[n].shape
    if not isinstance(shape, Shape):
        site.fail(f"operand {n} is {show_shape(shape)}, not an array")
    return shape


def constant(site: OpSite) -> Results:
    """A literal; one number for many elements is a scalar, broadcast."""
    value = site.attr("value")
    if not isinstance(value, Dense):
        site.fail("attribute `value` is not a literal")
    shape = site.array()
    kind = value.type
    if not isinstance(kind, Shape) or kind.dims != shape.dims or kind.dtype != shape.dtype:
        site.fail("its literal and its result have different types")
    return literal(site, value)


def literal(site: OpSite, value: Dense) -> Instruction:
    """An instruction that gives a literal."""
    array = site.dense(value)
    found = site.constant(array)
    assert isinstance(value.type, Shape)
    if array.shape == value.type.dims:
        return found
    return site.add("broadcast", value.type, [found], dimensions=())


def scalar(site: OpSite, number: Any, like: Shape) -> Instruction:
    """A number in the element type of ``like``, for every element of it."""
    found = site.constant(np.asarray(number).astype(to_numpy(like.dtype)))
    return splat(site, found, like)


def splat(site: OpSite, value: Instruction, like: Shape) -> Instruction:
    """A scalar for every element of ``like``."""
    if not like.dims:
        return value
    wide = Shape(value.array.dtype, like.dims, None, like.dynamic)
    return site.add("broadcast", wide, [value], dimensions=())


def iota(site: OpSite) -> Results:
    """Make an ``iota``."""
    return site.add("iota", site.array(), iota_dimension=site.integer("iota_dimension"))


def convert(site: OpSite) -> Results:
    """Make a ``convert`` to the declared element type."""
    operands(site, 1)
    return site.add("convert", like_operand(site), site.operands)


def like_operand(site: OpSite) -> Shape:
    """The declared element type with the operand's dimensions."""
    return replace(array_of(site, 0), dtype=site.element().dtype, layout=None)


def reshape(site: OpSite) -> Results:
    """Make a ``reshape`` to the declared shape."""
    return site.add("reshape", site.array(), operands(site, 1))


def transpose(site: OpSite) -> Results:
    """Make a ``transpose``."""
    return site.make("transpose", operands(site, 1), dimensions=site.ints("permutation"))


def reverse(site: OpSite) -> Results:
    """Make a ``reverse``."""
    return site.make("reverse", operands(site, 1), dimensions=site.ints("dimensions"))


def broadcast_in_dim(site: OpSite) -> Results:
    """Make a ``broadcast`` to the declared shape."""
    operands(site, 1)
    return broadcast_to(site, site.operands[0], site.array(), site.ints("broadcast_dimensions"))


def broadcast_to(site: OpSite, value: Instruction, to: Shape, dims: Sequence[int]) -> Instruction:
    """HLO's broadcast of StableHLO's: dimensions in order, and none of one element stretched."""
    old = value.array
    if len(dims) != old.rank or len(set(dims)) != len(dims):
        site.fail(f"{len(dims)} dimensions for {show_shape(old)}")
    if any(not 0 <= d < to.rank for d in dims):
        site.fail(f"dimensions {list(dims)} of {show_shape(to)}")
    order = sorted(range(old.rank), key=lambda k: dims[k])
    if order != list(range(old.rank)):
        value = site.infer("transpose", [value], dimensions=tuple(order))
        dims = [dims[k] for k in order]
        old = value.array
    kept = [k for k, d in enumerate(dims) if old.dims[k] == to.dims[d] or old.dims[k] != 1]
    if len(kept) != old.rank:
        marks = tuple(old.dynamic[k] for k in kept) if old.dynamic else ()
        smaller = Shape(old.dtype, tuple(old.dims[k] for k in kept), None, marks)
        value = site.add("reshape", smaller, [value])
        dims = [dims[k] for k in kept]
    return site.add("broadcast", to, [value], dimensions=tuple(dims))


def broadcast(site: OpSite) -> Results:
    """The older form: new dimensions in front."""
    old, sizes = array_of(site, 0), site.ints("broadcast_sizes")
    to = Shape(old.dtype, (*sizes, *old.dims))
    dims = tuple(range(len(sizes), len(sizes) + old.rank))
    return site.add("broadcast", to, operands(site, 1), dimensions=dims)


def concatenate(site: OpSite) -> Results:
    """Make a ``concatenate``; of one operand the operand itself."""
    dimension = site.integer("dimension")
    if len(site.operands) == 1 and 0 <= dimension < array_of(site, 0).rank:
        return site.operands[0]
    return site.make("concatenate", site.operands, dimensions=(dimension,))


def slice_(site: OpSite) -> Results:
    """Make a ``slice``."""
    names = ("start_indices", "limit_indices", "strides")
    columns = [site.ints(n) for n in names]
    if len({len(c) for c in columns}) != 1:
        site.fail("starts, limits and strides differ in number")
    cuts = tuple(SliceDim(*row) for row in zip(*columns, strict=True))
    return site.make("slice", operands(site, 1), slice=cuts)


def dynamic_slice(site: OpSite) -> Results:
    """Make a ``dynamic-slice``."""
    sizes = site.ints("slice_sizes")
    return site.make("dynamic-slice", site.operands, dynamic_slice_sizes=sizes)


def dynamic_update_slice(site: OpSite) -> Results:
    """Make a ``dynamic-update-slice``."""
    return site.make("dynamic-update-slice", site.operands)


def pad(site: OpSite) -> Results:
    """Make a ``pad``."""
    names = ("edge_padding_low", "edge_padding_high", "interior_padding")
    columns = [site.ints(n) for n in names]
    if len({len(c) for c in columns}) != 1:
        site.fail("low, high and interior padding differ in number")
    rows = tuple(PadDim(*row) for row in zip(*columns, strict=True))
    return site.make("pad", operands(site, 2), padding=rows)


def select(site: OpSite) -> Results:
    """Make a ``select``; a scalar predicate is broadcast."""
    choice, *rest = operands(site, 3)
    if isinstance(choice.shape, Shape) and not choice.shape.dims:
        choice = splat(site, choice, array_of(site, 1))
    return site.make("select", [choice, *rest])


def compare(site: OpSite) -> Results:
    """Make a ``compare``, of floats in total order if the text says so."""
    attrs: dict[str, Any] = {"direction": site.word("comparison_direction")}
    order, dtype = site.word("compare_type", "NOTYPE"), array_of(site, 0).dtype
    if order not in ("NOTYPE", *COMPARISONS[dtype.kind]):
        site.fail(f"{dtype} is not compared as {order}")
    if order == "TOTALORDER":
        attrs["type"] = order
    if dtype.kind == "complex" and attrs["direction"] in ("LT", "LE", "GT", "GE"):
        return in_order(site, attrs["direction"])
    return site.infer("compare", operands(site, 2), **attrs)


def complex_part(site: OpSite) -> Results:
    """``real`` and ``imag``; of a real array the array itself, and zeros."""
    old = array_of(site, 0)
    if old.dtype.kind == "complex":
        return site.make(site.op.name.partition(".")[2], operands(site, 1))
    if not old.dtype.is_float:
        site.fail(f"{old.dtype} has no real and imaginary part")
    return site.operands[0] if site.op.name.endswith("real") else scalar(site, 0, old)


def complex_(site: OpSite) -> Results:
    """Make a ``complex`` of real and imaginary parts."""
    return site.infer("complex", operands(site, 2))


def reduce_precision(site: OpSite) -> Results:
    """Make a ``reduce-precision``."""
    return site.make(
        "reduce-precision",
        operands(site, 1),
        exponent_bits=site.integer("exponent_bits"),
        mantissa_bits=site.integer("mantissa_bits"),
    )


def tuple_(site: OpSite) -> Results:
    """Make a ``tuple``."""
    return site.infer("tuple", site.operands)


def get_tuple_element(site: OpSite) -> Results:
    """Make a ``get-tuple-element``."""
    return site.infer("get-tuple-element", operands(site, 1), index=site.integer("index"))


def optimization_barrier(site: OpSite) -> Results:
    """Make an ``opt-barrier``; several operands go through it as a tuple."""
    if len(site.operands) == 1:
        return site.infer("opt-barrier", site.operands)
    shapes = tuple(o.shape for o in site.operands)
    packed = site.add("tuple", TupleShape(shapes), site.operands)
    return site.builder.unpack(site.infer("opt-barrier", [packed]), len(shapes))


def after_all(site: OpSite) -> Results:
    """Make an ``after-all`` of tokens."""
    return site.add("after-all", TokenShape(), site.operands)


def get_dimension_size(site: OpSite) -> Results:
    """Return the size of a dimension: a constant, unless it is dynamic."""
    shape, dimension = array_of(site, 0), site.integer("dimension")
    if not 0 <= dimension < shape.rank:
        site.fail(f"dimension {dimension} of {show_shape(shape)}")
    if shape.dynamic and shape.dynamic[dimension]:
        return site.infer("get-dimension-size", site.operands, dimensions=(dimension,))
    return site.constant(np.asarray(shape.dims[dimension], np.int32))


def set_dimension_size(site: OpSite) -> Results:
    """The size becomes a value; a dimension that had it already stays as it is."""
    shape, dimension = array_of(site, 0), site.integer("dimension")
    if not 0 <= dimension < shape.rank:
        site.fail(f"dimension {dimension} of {show_shape(shape)}")
    known = site.builder.known(operands(site, 2)[1])
    static = not (shape.dynamic and shape.dynamic[dimension])
    if static and known is not None and int(known.reshape(-1)[0]) == shape.dims[dimension]:
        return site.operands[0]
    return site.infer("set-dimension-size", site.operands, dimensions=(dimension,))


def identity(site: OpSite) -> Results:
    """Return the operands as they are: a cast between types that know more or less of the sizes."""
    return site.operands[0] if len(site.operands) == 1 else list(site.operands)


def index_of_device(site: OpSite) -> Results:
    """Make a ``replica-id`` or ``partition-id``."""
    return site.add(site.op.name.partition(".")[2].replace("_", "-"), site.array())


TABLE: Mapping[str, Handler] = {
    **dict.fromkeys(dialect_names("stablehlo"), elementwise),
    "maximum": extreme,
    "minimum": extreme,
    "clamp": elementwise,
    "constant": constant,
    "iota": iota,
    "convert": convert,
    "reshape": reshape,
    "transpose": transpose,
    "reverse": reverse,
    "broadcast_in_dim": broadcast_in_dim,
    "broadcast": broadcast,
    "concatenate": concatenate,
    "slice": slice_,
    "dynamic_slice": dynamic_slice,
    "dynamic_update_slice": dynamic_update_slice,
    "pad": pad,
    "select": select,
    "compare": compare,
    "real": complex_part,
    "imag": complex_part,
    "complex": complex_,
    "reduce_precision": reduce_precision,
    "tuple": tuple_,
    "get_tuple_element": get_tuple_element,
    "optimization_barrier": optimization_barrier,
    "after_all": after_all,
    "create_token": after_all,
    "get_dimension_size": get_dimension_size,
    "set_dimension_size": set_dimension_size,
    "replica_id": index_of_device,
    "partition_id": index_of_device,
}
"""By the operation's name in the dialects StableHLO and MHLO."""
