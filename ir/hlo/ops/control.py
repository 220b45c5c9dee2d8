"""Structural operations: parameters, constants, tuples, calls, loops, branches and ordering."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...dtypes import pred, s32, to_numpy
from ..meaning.values import CallEvaluator, Value, first
from ..nodes import AnyShape, Computation, Instruction, Raw, Shape, TokenShape, TupleShape
from ..shape_text import show_shape
from ..signatures import (
    Attrs,
    Shapes,
    array,
    arrays,
    attr,
    dims_of,
    leaves,
    plain,
    refuse,
    require_count,
    require_parameters,
    require_result,
    same_shape,
)
from .definition import (
    ComplexPolicy,
    OpDef,
    Pattern,
    Role,
    Rounding,
    ShapeRule,
    Work,
    free,
)

FUSIONS = ("kLoop", "kInput", "kOutput", "kCustom")
"""Values of the ``kind`` of a fusion."""


def _get_tuple_element(shapes: Shapes, attrs: Attrs) -> AnyShape:
    require_count(shapes, 1)
    index: int = attr(attrs, "index", int)
    match shapes[0]:
        case TupleShape(elements=elements) if 0 <= index < len(elements):
            return elements[index]
        case other:
            refuse(f"index={index} of {show_shape(other)}")


def _result_of(*names: str) -> ShapeRule:
    def rule(shapes: Shapes, attrs: Attrs) -> AnyShape:
        for name in names:
            match attrs.get(name):
                case Computation() as c:
                    return c.root.shape
                case (Computation() as c, *_):
                    return c.root.shape
                case _:
                    pass
        refuse(f"attribute `{names[0]}` is missing")

    return rule


def _first(shapes: Shapes, attrs: Attrs) -> AnyShape:
    require_count(shapes, 1)
    return plain(array(shapes, 0)) if isinstance(shapes[0], Shape) else shapes[0]


def _tuple(shapes: Shapes, attrs: Attrs) -> AnyShape:
    return TupleShape(tuple(shapes))


def _token(shapes: Shapes, attrs: Attrs) -> AnyShape:
    for n in range(len(shapes)):
        _require_token(shapes, n)
    return TokenShape()


def _after_token(shapes: Shapes, attrs: Attrs) -> AnyShape:
    """Infer the first operand's shape; the second is a token, or a tuple in graphs made here."""
    require_count(shapes, 2)
    if not isinstance(shapes[1], TupleShape):
        _require_token(shapes, 1)
    return _first(shapes[:1], attrs)


def _require_token(shapes: Shapes, n: int) -> None:
    if not isinstance(shapes[n], TokenShape):
        refuse(f"operand {n} is not a token but {show_shape(shapes[n])}")


def _check_constant(i: Instruction, operands: Shapes) -> None:
    _check_literal(i.attrs.get("literal"), i.shape)


def _check_literal(value: object, shape: AnyShape) -> None:
    match shape, value:
        case Shape(), Raw():
            pass  # its value was elided from the text
        case Shape(dims=dims, dtype=dtype), np.ndarray():
            if value.shape != dims or value.dtype != to_numpy(dtype):
                refuse(f"its value is {value.dtype}{list(value.shape)}, not {show_shape(shape)}")
        case TupleShape(elements=elements), tuple() if len(value) == len(elements):
            for v, e in zip(value, elements, strict=True):
                _check_literal(v, e)
        case _:
            refuse(f"its value is not of shape {show_shape(shape)}")


def _check_call(i: Instruction, operands: Shapes) -> None:
    name = "calls" if "calls" in i.attrs else "to_apply"
    require_parameters(attr(i.attrs, name, Computation), operands)


def _check_fusion(i: Instruction, operands: Shapes) -> None:
    if (kind := attr(i.attrs, "kind", str)) not in FUSIONS:
        refuse(f"kind={kind} is not one of {', '.join(FUSIONS)}")
    _check_call(i, operands)


def _check_while(i: Instruction, operands: Shapes) -> None:
    require_count(operands, 1)
    condition = attr(i.attrs, "condition", Computation)
    body = attr(i.attrs, "body", Computation)
    require_parameters(condition, operands)
    require_parameters(body, operands)
    require_result(body, operands[0])
    match condition.root.shape:
        case Shape(dims=(), dtype=dtype) if dtype.kind == "pred":
            pass
        case other:
            refuse(f"condition `{condition.name}` returns {show_shape(other)}, not pred[]")


def _check_conditional(i: Instruction, operands: Shapes) -> None:
    if "branch_computations" in i.attrs:
        branches = attr(i.attrs, "branch_computations")
    else:
        names = ("true_computation", "false_computation")
        branches = tuple(attr(i.attrs, name, Computation) for name in names)
    if array(operands, 0).dims or len(operands) != len(branches) + 1 or not branches:
        refuse(
            f"{len(branches)} branches, {len(operands)} operands; it takes a choice and one each"
        )
    choice, listed = array(operands, 0).dtype, "branch_computations" in i.attrs
    if choice != (s32 if listed else pred):
        what = "branch_computations" if listed else "true_computation and false_computation"
        refuse(f"{choice} chooses among {what}: {'an s32' if listed else 'a pred'} does")
    for branch, given in zip(branches, operands[1:], strict=True):
        require_parameters(branch, [given])
        require_result(branch, i.shape)


def _check_scan(i: Instruction, operands: Shapes) -> None:
    """Require a body that takes and returns slices of one dimension, and carries of one shape."""
    called_with = attr(i.attrs, "to_apply", Computation)
    carries = attr(i.attrs, "num_carries", int)
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
    require_parameters(called_with, [*(_without(s, dim) for s in inputs), *given[len(inputs) :]])
    made = [*(_without(s, dim) for s in outputs), *results[len(outputs) :]]
    require_result(
        called_with, TupleShape(tuple(made)) if isinstance(i.shape, TupleShape) else made[0]
    )
    if carries and any(
        not same_shape(a, b) for a, b in zip(given[-carries:], results[-carries:], strict=True)
    ):
        refuse("the last carries differ in shape from the first")


def _check_domain(i: Instruction, operands: Shapes) -> None:
    attr(i.attrs, "domain", object)


def _without(s: Shape, dim: int) -> Shape:
    return Shape(s.dtype, s.dims[:dim] + s.dims[dim + 1 :])


def _check_parameter(i: Instruction, operands: Shapes) -> None:
    if not isinstance(i.attrs.get("number"), int):
        refuse("it has no number")


def _run_constant(i: Instruction, args: list[Value], run: CallEvaluator) -> Value:
    value: Value = i.attrs["literal"]
    return value


def _run_tuple(i: Instruction, args: list[Value], run: CallEvaluator) -> Value:
    return tuple(args)


def _run_get_tuple_element(i: Instruction, args: list[Value], run: CallEvaluator) -> Value:
    value: Value = args[0][i.attrs["index"]]
    return value


def _run_call(i: Instruction, args: list[Value], run: CallEvaluator) -> Value:
    return run(i.attrs["calls"] if "calls" in i.attrs else i.attrs["to_apply"], args)


def _run_while(i: Instruction, args: list[Value], run: CallEvaluator) -> Value:
    state = args[0]
    while run(i.attrs["condition"], [state]):
        state = run(i.attrs["body"], [state])
    return state


def _run_conditional(i: Instruction, args: list[Value], run: CallEvaluator) -> Value:
    """Run the branch chosen by a pred or an index; an index out of range chooses the last."""
    if "true_computation" in i.attrs:
        taken = bool(args[0])
        branch = i.attrs["true_computation" if taken else "false_computation"]
        return run(branch, [args[1 if taken else 2]])
    branches, number = i.attrs["branch_computations"], int(args[0])
    number = number if 0 <= number < len(branches) else len(branches) - 1
    return run(branches[number], [args[1 + number]])


def _run_token(i: Instruction, args: list[Value], run: CallEvaluator) -> Value:
    return ()


def _called(i: Instruction, of: Callable[[Computation], Work]) -> Work:
    return of(i.attrs["calls"] if "calls" in i.attrs else i.attrs["to_apply"])


def _one_iteration(i: Instruction, of: Callable[[Computation], Work]) -> Work:
    return of(i.attrs["condition"]) + of(i.attrs["body"])


def _branches(i: Instruction, of: Callable[[Computation], Work]) -> Work:
    """Return the work of all branches, since the one taken is unknown."""
    total = Work()
    for name in ("true_computation", "false_computation", "branch_computations"):
        match i.attrs.get(name):
            case Computation() as c:
                total += of(c)
            case tuple() as several:
                for c in several:
                    total += of(c)
            case _:
                pass
    return total


DEFINITIONS = (
    OpDef(
        "parameter",
        attributes="number",
        further="frozen",
        check=_check_parameter,
        pattern=Pattern.ALIAS,
        structure=True,
    ),
    OpDef(
        "constant",
        check=_check_constant,
        numpy=_run_constant,
        in_place=free,
        pattern=Pattern.ALIAS,
        structure=True,
        complex=ComplexPolicy.FORMULA,
    ),
    OpDef(
        "tuple",
        shape=_tuple,
        numpy=_run_tuple,
        pattern=Pattern.ALIAS,
        role=Role.PLUMBING,
        structure=True,
        complex=ComplexPolicy.PASSED,
    ),
    OpDef(
        "get-tuple-element",
        attributes="index",
        shape=_get_tuple_element,
        numpy=_run_get_tuple_element,
        pattern=Pattern.ALIAS,
        role=Role.PLUMBING,
        structure=True,
        complex=ComplexPolicy.PASSED,
    ),
    OpDef(
        "call",
        attributes="is_composite?",
        calls=("to_apply",),
        further="output_to_operand_aliasing",
        shape=_result_of("to_apply", "calls"),
        check=_check_call,
        numpy=_run_call,
        work=_called,
        pattern=Pattern.CONTROL,
        structure=True,
        complex=ComplexPolicy.CONTROL,
    ),
    OpDef(
        "fusion",
        attributes="kind",
        calls=("calls",),
        further="output_to_operand_aliasing",
        shape=_result_of("calls"),
        check=_check_fusion,
        numpy=_run_call,
        work=_called,
        structure=True,
        complex=ComplexPolicy.CONTROL,
    ),
    OpDef(
        "while",
        calls=("body", "condition"),
        shape=_first,
        check=_check_while,
        numpy=_run_while,
        work=_one_iteration,
        pattern=Pattern.CONTROL,
        structure=True,
        complex=ComplexPolicy.CONTROL,
    ),
    OpDef(
        "conditional",
        further="branch_computations true_computation false_computation",
        shape=_result_of("branch_computations", "true_computation"),
        check=_check_conditional,
        numpy=_run_conditional,
        work=_branches,
        pattern=Pattern.CONTROL,
        structure=True,
        complex=ComplexPolicy.CONTROL,
    ),
    OpDef(
        "scan",
        attributes="dimensions is_reverse? is_associative? num_carries",
        calls=("to_apply",),
        check=_check_scan,
    ),
    OpDef(
        "copy",
        shape=_first,
        numpy=first,
        lifted=first,
        role=Role.MOVES,
        alias=True,
        rounding=Rounding.PLACES,
        keeps_nan=True,
        keeps_positive=True,
        complex=ComplexPolicy.FORMULA,
    ),
    OpDef(
        "opt-barrier",
        shape=_first,
        numpy=first,
        lifted=first,
        pattern=Pattern.ALIAS,
        role=Role.PLUMBING,
        alias=True,
        complex=ComplexPolicy.PASSED,
    ),
    OpDef(
        "add-dependency",
        shape=_after_token,
        numpy=first,
        pattern=Pattern.ALIAS,
        alias=True,
        complex=ComplexPolicy.PASSED,
    ),
    OpDef(
        "domain",
        further="domain",
        shape=_first,
        check=_check_domain,
        numpy=first,
        complex=ComplexPolicy.PASSED,
    ),
    OpDef("after-all", shape=_token, numpy=_run_token, pattern=Pattern.ALIAS),
    OpDef(
        "custom-call",
        attributes=(
            "window? dim_labels? feature_group_count? batch_group_count? "
            "padding_type? custom_call_target custom_call_has_side_effect? "
            "schedule? api_version?"
        ),
        further=(
            "called_computations literal opaque operand_layout_constraints operand_precision "
            "output_to_operand_aliasing to_apply"
        ),
        pattern=Pattern.LIBRARY,
        structure=True,
    ),
)
