"""Operations of a recording side by side: what waits for what, and who goes to which stream.

An operation waits for an earlier one if one of them writes bytes that the other accesses, wherever
these lie: parts of an arena that several values have in turn, an argument that is a result as well.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ....ir.errors import ArgumentError

STREAMS = 4
"""Streams that a recording is spread over, unless the environment says otherwise."""

MOST = 64
"""Streams that may be asked for."""

ASKED = "NESTWRIGHT_CUDA_STREAMS"
"""Names the number of streams; with 1, the graphs of segments are chains."""

START = -1
"""The number of the place before the first operation."""

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Accesses:
    """The bytes that an operation reads and writes, as begins and ends of address ranges."""

    reads: tuple[Span, ...]
    writes: tuple[Span, ...]


ANYTHING = Accesses((), ((0, 1 << 64),))
"""What is known of an operation that must wait for all before it, as all after it must for it."""


@dataclass(frozen=True, slots=True)
class BranchPlace:
    """Where an operation is recorded: its stream, and the operations of others it waits for."""

    stream: int
    waits: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Branches:
    """Places of operations in order, and the last ones of streams that the first one waits for."""

    places: tuple[BranchPlace, ...]
    ends: tuple[int, ...]

    @property
    def marks(self) -> frozenset[int]:
        """The operations that others wait for, by number, and ``START``."""
        return frozenset(w for p in self.places for w in p.waits) | frozenset(self.ends)


def streams_asked() -> int:
    """Return the number of streams to record on."""
    text = os.environ.get(ASKED, "")
    if not text:
        return STREAMS
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:6]) <= MOST):
        raise ArgumentError(f"{ASKED}={text!r}", f"it must be an integer from 1 to {MOST}")
    return int(text)


def needs(ops: Sequence[Accesses]) -> list[set[int]]:
    """Return, for each operation, earlier ones that it must wait for.

    Others it waits for through these.
    """
    cuts = sorted({at for op in ops for span in (*op.reads, *op.writes) for at in span})
    writer = [START] * len(cuts)
    readers: list[list[int]] = [[] for _ in cuts]
    found: list[set[int]] = []

    def pieces(spans: Sequence[Span]) -> set[int]:
        return {
            k for a, b in spans if a < b for k in range(bisect_left(cuts, a), bisect_left(cuts, b))
        }

    for n, op in enumerate(ops):
        read, written = pieces(op.reads), pieces(op.writes)
        before = {writer[k] for k in read | written}
        before.update(r for k in written for r in readers[k])
        for k in read:
            readers[k].append(n)
        for k in written:
            writer[k], readers[k] = n, []
        found.append(before - {START})
    return found


def branches(before: Sequence[set[int]], streams: int) -> Branches:
    """Return the places of operations, given what each must wait for.

    One goes behind the latest that it waits for anyway, else to a stream of its own while there are
    any, else to the one that has been without work for longest.
    """
    tails: list[int | None] = [None] * streams
    known: list[int] = []  # what is surely done before an operation begins, as bits
    places: list[BranchPlace] = []
    for n, needed in enumerate(before):
        stream = _stream(tails, _all(known, needed))
        tail = tails[stream]
        here = 0 if tail is None else _all(known, {tail})
        waits: list[int] = []
        for p in sorted(needed, reverse=True):
            if not here >> p & 1:
                waits.append(p)
                here |= _all(known, {p})
        if tail is None and stream and not waits:
            waits.append(START)
        places.append(BranchPlace(stream, tuple(waits)))
        known.append(here)
        tails[stream] = n
    first = 0 if tails[0] is None else _all(known, {tails[0]})
    ends = sorted((t for t in tails[1:] if t is not None and not first >> t & 1), reverse=True)
    return Branches(tuple(places), tuple(ends))


def _all(known: Sequence[int], operations: Iterable[int]) -> int:
    """Return operations and all that is done before them, as bits."""
    found = 0
    for n in operations:
        found |= known[n] | 1 << n
    return found


def _stream(tails: Sequence[int | None], done: int) -> int:
    """Return the stream of an operation before which ``done`` is done."""
    behind = [(t, s) for s, t in enumerate(tails) if t is not None and done >> t & 1]
    if behind:
        return max(behind)[1]
    empty = [s for s, t in enumerate(tails) if t is None]
    return empty[0] if empty else min((t, s) for s, t in enumerate(tails) if t is not None)[1]
