"""From instructions that host functions compute to the calls that are passed to them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ..dtypes import to_numpy
from ..library.attributes import read, unquoted
from ..library.call import GROUP, ArrayType, LibraryCall
from .nodes import AnyShape, Instruction, Raw, Shape, TupleShape

_ATTRIBUTES = (
    "fft_type",
    "fft_length",
    "lower",
    "left_side",
    "unit_diagonal",
    "transpose_a",
    "delta",
)
"""Attributes of library operations other than custom calls."""


def library_call(i: Instruction) -> LibraryCall:
    """Return the call that computes a library operation; layouts are not part of it."""
    operands = array_types(o.shape for o in i.operands)
    results = array_types((i.shape,))
    if i.opcode != "custom-call":
        attributes = {name: i.attrs[name] for name in _ATTRIBUTES if name in i.attrs}
        return LibraryCall(i.opcode, i.opcode, operands, results, attributes=attributes)
    config, frontend = (_text(i, name) for name in ("backend_config", "frontend_attributes"))
    return LibraryCall(
        opcode=i.opcode,
        target=unquoted(str(i.attrs.get("custom_call_target", ""))),
        operands=operands,
        results=results,
        backend_config=unquoted(config),
        attributes=read(config) or read(unquoted(config)),
        frontend_attributes={k: v for k, v in read(frontend).items() if isinstance(v, str)},
        api_version=str(i.attrs.get("api_version", "")),
    )


def group_call(
    inputs: Sequence[Instruction], outputs: Sequence[Instruction], name: str, text: str = ""
) -> LibraryCall:
    """Return the call of a library function that computes a group with these values.

    ``text`` is the group itself, for the interpreter.
    """
    operands = array_types(i.shape for i in inputs)
    results = array_types(o.shape for o in outputs)
    return LibraryCall(GROUP, name, operands, results, text)


def array_types(shapes: Iterable[AnyShape]) -> tuple[ArrayType, ...]:
    """Return the arrays of some values, tuples flat and tokens left out."""
    return tuple(t for s in shapes for t in _types(s))


def _text(i: Instruction, name: str) -> str:
    value = i.attrs.get(name, "")
    return value.text if isinstance(value, Raw) else str(value)


def _types(shape: AnyShape) -> Iterator[ArrayType]:
    match shape:
        case Shape(dtype=dtype, dims=dims):
            yield ArrayType(dims, to_numpy(dtype))
        case TupleShape(elements=elements):
            for e in elements:
                yield from _types(e)
        case _:
            pass
