"""The report of a faulty simulated launch as an error that names kernel, buffer, element and
threads.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

from ....ir.errors import SimulationError
from .structs import LAUNCH, FaultKind


class _Report:
    """The report's fields by name."""

    def __init__(self, fields: Mapping[str, int]) -> None:
        self.fields = fields

    def __getitem__(self, name: str) -> int:
        return self.fields[name]

    def text(self, name: str) -> str:
        return _string(self[name])

    def launch(self, name: str) -> int:
        """Return a field of the launch's description."""
        return int(LAUNCH.read(self["launch"])[name])

    def who(self, thread: str, block: str) -> str:
        """Return a thread and its block by their indices."""
        return f"thread {self._indices('block', self[thread])} of block " + self._indices(
            "grid", self[block]
        )

    def _indices(self, of: str, number: int) -> str:
        x, y, z = (self.launch(f"{of}.{axis}") for axis in "xyz")
        numbers = [number % x, number // x % y, number // x // y]
        while len(numbers) > 1 and (x, y, z)[len(numbers) - 1] == 1:
            numbers.pop()
        return str(numbers[0]) if len(numbers) == 1 else f"({', '.join(map(str, numbers))})"


def _string(address: int) -> str:
    return ctypes.string_at(address).decode()


def error(fields: Mapping[str, int], seed: int) -> SimulationError:
    """Return the error that a report (``structs.REPORT``) describes."""
    r = _Report(fields)
    where = f"kernel {_string(r.launch('name'))}, seed {seed}"
    what, why, hint = _explained(r)
    return SimulationError(what, why, where, hint)


def _explained(r: _Report) -> tuple[str, str, str]:
    """Return the fault, the details, and what to do."""
    kind, name = FaultKind(r["kind"]), r.text("subject")
    who = r.who("thread", "block")
    if kind is FaultKind.DIVERGED:
        there = f"waits at {r.text('other_site')}" if r["other_site"] else "has ended"
        why = f"{who} waits, {r.who('other', 'other_block')} {there}"
        return f"not all threads reach {name}", why, "a divergent branch must not contain a barrier"
    place, verb = f"{name}[{r['element']}]", "writes" if r["write"] else "reads"
    match kind:
        case FaultKind.RACE:
            return _race(r, place, who, verb)
        case FaultKind.UNWRITTEN:
            hint = "nothing writes it, or a barrier is missing after the write"
            return f"{place} is read before anything is written there", f"by {who}", hint
        case FaultKind.BOUNDS:
            why = f"{who} {verb} it; {name} has {r['elements']} elements"
            return f"{place} is out of bounds", why, ""
        case FaultKind.PENDING:
            why = f"{who} {verb} it, {r.who('other', 'other_block')} started the copy"
            hint = "wait_async before the access, and a barrier if others copied"
            return f"{place} is accessed while an asynchronous copy to it is in progress", why, hint
        case _:
            why = f"{who} {verb} it"
            return f"{place} is not aligned as the operation needs it", why, ""


def _race(r: _Report, place: str, who: str, verb: str) -> tuple[str, str, str]:
    other, did = r.who("other", "other_block"), "wrote" if r["other_write"] else "read"
    across_blocks = r["block"] != r["other_block"]
    why = f"{who} {verb} what {other} {did}, and nothing orders them"
    missing = "a barrier is missing between them"
    return (
        f"race on {place}",
        why,
        "blocks of a launch are never ordered" if across_blocks else missing,
    )
