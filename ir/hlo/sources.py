"""Source locations of instructions: ``file:line`` in the program that a front-end read.

The metadata has either ``source_file`` and ``source_line``, or the number of a frame in the
module's ``StackFrames`` table, which leads through ``FileLocations`` to ``FileNames``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from .nodes import HloModule, Instruction

_TABLE = re.compile(r"(FileNames|FunctionNames|FileLocations|StackFrames)")
_ROW = re.compile(r"(\d{1,9})[ \t]+(.*)")
_FIELD = re.compile(r"(\w+)=(\d{1,9})")
_FRAME = re.compile(r"stack_frame_id=(\d{1,9})")

Rows = dict[int, str]


def source(instruction: Instruction) -> str:
    """Return ``file:line`` if the metadata itself has it, else an empty string."""
    m = instruction.metadata
    return f"{m.source_file}:{m.source_line}" if m is not None and m.source_file else ""


@dataclass(frozen=True)
class Sources:
    """The source tables of one module, parsed on first use."""

    module: HloModule

    def of(self, instruction: Instruction) -> str:
        """Return ``file:line`` of an instruction, or an empty string if it is unknown."""
        metadata = instruction.metadata
        if metadata is None or metadata.source_file:
            return source(instruction)
        frame = _FRAME.search(metadata.raw)
        return self._frame(int(frame.group(1))) if frame else ""

    def _frame(self, number: int) -> str:
        frame = self._fields("StackFrames", number)
        location = self._fields("FileLocations", frame.get("file_location_id", 0))
        name = self._tables.get("FileNames", {}).get(location.get("file_name_id", 0), "")
        return f"{name.strip().strip(chr(34))}:{location.get('line', 0)}" if name else ""

    def _fields(self, table: str, number: int) -> dict[str, int]:
        row = self._tables.get(table, {}).get(number, "")
        return {name: int(value) for name, value in _FIELD.findall(row)}

    @cached_property
    def _tables(self) -> dict[str, Rows]:
        found: dict[str, Rows] = {}
        rows: Rows = {}
        for line in self.module.tables.splitlines():
            if (head := _TABLE.fullmatch(line.strip())) is not None:
                rows = found.setdefault(head.group(1), {})
            elif (row := _ROW.fullmatch(line.strip())) is not None:
                rows[int(row.group(1))] = row.group(2)
        return found
