"""Loads from the shared memory of other blocks of a cluster, simulated."""

from __future__ import annotations

from ....ir.loop.build import as_int
from ....ir.loop.nodes import Intrinsic
from .asynchronous import CoroutineDevice


def load_remote(sim: CoroutineDevice, s: Intrinsic) -> None:
    """Emit a load of a box of the block of a rank into registers."""
    to, (of, rank) = s.writes[0], s.reads
    size = (as_int(to.ranges[0].extent) or 1) * to.buffer.dtype.bytes
    t, name, number = sim.thread, sim.thread.name_for("r"), sim.number(rank)
    record, source, target = sim.record(of.buffer), sim.address(of), sim.address(to)
    sim.em.declare("nw_sim_remote", "ptr", ["ptr", "ptr", "i64", "i64"])
    args = f"ptr {record}, ptr {source.text}, i64 {size}, i64 {number}"
    t.raw(f"%{name} = call ptr @nw_sim_remote({args})")
    t.raw(f"%{name}.none = icmp eq ptr %{name}, null")
    t.raw(f"br i1 %{name}.none, label %quit, label %{name}.go")
    t.block(f"{name}.go")
    for n in range(size // 4):
        t.raw(f"%{name}.from{n} = getelementptr i32, ptr %{name}, i64 {n}")
        t.raw(f"%{name}.word{n} = load i32, ptr %{name}.from{n}, align 4")
        t.raw(f"%{name}.to{n} = getelementptr i32, ptr {target.text}, i64 {n}")
        t.raw(f"store i32 %{name}.word{n}, ptr %{name}.to{n}, align 4")
    t.forget(to.buffer)
