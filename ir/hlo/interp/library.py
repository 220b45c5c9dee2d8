"""Library calls: custom calls by what they mean or by their function, and the state of ``rng``."""

from __future__ import annotations

from collections.abc import Iterator

from ...library.session import Session
from ..analysis.custom_calls import meaning
from ..library import library_call
from ..meaning.values import Array, Handler, Run, Value
from ..nodes import AnyShape, Instruction, Shape, TupleShape
from ..rewrite import assemble, parameter, with_operands


def handler(session: Session) -> Handler:
    """What computes a library call, with what one evaluation remembers from call to call."""

    def compute(i: Instruction, args: list[Value], run: Run) -> Value:
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
    """The next arrays as a value of this shape."""
    match shape:
        case Shape():
            return next(arrays)
        case TupleShape(elements=elements):
            return tuple(_grouped(e, arrays) for e in elements)
        case _:
            return ()
