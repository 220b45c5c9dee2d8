"""One function as a callable on a GPU: for tests, for tuning and for schedules by hand.

It is a program of one kernel: it takes what an executable on that GPU takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ...ir.dtypes import u8
from ...ir.errors import TargetError
from ...ir.loop.nodes import Buffer, Func
from ...ir.target import Target
from ..plan.bundle import Bundle
from ..plan.code import DeviceCode, PackCode
from ..plan.compiled import Packer
from ..plan.nodes import BufferSlice, KernelThunk, Plan
from ..plan.signature import ArraySpec
from ..runtime.cuda.program import DeviceProgram, load
from ..targets.registry import backend, lower
from .compile_group import pack_code, workspace_bytes
from .packing import packers
from .prepack import split_packs


@dataclass(frozen=True)
class CompiledDevice:
    """A function's code for a GPU and what a caller must know of it.

    The inputs that ``packs`` names are taken as the packs make them.
    """

    name: str
    target: Target
    params: tuple[Buffer, ...]
    outputs: int
    workspace: int
    code: DeviceCode
    packs: tuple[PackCode, ...] = ()

    @property
    def bundle(self) -> Bundle:
        """The same as a bundle of one kernel."""
        specs = [ArraySpec(b.name, b.dtype, tuple(b.shape)) for b in self.params]
        for pack in self.packs:
            specs[pack.index] = ArraySpec(specs[pack.index].name, u8, (pack.size,))
        count = len(specs) - self.outputs
        inputs = tuple(BufferSlice("param", 0, s.bytes, i) for i, s in enumerate(specs[:count]))
        outputs = tuple(BufferSlice("result", 0, s.bytes, i) for i, s in enumerate(specs[count:]))
        work = (BufferSlice("arena", 0, self.workspace),) if self.workspace else ()
        thunk = KernelThunk(
            self.name, (*inputs, *outputs, *work), len(outputs) + len(work), name=self.name
        )
        plan = Plan(
            thunks=(thunk,),
            arena_bytes=self.workspace,
            constant_bytes=0,
            params=tuple(specs[:count]),
            results=tuple(specs[count:]),
            param_tree=tuple(range(count)),
            result_tree=0 if self.outputs == 1 else tuple(range(self.outputs)),
        )
        nothing = np.zeros(0, np.uint8)
        sizes = tuple(s.bytes for s in thunk.args)
        kernels, buffers = {self.name: self.code}, {self.name: sizes}
        return Bundle(self.name, self.target, plan, kernels, buffers, b"", (), nothing)


def compile_device(
    func: Func, target: Target, timings: dict[str, float] | None = None
) -> CompiledDevice:
    """Lower and compile a scheduled function. No GPU is needed."""
    if target.kind != "cuda":
        raise TargetError(f"target {target.spec!r} is no GPU", hint='for example "cuda"')
    main, packs = split_packs(func)
    flat = lower(main, target)
    code = backend(target).compile(flat, target, {} if timings is None else timings)
    assert isinstance(code, DeviceCode)
    made = tuple(map(pack_code, packs))
    return CompiledDevice(
        func.name, target, func.params, func.outputs, workspace_bytes(flat), code, made
    )


@dataclass(frozen=True)
class DeviceKernel:
    """A function on a GPU: ``kernel(*inputs)`` gives the output, or a tuple of several.

    What kinds of arrays it takes and gives, ``runtime.cuda.program`` says. It is loaded when it is
    first called: ``TargetError`` where there is no GPU then.
    """

    compiled: CompiledDevice

    def __call__(self, *inputs: Any, out: object = None) -> Any:
        """Run. ``ArgumentError`` for a wrong number, shape or element type."""
        return self.program.run(self._packed(inputs), out)

    @cached_property
    def program(self) -> DeviceProgram:
        """The kernel on this machine's GPU."""
        return load(self.compiled.bundle)

    def _packed(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """The inputs, those that packs make made."""
        made = list(inputs)
        for index, pack in self._packers.items():
            if index < len(inputs):
                made[index] = pack(np.ascontiguousarray(inputs[index]))
        return tuple(made)

    @cached_property
    def _packers(self) -> Mapping[int, Packer]:
        return packers(self.compiled.packs)
