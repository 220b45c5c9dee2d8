"""The names of all HLO operations, by how far this compiler goes with them."""

from __future__ import annotations

from ..elementwise import TABLE


def _set(names: str) -> frozenset[str]:
    return frozenset(names.split())


NOT_HLO = frozenset({"floordiv", "floormod", "fma", "eq", "ne", "lt", "le", "gt", "ge"})
"""Entries of the element-wise table that only loop IR has."""

ELEMENTWISE: frozenset[str] = frozenset(TABLE) - NOT_HLO
"""Operations whose meaning is one entry of ``elementwise.TABLE``; ``compare`` is apart."""

STRUCTURE = _set(
    "parameter constant iota tuple get-tuple-element call fusion while conditional copy bitcast "
    "opt-barrier after-all custom-call"
)
SHAPING = _set(
    "broadcast reshape transpose slice concatenate pad reverse dynamic-slice dynamic-update-slice "
    "gather scatter dynamic-reshape get-dimension-size set-dimension-size convert bitcast-convert "
    "reduce-precision stochastic-convert compare complex real imag"
)
HEAVY = _set(
    "dot convolution reduce reduce-window select-and-scatter sort topk map batch-norm-training "
    "batch-norm-inference batch-norm-grad rng rng-bit-generator scan fft cholesky triangular-solve "
    "rng-get-and-update-state"
)
ONE_PROCESS = _set(
    "all-reduce all-gather all-to-all reduce-scatter collective-broadcast collective-permute "
    "replica-id partition-id add-dependency domain"
)

COMPUTED: frozenset[str] = ELEMENTWISE | STRUCTURE | SHAPING | HEAVY | ONE_PROCESS
"""What the interpreter runs; of operations cut in two it runs the halves as well."""

NAMED_ONLY = _set(
    "collective-reduce ragged-all-to-all ragged-dot scaled-dot send send-done recv recv-done "
    "infeed outfeed async-start async-update async-done copy-start copy-done all-gather-start "
    "all-gather-done all-reduce-start all-reduce-done collective-permute-start "
    "collective-permute-done shuffle"
)
"""Operations that are read and printed, and refused when they should be computed."""

KNOWN: frozenset[str] = COMPUTED | NAMED_ONLY


def is_known(opcode: str) -> bool:
    """Whether text may name this operation; ``x-start``, ``-update``, ``-done`` wrap any other."""
    if opcode in KNOWN:
        return True
    base, _, stage = opcode.rpartition("-")
    return stage in ("start", "update", "done") and base in KNOWN
