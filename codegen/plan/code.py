"""Compiled groups, and the serialization of their code for other processes and files."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from ...ir.errors import ArtifactError
from ...ir.target import Target
from .symbols import POLL

if TYPE_CHECKING:
    from ...ir.gpus import Gpu


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
    x; ``grid`` has the most, and ``on`` says how many a device gets.
    """

    symbol: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    maps: tuple[TensorMap, ...] = ()
    resident: int = 0

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


Code: TypeAlias = bytes | DeviceCode
"""Object code for a processor, or kernels for a GPU."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """The memory that a kernel's outputs may share with its inputs, all by number.

    The only output may overwrite each of ``in_place``. Each ``(output, input)`` of ``updates`` is
    an update in place: the caller must copy the input's value there first.
    """

    in_place: tuple[int, ...] = ()
    updates: tuple[tuple[int, int], ...] = ()


NOTHING_SHARED = Sharing()


@dataclass(frozen=True, slots=True)
class PackCode:
    """Host code that packs a constant into the layout that a kernel takes as input ``index``.

    ``symbol`` takes the constant's address and that of ``size`` bytes for the result.
    """

    index: int
    symbol: str
    size: int
    object: bytes


@dataclass(frozen=True, slots=True)
class KernelCode:
    """A compiled group: its code, the sizes of its arguments, its packs.

    ``buffers`` are the bytes of every argument of the kernel: inputs as packed, outputs, and the
    workspace last if there is one. ``traced`` is true if a given trace is its schedule, not the
    default.
    """

    code: Code
    buffers: tuple[int, ...]
    workspace: int = 0
    sharing: Sharing = NOTHING_SHARED
    packs: tuple[PackCode, ...] = ()
    traced: bool = False


def code_pieces(code: Code) -> dict[str, bytes]:
    """Return a kernel's code as pieces of bytes, by kind; a ``Codec`` puts them together again."""
    if isinstance(code, bytes):
        return {"o": code}
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
    later = [maps, x.resident] if x.resident else [maps] if maps else []
    return [x.symbol, x.grid, x.block, x.shared_bytes, *later]


def code_bytes(code: Code) -> int:
    """Return the size of a kernel's machine code, or of its PTX where it has none."""
    return len(code) if isinstance(code, bytes) else len(code.cubin or code.ptx)


def polls_interrupts(code: Code) -> bool:
    """True if a kernel polls for interrupts: it may then return early, its outputs half written."""
    return isinstance(code, bytes) and POLL.encode() in code


def _object(found: Mapping[str, bytes], target: Target) -> Code:
    return found["o"]


def _device_code(found: Mapping[str, bytes], target: Target) -> Code:
    try:
        facts = json.loads(found["json"])
        code = DeviceCode(
            ptx=found["ptx"].decode("ascii"),
            launches=tuple(_launch(x, target.gpu) for x in facts["launches"]),
            cubin=found["cubin"],
            registers=tuple(map(_count, facts["registers"])),
            spills=tuple(map(_count, facts["spills"])),
        )
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        why = f"{type(error).__name__}: {error}"
        raise ArtifactError("a kernel cannot be read", why) from error
    if not code.launches:
        raise ArtifactError("a kernel cannot be read", "it launches nothing")
    return code


@dataclass(frozen=True, slots=True)
class Codec:
    """The parser of one form of code, the inverse of ``code_pieces``.

    ``pieces`` are the kinds of its parts; ``join`` assembles code for a target from them, or raises
    ``ArtifactError`` if they are invalid. Code that is ``linked`` runs within a program, which then
    carries the seal of its plan.
    """

    pieces: tuple[str, ...]
    join: Callable[[Mapping[str, bytes], Target], Code]
    linked: bool


OBJECT = Codec(("o",), _object, linked=True)
"""Object code, linked with the program that calls it."""
DEVICE = Codec(("json", "ptx", "cubin"), _device_code, linked=False)
"""Modules that a device loads, and how their kernels are launched."""


def _launch(data: Any, gpu: Gpu) -> LaunchConfig:
    """Return a launch that the device can take; ``ValueError`` for others."""
    symbol, grid, block, shared, *later = data
    if len(later) > 2:
        raise ValueError(f"{len(later)} facts more than a launch has")
    maps, resident = later[0] if later else [], _count(later[1]) if later[1:] else 0
    if not (isinstance(symbol, str) and re.fullmatch(r"[A-Za-z_$][\w$]{0,511}", symbol)):
        raise ValueError(f"{symbol!r} is not a symbol")
    g, b = _extents(grid, gpu.grid_extents), _extents(block, gpu.block_extents)
    if math.prod(b) > gpu.threads_per_block:
        raise ValueError(f"{math.prod(b)} threads in a block")
    if _count(shared) > gpu.shared_per_block:
        raise ValueError(f"{shared} bytes of shared memory")
    if resident > gpu.blocks_per_multiprocessor:
        raise ValueError(f"{resident} blocks for each multiprocessor")
    return LaunchConfig(symbol, g, b, shared, tuple(map(_map, maps)), resident)


def _map(data: Any) -> TensorMap:
    """Return a tensor map that the driver can make; ``ValueError`` for others."""
    made = TensorMap(*map(_count, data))
    wide = made.pitch * made.item
    if made.item not in (1, 2, 4, 8) or made.offset % 16 or wide % 16 or made.columns > made.pitch:
        raise ValueError(f"{data!r} is not a matrix that boxes are copied of")
    row = made.box_columns * made.item
    if not 0 < row <= (made.swizzle or row) or row % 16 or not 0 < made.box_rows <= 256:
        raise ValueError(f"{data!r} has no box that can be copied")
    if made.swizzle not in (0, 32, 64, 128):
        raise ValueError(f"{made.swizzle} is not a swizzle")
    return made


def _extents(data: Any, most: tuple[int, int, int]) -> tuple[int, int, int]:
    x, y, z = map(_count, data)
    if not all(1 <= n <= limit for n, limit in zip((x, y, z), most, strict=True)):
        raise ValueError(f"extents {data!r}, at most {most}")
    return x, y, z


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 31:
        raise ValueError(f"{value!r} is not a count")
    return value
