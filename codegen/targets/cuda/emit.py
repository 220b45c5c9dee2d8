"""Launches as NVPTX kernels: ``ptx_kernel`` functions of one module, for LLVM's PTX back-end.

Shared memory is one dynamic array for all kernels. A pointer is generic in the text; LLVM finds out
which are global. A buffer that a launch only reads, and that no other overlaps, is read through the
read-only cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ....ir.dtypes import index, s32
from ....ir.loop.nodes import (
    SHARED_ALIGN,
    AllReduce,
    Buffer,
    For,
    Func,
    Intrinsic,
    Kind,
    Scope,
    Stmt,
)
from ....ir.loop.notes import IN_PLACE, MIN_BLOCKS
from ....ir.loop.visit import walk
from ....ir.targets.cuda import LOAD_BITS
from ...emit.expr import Emitter
from ...emit.launches import DeviceEmitter, LaunchNest
from ...emit.llvm.core import Function, IRValue
from ...emit.tensor_maps import COPIES, map_of, tensor_maps
from ...lower.gpu.limits import shared_alignment
from ...lower.passes.workspace import workspace_bytes
from ...plan.code.device import TensorMap
from ...plan.memory import GPU_ALIGNMENT
from . import clusters
from .arrivals import counters_of, emit_arrival
from .assembly import in_space, start_of
from .bulk import emit_bulk_copy
from .lanes import emit_intrinsic
from .reduce import Reducer

PARAM_ALIGN = LOAD_BITS // 8  # bytes: of every buffer of a caller
_DYNAMIC = "@nw_shared = external addrspace(3) global [0 x i8], align {}"
REGISTERS = ("give_registers", "take_registers")
_ASKING = (*REGISTERS, "tensor_alloc")
_REGISTERS = {"threadIdx": "tid", "blockIdx": "ctaid"}


class Nvptx(DeviceEmitter):
    """The device that writes PTX kernels."""

    def __init__(self, em: Emitter, func: Func) -> None:
        self.em, self.func = em, func
        em.nvidia = True
        self.nest: LaunchNest | None = None
        self.reducer: Reducer | None = None
        self.maps: dict[TensorMap, str] = {}
        self.globals: list[str] = []
        self.attributes: list[str] = []
        self.notes: list[str] = []

    def open_launch(self, nest: LaunchNest) -> None:
        """Begin a kernel whose parameters promise what is known of their memory."""
        em, func = self.em, self.func
        self.nest, self.reducer = nest, Reducer(em, nest)
        params = []
        for n, buffer in enumerate(func.params):
            params.append(f"ptr {self._promises(nest, buffer)}align {PARAM_ALIGN} %p{n}")
        if workspace_bytes(func.body):
            params.append(f"ptr {self._work(nest)}align {GPU_ALIGNMENT} %workspace")
        self.maps = {m: f"%map{n}" for n, m in enumerate(tensor_maps(nest.body, func.params))}
        params += [
            f'ptr byval([128 x i8]) align 64 "nvvm.grid_constant" {m}' for m in self.maps.values()
        ]
        em.buffers = {b: IRValue(f"%p{n}", index) for n, b in enumerate(func.params)}
        em.function = Function(nest.symbol, ", ".join(params), em.target)

    def _promises(self, nest: LaunchNest, buffer: Buffer) -> str:
        """Return attributes for what is known of a parameter's memory in this launch."""
        if IN_PLACE.of(self.func) or buffer in nest.exchanged or nest.is_early:
            return ""
        return "noalias " if buffer in nest.stored else "noalias readonly "

    def _work(self, nest: LaunchNest) -> str:
        inside = set(nest.around)
        if inside & nest.exchanged or nest.is_early:
            return ""
        return "noalias " if inside & nest.stored else "noalias readonly "

    def close_launch(self, nest: LaunchNest) -> None:
        """End a kernel; the bounds of its launch become attributes."""
        number = len(self.attributes)
        asked = {"nvvm.reqntid": ",".join(map(str, nest.block))}
        if blocks := _min_blocks(nest.body):
            asked["nvvm.minctasm"] = str(blocks)
        if prod(nest.cluster) > 1:
            asked["nvvm.cluster_dim"] = ",".join(map(str, nest.cluster))
        words = " ".join(f'"{key}"="{value}"' for key, value in asked.items())
        self.attributes.append(f"attributes #{number} = {{ nounwind {words} }}")
        before = len(self.func.params) + bool(workspace_bytes(self.func.body))
        maps = range(before + 1, before + 1 + len(self.maps))  # parameters, from 1 on
        self.notes.append(_annotation(nest, blocks, maps))
        assert self.reducer is not None
        self.globals += self.reducer.globals()
        self.em.finished.append(self.em.function.text(f"#{number}", "ptx_kernel "))

    def module(self, nests: tuple[LaunchNest, ...]) -> str:
        """Return the module's text: globals, kernels, declarations and annotations."""
        em = self.em
        head = f'target triple = "{em.target.triple}"'
        declared = sorted(em.declarations.values())
        numbers = ", ".join(f"!{n}" for n in range(len(self.notes)))
        notes = [f"!nvvm.annotations = !{{{numbers}}}"]
        notes += [f"!{n} = !{{{text}}}" for n, text in enumerate(self.notes)]
        dynamic = _DYNAMIC.format(
            max((shared_alignment(nest.body) for nest in nests), default=SHARED_ALIGN)
        )
        parts = [
            head,
            "",
            dynamic,
            *self.globals,
            "",
            *em.finished,
            *declared,
            "",
            *self.attributes,
            *notes,
        ]
        return "\n".join([*parts, ""])

    def thread_index(self, name: str) -> IRValue:
        """Return this thread's or block's index, read from a special register, as an s32."""
        assert self.nest is not None
        kind, _, axis = name.partition(".")
        extents = self.nest.block if kind == "threadIdx" else self.nest.grid
        call = f"llvm.nvvm.read.ptx.sreg.{_REGISTERS[kind]}.{axis}"
        self.em.declare(call, "i32", [])
        text = f"call range(i32 0, {extents['xyz'.index(axis)]}) i32 @{call}()"
        return self.em.pure(text, s32, 0, 0)

    def shared(self, buffer: Buffer, offset: int) -> IRValue:
        """Return the address of a shared buffer at byte ``offset`` of the block's memory."""
        assert buffer.scope is Scope.SHARED
        place = f"getelementptr (i8, ptr addrspace(3) @nw_shared, i64 {offset})"
        return IRValue(f"addrspacecast (ptr addrspace(3) {place} to ptr)", index)

    def tensor(self, buffer: Buffer) -> IRValue:
        """Return a null pointer: columns are relative to what the allocation returned."""
        return IRValue("null", index)

    def counters(self, buffer: Buffer) -> IRValue:
        """Return the address of a launch's counters, in memory of the module."""
        assert self.nest is not None
        name, definition = counters_of(self.nest, buffer)
        self.globals.append(definition)
        return IRValue(f"addrspacecast (ptr addrspace(1) {name} to ptr)", index)

    def intrinsic(self, s: Intrinsic) -> None:
        """Emit a lane-level intrinsic."""
        assert self.nest is not None
        if s.name == "arrive":
            counter = in_space(self.em, start_of(self.em, s.reads[0]), 1)
            emit_arrival(self.em, self.nest, counter, start_of(self.em, s.writes[0]), s.args[0])
        elif s.name in clusters.NAMES:
            clusters.emit_cluster(self.em, s)
        elif s.name == "grid_blocks":
            self._grid_blocks(start_of(self.em, s.writes[0]))
        elif s.name in COPIES:
            numbers = {b: n for n, b in enumerate(self.func.params)}
            emit_bulk_copy(self.em, s, self.maps[map_of(s, numbers)])
        else:
            emit_intrinsic(self.em, s)

    def _grid_blocks(self, to: IRValue) -> None:
        call = "llvm.nvvm.read.ptx.sreg.nctaid.x"
        self.em.declare(call, "i32", [])
        assert self.nest is not None
        most = (self.nest.grid[0] + 1) % 2**32
        count = self.em.pure(f"call range(i32 1, {most}) i32 @{call}()", s32, 0, 0)
        self.em.function.write(f"store {count}, ptr {to.text}, align 4")

    def all_reduce(self, s: AllReduce) -> None:
        """Emit a reduction across threads."""
        assert self.reducer is not None
        self.reducer.emit(s)

    def access(self, buffer: Buffer, pointer: IRValue, size: int, write: bool, depth: int) -> None:
        """Emit nothing: the hardware checks accesses."""


def _annotation(nest: LaunchNest, blocks: int, maps: Sequence[int]) -> str:
    """Return a launch's bounds as LLVM before 21 reads them, and which parameters are tensor maps.

    LLVM would copy a tensor map that is not marked to the thread's own memory.
    """
    bounds = {f"reqntid{axis}": n for axis, n in zip("xyz", nest.block, strict=True)}
    words = [f'!"{key}", i32 {value}' for key, value in bounds.items()]
    words += [f'!"minctasm", i32 {blocks}'] if blocks else []
    if prod(nest.cluster) > 1:
        pairs = zip("xyz", nest.cluster, strict=True)
        words += [f'!"cluster_dim_{axis}", i32 {n}' for axis, n in pairs]
    if maps:
        words.append(f'!"grid_constant", !{{{", ".join(f"i32 {n}" for n in maps)}}}')
    return ", ".join([f"ptr @{nest.symbol}", *words])


def _min_blocks(s: Stmt) -> int:
    """Return the ``MIN_BLOCKS`` that a launch's thread loops are annotated with, 0 for none.

    It is at least 1 where groups change their number of registers, which needs an initial number,
    and with tensor memory, where ptxas otherwise limits threads to 64 registers and spills.
    """
    found = int(any(isinstance(x, Intrinsic) and x.name in _ASKING for x in walk(s)))
    while isinstance(s, For) and s.kind is Kind.THREAD:
        found = MIN_BLOCKS.of(s) or found
        s = s.body
    return found
