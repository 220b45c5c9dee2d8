"""Copy arrays to and from a device through page-locked memory, in pieces that overlap with the
copies.

The device copies from and to page-locked memory asynchronously. Two pieces take turns: while one is
being copied, the host fills or empties the other.
"""

from __future__ import annotations

import ctypes
import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....ir.arrays import Array, Bytes, as_bytes
from .device import Device
from .driver import DriverError

PIECE = 1 << 22  # bytes


class Pinned:
    """Page-locked memory of this process, as bytes; freed with its last reference."""

    def __init__(self, device: Device, nbytes: int) -> None:
        with device.during("no page-locked memory of the host"):
            self.address = int(device.call_with_retry("cuMemHostAlloc", nbytes, 0))
        memory = (ctypes.c_uint8 * nbytes).from_address(self.address)
        self.bytes: Bytes = np.ctypeslib.as_array(memory)
        weakref.finalize(self, device.discard, "cuMemFreeHost", self.address).atexit = False


@dataclass(slots=True)
class _Piece:
    """A piece and the event after which it may be accessed; ``busy`` until then.

    ``marked`` is true if the event was recorded after the copy. A call that is interrupted between
    the two leaves a piece that is free only when the whole stream is.
    """

    memory: Pinned
    event: Any
    busy: bool = False
    marked: bool = False


class Staging:
    """The page-locked pieces of a device; used with the device held."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._pieces: list[_Piece] = []
        self._turn = 0

    def upload(self, array: Array, address: int) -> None:
        """Copy a C-contiguous array to the device. It may be changed once this returns."""
        source = as_bytes(array)
        for start in range(0, source.size, PIECE):
            part = source[start : start + PIECE]
            piece = self._next()
            piece.memory.bytes[: part.size] = part
            self._copy("cuMemcpyHtoDAsync", address + start, piece.memory.address, part.size, piece)

    def download(self, address: int, array: Array) -> None:
        """Copy from the device into a C-contiguous array, complete when this returns."""
        target = as_bytes(array)
        in_progress: list[tuple[_Piece, Bytes]] = []
        for start in range(0, target.size, PIECE):
            part = target[start : start + PIECE]
            if len(in_progress) == 2:
                self._arrive(*in_progress.pop(0))
            piece = self._next()
            self._copy("cuMemcpyDtoHAsync", piece.memory.address, address + start, part.size, piece)
            in_progress.append((piece, part))
        for piece, part in in_progress:
            self._arrive(piece, part)

    def _arrive(self, piece: _Piece, part: Bytes) -> None:
        self._wait(piece)
        part[:] = piece.memory.bytes[: part.size]

    def _copy(self, function: str, target: int, source: int, nbytes: int, piece: _Piece) -> None:
        device = self.device
        piece.busy, piece.marked = True, False
        try:
            device.driver.call(function, target, source, nbytes, device.stream)
            device.driver.call("cuEventRecord", piece.event, device.stream)
            piece.marked = True
        except DriverError as error:
            raise device.failed(error, "a copy between host and GPU failed") from error

    def _next(self) -> _Piece:
        if len(self._pieces) < 2:
            self._pieces.append(_Piece(Pinned(self.device, PIECE), self.device.event(False)))
        self._turn = (self._turn + 1) % len(self._pieces)
        piece = self._pieces[self._turn]
        self._wait(piece)
        return piece

    def _wait(self, piece: _Piece) -> None:
        if piece.busy:
            device = self.device
            try:
                if piece.marked:
                    device.wait("cuEventQuery", piece.event)
                else:
                    device.wait("cuStreamQuery", device.stream)
            except DriverError as error:
                raise device.failed(error, "work on the GPU failed") from error
            piece.busy = False
