"""Variants of a model for several processors in one executable, with constants in common.

Each variant is built for itself. A constant that several lay out alike is then stored once: equal
pieces get one place, the plans refer to the places, and the programs, in which the places are
numbers, are made again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

import numpy as np

from ...ir.arrays import Bytes, aligned_zeros
from ...ir.errors import TargetError
from ..plan.bundle import Bundle, best
from ..plan.nodes import (
    BufferSlice,
    ConditionalThunk,
    CopyThunk,
    KernelThunk,
    LibraryThunk,
    PieceStart,
    Plan,
    WhileThunk,
    accesses,
    walk,
)
from ..plan.saved.seal import seal
from ..runtime.executable import Executable
from ..targets.registry import backend


def together(made: Sequence[Executable]) -> Executable:
    """Return one executable of several variants, which runs the one that fits this machine best.

    ``TargetError`` for targets that are no processors of one architecture.
    """
    targets = [exe.bundle.target for exe in made]
    for target in targets:
        if target.row.place != "process" or target.triple != targets[0].triple:
            raise TargetError(
                f"{target.spec!r} and {targets[0].spec!r}",
                "variants of a model are for processors of one architecture",
            )
    bundles = _sharing([exe.bundle for exe in made])
    chosen = best(targets)
    others = tuple(b for n, b in enumerate(bundles) if n != chosen)
    return made[chosen].with_variants(bundles[chosen], others)


def _sharing(bundles: Sequence[Bundle]) -> list[Bundle]:
    """Return the bundles with all of their constants in one piece of memory."""
    alignment = max(backend(b.target).alignment for b in bundles)
    places: dict[tuple[int, bytes], int] = {}
    pieces: list[tuple[int, Bytes]] = []
    size, moves = 0, []
    for bundle in bundles:
        moved = {}
        for begin, end in _pieces(bundle.plan):
            data = bundle.constants[begin:end]
            key = end - begin, sha256(data.data).digest()
            if key not in places:
                places[key] = size
                pieces.append((size, data))
                size += -(-(end - begin) // alignment) * alignment
            moved[begin, end] = places[key]
        moves.append(moved)
    constants = aligned_zeros(size)
    for at, data in pieces:
        constants[at : at + data.size] = data
    return [_moved(b, m, constants) for b, m in zip(bundles, moves, strict=True)]


def _pieces(plan: Plan) -> Iterator[tuple[int, int]]:
    """Yield where pieces of constants begin and end: slices that overlap are of one piece."""
    slices = {
        (s.offset, s.offset + s.reach)
        for thunk in walk(plan.thunks)
        for part in accesses(thunk)
        for s in part
        if s.memory == "constant"
    }
    begin, end = -1, -1
    for first, last in sorted(slices):
        if first >= end or begin < 0:
            if begin >= 0:
                yield begin, end
            begin, end = first, last
        end = max(end, last)
    if begin >= 0:
        yield begin, end


def _moved(bundle: Bundle, moved: Mapping[tuple[int, int], int], constants: Bytes) -> Bundle:
    """Return a bundle whose constants are at other places, with a program that knows them."""
    starts = np.array(sorted(begin for begin, _ in moved), np.int64)
    places = {begin: at for (begin, _), at in moved.items()}

    def place(value: Any) -> Any:
        match value:
            case BufferSlice(start=PieceStart() as start):
                moved = start._replace(place=place(start.place))
                return replace(place(replace(value, start=None)), start=moved)
            case BufferSlice(memory="constant", offset=offset):
                begin = int(starts[np.searchsorted(starts, offset, "right") - 1])
                return replace(value, offset=places[begin] + offset - begin)
            case KernelThunk() | CopyThunk() | LibraryThunk() | WhileThunk() | ConditionalThunk():
                return type(value)(*map(place, value))
            case tuple():
                return tuple(map(place, value))
        return value

    plan = replace(bundle.plan, thunks=place(bundle.plan.thunks), constant_bytes=constants.size)
    mark = seal(plan, bundle.kernels, bundle.buffers)
    code = backend(bundle.target).finish(plan, mark, bundle.target, bundle.kernels)
    return replace(bundle, plan=plan, constants=constants, program=code.code, runtime=code.runtime)
