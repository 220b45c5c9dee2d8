"""The file of weights beside a C library: a head that says whose they are, and the bytes."""

from __future__ import annotations

import numpy as np

from ...ir.arrays import Bytes
from ..plan.interface import WEIGHTS, WEIGHTS_BEGIN, WEIGHTS_MAGIC, WEIGHTS_VERSION

_CHUNK = 1 << 16  # words that are added at a time


def head(constants: Bytes, seal: bytes) -> bytes:
    """Return what precedes the weights in their file; see ``plan.interface.WEIGHTS``."""
    total, totals = sums(constants)
    row = {
        "magic": WEIGHTS_MAGIC,
        "version": WEIGHTS_VERSION,
        "seal": np.frombuffer(seal, np.int64).tolist(),
        "bytes": len(constants),
        "sum": total,
        "sums": totals,
    }
    return WEIGHTS.table([row]).tobytes().ljust(WEIGHTS_BEGIN, b"\0")


def sums(constants: Bytes) -> tuple[int, int]:
    """Return the sum of the words of 64 bits, and the sum of all sums so far, as signed words."""
    words = constants.view(np.uint64)
    weights = np.arange(_CHUNK, 0, -1, dtype=np.uint64)
    total = np.zeros(1, np.uint64)
    totals = np.zeros(1, np.uint64)
    for at in range(0, len(words), _CHUNK):
        some = words[at : at + _CHUNK]
        totals += total * np.uint64(len(some))
        totals += (some * weights[-len(some) :]).sum(dtype=np.uint64)
        total += some.sum(dtype=np.uint64)
    return int(total.view(np.int64)[0]), int(totals.view(np.int64)[0])
