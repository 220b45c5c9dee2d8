"""The path from a Python call into native code: the table that the one C entry function reads.

``nw_call`` (in ``targets.cpu.calls``) is a METH_FASTCALL function. Its executable is described
by a structure (``structs.ENTRY``; ``Entry`` fills it): the parameters' shapes and element formats,
the function to run, the arena. It takes every argument but arrays of derived classes through the
buffer protocol, and arrays of one other type by DLPack (``dlpack.exchange``), and checks rank,
dimensions, item size, format and contiguity; allocates the results, or takes NumPy's arrays of
``out=`` for them; releases the GIL while the program runs, if the program is long enough for that
to pay; and returns one array or a tuple. Anything else (another kind of argument or keyword, a
wrong shape, an ``out=`` that overlaps an argument) goes to the Python function ``slow``, which
converts or raises: a masked array is such.

The arena is kept between calls. A call takes it out of its slot; one that finds the slot empty,
because another thread is inside, makes an arena of its own.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ...ir.dtypes import to_numpy
from ...ir.lazy import LazyModule
from ..plan.signature import ArraySpec
from ..plan.updates import Updates
from .structs import AS_TUPLE, ENTRY, PARAMETER, RELEASE_GIL, RESULT

if TYPE_CHECKING:
    from .dlpack.exchange import Exchange

_ELEMENTS = LazyModule(".dlpack.elements", __package__)
MAX_PARAMETERS = 4096  # their Py_buffer views are on the C stack, 80 bytes each

# The formats that the buffer protocol gives for an element type, beside an optional prefix.
_FORMATS = {
    "pred": "??",
    "s8": "bb",
    "u8": "BB",
    "s16": "hh",
    "u16": "HH",
    "s32": "il",
    "u32": "IL",
    "s64": "lq",
    "u64": "LQ",
    "f16": "ee",
    "f32": "ff",
    "f64": "dd",
    "c64": "ZZf",
    "c128": "ZZd",
}


class _MethodDef(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


_METH_FASTCALL_KEYWORDS = 0x80 | 0x02


@cache
def _method(name: str, call: int) -> _MethodDef:
    """Return a method definition.

    It is cached for good: CPython reads it as long as any function made from it lives, and gives no
    notice of the end.
    """
    return _MethodDef(name.encode(), call, _METH_FASTCALL_KEYWORDS, None)


Maker: TypeAlias = tuple[Callable[[Any, Any], object], object, object]
"""A function that makes an array, and its arguments: for NumPy's, a shape and an element type."""


class Entry:
    """The structure in memory that ``nw_call`` and ``nw_run`` read, and everything that it points
    to.

    ``run`` is the address of ``i32 (ptr params, ptr results, ptr arena, ptr constants)``, which
    returns 0, or 2 where a library call failed: ``failure()`` then raises its exception.
    ``makers[i]`` makes result i, which ``results[i]`` describes; ``updated`` has the arguments that
    results may overwrite. ``slow`` gets the calls that do
    not fit. ``threads`` is the number of threads that the pool uses during a run.
    """

    def __init__(
        self,
        params: Sequence[ArraySpec],
        results: Sequence[ArraySpec],
        makers: Sequence[Maker],
        *,
        updated: Updates,
        run: int,
        arena_bytes: int,
        constants: int,
        slow: Callable[..., Any],
        failure: Callable[[], None],
        threads: int,
        release_gil: bool,
        as_tuple: bool,
    ) -> None:
        """Fill the structure."""
        self._keep: list[object] = []
        self._dtypes = [s.dtype for s in (*params, *results)]
        updates = {result: param for param, result in updated}
        rows = [self._parameter(p, -1) for p in params]
        rows += [self._parameter(r, updates.get(n, -1)) for n, r in enumerate(results)]
        self._parameters = PARAMETER.table(rows)
        made = RESULT.table([self._result(*maker) for maker in makers])
        values = {
            "parameters_count": len(params),
            "parameters": self._kept(self._parameters),
            "results_count": len(makers),
            "results": self._kept(made),
            "run": run,
            "arena_bytes": arena_bytes,
            "arena": 0,
            "constants": constants,
            "slow": self._object(slow),
            "dtype_name": self._object("dtype"),
            "out_name": self._object(sys.intern("out")),
            "flags": RELEASE_GIL * release_gil | AS_TUPLE * as_tuple,
            "threads": threads,
            "failure": self._object(failure),
            "type_offset": object.__basicsize__ - 8,  # an object's type is last in CPython's head
            "ndarray": self._object(np.ndarray),
            "exchange": 0,
        }
        self.table = ENTRY.table([values])

    @property
    def address(self) -> int:
        """The address of the structure."""
        return int(self.table.ctypes.data)

    @property
    def reads(self) -> bool:
        """True if it reads arrays of another type by DLPack."""
        return bool(self.table["exchange"][0])

    def read(self, exchange: Exchange) -> None:
        """Read arrays of another type from now on, by DLPack's C function."""
        self._keep.append(exchange)
        self._parameters["dlpack"] = [_ELEMENTS.packed(d) for d in self._dtypes]
        self.table["exchange"] = exchange.address

    def _object(self, value: object) -> int:
        self._keep.append(value)
        return id(value)

    def _kept(self, array: np.ndarray[Any, Any]) -> int:
        self._keep.append(array)
        return int(array.ctypes.data)

    def _parameter(self, spec: ArraySpec, updates: int) -> dict[str, Any]:
        formats = _FORMATS.get(spec.dtype.name)
        return {
            "rank": len(spec.dims),
            "itemsize": spec.dtype.bytes,
            "bytes": spec.bytes,
            "updates": updates,
            "code": int.from_bytes((formats or "").encode(), "little"),
            "dlpack": 0,
            "dtype": 0 if formats else self._object(to_numpy(spec.dtype)),
            "dims": self._kept(np.array(spec.dims, np.int64)),
        }

    def _result(
        self, allocator: Callable[..., Any], first: object, second: object
    ) -> dict[str, Any]:
        arguments = self._object(first), self._object(second)
        return {"allocator": self._object(allocator), "arguments": arguments}

    def callable(self, name: str, call: int, library: object) -> Callable[..., Any]:
        """Return a built-in function over ``nw_call``, at address ``call``, which keeps ``library``
        alive.
        """
        return builtin(name, call, (self.address, self, library))


def builtin(name: str, address: int, owner: object) -> Callable[..., Any]:
    """Return a built-in function over a native METH_FASTCALL one, which gets ``owner`` as self."""
    new = ctypes.pythonapi.PyCFunction_NewEx
    new.restype = ctypes.py_object
    new.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
    made: Callable[..., Any] = new(ctypes.addressof(_method(name, address)), owner, None)
    return made
