"""Emit launches as host code: a coroutine for each thread, a description of the launch for the
runtime.

A kernel ``void name(ptr, ...)`` runs all launches of a flat function through ``nw_sim_launch``. A
launch whose threads never wait has plain functions for threads, without a coroutine's frame. Every
access of shared memory, and of global memory that the launch writes, is recorded in the shadow;
accesses to read-only memory are only bounds-checked, inline.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from math import prod

from ....ir.dtypes import index, s32
from ....ir.errors import UnsupportedError
from ....ir.loop.intrinsics import TABLE, WARP
from ....ir.loop.nodes import (
    THREADS,
    Alloc,
    AllReduce,
    Buffer,
    For,
    Func,
    Intrinsic,
    Kind,
    Region,
    Scope,
    Stmt,
)
from ....ir.loop.notes import IN_PLACE
from ....ir.loop.tensor_memory import LANES
from ....ir.loop.visit import children, walk
from ...emit.expr import Emitter
from ...emit.launches import DeviceEmitter, LaunchNest, launched, shared_bytes
from ...emit.llvm.core import Function, IRValue
from ...lower.passes.workspace import buffer_bytes, workspace_bytes
from ...runtime.sim import structs
from .asynchronous import emit_asynchronous, sums_of, touch_sums
from .clusters import load_remote
from .describe import Described, SimulatedModule, Site
from .exchange import check_group, combine_text, spread_text, tree_width
from .matrix import product_symbol, product_text
from .phases import HOOKS, phases_text
from .tensor import emit_tensor
from .thread import COROUTINE, RETURN, ThreadFunction, end_of_coroutine

MOST = 64  # warp operations of one meeting
ROWS = ("ldmatrix.", "stmatrix.")  # lanes point to rows of 16 bytes


class Simulator(DeviceEmitter):
    """The device that writes coroutines."""

    def __init__(self, em: Emitter, func: Func) -> None:
        self.em, self.func = em, func
        self.host = em.target.host
        self.out = SimulatedModule(func.name, self.host)
        self.waiting: list[tuple[str, tuple[IRValue, ...]]] = []
        self.sums: frozenset[Buffer] = frozenset()

    # Launches.

    def open_launch(self, nest: LaunchNest) -> None:
        """Begin the function of one thread; ``UnsupportedError`` for what the GPU does not hold."""
        em, func = self.em, self.func
        self._check(nest)
        self.nest, self.waiting, self.sums = nest, [], sums_of(nest.body)
        self.thread = em.function = ThreadFunction(f"{nest.symbol}.thread", self.host, self.meet)
        self.here = Described(nest, self._suspends(nest), shared_bytes(nest.body))
        self.here.check = em.target.check
        self.here.grid = launched(nest, em.target.gpu)
        args = [f"%p{n}" for n in range(len(func.params))]
        em.buffers = {b: IRValue(p, index) for b, p in zip(func.params, args, strict=True)}
        if workspace_bytes(func.body):
            args.append("%workspace")
        self._prologue(args)
        self.arg_of: dict[Buffer, tuple[int, int]] = {b: (n, 0) for n, b in enumerate(func.params)}
        inside = self._in_workspace(nest)
        self.arg_of |= {b: (len(func.params), at) for b, at in inside.items()}

    def _suspends(self, nest: LaunchNest) -> bool:
        return any(_meets(s) for s in walk(nest.body))

    def _check(self, nest: LaunchNest) -> None:
        """``UnsupportedError`` for what the GPU does not hold, or the shadow cannot count."""
        gpu, threads = self.em.target.gpu, prod(nest.block)
        shared = shared_bytes(nest.body)
        for what, count, most in (
            ("threads", threads, gpu.threads_per_block),
            ("bytes of shared memory", shared, gpu.shared_per_block),
        ):
            if count > most:
                place = f"{count} {what} in a block of {nest.symbol}"
                raise UnsupportedError(place, f"{self.em.target.cpu} has at most {most}")
        if threads * prod(nest.grid) >= structs.LANDED and self.em.target.check:
            what = f"{threads * prod(nest.grid)} threads in {nest.symbol}"
            raise UnsupportedError(what, "that is too many to check", hint="target option -check=0")

    def _in_workspace(self, nest: LaunchNest) -> dict[Buffer, int]:
        found: dict[Buffer, int] = {}
        start = 0
        for b in nest.around:
            if b.scope is not Scope.COUNTER:
                found[b], start = start, start + buffer_bytes(b)

        def look(s: Stmt, at: int) -> None:
            if isinstance(s, For) and s.kind is Kind.THREAD:
                return
            if isinstance(s, Alloc) and s.buffer.scope is Scope.GLOBAL:
                found[s.buffer] = at
                at += buffer_bytes(s.buffer)
            for c in children(s):
                look(c, at)

        look(nest.body, start)
        return found

    def _prologue(self, args: list[str]) -> None:
        lines = self.thread.prologue
        if self.here.suspends:
            lines += COROUTINE
        for name in THREADS:
            lines += _field(f"%at.{name}", structs.SIM.offsets[name])
            lines.append(f"  %{name} = load i32, ptr %at.{name}")
        for field in ("args", "shared", "buffers"):
            lines += _field(f"%at.{field}", structs.SIM.offsets[field])
            lines.append(f"  %{field} = load ptr, ptr %at.{field}")
        for n, name in enumerate(args):
            lines.append(f"  %arg.{n} = getelementptr ptr, ptr %args, i64 {n}")
            lines.append(f"  {name} = load ptr, ptr %arg.{n}")
        self.thread.epilogue = end_of_coroutine() if self.here.suspends else RETURN

    def close_launch(self, nest: LaunchNest) -> None:
        """End the function of a thread and describe its launch."""
        self.meet()
        for number in range(len(self.here.buffers)):
            at = f"getelementptr i8, ptr %buffers, i64 {number * structs.RECORD.bytes}"
            self.thread.prologue.append(f"  %record.{number} = {at}")
        kind = "#1" if self.here.suspends else "#0"
        self.em.finished.append(self.thread.text(kind, "internal "))
        self.out.launches.append(self.here)

    def module(self, nests: tuple[LaunchNest, ...]) -> str:
        """Return the module's text: threads, descriptions and the kernel that runs them."""
        pointers = len(self.func.params) + bool(workspace_bytes(self.func.body))
        return self.out.text(self.em.finished, self.em.declarations, pointers)

    # Threads and memory.

    def thread_index(self, name: str) -> IRValue:
        """Return this thread's or block's index, which the thread loads at its start."""
        return IRValue(f"%{name}", s32)

    def shared(self, buffer: Buffer, offset: int) -> IRValue:
        """Return the address of a shared buffer at byte ``offset`` of the block's memory."""
        self.arg_of[buffer] = -1, offset
        return self.em.offset(IRValue("%shared", index), self.em.const(offset, index), "i8")

    def tensor(self, buffer: Buffer) -> IRValue:
        """Return the address of a block's tensor memory, which stands behind the shared memory."""
        offset = self.here.shared_bytes
        self.here.shared_bytes += LANES * _size(buffer)
        return self.shared(buffer, offset)

    def counters(self, buffer: Buffer) -> IRValue:
        """Return how many counters of the launch are before the buffer's."""
        before = self.here.counters
        self.here.counters += buffer.shape[0]
        return IRValue(str(before), index)

    def record(self, buffer: Buffer) -> str:
        """Return the name of a buffer's record."""
        arg, offset = self.arg_of[buffer]
        written = buffer in self.nest.stored or self._may_be_output(buffer)
        return f"%record.{self.here.number(buffer, arg, offset, written)}"

    def _may_be_output(self, buffer: Buffer) -> bool:
        """True if an input may lie where an output is made."""
        outputs = self.func.params[-self.func.outputs :]
        return bool(IN_PLACE.of(self.func)) and any(
            _size(buffer) == _size(out) and out in self.nest.stored for out in outputs
        )

    def access(self, buffer: Buffer, pointer: IRValue, size: int, write: bool, depth: int) -> None:
        """Emit what checks an access: of the shadow, or of the bounds of what is only read."""
        if not self.here.check:
            return
        if buffer in self.sums:
            touch_sums(self, pointer, size, write, depth)
            return
        record = self.record(buffer)
        self.thread.check_alignment = partial(self._align, buffer, record, pointer)
        if buffer.scope is Scope.GLOBAL and not self.here.watched(buffer):
            self._compare(buffer, record, pointer, size, depth)
            return
        self._tell(record, pointer, size, structs.WRITES if write else 0, depth)

    def watches(self, buffer: Buffer) -> bool:
        """True for sums of products, which may be under way."""
        return buffer in self.sums

    def _compare(
        self, buffer: Buffer, record: str, pointer: IRValue, size: int, depth: int
    ) -> None:
        """Compare the bounds of memory that is only read; the runtime is called only to report."""
        t, last = self.thread, _size(buffer) - size
        if last < 0:
            self._tell(record, pointer, size, 0, depth)
            return
        name = self._offset(buffer, pointer, depth)
        t.raw(f"%{name}.odd = icmp ugt i64 %{name}.offset, {last}", depth)
        self._report(name, record, pointer, size, 0, depth)

    def _align(self, buffer: Buffer, record: str, pointer: IRValue, to: int, depth: int) -> None:
        t, name = self.thread, self._offset(buffer, pointer, depth)
        t.raw(f"%{name}.rest = and i64 %{name}.offset, {to - 1}", depth)
        t.raw(f"%{name}.odd = icmp ne i64 %{name}.rest, 0", depth)
        self._report(name, record, pointer, to, structs.ALIGNED, depth)

    def _offset(self, buffer: Buffer, pointer: IRValue, depth: int) -> str:
        """Compute how far an address lies in its buffer; the stem of the value's name."""
        t, name = self.thread, self.thread.name_for("o")
        base = self.em.buffers[buffer].text
        t.raw(f"%{name}.at = ptrtoint ptr {pointer.text} to i64", depth)
        t.raw(f"%{name}.base = ptrtoint ptr {base} to i64", depth)
        t.raw(f"%{name}.offset = sub i64 %{name}.at, %{name}.base", depth)
        return name

    def _report(
        self, name: str, record: str, pointer: IRValue, size: int, how: int, depth: int
    ) -> None:
        """Have an access looked at and reported where ``%name.odd`` holds."""
        t = self.thread
        t.raw(f"br i1 %{name}.odd, label %{name}.bad, label %{name}.ok", depth)
        t.block(f"{name}.bad", depth)
        self._tell(record, pointer, size, how, depth)
        t.raw(f"br label %{name}.ok", depth)
        t.block(f"{name}.ok", depth)

    def _tell(self, record: str, pointer: IRValue, size: int, how: int, depth: int) -> None:
        self.em.declare("nw_sim_access", "i1", ["ptr", "ptr", "i64", "i64"])
        args = f"ptr {record}, ptr {pointer.text}, i64 {size}, i64 {how}"
        self.end_if(f"call i1 @nw_sim_access({args})", depth)

    def end_if(self, call: str, depth: int = -1) -> None:
        """End the thread where a call says that there was a fault."""
        t, name = self.thread, self.thread.name_for("f")
        t.raw(f"%{name} = {call}", depth)
        t.raw(f"br i1 %{name}, label %quit, label %{name}.go", depth)
        t.block(f"{name}.go", depth)

    # Waiting.

    def suspend(self, state: int) -> None:
        """Wait in a state."""
        self.em.declare("nw_sim_wait", "void", ["i32"])
        self.thread.raw(f"call void @nw_sim_wait(i32 {state})")
        self.suspend_here()

    def suspend_here(self) -> None:
        """Wait in the state that this thread is in already."""
        t, name = self.thread, self.thread.name_for("w")
        t.raw(f"%{name} = call i8 @llvm.coro.suspend(token none, i1 false)")
        cases = f"[i8 0, label %{name}.go i8 1, label %gone]"
        t.raw(f"switch i8 %{name}, label %suspended {cases}")
        t.block(f"{name}.go")

    def deposit(self, operands: list[IRValue]) -> None:
        """Leave addresses where whoever does the operation finds them."""
        if not operands:
            return
        t, name = self.thread, self.thread.name_for("d")
        self.em.declare("nw_sim_deposit", "ptr", [])
        self.here.slots = max(self.here.slots, len(operands))
        t.raw(f"%{name} = call ptr @nw_sim_deposit()")
        for n, operand in enumerate(operands):
            t.raw(f"%{name}.{n} = getelementptr ptr, ptr %{name}, i64 {n}")
            t.raw(f"store ptr {operand.text}, ptr %{name}.{n}")

    def meet(self) -> None:
        """Do what warp operations are pending, all at one meeting of the lanes."""
        found, self.waiting = self.waiting, []
        if not found:
            return
        self.deposit([p for _, operands in found for p in operands])
        calls, slot = [], 0
        for name, operands in found:
            calls.append(self._warp_call(name, slot))
            slot += len(operands)
        names = list(dict.fromkeys(name for name, _ in found))
        self.suspend(self.here.site(Site(", ".join(names), structs.WARP, tuple(calls))))

    def _warp_call(self, name: str, slot: int) -> str:
        start = f"getelementptr i8, ptr %slots, i64 {8 * slot}"
        row = TABLE[name].matrix
        if row is not None:
            if product_symbol(name) not in self.out.products:
                self.out.products[product_symbol(name)] = product_text(name, row)
            return f"{start}|void @{product_symbol(name)}(ptr $, i64 %stride)"
        way, words, *turned = name.split(".")
        self.em.declare(f"nw_sim_{way}", "void", ["ptr", "i64", "i64", "i1"])
        flag = str(bool(turned)).lower()
        return f"{start}|void @nw_sim_{way}(ptr $, i64 %stride, i64 {words[1:]}, i1 {flag})"

    # Intrinsics.

    def intrinsic(self, s: Intrinsic) -> None:
        """Emit a lane-level intrinsic."""
        name, row = s.name, TABLE.get(s.name)
        if row is None or row.lane is None:
            raise UnsupportedError(f"intrinsic {name}", "no thread can do it by itself")
        if not row.on(self.em.target.gpu):
            what = f"intrinsic {name} for {self.em.target.cpu}"
            raise UnsupportedError(what, f"it needs sm_{row.sm}")
        if name.startswith(("mma.", *ROWS)):
            self._warp_operation(s)
            return
        self.meet()
        match name:
            case "barrier":
                self._barrier(name, structs.BLOCK)
            case "warp_barrier":
                self._barrier(name, structs.WARP)
            case "arrive":
                self._arrive(s)
            case "launch_wait" | "launch_next":
                pass  # launches run one after the other
            case "cluster_barrier":
                self._barrier(name, structs.CLUSTER)
            case "load_remote":
                load_remote(self, s)
            case "grid_blocks":
                place = self.address(s.writes[0])
                self.em.function.write(f"store i32 {self.here.grid[0]}, ptr {place.text}, align 4")
            case "copy_async" | "copy_async_zfill":
                self._copy(s)
            case "commit_async":
                self.em.declare("nw_sim_commit_async", "void", [])
                self.thread.raw("call void @nw_sim_commit_async()")
            case "wait_async":
                self.em.declare("nw_sim_wait_async", "void", ["i64"])
                self.thread.raw(f"call void @nw_sim_wait_async(i64 {s.args[0]})")
                self.suspend(structs.READY)
            case _:
                self._phases()
                if row.tensor:
                    emit_tensor(self, s)
                elif not emit_asynchronous(self, s):
                    raise UnsupportedError(f"intrinsic {name}", "the simulator does not know it")

    def _phases(self) -> None:
        """Have the runtime of barriers with phases in the module, and this launch use it."""
        if prod(self.nest.cluster) > 1:
            what = f"barriers with phases in the clusters of {self.nest.symbol}"
            raise UnsupportedError(what, "the simulator has them in single blocks only")
        if HOOKS not in self.out.products:
            called = {s.name for s in walk(self.func.body) if isinstance(s, Intrinsic)}
            tensors = any(TABLE[name].tensor for name in called)
            products = tensors or any(name.startswith("wgmma") for name in called)
            checked = self.em.target.check
            self.out.products[HOOKS] = phases_text(self.em, checked, products, tensors)
        self.here.hooks = HOOKS

    def _barrier(self, name: str, scope: int) -> None:
        self.suspend(self.here.site(Site(name, scope + structs.BARRIER)))

    def _arrive(self, s: Intrinsic) -> None:
        counter, (place,) = s.reads[0].buffer, s.reads[0].ranges
        at = self.em.binary("add", self.em.buffers[counter], self.em.value(place.start))
        number = self.em.function.result(f"inttoptr {at} to ptr", index)
        self.deposit([self.address(s.writes[0]), number])
        self.em.declare("nw_sim_arrive", "void", ["ptr", "i64", "i64", "i64"])
        args = f"ptr $, i64 %stride, i64 %count, i64 {s.args[0]}"
        call = f"getelementptr i8, ptr %slots, i64 0|void @nw_sim_arrive({args})"
        self.suspend(self.here.site(Site(s.name, structs.BLOCK + structs.BARRIER, (call,))))

    def _warp_operation(self, s: Intrinsic) -> None:
        if self.nest.threads % WARP:
            raise UnsupportedError(
                f"intrinsic {s.name} in {self.nest.symbol}",
                f"its blocks have {self.nest.threads} threads, not a multiple of {WARP}",
            )
        if len(self.waiting) >= MOST:
            self.meet()
        if s.name.startswith(ROWS):
            words, there = (
                (s.writes[0], s.reads[0]) if s.name[0] == "l" else (s.reads[0], s.writes[0])
            )
            row = self.address(there)
            self._row_access(s, there.buffer, row)
            self.waiting.append((s.name, (self.address(words), row)))
            return
        operands = (s.writes[0], *s.reads)
        self.waiting.append((s.name, tuple(map(self.address, operands))))

    def _row_access(self, s: Intrinsic, buffer: Buffer, row: IRValue) -> None:
        """Told of the lanes whose address counts."""
        if not self.here.check:
            return
        words, size = int(s.name.split(".")[1][1:]), "16"
        t, name = self.thread, self.thread.name_for("l")
        if words < 4:
            x, y = self.nest.block[0], self.nest.block[1]
            t.raw(f"%{name}.zy = mul i32 %threadIdx.z, {y}")
            t.raw(f"%{name}.row = add i32 %{name}.zy, %threadIdx.y")
            t.raw(f"%{name}.first = mul i32 %{name}.row, {x}")
            t.raw(f"%{name}.thread = add i32 %{name}.first, %threadIdx.x")
            t.raw(f"%{name}.lane = and i32 %{name}.thread, {WARP - 1}")
            t.raw(f"%{name}.counts = icmp ult i32 %{name}.lane, {8 * words}")
            size = f"%{name}.size"
            t.raw(f"{size} = select i1 %{name}.counts, i64 16, i64 0")
        self.em.declare("nw_sim_row", "i1", ["ptr", "ptr", "i64", "i64"])
        how = structs.ALIGNED | (0 if s.name[0] == "l" else structs.WRITES)
        operands = f"ptr {self.record(buffer)}, ptr {row.text}, i64 {size}, i64 {how}"
        self.end_if(f"call i1 @nw_sim_row({operands})")

    def address(self, region: Region) -> IRValue:
        """Return the address of a box of a flat buffer."""
        (at,) = region.ranges
        form = self.em.form(at.start)
        assert form is not None
        return self.em.pointer(region.buffer, form)

    def number(self, region: Region, at: int = 0) -> str:
        """Return an element of a box of 32-bit registers, as an i64."""
        start, name = self.address(region), self.thread.name_for("z")
        self.thread.raw(f"%{name}.p = getelementptr i32, ptr {start.text}, i64 {at}")
        self.thread.raw(f"%{name} = load i32, ptr %{name}.p")
        self.thread.raw(f"%{name}.n = sext i32 %{name} to i64")
        return f"%{name}.n"

    def _copy(self, s: Intrinsic) -> None:
        size = s.args[0]
        to, source = s.writes[0], s.reads[0]
        real = str(size)
        if s.name == "copy_async_zfill":
            real = self.number(s.reads[1])
        records = self.record(to.buffer), self.record(source.buffer)
        target, start = self.address(to), self.address(source)
        self.em.declare("nw_sim_copy_async", "i1", ["ptr", "ptr", "ptr", "ptr", "i64", "i64"])
        both = f"ptr {records[0]}, ptr {target.text}, ptr {records[1]}, ptr {start.text}"
        self.end_if(f"call i1 @nw_sim_copy_async({both}, i64 {size}, i64 {real})")

    def all_reduce(self, s: AllReduce) -> None:
        """Emit a reduction across threads: operands are deposited and combined at a site."""
        self.meet()
        check_group(s, self.nest)
        before = self.em.function, self.em.small
        self.em.function, self.em.small = Function("$", "ptr %left, ptr %right", self.host), {}
        combine = self.out.function("combine", combine_text(self.em, s))
        spread = self.out.function("spread", spread_text("$", s))
        self.em.function, self.em.small = before
        self.deposit([self.em.buffers[b] for b in s.values])
        kinds = ["ptr", *["i64"] * 4, "ptr", "ptr"]
        self.em.declare("nw_sim_all_reduce", "void", kinds)
        sizes = f"i64 %stride, i64 %count, i64 {s.threads}, i64 {tree_width(s.threads)}"
        args = f"ptr $, {sizes}, ptr @{combine}, ptr @{spread}"
        call = f"getelementptr i8, ptr %slots, i64 0|void @nw_sim_all_reduce({args})"
        self.suspend(self.here.site(Site("all_reduce", structs.BLOCK, (call,))))


def _size(buffer: Buffer) -> int:
    return prod(buffer.shape) * buffer.dtype.bytes


_ALONE = ("copy_async", "commit_async", "grid_blocks", "load_remote", "launch_")


def _meets(s: Stmt) -> bool:
    """True if a thread suspends at a statement."""
    if isinstance(s, Intrinsic):
        return not s.name.startswith(_ALONE)
    return isinstance(s, AllReduce)


def _field(name: str, offset: int) -> Iterator[str]:
    yield f"  {name} = getelementptr i8, ptr %sim, i64 {offset}"
