"""The tensor maps that a launch asks for: one for each matrix and box of its bulk copies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...ir.errors import UnsupportedError
from ...ir.loop.build import as_int
from ...ir.loop.nodes import Buffer, Intrinsic, Region, Stmt
from ...ir.loop.visit import walk
from ..plan.code.device import TensorMap

COPIES = ("tma_load", "tma_store")


def map_of(s: Intrinsic, params: Mapping[Buffer, int]) -> TensorMap:
    """Return the map of a bulk copy; ``UnsupportedError`` for what is no parameter."""
    matrix: Region = s.reads[0] if s.name == "tma_load" else s.writes[0]
    start = as_int(matrix.ranges[0].start)
    number, item = params.get(matrix.buffer), matrix.buffer.dtype.bytes
    if number is None or start is None:
        raise UnsupportedError(
            f"a bulk copy of {matrix.buffer.name}", "only boxes of parameters are copied so"
        )
    return TensorMap(number, start * item, item, *s.args)


def tensor_maps(body: Stmt, params: Sequence[Buffer]) -> tuple[TensorMap, ...]:
    """Return the maps of a launch, each once."""
    numbers = {b: n for n, b in enumerate(params)}
    copies = (s for s in walk(body) if isinstance(s, Intrinsic) and s.name in COPIES)
    return tuple(dict.fromkeys(map_of(s, numbers) for s in copies))
