"""One function as a callable on NumPy arrays: for tests, for tuning and for schedules by hand."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...ir.arrays import as_array
from ...ir.dtypes import from_numpy, to_numpy
from ...ir.errors import ArgumentError, TargetError
from ...ir.loop.nodes import Buffer, Func
from ...ir.loop.notes import WORKSPACE_BYTES
from ...ir.target import Target
from ..plan.code import PackCode
from ..plan.compiled import Packer
from ..plan.constants import Bytes
from ..runtime import jit
from ..runtime.process import SHARED, runtime
from ..runtime.sim.process import watching
from ..targets.cpu import toolchain as cpu
from ..targets.registry import backend, lower
from .compile_group import pack_code
from .packing import packers
from .prepack import split_packs

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Compiled:
    """A kernel's object code and what a caller must know of it.

    ``workspace`` bytes of memory are its last argument when that is not 0. ``threads`` run it. The
    inputs that ``packs`` names are taken as the packs make them. ``runtime`` is object code to link
    it with, where it is simulated.
    """

    name: str
    params: tuple[Buffer, ...]
    outputs: int
    workspace: int
    threads: int
    text: str
    code: bytes
    packs: tuple[PackCode, ...] = ()
    runtime: tuple[bytes, ...] = ()


def compile_object(func: Func, target: Target) -> Compiled:
    """Lower and compile a scheduled function. Nothing is loaded or run."""
    main, packs = split_packs(func)
    made = compile_flat(lower(main, target), target)
    return replace(made, params=func.params, packs=tuple(map(pack_code, packs)))


def compile_flat(flat: Func, target: Target) -> Compiled:
    """Compile a function that is lowered already."""
    text = backend(target).emit(flat, target)
    size = WORKSPACE_BYTES.of(flat) or 0
    code = cpu.compile(text, target.host)
    own = backend(target).runtime(target)[SHARED:]
    params, threads = (flat.params, flat.outputs), target.threads
    return Compiled(flat.name, *params, size, threads, text, code, runtime=own)


@dataclass(frozen=True)
class Kernel:
    """A loaded kernel: ``kernel(*inputs)`` gives the output, or a tuple of several."""

    compiled: Compiled
    library: jit.JitLibrary
    entry: Any
    packs: Mapping[int, Packer] = field(default_factory=dict)

    def __call__(self, *inputs: Any) -> Array | tuple[Array, ...]:
        """Run on arrays of the shapes and element types of the function's inputs.

        ``ArgumentError`` for a wrong number, shape or element type. Arrays that are not
        C-contiguous are copied.
        """
        params, outputs = self.compiled.params, self.compiled.outputs
        count = len(params) - outputs
        if len(inputs) != count:
            raise ArgumentError(f"{self.compiled.name} takes {count} arrays, not {len(inputs)}")
        arrays = [_checked(b, x, n) for n, (b, x) in enumerate(zip(params, inputs, strict=False))]
        results = [np.empty(b.shape, to_numpy(b.dtype)) for b in params[count:]]
        self.run([a.ctypes.data for a in (*arrays, *results)])
        return results[0] if outputs == 1 else tuple(results)

    def run(self, pointers: Sequence[int]) -> None:
        """Run on addresses: inputs, then outputs. Their sizes are the caller's business."""
        bound, held = self.bind(pointers)
        work = np.empty(self.compiled.workspace + 64, np.uint8)
        self.execute(bound, (work.ctypes.data + 63) // 64 * 64)
        del held

    def execute(self, bound: Sequence[int], workspace: int) -> None:
        """Run on the addresses that ``bind`` gave, and that of ``compiled.workspace`` bytes."""
        extra = [workspace] if self.compiled.workspace else []
        runtime().set_threads(self.compiled.threads)
        with watching(self.library) if self.compiled.runtime else nullcontext():
            runtime().guarded(self.entry, *bound, *extra)

    def bind(self, pointers: Sequence[int]) -> tuple[tuple[int, ...], list[Bytes]]:
        """The addresses that ``entry`` takes, packed inputs among them, and the memory of those."""
        bound, held = list(pointers), []
        for index, pack in self.packs.items():
            buffer = self.compiled.params[index]
            size = math.prod(buffer.shape) * buffer.dtype.bytes
            source = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(pointers[index]))
            held.append(pack(source))
            bound[index] = held[-1].ctypes.data
        return tuple(bound), held


def _checked(buffer: Buffer, value: Any, number: int) -> Array:
    where = f"argument {number} ({buffer.name})"
    array = as_array(value, where)
    try:
        dtype = from_numpy(array.dtype)
    except KeyError:
        raise ArgumentError(f"{where} has element type {array.dtype}") from None
    if dtype != buffer.dtype:
        raise ArgumentError(f"{where} has element type {dtype}, not {buffer.dtype}")
    if array.shape != buffer.shape:
        raise ArgumentError(f"{where} has shape {array.shape}, not {buffer.shape}")
    return np.ascontiguousarray(array).reshape(array.shape)


def load(compiled: Compiled, symbols: Mapping[str, int] | None = None) -> Kernel:
    """Load a compiled kernel into this process, linked with the runtime or with ``symbols``."""
    library = jit.load([compiled.code, *compiled.runtime], symbols or runtime().addresses)
    count = len(compiled.params) + (1 if compiled.workspace else 0)
    kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * count)
    entry = kind(library.address(compiled.name))
    return Kernel(compiled, library, entry, packers(compiled.packs))


def compile_func(func: Func, target: Target) -> Kernel:
    """Compile and load a scheduled function. ``TargetError`` for a machine that is not this one."""
    if not target.is_host:
        raise TargetError(
            f"code for {target.spec!r} cannot run on this machine",
            hint="compile_object gives its object code",
        )
    return load(compile_object(func, target))
