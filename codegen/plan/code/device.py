"""Code for a GPU: modules, and the launches of their kernels."""

from __future__ import annotations

import json
from dataclasses import astuple, dataclass


@dataclass(frozen=True, slots=True)
class TensorMap:
    """A matrix in memory of which a kernel copies boxes: what the driver makes a tensor map of.

    It begins ``offset`` bytes into argument number ``argument``. ``item`` is the size of an element
    in bytes; columns, rows, pitch and the box are in elements; ``swizzle`` is 0, 32, 64 or 128
    bytes.
    """

    argument: int
    offset: int
    item: int
    columns: int
    rows: int
    pitch: int
    box_columns: int
    box_rows: int
    swizzle: int


@dataclass(frozen=True, slots=True)
class LaunchConfig:
    """The launch of one kernel. ``grid`` and ``block`` are extents of x, y and z.

    The kernel takes the function's parameters, followed by the workspace if there is one, and then
    the tensor ``maps`` by value. If ``resident`` is not 0, the kernel takes any number of blocks in
    x; ``grid`` has the most, and ``on`` says how many a device gets. One that ``overlaps`` may
    begin while the launch before it ends.
    """

    symbol: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    maps: tuple[TensorMap, ...] = ()
    resident: int = 0
    overlaps: bool = False

    def on(self, multiprocessors: int) -> tuple[int, int, int]:
        """Return the grid for a device with so many multiprocessors."""
        x, y, z = self.grid
        return min(x, self.resident * multiprocessors) if self.resident else x, y, z

    @property
    def threads(self) -> int:
        """Threads of one block."""
        x, y, z = self.block
        return x * y * z


@dataclass(frozen=True, slots=True)
class DeviceCode:
    """A group compiled for a GPU: one module of kernels and the launches to make, in order.

    ``cubin`` is machine code for the target's architecture; it is empty where no ``ptxas`` was
    available, and the driver then compiles ``ptx``. ``registers`` per thread and ``spills`` in
    bytes are ptxas's figures for each launch, if it ran.
    """

    ptx: str
    launches: tuple[LaunchConfig, ...]
    cubin: bytes = b""
    registers: tuple[int, ...] = ()
    spills: tuple[int, ...] = ()


def pieces(code: DeviceCode) -> dict[str, bytes]:
    """Return the code as pieces of bytes, by kind."""
    facts = {
        "launches": [_launch_facts(x) for x in code.launches],
        "registers": code.registers,
        "spills": code.spills,
    }
    head = json.dumps(facts, sort_keys=True).encode()
    return {"json": head, "ptx": code.ptx.encode(), "cubin": code.cubin}


def _launch_facts(x: LaunchConfig) -> list[object]:
    """Return a launch as JSON; what came to be later is left out where it says nothing."""
    maps = [list(astuple(m)) for m in x.maps]
    later: list[object] = [maps, x.resident, int(x.overlaps)]
    while later and not later[-1]:
        later.pop()
    return [x.symbol, x.grid, x.block, x.shared_bytes, *later]
