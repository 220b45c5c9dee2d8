"""Counts over a disassembly: a kernel's loops, and what their instructions are.

A loop is the text from a label to a backward branch to it. An instruction belongs to the innermost
loop around it, or to none: what is in no loop is counted like a loop that runs once.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

_KERNEL = re.compile(r"^\.text\.([\w.$]+):")
_LABEL = re.compile(r"^(\.?[\w.$]+):")
_CODE = re.compile(r"^/\*[0-9a-f]{4,}\*/\s+(?:\{\s*)?(@!?U?P\w+\s+)?([A-Z][\w.]*)\s*([^;]*);")
_TARGET = re.compile(r"`\(([\w.$]+)\)")
_PADDING = "NOP"
SLOW = ("FCHK", "CALL", "LDL", "STL")
"""Checks of divisions, calls of their slow paths, local memory: where they stand, time goes."""


@dataclass(frozen=True, slots=True)
class MachineInstruction:
    """One machine instruction: its opcode with modifiers, such as ``LDG.E.128``, and operands."""

    opcode: str
    operands: str

    @property
    def target(self) -> str | None:
        """The label of a branch or call."""
        found = _TARGET.search(self.operands)
        return found[1] if found else None


@dataclass(frozen=True, slots=True)
class CountedLoop:
    """The instructions of a loop outside of the loops in it; ``label`` is "" for those in none."""

    label: str
    opcodes: Mapping[str, int] = field(default_factory=dict)

    @property
    def instructions(self) -> int:
        """Instructions of an iteration."""
        return sum(self.opcodes.values())

    def count(self, *opcodes: str) -> int:
        """Return how many instructions begin with one of these: ``LDG`` counts ``LDG.E.128``."""
        return sum(n for name, n in self.opcodes.items() if _is(name, opcodes))


@dataclass(frozen=True, slots=True)
class KernelListing:
    """A kernel's machine code: its loops, first what is in none; calls' bodies are not in it."""

    name: str
    loops: tuple[CountedLoop, ...]

    def hottest(self, *opcodes: str) -> CountedLoop:
        """Return the loop with most instructions that begin with one of ``opcodes``."""
        return max(self.loops, key=lambda loop: loop.count(*opcodes))

    def count(self, *opcodes: str) -> int:
        """Return how many instructions of the whole kernel begin with one of these."""
        return sum(loop.count(*opcodes) for loop in self.loops)

    @property
    def instructions(self) -> int:
        """Instructions of the whole kernel."""
        return sum(loop.instructions for loop in self.loops)


def _is(name: str, opcodes: Sequence[str]) -> bool:
    return any(name == o or name.startswith(f"{o}.") for o in opcodes)


def kernels(listing: str) -> tuple[KernelListing, ...]:
    """Return the counts of every kernel that ``nvdisasm`` printed, in its order."""
    return tuple(_kernel(name, lines) for name, lines in _sections(listing))


def _sections(listing: str) -> Iterator[tuple[str, list[str]]]:
    """Yield a kernel's name and lines; functions that it calls follow it and are left out."""
    name, lines = "", list[str]()
    for line in (raw.strip() for raw in listing.splitlines()):
        found = _KERNEL.match(line)
        ends = line.startswith(("//---", ".section")) or line.endswith("@function")
        if name and (found or ends):
            yield name, lines
            name = ""
        if found:
            name, lines = found[1], []
        elif name:
            lines.append(line)
    if name:
        yield name, lines


def _kernel(name: str, lines: Sequence[str]) -> KernelListing:
    labels: dict[str, int] = {}
    code: list[MachineInstruction] = []
    for line in lines:
        if (label := _LABEL.match(line)) is not None:
            labels[label[1]] = len(code)
        elif (found := _CODE.match(line)) is not None and found[2] != _PADDING:
            code.append(_instruction(found[2], found[3]))
    ends: dict[int, int] = {}
    for at, instruction in enumerate(code):
        start = labels.get(instruction.target or "", len(code))
        if instruction.opcode.startswith("BRA") and start < at:  # one to itself only fills
            ends[start] = max(at, ends.get(start, at))
    names = {start: label for label, start in labels.items()}
    inside = [_innermost(ends, at) for at in range(len(code))]
    loops = tuple(
        CountedLoop(
            "" if start is None else names[start],
            Counter(c.opcode for c, s in zip(code, inside, strict=True) if s == start),
        )
        for start in (None, *sorted(ends))
    )
    return KernelListing(name, loops)


def _instruction(opcode: str, operands: str) -> MachineInstruction:
    """Return an instruction; a call within the kernel, by which loops end on sm_80, is a branch."""
    made = MachineInstruction(opcode, operands)
    inside = opcode.startswith("CALL") and (made.target or "").startswith(".L")
    return MachineInstruction("BRA", operands) if inside else made


def _innermost(ends: Mapping[int, int], at: int) -> int | None:
    """Return where the smallest loop around an instruction starts."""
    around = [start for start, end in ends.items() if start <= at <= end]
    return min(around, key=lambda start: ends[start] - start, default=None)
