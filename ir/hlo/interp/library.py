"""Evaluation of library calls: by the graph of a known custom call, else by a host function."""

from __future__ import annotations

from collections.abc import Iterator

from ...arrays import Array
from ...library.session import Session
from ..analysis.custom_calls import meaning
from ..library import library_call
from ..meaning.values import CallEvaluator, Handler, Value
from ..nodes import AnyShape, Instruction, Shape, TupleShape
from ..rewrite import assemble, parameter, with_operands


def handler(session: Session) -> Handler:
    """Return a handler of library calls. ``session`` keeps their state during one evaluation."""

    def compute(i: Instruction, args: list[Value], run: CallEvaluator) -> Value:
        if i.opcode == "custom-call":
            inputs = tuple(parameter(n, o.shape) for n, o in enumerate(i.operands))
            if (root := meaning(with_operands(i, inputs))) is not None:
                return run(assemble("meaning", inputs, root), args)
        operands = [a for value in args for a in _arrays(value)]
        return _grouped(i.shape, iter(session.run(library_call(i), operands)))

    return compute


def _arrays(value: Value) -> Iterator[Array]:
    if isinstance(value, tuple):
        for v in value:
            yield from _arrays(v)
    else:
        yield value


def _grouped(shape: AnyShape, arrays: Iterator[Array]) -> Value:
    """Take the next arrays and nest them as a value of this shape."""
    match shape:
        case Shape():
            return next(arrays)
        case TupleShape(elements=elements):
            return tuple(_grouped(e, arrays) for e in elements)
        case _:
            return ()
