"""Builds kernels and counts the instructions of their hottest loops."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import nestwright as nw
from nestwright.codegen.plan.code.device import DeviceCode
from nestwright.codegen.targets.cuda import ptxas, sass

from ..disassembly import SLOW, CountedLoop, KernelListing, kernels
from .kernels import TEXTS
from .measures import MEASURES
from .table import Budget


@dataclass(frozen=True, slots=True)
class Counted:
    """A kernel's hottest loop, or its straight code, on one architecture.

    ``work`` is what an iteration does by the measure, ``spills`` are bytes.
    """

    name: str
    arch: str
    kernel: KernelListing
    loop: CountedLoop
    work: float
    registers: int
    spills: int

    @property
    def slow(self) -> int:
        """Instructions of the whole kernel that are never good."""
        return self.kernel.count(*SLOW)

    def loads(self, opcodes: Sequence[str]) -> bool:
        """True if the kernel reads memory by one of these, which start opcodes."""
        names = [name for loop in self.kernel.loops for name in loop.opcodes]
        return any(name.startswith(tuple(opcodes)) for name in names)

    @property
    def each(self) -> float:
        """Instructions for each unit of the measure."""
        return self.loop.instructions / self.work if self.work else float("inf")


def missing() -> str:
    """Return what is not on this machine to count machine code, "" if all is."""
    return "" if ptxas.find() and sass.find() else "nvdisasm" if ptxas.find() else "ptxas"


def count(name: str, measure: str, arch: str) -> Counted:
    """Return the counts of one of ``TEXTS``: of the loop, over all launches, that does most."""
    work = MEASURES[measure]
    exe = nw.build(nw.parse(TEXTS[name]), f"cuda -arch={arch}", cache=False)
    found = [
        Counted(name, arch, kernel, loop, work(loop), registers, spills)
        for code in exe.bundle.kernels.values()
        if isinstance(code, DeviceCode)
        for kernel, registers, spills in _kernels(code, arch)
        for loop in kernel.loops
    ]
    return max(found, key=lambda c: (c.work, c.loop.instructions))


def within(c: Counted, budget: Budget) -> bool:
    """True if a kernel keeps to its budget."""
    return c.each <= budget.on(c.arch) and not (c.slow or c.spills) and c.loads(budget.loads)


def _kernels(code: DeviceCode, arch: str) -> Iterator[tuple[KernelListing, int, int]]:
    """Yield what stands in each launch's kernel, its registers and its bytes of spills."""
    listed = {k.name: k for k in kernels(sass.disassemble(code.ptx, arch))}
    for launch, registers, spills in zip(code.launches, code.registers, code.spills, strict=True):
        yield listed[launch.symbol], registers, spills
