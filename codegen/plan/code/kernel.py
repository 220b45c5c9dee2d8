"""Compiled groups: their code, and what the callers of their kernels need to know."""

from __future__ import annotations

from dataclasses import dataclass

from .form import Code


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
