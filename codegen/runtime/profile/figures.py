"""The figures of a profile: a row for every step of a call, and what follows from the rows.

The rows are the plan's thunks, outer ones first, and last the call itself: checking arguments,
allocating results, freeing them. Their seconds are without those of the rows inside them, so that
the sum is that of the call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...plan.facts import GroupMember
from ...plan.loaded import Event

KERNEL, COPY, LIBRARY, CONTROL, CALL = "kernel", "copy", "library", "control flow", "call"
APART = 0.1  # share of the whole by which the rows' sum may differ from it
OVERHEAD = 0.05  # share of the whole that timing may add
FMA_AT_MOST = 1.05  # of the measured rate of FMAs; above it others computed


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """One step of a call.

    ``kind`` is ``kernel``, ``copy``, ``library``, ``control flow`` or ``call``; ``group`` the kind
    of a kernel's group, or the opcode of a library call; ``task`` the group's canonical key, by
    which logs know it. ``members`` are the HLO instructions that it computes. ``seconds`` are those
    of all ``calls`` in one call of the model; ``flops``, ``transcendentals`` and ``bytes`` (read
    and written) those of one of them. ``busy`` is the time of all threads in the parts of its
    parallel loops, None where there are none. ``schedule`` is ``default``, ``log`` or ``trace``, a
    trace that was given to the build; ``record`` is the id of the log's record, also if its
    schedule no longer applies. ``depth`` counts the loops and branches around the step.
    """

    name: str
    kind: str
    seconds: float
    calls: int
    flops: float = 0.0
    transcendentals: float = 0.0
    bytes: float = 0.0
    group: str = ""
    task: str = ""
    members: tuple[GroupMember, ...] = ()
    schedule: str = ""
    record: str = ""
    depth: int = 0
    busy: float | None = None
    parts: int = 0

    @property
    def flop_rate(self) -> float:
        """FLOP per second."""
        return self.flops * self.calls / self.seconds if self.seconds else 0.0

    @property
    def byte_rate(self) -> float:
        """Bytes per second, read and written."""
        return self.bytes * self.calls / self.seconds if self.seconds else 0.0

    @property
    def sources(self) -> tuple[str, ...]:
        """Where the model has it: ``file:line``, else its own names of the operations."""
        found = (m.source or m.origin for m in self.members)
        return tuple(dict.fromkeys(text for text in found if text))

    def roofline(self, peak: tuple[float, float]) -> float | None:
        """Return the share of what a machine of this peak, FLOP/s and bytes/s, allows at best.

        None if nothing was computed or moved. More than 1 means that values stayed in caches. A
        rate of operations above that of FMAs does not count: other instructions did them, such as
        products in tile registers, or there were fewer.
        """
        computed, moved = self.flop_rate / peak[0], self.byte_rate / peak[1]
        share = max(moved, computed if computed <= FMA_AT_MOST else 0.0)
        return share if self.seconds and share > 0 else None


@dataclass(frozen=True, slots=True)
class ProfileFigures:
    """The times of a model's calls, step by step.

    ``seconds`` is the mean of the quicker half of ``rounds`` calls as they are, ``probed`` that of
    as many calls whose steps were timed, in turns with them; rows are of the same calls.
    ``timing`` is what it takes to read the clocks in one of them.
    ``threads`` are those that kernels may use. ``events`` are those of one call, of which ``lost``
    were not kept. ``costs`` and ``memory`` are ``Executable.cost_analysis`` and
    ``memory_analysis``; in ``costs`` loops count once, here every call does. ``bounded`` is true if
    FLOPs and bytes are those of the bounds of open sizes. ``simulated`` times say nothing about a
    GPU's. ``peak`` are the machine's FLOP/s and bytes/s, None where they were not measured.
    """

    name: str
    target: str
    threads: int
    rounds: int
    seconds: float
    probed: float
    timing: float
    rows: tuple[ProfileRow, ...]
    events: tuple[Event, ...]
    lost: int
    costs: Mapping[str, float]
    memory: Mapping[str, int]
    bounded: bool = False
    simulated: bool = False
    peak: tuple[float, float] | None = None

    @property
    def sum(self) -> float:
        """The sum of the rows, in seconds."""
        return sum(r.seconds for r in self.rows)

    @property
    def overhead(self) -> float:
        """The time that timing the steps adds, as a share of a call."""
        return self.timing / self.seconds if self.seconds else 0.0

    @property
    def agrees(self) -> bool:
        """True if the rows' sum is within a tenth of the whole."""
        return abs(self.sum - self.seconds) <= APART * self.seconds

    @property
    def flops(self) -> float:
        """The FLOPs of one call, loops as often as they ran."""
        return sum(r.flops * r.calls for r in self.rows)

    @property
    def bytes(self) -> float:
        """The bytes that one call reads and writes, loops as often as they ran."""
        return sum(r.bytes * r.calls for r in self.rows)

    @property
    def heaviest(self) -> tuple[ProfileRow, ...]:
        """The rows, those with most time first."""
        return tuple(sorted(self.rows, key=lambda r: -r.seconds))

    @property
    def notes(self) -> tuple[str, ...]:
        """The sentences that a reader of the figures must know."""
        found = []
        if not self.agrees:
            apart = self.sum / self.seconds - 1 if self.seconds else 0.0
            found.append(f"the rows' sum differs from the whole call by {apart:+.0%}")
        if self.overhead > OVERHEAD:
            found.append(f"timing the steps makes a call {self.overhead:.0%} slower")
        if self.lost:
            found.append(f"the trace lacks {self.lost} events at its end")
        if self.bounded:
            found.append("FLOPs and bytes are those of the bounds of open sizes")
        if self.simulated:
            found.append("times are the simulator's and say nothing about a GPU")
        return tuple(found)

    def share(self, row: ProfileRow) -> float:
        """Return the share of a row in the rows' sum."""
        total = self.sum
        return row.seconds / total if total else 0.0

    def roofline(self, row: ProfileRow) -> float | None:
        """Return a row's share of the machine's peak; None without one."""
        return None if self.peak is None else row.roofline(self.peak)
