"""Blocks of a cluster in PTX: their barrier, and loads from each other's shared memory."""

from __future__ import annotations

from ....ir.dtypes import s32
from ....ir.errors import UnsupportedError
from ....ir.loop.build import as_int
from ....ir.loop.intrinsics import TABLE
from ....ir.loop.nodes import Intrinsic, Load
from ...emit.expr import Emitter
from .bulk import shared_address
from .lanes import put_words, start_of

NAMES = ("cluster_barrier", "load_remote")
_BARRIER = "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;"


def emit_cluster(em: Emitter, s: Intrinsic) -> None:
    """Emit an intrinsic of clusters. ``UnsupportedError`` where the architecture has none."""
    row = TABLE[s.name]
    if not row.on(em.target.gpu):
        raise UnsupportedError(f"intrinsic {s.name} for {em.target.cpu}", f"it needs sm_{row.sm}")
    if s.name == "cluster_barrier":
        em.function.write(f'call void asm sideeffect "{_BARRIER}", "~{{memory}}"() convergent')
    else:
        _load(em, s)


def _load(em: Emitter, s: Intrinsic) -> None:
    """``mapa`` finds the address in the other block, ``ld.shared::cluster`` reads there."""
    to, (of, rank) = s.writes[0], s.reads
    words = (as_int(to.ranges[0].extent) or 1) * to.buffer.dtype.bytes // 4
    which = em.value(Load(rank.buffer, (rank.ranges[0].start,)))
    at = shared_address(em, of)
    names = [f"${n}" for n in range(words)]
    wide, group = (f".v{words}", f"{{{', '.join(names)}}}") if words > 1 else ("", names[0])
    text = (
        f"{{ .reg .b32 a; mapa.shared::cluster.u32 a, ${words}, ${words + 1}; "
        f"ld.shared::cluster{wide}.b32 {group}, [a]; }}"
    )
    type_ = f"{{ {', '.join(['i32'] * words)} }}" if words > 1 else "i32"
    kinds = ",".join([*["=r"] * words, "r", "r", "~{memory}"])
    call = f'call {type_} asm sideeffect "{text}", "{kinds}"({at}, {which})'
    result = em.function.result(call, s32)
    if words > 1:
        put_words(em, to, result, type_, words)
    else:
        em.function.write(f"store {result}, ptr {start_of(em, to).text}, align 4")
        em.function.forget(to.buffer)
