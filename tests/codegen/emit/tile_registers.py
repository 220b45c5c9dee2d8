"""Tile registers for any machine: code that uses them runs with functions of Python in their place.

They are as strict as the processor: a register without a shape, shapes that do not match, a use
after the end are faults. So is a tile beyond the arrays that a function was given, each of which
ends at a page that may not be touched. Intel, Architecture Instruction Set Extensions, AMX.
"""

from __future__ import annotations

import ctypes
import re
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from guarded_memory import PAGE, Guarded

from nestwright.codegen.driver.compile_group import pack_code, workspace_bytes
from nestwright.codegen.driver.prepack import split_packs
from nestwright.codegen.plan.function import CompiledFunc
from nestwright.codegen.plan.signature import ArraySpec
from nestwright.codegen.runtime.function import NativeFunc
from nestwright.codegen.runtime.process import runtime
from nestwright.codegen.targets.cpu import toolchain
from nestwright.codegen.targets.registry import emit, lower
from nestwright.ir.arrays import Array
from nestwright.ir.loop.nodes import Func
from nestwright.ir.target import HERE, Target

FEATURES = "-mcpu=x86-64 -mattr=+amx-tile,+amx-bf16,+amx-int8"
TILES = Target.parse(f"cpu {FEATURES} -threads=1")
"""No instructions but those of tile registers that not every machine has."""
REGISTERS, ROWS, ROW_BYTES = 8, 16, 64
PREFIX = "emulated_"
_INTRINSIC = re.compile(r"@llvm\.x86\.((?:ld|st)tilecfg|tile\w+|tdp\w+)")
_BYTE, _POINTER, _WIDE = ctypes.c_uint8, ctypes.c_void_p, ctypes.c_int64
_SIGNED = {"s": np.int8, "u": np.uint8}


class TileFault(AssertionError):
    """What a processor would have ended the process for."""


@dataclass(frozen=True)
class Register:
    """A register with a shape: its bytes, of which those of other rows and columns are none."""

    rows: int
    row_bytes: int
    data: Array

    @classmethod
    def empty(cls, rows: int, row_bytes: int) -> Register:
        return cls(rows, row_bytes, np.zeros((rows, row_bytes), np.uint8))


@dataclass
class TileMachine:
    """The registers of each thread, what was done with them, and what would have been a fault.

    ``arrays`` are the address and the size of what a page without access lies around.
    """

    arrays: list[tuple[int, int]] = field(default_factory=list)
    calls: Counter[str] = field(default_factory=Counter)
    shapes: list[bytes] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    _own: dict[int, dict[int, Register]] = field(default_factory=dict)

    def symbols(self) -> tuple[dict[str, int], list[object]]:
        """Return the addresses of the functions by name, and what has to live as long as they."""
        forms: dict[str, tuple[Callable[..., None], Sequence[Any]]] = {
            "ldtilecfg": (self._configure, [_POINTER]),
            "tilezero": (self._zero, [_BYTE]),
            "tileloadd64": (self._load, [_BYTE, _POINTER, _WIDE]),
            "tilestored64": (self._store, [_BYTE, _POINTER, _WIDE]),
            "tilerelease": (self._release, []),
            "tdpbf16ps": (self._bf16, [_BYTE] * 3),
        }
        for letters in ("ss", "su", "us", "uu"):
            forms[f"tdpb{letters}d"] = self._bytes(letters), [_BYTE] * 3
        kept = [
            ctypes.CFUNCTYPE(None, *types)(self._watched(name, run))
            for name, (run, types) in forms.items()
        ]
        addresses = [ctypes.cast(f, _POINTER).value or 0 for f in kept]
        return dict(zip((PREFIX + n for n in forms), addresses, strict=True)), [*kept]

    def _watched(self, name: str, run: Callable[..., None]) -> Callable[..., None]:
        """After the first fault nothing is done any more: it would be at wrong addresses."""

        def call(*words: int | None) -> None:
            if self.faults:
                return
            self.calls[name] += 1
            try:
                run(*(w or 0 for w in words))
            except Exception as e:
                self.faults.append(f"{name}{words}: {e!r}")

        return call

    @property
    def live(self) -> bool:
        """True if a thread's registers have shapes."""
        return bool(self._own)

    @property
    def _registers(self) -> dict[int, Register]:
        """Those of this thread, which may be none that Python knows."""
        return self._own.get(threading.get_ident(), {})

    def _shaped(self, number: int) -> Register:
        if number not in self._registers:
            raise TileFault(f"register {number} has no shape")
        return self._registers[number]

    def _configure(self, address: int) -> None:
        told = ctypes.string_at(address, 64)
        if told[0] != 1 or any(told[1:16]) or any(told[32:48]) or any(told[56:]):
            raise TileFault(f"configuration {told.hex()}")
        found = {}
        for n in range(REGISTERS):
            row_bytes, rows = int.from_bytes(told[16 + 2 * n : 18 + 2 * n], "little"), told[48 + n]
            if rows > ROWS or row_bytes > ROW_BYTES or (rows == 0) != (row_bytes == 0):
                raise TileFault(f"register {n} of {rows} rows of {row_bytes} bytes")
            if rows:
                found[n] = Register.empty(rows, row_bytes)
        self.shapes.append(told)
        self._own[threading.get_ident()] = found

    def _release(self) -> None:
        self._own.pop(threading.get_ident(), None)

    def _zero(self, number: int) -> None:
        self._shaped(number).data[:] = 0

    def _rows(self, number: int, address: int, apart: int) -> list[tuple[int, Array]]:
        """Return the address of each row of a tile and its part of the register."""
        r = self._shaped(number)
        found = [(address + k * apart, r.data[k]) for k in range(r.rows)]
        for at, row in found:
            end = at + row.size
            for begin, size in self.arrays:
                near = at < begin + size + PAGE and end > begin - PAGE
                if near and not (begin <= at and end <= begin + size):
                    raise TileFault(f"bytes {at - begin} to {end - begin} of an array of {size}")
        return found

    def _load(self, number: int, address: int, apart: int) -> None:
        for at, row in self._rows(number, address, apart):
            row[:] = np.frombuffer(ctypes.string_at(at, row.size), np.uint8)

    def _store(self, number: int, address: int, apart: int) -> None:
        for at, row in self._rows(number, address, apart):
            ctypes.memmove(at, row.ctypes.data, row.size)

    def _operands(self, c: int, a: int, b: int) -> tuple[Register, Register, Register]:
        if len({a, b, c}) < 3:
            raise TileFault(f"registers {c}, {a}, {b} are not three")
        sums, left, right = map(self._shaped, (c, a, b))
        if any(r.row_bytes % 4 for r in (sums, left, right)):
            raise TileFault("rows are not whole groups of 32 bits")
        if sums.rows != left.rows or sums.row_bytes != right.row_bytes:
            raise TileFault(f"{left.rows} x {right.row_bytes}, but sums are {sums}")
        if left.row_bytes // 4 != right.rows:
            raise TileFault(f"{left.row_bytes} bytes of terms, but {right.rows} rows of them")
        return sums, left, right

    def _bytes(self, letters: str) -> Callable[[int, int, int], None]:
        of_left, of_right = (_SIGNED[x] for x in letters)

        def multiply(c: int, a: int, b: int) -> None:
            sums, left, right = self._operands(c, a, b)
            rows = left.data.view(of_left).astype(np.int64)
            groups = right.data.view(of_right).reshape(right.rows, -1, 4)
            columns = groups.transpose(0, 2, 1).reshape(4 * right.rows, -1).astype(np.int64)
            added = sums.data.view(np.int32) + rows @ columns
            sums.data[:] = added.astype(np.int32).view(np.uint8)

        return multiply

    def _bf16(self, c: int, a: int, b: int) -> None:
        sums, left, right = self._operands(c, a, b)
        rows = _widened(left.data)
        columns = _widened(right.data).reshape(right.rows, -1, 2)
        found = _normal(sums.data.view(np.float32))
        for k in range(right.rows):
            with np.errstate(all="ignore"):
                pair = np.outer(rows[:, 2 * k], columns[k, :, 0])
                pair += np.outer(rows[:, 2 * k + 1], columns[k, :, 1])
                found = _normal(found + _normal(pair))
        sums.data[:] = found.view(np.uint8)


def _widened(data: Array) -> Array:
    """Return numbers of bf16 as f32, denormals as 0."""
    return _normal((data.view(np.uint16).astype(np.uint32) << 16).view(np.float32))


def _normal(x: Array) -> Array:
    tiny = np.abs(x) < np.finfo(np.float32).tiny
    return np.where(tiny, np.copysign(np.float32(0), x), x)


def emulated(func: Func, target: Target = TILES) -> tuple[NativeFunc, TileMachine]:
    """Compile a scheduled function for a target with tile registers, to run on this machine."""
    main, packs = split_packs(func)
    flat, here = lower(main, target), Target.parse(HERE)
    text = _INTRINSIC.sub(rf"@{PREFIX}\1", emit(flat, target))
    machine = TileMachine()
    symbols, kept = machine.symbols()
    compiled = CompiledFunc(
        func.name,
        replace(here, threads=target.threads),
        tuple(ArraySpec(b.name, b.dtype, tuple(map(int, b.shape))) for b in func.params),
        func.outputs,
        toolchain.compile(text, here),
        workspace_bytes(flat),
        packs=tuple(map(pack_code, packs)),
    )
    made = NativeFunc.load(compiled, {**runtime().addresses, **symbols})
    sizes = [spec.bytes for spec in compiled.params]
    for pack in compiled.packs:
        sizes[pack.index] = pack.size
    work = [compiled.workspace] if compiled.workspace else []
    held = [made.library, kept]
    written = compiled.outputs + len(work)
    entry = Guarded(func.name, made.entry, [*sizes, *work], written, "end", held)
    machine.arrays += [(b.address, b.size) for b in entry.buffers]
    return replace(made, entry=entry), machine


def run_in_tiles(
    func: Func, arguments: Sequence[Array], target: Target = TILES
) -> tuple[Array, TileMachine]:
    """Run a scheduled function of one result; fail if a processor would not have."""
    native, machine = emulated(func, target)
    result: Array = native.run(arguments, None)
    assert not machine.faults, machine.faults[0]
    assert not machine.live, "registers are in use after the end"
    return result, machine
