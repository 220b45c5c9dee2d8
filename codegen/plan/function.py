"""A compiled function on its own: its code, and the interface that a caller needs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...ir.dtypes import u8
from ...ir.target import Target
from .bundle import Bundle
from .code.form import Code
from .code.kernel import PackCode
from .nodes import BufferSlice, KernelThunk, Plan
from .signature import ArraySpec, Tree


@dataclass(frozen=True)
class CompiledFunc:
    """A function's code for a target and its interface.

    The last ``outputs`` of ``params`` are its results. If ``workspace`` is not 0, the code's last
    argument is memory of that many bytes. Inputs listed in ``packs`` are passed as the packs make
    them. ``runtime`` is object code to link it with, if it is simulated.
    """

    name: str
    target: Target
    params: tuple[ArraySpec, ...]
    outputs: int
    code: Code
    workspace: int = 0
    packs: tuple[PackCode, ...] = ()
    runtime: tuple[bytes, ...] = ()

    @property
    def inputs(self) -> tuple[ArraySpec, ...]:
        """The parameters that a caller passes."""
        return self.params[: len(self.params) - self.outputs]

    @property
    def results(self) -> tuple[ArraySpec, ...]:
        """The parameters that the function writes."""
        return self.params[len(self.params) - self.outputs :]

    @property
    def result_tree(self) -> Tree:
        """The structure of a call's result: one array, or a tuple of several."""
        return 0 if self.outputs == 1 else tuple(range(self.outputs))

    @property
    def bundle(self) -> Bundle:
        """The function as a model of one kernel, whose inputs are those that the packs make."""
        specs = list(self.params)
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
            result_tree=self.result_tree,
        )
        sizes = tuple(s.bytes for s in thunk.args)
        kernels, buffers = {self.name: self.code}, {self.name: sizes}
        nothing = np.zeros(0, np.uint8)
        return Bundle(self.name, self.target, plan, kernels, buffers, b"", (), nothing)
