"""HloModule -> HLO text that parses back to the same module.

The style is XLA's short one: names without ``%``, shapes with layouts, with metadata.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...errors import ArgumentError
from ..attributes import show_attribute
from ..nodes import Computation, HloModule, Instruction, Metadata
from ..shape_text import show_shape
from .literals import show_literal

_INSIDE = frozenset({("number", "parameter"), ("literal", "constant")})


def show(module: HloModule) -> str:
    """Return the text of a module; parsing it and showing the result gives the same text.

    ``ArgumentError`` for anything but a module.
    """
    if not isinstance(module, HloModule):
        raise ArgumentError(
            f"cannot show an object of type {type(module).__name__}",
            "it is not an HloModule",
            hint="nestwright.parse(text) returns one; lower(model).as_text(stage) takes any model",
        )
    head = [f"HloModule {module.name}"]
    head += [show_attribute(name, value) for name, value in module.attrs.items()]
    parts = [", ".join(head)]
    if module.tables:
        parts.append(module.tables)
    for c in module.computations:
        parts.append(("ENTRY " if c is module.entry else "") + show_computation(c))
    return "\n\n".join(parts) + "\n"


def show_computation(computation: Computation) -> str:
    """Return ``name { instructions }``."""
    rows = [f"{computation.name} {{"]
    for i in computation.instructions:
        rows.append(("  ROOT " if i is computation.root else "  ") + show_instruction(i))
    return "\n".join([*rows, "}"])


def show_instruction(instruction: Instruction) -> str:
    """Return ``name = shape opcode(operands), attribute=value, ..``."""
    parts = [f"{instruction.name} = {show_operation(instruction)}"]
    if instruction.metadata is not None:
        parts.append(show_metadata(instruction.metadata))
    return ", ".join(parts)


def show_operation(
    instruction: Instruction,
    names: Mapping[Instruction, str] | None = None,
    computations: Mapping[Computation, str] | None = None,
    without: frozenset[str] = frozenset(),
) -> str:
    """Return ``shape opcode(operands), attributes``, without name and metadata.

    ``names`` and ``computations`` give other names to operands and callees; attributes in
    ``without`` are omitted.
    """
    attrs = instruction.attrs
    match instruction.opcode:
        case "parameter":
            inside = str(attrs["number"])
        case "constant":
            inside = show_literal(attrs["literal"])
        case _:
            operands = instruction.operands
            inside = ", ".join([o.name if names is None else names[o] for o in operands])
    parts = [f"{show_shape(instruction.shape)} {instruction.opcode}({inside})"]
    for name, value in attrs.items():
        if name == "window" and not value:
            continue
        if name not in without and (name, instruction.opcode) not in _INSIDE:
            parts.append(show_attribute(name, value, computations))
    return ", ".join(parts)


def show_metadata(metadata: Metadata) -> str:
    """Return ``metadata={op_type=".." op_name=".." ..}``, or the text that was parsed."""
    if metadata.raw:
        return f"metadata={metadata.raw}"
    fields = [
        f'{name}="{value}"'
        for name, value in (
            ("op_type", metadata.op_type),
            ("op_name", metadata.op_name),
            ("source_file", metadata.source_file),
        )
        if value
    ]
    if metadata.source_line:
        fields.append(f"source_line={metadata.source_line}")
    return "metadata={" + " ".join(fields) + "}"
