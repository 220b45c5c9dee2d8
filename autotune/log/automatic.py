"""Logs found by themselves: shipped, of the user, of the working directory (``log="auto"``).

Records of the target's own processor count as in a log that is named. Of other processors of its
family (the same architecture, core and vector width) only winners of the very same group do, where
the target has none of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from ...ir.cores import core_of
from ...ir.errors import NestwrightError
from ...ir.files import data_folder
from ...ir.target import Target
from .contents import Log
from .journal import read
from .records import Best, DeviceRecord, device_id, holds_estimates

FOLDER = "tuning_logs"
SHIPPED = Path(__file__).parents[2] / FOLDER


def places() -> tuple[Path, ...]:
    """Return the folders that may hold logs, the most general first."""
    return SHIPPED, data_folder() / FOLDER, Path(FOLDER)


def automatic_log() -> Log:
    """Return the records of all logs in ``places``; empty if there are none."""
    found = [p for place in places() for p in sorted(place.rglob("*.jsonl")) if p.is_file()]
    return read(*dict.fromkeys(p.resolve() for p in found)) if found else Log(())


def family(target: Target) -> tuple[object, ...]:
    """Return what processors of a family have in common.

    A core is that of its row, whatever the caches of this machine are.
    """
    x86 = target.machine != "aarch64"
    core = core_of(target.cpu, target.vector_bits, x86) if target.vectors else target.core
    return target.machine, core, target.vector_bits, target.row


def machine_of(record: DeviceRecord) -> Target:
    """Return the target of a record. Raises as ``Target.parse``.

    The spec of the processor that a log was made on means another one elsewhere: what is recorded
    of it counts.
    """
    found = Target.parse(record.spec)
    match record.facts:
        case {"cpu": str(cpu), "vector_bits": int(bits)}:
            return replace(found, cpu=cpu, vector_bits=bits)
        case _:
            return found


def related_devices(log: Log, target: Target) -> Iterator[tuple[str, str]]:
    """Yield the devices of other processors of the target's family in a log, with their names.

    Not those whose schedules may add more error than the target allows.
    """
    for device, record in log.devices.items():
        if device.rpartition("-t")[0] == target.key or holds_estimates(device):
            continue
        try:
            other = machine_of(record)
        except NestwrightError:
            continue
        if family(other) == family(target) and other.accuracy <= target.accuracy:
            yield device, other.cpu


def with_related(log: Log, target: Target) -> tuple[Log, dict[str, str]]:
    """Return a log in which winners of the target's family count as its own, where it has none.

    Also returns which workloads these are, with the processor that each was tuned on.
    """
    own = log.winners(target).keys()
    lent: dict[str, str] = {}
    bests: list[Best] = []
    for device, cpu in related_devices(log, target):
        for workload, best in log.best(device).items():
            if workload not in own and workload not in lent:
                lent[workload] = cpu
                bests.append(replace(best, device=device_id(target)))
    merged = replace(log, bests=[*log.bests, *bests])
    return merged, lent


def origin_note(log: Log, lent: Mapping[str, str], keys: Collection[str], target: Target) -> str:
    """Return a line on the use of other processors' records for a model with workloads ``keys``.

    "" if its own are all that there is.
    """
    used = sorted({cpu for workload, cpu in lent.items() if workload in keys})
    if used:
        count = sum(w in keys for w in lent)
        names = ", ".join(used)
        return f'log="auto": {count} of the schedules were tuned on {names}, not on {target.cpu}'
    strangers = {t.device for t in log.trials if t.workload in keys}
    strangers |= {b.device for b in log.bests if b.workload in keys}
    known = {d for d in strangers if d.rpartition("-t")[0] == target.key}
    if strangers and not known:
        names = ", ".join(sorted(strangers))
        return f'log="auto": this model was tuned only on {names}; default schedules are used'
    return ""
