"""Logs that are found by themselves lend winners within a family of processors only."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nestwright.autotune.log import automatic
from nestwright.autotune.log.contents import Log
from nestwright.autotune.log.records import Best, DeviceRecord, device_id
from nestwright.ir.target import Target

X86 = "llvm -mtriple=x86_64-linux-gnu -mcpu="


def lenders(spec: str, cpu: str, bits: int, target: str) -> list[str]:
    """The processors that lend to a target, of a log made on one under this spec."""
    made = DeviceRecord("cpu-x86_64-any-0-t2", spec, {"cpu": cpu, "vector_bits": bits})
    log = replace(Log(()), devices={made.id: made})
    return [cpu for _, cpu in automatic.related_devices(log, Target.parse(target))]


@pytest.mark.parametrize(
    ("cpu", "bits", "target", "lent"),
    [
        ("haswell", 256, f"{X86}broadwell", True),
        ("haswell", 256, f"{X86}znver5", False),
        ("haswell", 256, f"{X86}znver3", False),
        ("znver5", 512, f"{X86}haswell", False),
        ("znver5", 512, f"{X86}znver5", True),
    ],
)
@pytest.mark.parametrize("named", [True, False])
def test_a_family_lends(cpu: str, bits: int, target: str, lent: bool, named: bool) -> None:
    """Whether the log was made there under the spec ``cpu``, or with the processor's name."""
    spec = f"{X86}{cpu}" if named else "cpu"
    if Target.parse("cpu").machine != "x86_64" and not named:
        pytest.skip("its spec means another architecture here")
    assert lenders(spec, cpu, bits, target) == [cpu] * lent


def test_of_several_lenders_the_first_lends() -> None:
    log, winner = Log(()), Best("w", "", "t2", "tiling@2", {}, [], (1e-6,), (2e-6,), 0.0)
    for threads in ("t2", "t4"):
        made = DeviceRecord(f"cpu-x86_64-haswell-256-{threads}", f"{X86}haswell", {})
        log.add(made)
        log.add(replace(winner, device=made.id, trial=threads))
    target = Target.parse(f"{X86}broadwell")
    merged, lent = automatic.with_related(log, target)
    assert lent == {"w": "haswell"}
    assert [(b.device, b.trial) for b in merged.bests[2:]] == [(device_id(target), "t2")]


def test_a_log_of_elsewhere_is_not_of_this_machine() -> None:
    here = Target.parse("cpu")
    other = "haswell" if here.cpu != "haswell" and here.vector_bits != 256 else "nehalem"
    bits = 256 if other == "haswell" else 128
    assert lenders("cpu", other, bits, "cpu") == []
