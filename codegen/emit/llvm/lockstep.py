"""Straight-line pieces of a loop written side by side, an instruction of each in turn.

A core looks ahead a few hundred instructions. A function such as ``exp`` is a chain of 15 to 40
instructions each of which waits for the one before: of pieces that follow each other the core sees
two or three at once, side by side it sees them all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

CHAIN = 12  # vector instructions that wait for each other, from which this is worth it
_NAME = re.compile(r"%v\d+")
_SLOT = re.compile(r"ptr (%slot\d+)")


def lockstep(pieces: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of ``pieces`` as one sequence.

    Pieces may use values of earlier ones. What they store they store in their order, and so they
    access slots of the stack frame; no piece may load what another stores elsewhere. Pieces with
    control flow or without a long chain follow each other.
    """
    lines = [line for piece in pieces for line in piece]
    if min(map(len, pieces)) < CHAIN or any(line.endswith(":") for line in lines):
        return lines
    return list(_in_turn(pieces)) if _depth(pieces[0]) >= CHAIN else lines


def _depth(lines: Sequence[str]) -> int:
    """Return the number of vector instructions in the longest chain."""
    depths: dict[str, int] = {}
    for line in lines:
        if line.startswith("  %v"):
            own, *used = _NAME.findall(line)
            depths[own] = max((depths.get(x, 0) for x in used), default=0) + (" x " in line)
    return max(depths.values(), default=0)


def _in_turn(pieces: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the next line of each piece in turn, unless it has to wait."""
    waiting = {line.split()[0] for piece in pieces for line in piece if line.startswith("  %")}
    shared = [[x for line in piece for x in _shared(line)] for piece in pieces]
    at = [0] * len(pieces)
    while any(n < len(piece) for n, piece in zip(at, pieces, strict=True)):
        for k, piece in enumerate(pieces):
            if at[k] == len(piece):
                continue
            line = piece[at[k]]
            own, touched = line.split()[0], _shared(line)
            if any(x in earlier for x in touched for earlier in shared[:k]):
                continue
            if any(x in waiting and x != own for x in _NAME.findall(line)):
                continue
            waiting.discard(own)
            for x in touched:
                shared[k].remove(x)
            at[k] += 1
            yield line


def _shared(line: str) -> list[str]:
    """Return what an instruction accesses in the order of the pieces."""
    return _SLOT.findall(line) + ["stores"] * line.startswith(("  store ", "  call void "))
