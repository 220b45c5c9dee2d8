"""Blocks of a cluster in PTX: their barrier, and loads from each other's shared memory."""

from __future__ import annotations

from ....ir.dtypes import s32
from ....ir.errors import UnsupportedError
from ....ir.loop.build import as_int
from ....ir.loop.intrinsics import TABLE
from ....ir.loop.nodes import Intrinsic
from ...emit.expr import Emitter
from .assembly import assembly, assembly_result, names, register, shared_address, store_words

NAMES = ("cluster_barrier", "load_remote")
_BARRIER = "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;"


def emit_cluster(em: Emitter, s: Intrinsic) -> None:
    """Emit an intrinsic of clusters. ``UnsupportedError`` where the architecture has none."""
    row = TABLE[s.name]
    if not row.on(em.target.gpu):
        raise UnsupportedError(f"intrinsic {s.name} for {em.target.cpu}", f"it needs sm_{row.sm}")
    if s.name == "cluster_barrier":
        assembly(em, _BARRIER)
    else:
        _load(em, s)


def _load(em: Emitter, s: Intrinsic) -> None:
    """``mapa`` finds the address in the other block, ``ld.shared::cluster`` reads there."""
    to, (of, rank) = s.writes[0], s.reads
    words = (as_int(to.ranges[0].extent) or 1) * to.buffer.dtype.bytes // 4
    which = register(em, rank)
    at = shared_address(em, of)
    wide, group = (f".v{words}", names(0, words)) if words > 1 else ("", "$0")
    text = (
        f"{{ .reg .b32 a; mapa.shared::cluster.u32 a, ${words}, ${words + 1}; "
        f"ld.shared::cluster{wide}.b32 {group}, [a]; }}"
    )
    result = assembly_result(em, text, s32, words, at, which, convergent=False)
    store_words(em, to, result, words)
