"""The rules that every HLO module keeps: names, order, signatures, and shapes that follow.

An instruction's shape must be the inferred one up to layout, and up to an element type where text
may choose it (a dot that accumulates in a wider type). Every broken rule is a ``VerifyError``
that names the instruction and its computation.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import NoReturn

import numpy as np

from ..dtypes import DType, pred, s32, to_numpy
from ..errors import VerifyError
from .nodes import (
    AnyShape,
    Computation,
    HloModule,
    Instruction,
    Raw,
    Shape,
    TokenShape,
    TupleShape,
)
from .opcodes import COMPUTED
from .rewrite import called
from .shape_text import UNKNOWN, show_shape
from .shapes import FREE_RESULT, infer
from .shapes_basic import array, attr, dims_of, plain, refuse


def verify(module: HloModule) -> None:
    """``VerifyError`` if the module is not well formed.

    Operations that are only read and printed (``opcodes.NAMED_ONLY``) are not looked into.
    """
    seen: set[Computation] = set()
    names: set[str] = set()
    for c in module.computations:
        if c.name in names:
            fail(f"computation `{c.name}`", "another one has the same name")
        names.add(c.name)
        for i in c.instructions:
            for callee in called(i):
                if callee not in seen:
                    why = f"it calls `{callee.name}`, which does not stand above it in the module"
                    fail(f"`{i.name}` in `{c.name}`", why)
        verify_computation(c)
        seen.add(c)
    if module.entry not in seen:
        fail(f"module `{module.name}`", f"its entry `{module.entry.name}` is not among its own")


def verify_computation(computation: Computation) -> None:
    """``VerifyError`` if a computation is not well formed; those it calls are taken to be."""
    defined: set[Instruction] = set()
    names: set[str] = set()
    for i in computation.instructions:
        where = f"`{i.name}` in `{computation.name}`"
        if i.name in names:
            fail(where, "another instruction of the computation has the same name")
        for operand in i.operands:
            if operand not in defined:
                fail(where, f"its operand `{operand.name}` is not defined above it")
        try:
            check_instruction(i)
        except VerifyError as error:
            fail(where, error.why or error.what)
        names.add(i.name)
        defined.add(i)
    where = f"computation `{computation.name}`"
    if computation.root not in defined:
        fail(where, f"its root `{computation.root.name}` is not among its instructions")
    own = [i for i in computation.instructions if i.opcode == "parameter"]
    if set(own) != set(computation.parameters) or len(own) != len(computation.parameters):
        fail(where, "its parameters are not its `parameter` instructions")
    for n, p in enumerate(computation.parameters):
        if p.attrs.get("number") != n:
            fail(where, f"parameter {n} is `{p.name}`, whose number is {p.attrs.get('number')}")


def fail(where: str, why: str) -> NoReturn:
    raise VerifyError("not well-formed HLO", why, where)


def check_instruction(i: Instruction) -> None:
    """``VerifyError`` if operands, attributes and shape of one instruction do not fit."""
    check_sizes(i.shape)
    if i.opcode not in COMPUTED:
        return
    operands = tuple(o.shape for o in i.operands)
    if i.opcode in ARRAYS and not isinstance(i.shape, Shape):
        refuse(f"it makes one array, not {show_shape(i.shape)}")
    if (check := CHECKS.get(i.opcode)) is not None:
        check(i, operands)
    if i.opcode in FREE_RESULT:
        return
    inferred = infer(i.opcode, operands, i.attrs)
    if not same_shape(inferred, i.shape, RESULT_TYPES.get(i.opcode, operator.eq)):
        refuse(f"its shape is {show_shape(i.shape)}, its operands give {show_shape(inferred)}")


ARRAYS = frozenset(
    {
        "iota", "convert", "bitcast-convert", "stochastic-convert", "reshape", "dynamic-reshape",
        "broadcast", "bitcast", "rng", "replica-id", "partition-id",
    }
)  # fmt: skip
"""Operations whose result is one array, of a shape that does not follow from the operands."""

Likeness = Callable[[DType, DType], bool]


def alike(a: DType, b: DType) -> bool:
    """Whether values of one type may be kept in the other."""
    return a.kind == b.kind


def both_real(a: DType, b: DType) -> bool:
    """Whether both are complex, or neither is."""
    return (a.kind == "complex") == (b.kind == "complex")


RESULT_TYPES: Mapping[str, Likeness] = {
    **dict.fromkeys(("dot", "convolution"), both_real),
    **dict.fromkeys(("reduce", "reduce-window", "all-reduce"), alike),
}
"""Operations whose result may have another element type than follows from the operands."""


def same_shape(a: AnyShape, b: AnyShape, types: Likeness = operator.eq) -> bool:
    """Equal up to layout and dynamic marks; of ``types``, which element types go together."""
    match a, b:
        case Shape(dims=x, dtype=t), Shape(dims=y, dtype=u):
            return x == y and types(t, u)
        case TupleShape(elements=x), TupleShape(elements=y):
            pairs = zip(x, y, strict=False)
            return len(x) == len(y) and all(same_shape(p, q, types) for p, q in pairs)
        case _:
            return isinstance(a, TokenShape) and isinstance(b, TokenShape)


def check_sizes(shape: AnyShape) -> None:
    match shape:
        case TupleShape(elements=elements):
            for e in elements:
                check_sizes(e)
        case Shape(dims=dims, dynamic=dynamic, layout=layout):
            if UNKNOWN in dims:
                why = "has a dimension of unknown size; only bounded ones (`<=`) can be computed"
                refuse(f"{show_shape(shape)} {why}")
            if any(d < 0 for d in dims):
                refuse("a dimension has a size below 0")
            if dynamic and len(dynamic) != len(dims):
                refuse("`dynamic` marks do not fit the dimensions")
            if layout is not None and sorted(layout) != list(range(len(dims))):
                refuse(f"layout {layout} does not fit {len(dims)} dimensions")
        case _:
            pass


Check = Callable[[Instruction, Sequence[AnyShape]], None]


def _reshape(i: Instruction, operands: Sequence[AnyShape]) -> None:
    old, new = array(operands, 0), i.array
    if old.size != new.size or old.dtype != new.dtype:
        refuse(f"it makes {show_shape(new)} of {show_shape(old)}")


def _dynamic_reshape(i: Instruction, operands: Sequence[AnyShape]) -> None:
    """One s32 per dimension of the result, which it bounds."""
    old, new = array(operands, 0), i.array
    if old.dtype != new.dtype or len(operands) != 1 + new.rank:
        refuse(f"it makes {show_shape(new)} of {show_shape(old)} by {len(operands) - 1} sizes")
    for n in range(new.rank):
        size = array(operands, 1 + n)
        if size.dims or not size.dtype.is_int:
            refuse(f"size {n} is {show_shape(size)}, not an integer scalar")


def _dimension_size(i: Instruction, operands: Sequence[AnyShape]) -> None:
    a = array(operands, 0)
    if len(dims_of(i.attrs, "dimensions", a.rank)) != 1:
        refuse("`dimensions` is one dimension")
    if i.opcode == "set-dimension-size":
        size = array(operands, 1)
        if size.dims or not size.dtype.is_int:
            refuse(f"the size is {show_shape(size)}, not an integer scalar")


def _broadcast(i: Instruction, operands: Sequence[AnyShape]) -> None:
    old, new = array(operands, 0), i.array
    dims = dims_of(i.attrs, "dimensions", new.rank)
    if len(dims) != old.rank or old.dtype != new.dtype:
        refuse(f"`dimensions` has {len(dims)} numbers for {show_shape(old)} -> {show_shape(new)}")
    for size, d in zip(old.dims, dims, strict=True):
        if size != new.dims[d]:
            refuse(f"dimension {d} of {show_shape(new)} would be made of {size} elements")


def _iota(i: Instruction, operands: Sequence[AnyShape]) -> None:
    if not 0 <= attr(i.attrs, "iota_dimension", int) < i.array.rank:
        refuse(f"iota_dimension={i.attrs['iota_dimension']} of {show_shape(i.shape)}")


def _constant(i: Instruction, operands: Sequence[AnyShape]) -> None:
    _check_literal(i.attrs.get("literal"), i.shape)


def _check_literal(value: object, shape: AnyShape) -> None:
    match shape, value:
        case Shape(), Raw():
            pass  # its value was left out of the text
        case Shape(dims=dims, dtype=dtype), np.ndarray():
            if value.shape != dims or value.dtype != to_numpy(dtype):
                refuse(f"its value is {value.dtype}{list(value.shape)}, not {show_shape(shape)}")
        case TupleShape(elements=elements), tuple() if len(value) == len(elements):
            for v, e in zip(value, elements, strict=True):
                _check_literal(v, e)
        case _:
            refuse(f"its value is not of shape {show_shape(shape)}")


def _convert(i: Instruction, operands: Sequence[AnyShape]) -> None:
    if array(operands, 0).dims != i.array.dims:
        refuse(f"it makes {show_shape(i.shape)} of {show_shape(operands[0])}")


def _stochastic_convert(i: Instruction, operands: Sequence[AnyShape]) -> None:
    x, bits = array(operands, 0), array(operands, 1)
    if x.dims != bits.dims or x.dims != i.array.dims:
        refuse(f"it makes {show_shape(i.shape)} of {show_shape(x)} and {show_shape(bits)}")
    if not x.dtype.is_float or bits.dtype.kind != "unsigned" or bits.dtype.bits != x.dtype.bits:
        refuse(f"its random bits are {bits.dtype}, for {x.dtype} they must be as wide and unsigned")


def _bitcast_convert(i: Instruction, operands: Sequence[AnyShape]) -> None:
    old, new = array(operands, 0), i.array
    if old.size * old.dtype.bits != new.size * new.dtype.bits:
        refuse(f"{show_shape(old)} and {show_shape(new)} have different numbers of bits")
    wide, narrow = (old, new) if old.dtype.bits > new.dtype.bits else (new, old)
    if old.dtype.bits == new.dtype.bits:
        fits = old.dims == new.dims
    else:
        fits = narrow.dims[:-1] == wide.dims and prod(narrow.dims[-1:]) > 0
    if not fits:
        refuse(f"it makes {show_shape(new)} of {show_shape(old)}")


def _bitcast(i: Instruction, operands: Sequence[AnyShape]) -> None:
    old, new = array(operands, 0), i.array
    if old.size * old.dtype.bits != new.size * new.dtype.bits:
        refuse(f"{show_shape(old)} and {show_shape(new)} have different numbers of bits")


def _signature(i: Instruction, c: Computation, given: Sequence[AnyShape]) -> None:
    """The parameters of a called computation take the values that it is called with."""
    if len(c.parameters) != len(given):
        refuse(f"`{c.name}` takes {len(c.parameters)} arguments and gets {len(given)}")
    for p, s in zip(c.parameters, given, strict=True):
        if not same_shape(p.shape, s):
            why = f"parameter `{p.name}` of `{c.name}` is {show_shape(p.shape)}"
            refuse(f"{why} and gets {show_shape(s)}")


def _returns(c: Computation, shape: AnyShape) -> None:
    if not same_shape(c.root.shape, shape):
        refuse(f"`{c.name}` returns {show_shape(c.root.shape)}, not {show_shape(shape)}")


def _call(i: Instruction, operands: Sequence[AnyShape]) -> None:
    name = "calls" if "calls" in i.attrs else "to_apply"
    _signature(i, attr(i.attrs, name, Computation), operands)


def _while(i: Instruction, operands: Sequence[AnyShape]) -> None:
    condition = attr(i.attrs, "condition", Computation)
    body = attr(i.attrs, "body", Computation)
    _signature(i, condition, operands)
    _signature(i, body, operands)
    _returns(body, operands[0])
    match condition.root.shape:
        case Shape(dims=(), dtype=dtype) if dtype.kind == "pred":
            pass
        case other:
            refuse(f"condition `{condition.name}` returns {show_shape(other)}, not pred[]")


def _conditional(i: Instruction, operands: Sequence[AnyShape]) -> None:
    if "branch_computations" in i.attrs:
        branches = attr(i.attrs, "branch_computations")
    else:
        names = ("true_computation", "false_computation")
        branches = tuple(attr(i.attrs, name, Computation) for name in names)
    if array(operands, 0).dims or len(operands) != len(branches) + 1 or not branches:
        refuse(
            f"{len(branches)} branches, {len(operands)} operands; it takes a choice and one each"
        )
    choice = array(operands, 0).dtype
    by_number = choice == s32 and "branch_computations" in i.attrs
    if not by_number and (choice != pred or len(branches) != 2):
        refuse(f"{choice} chooses among {len(branches)} branches: a pred does of two, else an s32")
    for branch, given in zip(branches, operands[1:], strict=True):
        _signature(i, branch, [given])
        _returns(branch, i.shape)


def _reducer(i: Instruction, operands: Sequence[AnyShape]) -> None:
    """Reducers, maps, comparators and combiners take scalars, of the kinds that they are given."""
    given = arrays(operands)
    n = len(given) // 2
    match i.opcode:
        case "reduce" | "reduce-window":
            given = given[n:] + given[:n]  # what was kept so far, then the new values
        case "scatter":
            given = given[:n] + given[n + 1 :]
        case "sort":
            given = [s for s in given for _ in range(2)]
            _decides(attr(i.attrs, "to_apply", Computation))
        case _:
            pass
    _takes(attr(i.attrs, "to_apply", Computation), given)


def _select_and_scatter(i: Instruction, operands: Sequence[AnyShape]) -> None:
    operand, source = array(operands, 0), array(operands, 1)
    decides, combines = (attr(i.attrs, name, Computation) for name in ("select", "scatter"))
    _takes(decides, [operand, operand])
    _decides(decides)
    _takes(combines, [operand, source])
    if not same_shape(combines.root.shape, Shape(operand.dtype), alike):
        refuse(f"`{combines.name}` returns {show_shape(combines.root.shape)}")


def _takes(c: Computation, given: Sequence[Shape]) -> None:
    """A computation of as many scalars."""
    if len(c.parameters) != len(given):
        refuse(f"`{c.name}` takes {len(c.parameters)} scalars and gets {len(given)}")
    for p, s in zip(c.parameters, given, strict=True):
        if not same_shape(p.shape, Shape(s.dtype), alike):
            why = f"parameter `{p.name}` of `{c.name}` is {show_shape(p.shape)}"
            refuse(f"{why}, not a scalar that takes {s.dtype}")


def _decides(c: Computation) -> None:
    if not same_shape(c.root.shape, Shape(pred)):
        refuse(f"`{c.name}` returns {show_shape(c.root.shape)}, not pred[]")


def _batch_norm(i: Instruction, operands: Sequence[AnyShape]) -> None:
    """The operand, vectors of its features, and for a gradient one more array like it."""
    given = arrays(operands)
    feature = attr(i.attrs, "feature_index", int)
    count = 3 if i.opcode == "batch-norm-training" else 5
    if len(given) != count or not 0 <= feature < given[0].rank:
        refuse(f"feature_index={feature}, {len(given)} operands of {count}")
    attr(i.attrs, "epsilon", float)
    whole = plain(given[0])
    vector = Shape(whole.dtype, (whole.dims[feature],))
    wanted = [whole] + [vector] * (count - 1)
    if i.opcode == "batch-norm-grad":
        wanted[-1] = whole
    for s, w in zip(given, wanted, strict=True):
        if not same_shape(s, w) or not whole.dtype.is_float:
            refuse(f"it takes {show_shape(w)} where it has {show_shape(s)}")


def _rng(i: Instruction, operands: Sequence[AnyShape]) -> None:
    kinds = {"rng_uniform": ("float", "signed", "unsigned", "pred"), "rng_normal": ("float",)}
    word, dtype = attr(i.attrs, "distribution", str), i.array.dtype
    if dtype.kind not in kinds.get(word, ()):
        refuse(f"distribution={word} of {dtype}")
    given = [plain(s) for s in arrays(operands[:2])]  # some texts name the shape as a third one
    if len(operands) not in (2, 3) or given != [Shape(dtype)] * 2:
        refuse(f"it takes two numbers of type {dtype}")


def _random_bits(i: Instruction, operands: Sequence[AnyShape]) -> None:
    """The new state, and numbers of any plain type; what a state must be is known elsewhere."""
    attr(i.attrs, "algorithm", str)
    state = plain(array(operands, 0))
    match i.shape:
        case TupleShape(elements=(Shape() as new, Shape(dtype=dtype))) if plain(new) == state:
            if dtype.bits < 8 or dtype.kind in ("pred", "complex"):
                refuse(f"random bits of type {dtype}")
        case other:
            refuse(f"it returns the new state and the bits, not {show_shape(other)}")


def _scan(i: Instruction, operands: Sequence[AnyShape]) -> None:
    """One dimension of inputs and outputs is gone inside; carries keep their shape."""
    called_with = attr(i.attrs, "to_apply", Computation)
    carries = i.attrs.get("num_carries", 1)
    given, results = arrays(operands), arrays(leaves(i.shape))
    if not 0 <= carries <= min(len(given), len(results)) or not given:
        refuse(f"num_carries={carries} of {len(given)} operands and {len(results)} results")
    inputs, outputs = given[: len(given) - carries], results[: len(results) - carries]
    extents = set()
    for s in (*inputs, *outputs):
        (dim,) = dims_of(i.attrs, "dimensions", s.rank)[:1] or (-1,)
        extents.add(s.dims[dim])
    if len(extents) != 1 or len(attr(i.attrs, "dimensions")) != 1:
        refuse("`dimensions` is one dimension, of one size in all inputs and outputs")
    dim = attr(i.attrs, "dimensions")[0]
    _signature(i, called_with, [*(_without(s, dim) for s in inputs), *given[len(inputs) :]])
    made = [*(_without(s, dim) for s in outputs), *results[len(outputs) :]]
    _returns(called_with, TupleShape(tuple(made)) if isinstance(i.shape, TupleShape) else made[0])
    if carries and any(
        not same_shape(a, b) for a, b in zip(given[-carries:], results[-carries:], strict=True)
    ):
        refuse("the last carries differ in shape from the first")


def _without(s: Shape, dim: int) -> Shape:
    return Shape(s.dtype, s.dims[:dim] + s.dims[dim + 1 :])


def leaves(shape: AnyShape) -> tuple[AnyShape, ...]:
    """The parts of a result, one if it is no tuple."""
    return shape.elements if isinstance(shape, TupleShape) else (shape,)


def arrays(shapes: Sequence[AnyShape]) -> list[Shape]:
    """Shapes all of which must be arrays."""
    return [array(shapes, n) for n in range(len(shapes))]


def _number_of_device(i: Instruction, operands: Sequence[AnyShape]) -> None:
    if operands or i.array.dims or not i.array.dtype.is_int:
        refuse(f"it takes nothing and gives an integer, not {show_shape(i.shape)}")


def _parameter(i: Instruction, operands: Sequence[AnyShape]) -> None:
    if not isinstance(i.attrs.get("number"), int):
        refuse("it has no number")


CHECKS: Mapping[str, Check] = {
    "reshape": _reshape,
    "dynamic-reshape": _dynamic_reshape,
    "get-dimension-size": _dimension_size,
    "set-dimension-size": _dimension_size,
    "broadcast": _broadcast,
    "iota": _iota,
    "constant": _constant,
    "parameter": _parameter,
    "convert": _convert,
    "bitcast-convert": _bitcast_convert,
    "stochastic-convert": _stochastic_convert,
    "replica-id": _number_of_device,
    "partition-id": _number_of_device,
    "bitcast": _bitcast,
    "call": _call,
    "fusion": _call,
    "while": _while,
    "conditional": _conditional,
    "rng": _rng,
    "rng-bit-generator": _random_bits,
    "scan": _scan,
    "select-and-scatter": _select_and_scatter,
    **dict.fromkeys(("reduce", "reduce-window", "map", "sort", "scatter"), _reducer),
    **dict.fromkeys([f"batch-norm-{k}" for k in ("training", "inference", "grad")], _batch_norm),
}
