"""Attributes of an instruction's proto, under the names and with the values that text gives."""

from __future__ import annotations

from typing import Any

from ...hlo.analysis.asynchronous import stage
from ...hlo.attributes import KINDS
from ...hlo.nodes import (
    Computation,
    ConvLabels,
    Instruction,
    PadDim,
    Raw,
    Shape,
    SliceDim,
    Window,
    WindowDim,
)
from ...hlo.ops.registry import definition
from .schema import (
    DEFAULTS,
    DIMENSIONS,
    ENUMS,
    PLACES,
    PLACES_OF,
    TRISTATE,
)
from .text_attributes import escaped, written
from .wire import Message


def read_attributes(
    message: Message, opcode: str, operands: tuple[Instruction, ...], called: list[Computation]
) -> dict[str, Any]:
    """Return the attributes that the text has after the operands, without metadata."""
    attrs: dict[str, Any] = {}
    for word in definition(opcode).attributes.split():
        name = word.rstrip("?")
        value = _value(message, opcode, name)
        if word.endswith("?") and value in (None, False, 0, (), "", DEFAULTS.get(name)):
            continue
        if value is None or (value == "" and KINDS.get(name) == "word"):
            message.fail(f"`{opcode}` is inconsistent", f"it has no `{name}` that is known")
        attrs[name] = value
    if attrs.get("type") == _usual_type(operands):
        del attrs["type"]
    for name, text in written(message, opcode):
        if text:
            attrs[name] = Raw(text)
    return attrs | _called(message, opcode, operands, called)


def _value(message: Message, opcode: str, name: str) -> Any:
    """The value of an attribute; None where a message that would hold it is absent."""
    path = PLACES_OF.get((opcode, name)) or PLACES[name]
    holder: Message | None = message
    for number in path[:-1]:
        holder = None if holder is None else holder.message(number)
    if holder is None:
        holder = Message(b"", message.source)
    field, kind = path[-1], KINDS.get(name)
    if path in ENUMS:
        word = ENUMS[path].get(holder.integer(field), "")
        return word if kind else Raw(word) if word else None
    if path == TRISTATE:
        return {1: True, 2: False}.get(holder.integer(field))
    if path == (DIMENSIONS,) and kind == "int":
        dims = holder.integers(field)
        return dims[0] if dims else 0
    match kind:
        case "ints":
            return holder.integers(field)
        case "bool":
            return holder.boolean(field)
        case "float":
            return holder.float32(field)
        case "word":
            word = holder.text(field)
            if word and not word.replace("_", "").replace("-", "").isalnum():
                message.fail(f"attribute `{name}` is not a word", f"`{escaped(word)[:40]}`")
            return word
        case "string":
            return escaped(holder.text(field))
        case "window":
            return _window(holder.message(field))
        case "labels":
            return _labels(holder.message(field))
        case "slices":
            return tuple(
                SliceDim(m.integer(1), m.integer(2), m.integer(3)) for m in holder.messages(field)
            )
        case "pads":
            inner = holder.message(field)
            rows = inner.messages(1) if inner is not None else []
            return tuple(PadDim(m.integer(1), m.integer(2), m.integer(3)) for m in rows)
        case _:
            return holder.integer(field)


def _window(message: Message | None) -> Window:
    rows = message.messages(1) if message is not None else []
    return tuple(
        WindowDim(
            size=m.integer(1),
            stride=m.integer(2),
            pad_low=m.integer(3),
            pad_high=m.integer(4),
            lhs_dilate=m.integer(6),
            rhs_dilate=m.integer(5),
            reversal=m.boolean(7),
        )
        for m in rows
    )


def _labels(message: Message | None) -> ConvLabels | None:
    if message is None:
        return None
    labels = ConvLabels(
        lhs_batch=message.integer(7),
        lhs_feature=message.integer(8),
        lhs_spatial=message.integers(11),
        rhs_input=message.integer(3),
        rhs_output=message.integer(4),
        rhs_spatial=message.integers(6),
        out_batch=message.integer(9),
        out_feature=message.integer(10),
        out_spatial=message.integers(12),
    )
    for part in (
        (labels.lhs_batch, labels.lhs_feature, *labels.lhs_spatial),
        (labels.rhs_input, labels.rhs_output, *labels.rhs_spatial),
        (labels.out_batch, labels.out_feature, *labels.out_spatial),
    ):
        if sorted(part) != list(range(len(labels.lhs_spatial) + 2)):
            message.fail("dim_labels are inconsistent", f"dimensions {part}")
    return labels


def _usual_type(operands: tuple[Instruction, ...]) -> str:
    """The type of a comparison that goes without saying."""
    first = operands[0].shape if operands else None
    if not isinstance(first, Shape):
        return ""
    kinds = {"signed": "SIGNED", "unsigned": "UNSIGNED", "pred": "UNSIGNED"}
    return kinds.get(first.dtype.kind, "FLOAT")


def _called(
    message: Message, opcode: str, operands: tuple[Instruction, ...], called: list[Computation]
) -> dict[str, Any]:
    names: tuple[str, ...] = definition(opcode).calls
    if opcode == "conditional":
        choice = operands[0].shape if operands else None
        if not isinstance(choice, Shape) or choice.dtype.kind != "pred":
            return {"branch_computations": tuple(called)}
        names = ("true_computation", "false_computation")
    if called and not names:
        return {"called_computations": tuple(called)}
    if not called and stage(opcode)[1] in ("update", "done"):
        return {}  # their start says what is computed
    if len(names) != len(called):
        why = f"it takes {len(names)} computations and has {len(called)}"
        message.fail(f"`{opcode}` is inconsistent", why)
    shown = sorted(zip(names, called, strict=True), key=lambda p: _ORDER.get(p[0], 9))
    return dict(shown)


_ORDER = {"condition": 0, "body": 1}  # as text has them
