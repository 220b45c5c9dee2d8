"""The rules that every HLO module keeps: names, order, signatures, and shapes that follow.

An instruction's shape must be the inferred one up to layout, and up to an element type where text
may choose it (a dot that accumulates in a wider type). Every broken rule is a ``VerifyError``
that names the instruction and its computation.
"""

from __future__ import annotations

from typing import NoReturn

from ...errors import VerifyError
from ..nodes import AnyShape, Computation, HloModule, Instruction, Shape, TupleShape
from ..ops.registry import definition
from ..rewrite import called
from ..shape_text import UNKNOWN, show_shape
from ..signatures import refuse, same_shape


def verify(module: HloModule, before: HloModule | None = None) -> None:
    """``VerifyError`` if the module is not well formed.

    Operations that are only read and printed are not looked into, nor are nodes that it shares
    with ``before``, a module that is well formed.
    """
    old = frozenset(() if before is None else before.computations)
    fine = frozenset(i for c in old for i in c.instructions)
    seen: set[Computation] = set()
    names: set[str] = set()
    for c in module.computations:
        if c.name in names:
            fail(f"computation `{c.name}`", "another one has the same name")
        names.add(c.name)
        for i in c.instructions:
            for callee in called(i):
                if callee not in seen:
                    why = f"it calls `{callee.name}`, which is not above it in the module"
                    fail(f"`{i.name}` in `{c.name}`", why)
        if c not in old:
            verify_computation(c, fine)
        seen.add(c)
    if module.entry not in seen:
        fail(f"module `{module.name}`", f"its entry `{module.entry.name}` is not among its own")


def verify_computation(
    computation: Computation, fine: frozenset[Instruction] = frozenset()
) -> None:
    """``VerifyError`` if a computation is not well formed; those it calls are taken to be.

    Of the instructions in ``fine``, operands, attributes and shape are known to fit.
    """
    defined: set[Instruction] = set()
    names: set[str] = set()
    for i in computation.instructions:
        if i.name in names:
            fail(_place(i, computation), "another instruction of the computation has the same name")
        for operand in i.operands:
            if operand not in defined:
                why = f"its operand `{operand.name}` is not defined above it"
                fail(_place(i, computation), why)
        try:
            if i not in fine:
                check_instruction(i)
        except VerifyError as error:
            fail(_place(i, computation), error.why or error.what)
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


def _place(i: Instruction, computation: Computation) -> str:
    return f"`{i.name}` in `{computation.name}`"


def fail(where: str, why: str) -> NoReturn:
    """Raise the ``VerifyError`` of ill-formed HLO."""
    raise VerifyError("not well-formed HLO", why, where)


def check_instruction(i: Instruction) -> None:
    """``VerifyError`` if operands, attributes and shape of one instruction do not fit."""
    check_sizes(i.shape)
    op = definition(i.opcode)
    if not op.computed:
        return
    operands = tuple(o.shape for o in i.operands)
    if op.one_array and not isinstance(i.shape, Shape):
        refuse(f"its result is one array, not {show_shape(i.shape)}")
    if op.check is not None:
        op.check(i, operands)
    if op.shape is None:
        return
    inferred = op.shape(operands, i.attrs)
    if not same_shape(inferred, i.shape, op.result_type):
        refuse(f"its shape is {show_shape(i.shape)}, its operands give {show_shape(inferred)}")


def check_sizes(shape: AnyShape) -> None:
    """``VerifyError`` if a shape has sizes or marks that no array has."""
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
