"""Functions on their own, loaded on this processor: kernels that are measured or tested."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self, TypeAlias

import numpy as np

from ...ir.arrays import ALIGNMENT, Array, Bytes
from ...ir.dtypes import to_numpy
from ..plan.function import CompiledFunc
from . import jit
from .arguments import check_outputs, convert_all
from .converted import into
from .packing import LoadedPack, packers
from .process import runtime

Layout: TypeAlias = tuple[tuple[int, ...], np.dtype[Any]]


@dataclass(frozen=True)
class NativeFunc:
    """A function on its own, loaded. ``entry`` takes the addresses of its arguments.

    ``packs`` make the inputs that the code takes in a layout of its own.
    """

    compiled: CompiledFunc
    library: jit.JitLibrary
    entry: Any
    packs: Mapping[int, LoadedPack] = field(default_factory=dict)

    @classmethod
    def load(cls, compiled: CompiledFunc, symbols: Mapping[str, int] | None = None) -> Self:
        """Load a function, linked with the process's runtime or with ``symbols`` instead."""
        assert isinstance(compiled.code, bytes)
        library = jit.load([compiled.code, *compiled.runtime], symbols or runtime().addresses)
        count = len(compiled.params) + (1 if compiled.workspace else 0)
        kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * count)
        return cls(compiled, library, kind(library.address(compiled.name)), packers(compiled.packs))

    @cached_property
    def _layouts(self) -> tuple[Layout, ...]:
        """Shape and element type of every parameter."""
        return tuple((spec.dims, to_numpy(spec.dtype)) for spec in self.compiled.params)

    def run(self, args: Sequence[object], out: object) -> Any:
        """Run the function; the results go to ``out`` unless it is None."""
        c = self.compiled
        count = len(c.params) - c.outputs
        arrays = _as_they_are(args, self._layouts[:count])
        if arrays is None:
            arrays = convert_all(args, c.inputs, tuple(range(count)), c.name)
        if out is None:
            results = [np.empty(*layout) for layout in self._layouts[count:]]
            self.run_arrays(arrays, results)
            return results[0] if c.outputs == 1 else tuple(results)
        targets = check_outputs(out, c.results, c.result_tree, c.name)
        into(targets, c.results, arrays, self.run_arrays)
        return out

    def run_arrays(self, arrays: Sequence[Array], results: Sequence[Array]) -> None:
        """Run on C-contiguous arrays that are known to fit the inputs and the results."""
        self.run_at([a.ctypes.data for a in (*arrays, *results)])

    def run_at(self, pointers: Sequence[int]) -> None:
        """Run on addresses: inputs, then outputs. The caller guarantees their sizes."""
        bound, held = self.bind(pointers)
        work = np.empty(self.compiled.workspace + ALIGNMENT, np.uint8)
        self.execute(bound, -(-work.ctypes.data // ALIGNMENT) * ALIGNMENT)
        del held

    def execute(self, bound: Sequence[int], workspace: int) -> None:
        """Run on the addresses from ``bind``, and that of ``compiled.workspace`` bytes."""
        extra = [workspace] if self.compiled.workspace else []
        runtime().set_threads(self.compiled.target.threads)
        runtime().guarded(self.entry, *bound, *extra)

    def bind(self, pointers: Sequence[int]) -> tuple[tuple[int, ...], list[Bytes]]:
        """Return the addresses that ``entry`` takes for these, and the memory of packed inputs."""
        bound, held = list(pointers), []
        for index, pack in self.packs.items():
            size = self.compiled.params[index].bytes
            source = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(pointers[index]))
            held.append(pack.pack(source))
            bound[index] = held[-1].ctypes.data
        return tuple(bound), held


def _as_they_are(args: Sequence[object], layouts: Sequence[Layout]) -> list[Array] | None:
    """Return the arguments if each is an array that needs no conversion, else None."""
    found = [
        x
        for x, (shape, dtype) in zip(args, layouts, strict=False)
        if type(x) is np.ndarray and x.dtype == dtype and x.shape == shape and x.flags.c_contiguous
    ]
    return found if len(found) == len(args) == len(layouts) else None
