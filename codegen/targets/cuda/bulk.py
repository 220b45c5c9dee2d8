"""Barriers with phases, bulk copies and what goes with them, as PTX in inline assembly."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ....ir.errors import UnsupportedError
from ....ir.loop.nodes import Intrinsic
from ...emit.expr import Emitter
from .assembly import assembly, register, shared_address

_PLAIN: Mapping[str, str] = MappingProxyType(
    {
        "fence_proxy_async": "fence.proxy.async.shared::cta;",
        "fence_mbarrier_init": "fence.mbarrier_init.release.cluster;",
        "tma_commit": "cp.async.bulk.commit_group;",
        "tma_wait": "cp.async.bulk.wait_group {};",
        "tma_wait_read": "cp.async.bulk.wait_group.read {};",
        "give_registers": "setmaxnreg.dec.sync.aligned.u32 {};",
        "take_registers": "setmaxnreg.inc.sync.aligned.u32 {};",
        "launch_wait": "griddepcontrol.wait;",
        "launch_next": "griddepcontrol.launch_dependents;",
        "named_barrier": "bar.sync {}, {};",
        "named_barrier_arrive": "bar.arrive {}, {};",
    }
)
"""Instructions whose only operands are the args."""
_BARS: Mapping[str, str] = MappingProxyType(
    {
        "mbarrier_init": "mbarrier.init.shared.b64 [$0], {};",
        "mbarrier_arrive": "{{ .reg .b64 s; mbarrier.arrive.shared.b64 s, [$0]; }}",
        "mbarrier_arrive_copies": "cp.async.mbarrier.arrive.noinc.shared.b64 [$0];",
        "mbarrier_expect": "{{ .reg .b64 s; mbarrier.arrive.expect_tx.shared.b64 s, [$0], {}; }}",
    }
)
"""Instructions on a barrier, which is the only operand beside the args."""
_WAIT = "{{ .reg .pred p; again: mbarrier.{}_wait.parity.shared.b64 p, [$0], $1; @!p bra again; }}"
_TRIES = 90  # the architecture from which on a wait may put the thread to sleep
_LOAD = (
    "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
    "[$0], [$1, {$2, $3}], [$4];"
)
_STORE = "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [$0, {$1, $2}], [$3];"


def emit_bulk(em: Emitter, s: Intrinsic) -> None:
    """Emit an intrinsic of barriers with phases or of the asynchronous proxy."""
    match s.name:
        case name if name in _PLAIN:
            assembly(em, _PLAIN[name].format(*s.args))
        case name if name in _BARS:
            assembly(em, _BARS[name].format(*s.args), shared_address(em, s.writes[0]))
        case "mbarrier_wait":
            code = _WAIT.format("try" if em.target.gpu.sm >= _TRIES else "test")
            assembly(em, code, shared_address(em, s.reads[0]), register(em, s.reads[1]))
        case _:
            raise UnsupportedError(f"intrinsic {s.name}", "there is no PTX for it")


def emit_bulk_copy(em: Emitter, s: Intrinsic, map_: str) -> None:
    """Emit a copy of a box by the tensor map that a parameter holds."""
    load = s.name == "tma_load"
    box, place = (s.writes[0], s.reads[1]) if load else (s.reads[0], s.reads[1])
    at = shared_address(em, box)
    where = [register(em, place, n) for n in range(2)]
    if load:
        assembly(em, _LOAD, at, f"ptr {map_}", *where, shared_address(em, s.reads[2]))
    else:
        assembly(em, _STORE, f"ptr {map_}", *where, at)
