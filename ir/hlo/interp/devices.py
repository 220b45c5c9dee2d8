"""The interpreter of all devices of a program at once, each on its own arguments.

Every device is a thread. A collective waits until all devices of its group have come to it; the
last one computes the results of all. Where no device can go on and some wait, as under control flow
that differs from device to device, the program would hang, and the evaluation ends with an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from threading import Condition
from typing import Any

from ...arrays import Array
from ...errors import ArgumentError, UnsupportedError
from ..analysis.support import require_supported
from ..device_groups import Devices
from ..meaning.collectives import exchanged, zeros
from ..meaning.values import CallEvaluator, Handler, Value, shaped
from ..nodes import HloModule, Instruction
from ..ops.collectives import devices, groups, number, pairs
from .evaluate import evaluate_device


def evaluate_devices(module: HloModule, args: Sequence[Sequence[Any]]) -> list[Value]:
    """Return the result of each device of a program, by its number.

    ``args`` has the arguments of each device, which is ``replica * partitions + partition``;
    arguments and errors are those of ``evaluate``. ``UnsupportedError`` if the devices come to
    different collectives and would wait for each other forever.
    """
    require_supported(module)
    known = devices(module)
    if len(args) != known.count:
        why = f"it is written for {known.count} devices ({known})"
        raise ArgumentError(f"arguments of {len(args)} devices", why, module.name)
    meeting = _Meeting(known, module.name)

    def run(device: int) -> Value:
        try:
            found = evaluate_device(module, args[device], meeting.handler(device))
        except BaseException as error:
            meeting.leave(error)
            raise
        meeting.leave(None)
        return found

    with ThreadPoolExecutor(known.count) as pool:
        futures = [pool.submit(copy_context().run, run, n) for n in range(known.count)]
    if meeting.error is not None:
        raise meeting.error
    return [future.result() for future in futures]


@dataclass(frozen=True, slots=True)
class _Arrival:
    """A device that waits at a collective with its operands."""

    instruction: Instruction
    group: tuple[int, ...]
    args: Sequence[Array]

    @property
    def key(self) -> tuple[object, ...]:
        """The collective, which halves that were joined for this device alone do not hide."""
        return self.instruction.name, *map(id, self.instruction.operands)


@dataclass(eq=False)
class _Meeting:
    """The devices that are under way or wait, under one lock."""

    known: Devices
    name: str
    waiting: dict[int, _Arrival] = field(default_factory=dict)
    results: dict[int, Value] = field(default_factory=dict)
    left: int = 0
    error: BaseException | None = None
    changed: Condition = field(default_factory=Condition)

    def handler(self, device: int) -> Handler:
        """Return the function that computes the collectives of one device."""

        def compute(i: Instruction, args: list[Value], run: CallEvaluator) -> Value:
            if not i.operands:
                return number(i, device, self.known)
            group = next((g for g in groups(i, self.known) if device in g), ())
            if not group:
                return shaped(i, zeros(args))
            if len(group) == 1:
                return shaped(i, args)
            return self.exchange(device, _Arrival(i, group, args), run)

        return compute

    def exchange(self, device: int, arrival: _Arrival, run: CallEvaluator) -> Value:
        """Wait for the other devices of the group; return the result on this one."""
        with self.changed:
            self.waiting[device] = arrival
            there = {n: self.waiting[n] for n in arrival.group if n in self.waiting}
            if len(there) == len(arrival.group) and len({a.key for a in there.values()}) == 1:
                i = arrival.instruction
                given = {n: a.args for n, a in there.items()}
                self.results |= exchanged(i, given, pairs(i, self.known), run)
                for n in there:
                    del self.waiting[n]
                self.changed.notify_all()
            self._look_for_a_stall()
            self.changed.wait_for(lambda: device in self.results or self.error is not None)
            if self.error is not None:
                raise self.error
            return self.results.pop(device)

    def leave(self, error: BaseException | None) -> None:
        """Count a device as finished, or failed."""
        with self.changed:
            self.left += 1
            self.error = self.error or error
            self._look_for_a_stall()
            self.changed.notify_all()

    def _look_for_a_stall(self) -> None:
        """Set the error if every device that is not finished waits."""
        if self.error is not None or not self.waiting:
            return
        if len(self.waiting) + len(self.results) + self.left < self.known.count or self.results:
            return
        rows = [f"device {n} waits in {_told(a)}" for n, a in sorted(self.waiting.items())]
        if self.left:
            rows.append(f"{self.left} of {self.known.count} devices have finished")
        self.error = UnsupportedError(
            "its devices would wait for each other forever",
            "; ".join(rows),
            self.name,
            "collectives under control flow must be reached by all devices of their groups",
        )
        self.changed.notify_all()


def _told(a: _Arrival) -> str:
    others = ",".join(map(str, a.group))
    return f"{a.instruction.opcode} `{a.instruction.name}` of devices {others}"
