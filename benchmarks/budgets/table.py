"""The budgets, a row for a kernel: what the hottest loop may have, with a tenth to spare."""

from __future__ import annotations

from dataclasses import dataclass

ARCHES = ("sm_80", "sm_90a", "sm_100a")


@dataclass(frozen=True, slots=True)
class Budget:
    """``most`` instructions for each unit of ``measure`` in the hottest loop of a kernel.

    ``wide`` is the start of the opcodes by which it has to reach memory. No kernel may have checks
    of divisions, calls, local memory or spills.
    """

    kernel: str
    measure: str
    most: float
    wide: str


BUDGETS = (
    Budget("softmax f32", "4 exponentials", 77, "LDG.E.128"),
    Budget("softmax bf16", "4 exponentials", 85, "LDG.E"),
    Budget("layer norm f32", "16 bytes stored", 50, "LDG.E.128"),
    Budget("gelu f32", "16 bytes stored", 132, "LDG.E.128"),
    Budget("sum f32", "16 bytes loaded", 5.2, "LDG.E.128"),
    Budget("transpose f32", "16 bytes stored", 50, "LDG.E"),
    Budget("transpose bf16", "16 bytes stored", 50, "LDG.E"),
    Budget("matmul bf16", "HMMA.16816", 2, "LDGSTS.E.BYPASS.128"),
    Budget("matmul f32", "FFMA", 1.2, "LDGSTS.E"),
    Budget("conv bf16", "HMMA.16816", 3.6, "LDGSTS.E.BYPASS.128"),
    Budget("gemv f32", "16 bytes loaded", 17, "LDG.E.128"),
    Budget("concatenate f32", "16 bytes stored", 20, "LDG.E.128"),
    Budget("max pool f32", "16 bytes stored", 220, "LDG.E.128"),
    Budget("argmax f32", "16 bytes loaded", 60, "LDG.E"),
)
