"""Operations cut in two: what ``x-start``, ``x-update`` and ``x-done`` together compute.

A start takes the operands and gives a state that only updates and the done take; the done gives
the result. ``async-start`` runs a computation (``calls``), ``copy-start`` hands its operand on, any
other ``x-start`` is ``x`` on the same operands.
"""

from __future__ import annotations

from typing import Any

from ...errors import VerifyError
from ..nodes import Instruction
from ..rewrite import make
from ..shape_text import show_shape
from ..signatures import same_shape
from .verify import check_instruction

STAGES = ("start", "update", "done")
ALONE = frozenset({"send", "recv"})
"""Operations whose start and done are not one operation."""


def stage(opcode: str) -> tuple[str, str]:
    """Return ``x`` and which stage of it an opcode is; no stage for an operation that is whole."""
    base, _, last = opcode.rpartition("-")
    return (base, last) if last in STAGES and base not in ALONE else (opcode, "")


def start_of(done: Instruction) -> Instruction | None:
    """Return the start that a done belongs to, if it is in the same computation."""
    base, _ = stage(done.opcode)
    i = done
    while i.operands:
        i = i.operands[0]
        match stage(i.opcode):
            case (found, "start") if found == base:
                return i
            case (found, "update") if found == base:
                continue
            case _:
                break
    return None


def whole(done: Instruction, start: Instruction) -> Instruction:
    """Return the one operation that a start and its done are."""
    base, _ = stage(done.opcode)
    operands = start.operands
    if base == "copy":
        return make("copy", done.shape, operands, name=done.name, metadata=start.metadata)
    attrs: dict[str, Any] = dict(start.attrs)
    if base == "async":
        attrs["to_apply"], base = attrs.pop("calls", None), "call"
    return make(base, done.shape, operands, name=done.name, metadata=start.metadata, **attrs)


def problem(i: Instruction, users: tuple[Instruction, ...]) -> str:
    """Why a start, update or done that has these users cannot be computed; empty where it can."""
    base, which = stage(i.opcode)
    if which != "done":
        strange = [u for u in users if stage(u.opcode)[0] != base]
        if strange or not users:
            return f"its state does not end in a `{base}-done` of the same computation"
        return ""
    start = start_of(i)
    if start is None:
        return f"its `{base}-start` is not in the same computation"
    one = whole(i, start)
    try:
        if one.opcode == "copy" and not same_shape(one.shape, one.operands[0].shape):
            given = show_shape(one.operands[0].shape)
            return f"its result is {show_shape(i.shape)}, its operand {given}"
        check_instruction(one)
    except (VerifyError, IndexError) as error:
        return f"it and its start are not a valid `{one.opcode}`: {getattr(error, 'why', error)}"
    return ""
