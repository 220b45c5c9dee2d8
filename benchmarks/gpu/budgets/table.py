"""The budgets, a row for a kernel: what the hottest loop may have, with a tenth to spare."""

from __future__ import annotations

from dataclasses import dataclass

ARCHES = ("sm_80", "sm_90a", "sm_100a")
_COPIES = ("LDGSTS.E.BYPASS.128", "UTMALDG", "UBLKCP")  # 16 bytes a thread, or whole tiles


@dataclass(frozen=True, slots=True)
class Budget:
    """``most`` instructions for each unit of ``measure`` in the hottest loop, by architecture.

    ``loads`` are starts of opcodes, by one of which the kernel has to read memory. No kernel may
    have checks of divisions, calls, local memory or spills.
    """

    kernel: str
    measure: str
    most: tuple[float, float, float]
    loads: tuple[str, ...] = ("LDG.E.128",)

    def on(self, arch: str) -> float:
        """Return the most for an architecture; infinity for one without a budget."""
        return self.most[ARCHES.index(arch)] if arch in ARCHES else float("inf")


BUDGETS = (
    Budget("softmax f32", "4 exponentials", (61, 76, 48)),
    Budget("softmax bf16", "4 exponentials", (70, 85, 54), ("LDG.E.64", "LDG.E.128")),
    Budget("layer norm f32", "16 bytes stored", (35, 50, 29)),
    Budget("gelu f32", "16 bytes stored", (114, 115, 76)),
    Budget("sum f32", "16 bytes loaded", (4.2, 5.1, 3.2)),
    Budget("transpose f32", "16 bytes stored", (18.2, 44, 19.3)),
    Budget("transpose bf16", "16 bytes stored", (34, 28, 28)),
    Budget("matmul bf16", "HMMA.16816", (2, 0.8, 2.5), _COPIES),
    Budget("matmul f32", "FFMA", (1.2, 1.2, 0.73), _COPIES),
    Budget("conv bf16", "HMMA.16816", (3.5, 3, 3.5), _COPIES),
    Budget("gemv f32", "16 bytes loaded", (10.1, 10.7, 17)),
    Budget("concatenate f32", "16 bytes stored", (13.3, 13.5, 13.5)),
    Budget("max pool f32", "16 bytes stored", (34, 35, 33)),
    Budget("attention bf16", "HMMA.16816", (7.8, 4.4, 8), _COPIES),
    Budget("argmax f32", "16 bytes loaded", (28.6, 33.3, 30.3)),
)
