"""The way from a Python call into native code: the table that the one C function for all reads.

``nw_call`` (its code is in ``entry_ir``) is a METH_FASTCALL function. What it calls for is in a
table of words (``Entry`` builds it): the parameters' shapes and element formats, the function to
run, the arena. It takes every argument but masked arrays through the buffer protocol and checks
rank, dimensions, item size, format and contiguity; allocates the results; releases the GIL while
the program runs, if the program is long enough for that to pay; and returns one array or a tuple.
Whatever does not fit (another kind of argument, a keyword, a wrong shape) goes to the Python
function ``slow``, which converts or raises.

The arena is kept between calls. A call takes it out of its slot; one that finds the slot empty,
because another thread is inside, makes an arena of its own.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from ...ir.dtypes import to_numpy
from ..signature import ArraySpec

MAX_PARAMETERS = 4096  # their Py_buffer views stand on the C stack, 80 bytes each

# The formats that the buffer protocol gives for an element type, beside an optional prefix.
_FORMATS = {
    "pred": "??", "s8": "bb", "u8": "BB", "s16": "hh", "u16": "HH", "s32": "il", "u32": "IL",
    "s64": "lq", "u64": "LQ", "f16": "ee", "f32": "ff", "f64": "dd", "c64": "ZZf", "c128": "ZZd",
}  # fmt: skip


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
    """A method definition. It is kept: CPython reads it as long as any function made from it lives,
    and gives no notice of the end."""
    return _MethodDef(name.encode(), call, _METH_FASTCALL_KEYWORDS, None)


_RELEASE_GIL, _AS_TUPLE = 1, 2


@dataclass(frozen=True, eq=False)
class Entry:
    """The words that ``nw_call`` and ``nw_run`` work by; keeps alive all they point to.

    ``run`` is the address of ``i32 (ptr params, ptr results, ptr arena, ptr constants)``, which
    returns 0, or 2 where a library call failed: ``failure()`` then raises what that raised.
    ``allocators[i](shape, dtype)`` makes result i. ``slow`` gets the calls that do not fit.
    ``threads`` is how many threads the pool uses during a run.
    """

    params: tuple[ArraySpec, ...]
    results: tuple[ArraySpec, ...]
    run: int
    arena_bytes: int
    constants: int
    allocators: Sequence[Callable[..., Any]]
    slow: Callable[..., Any]
    failure: Callable[[], None]
    threads: int
    release_gil: bool = True
    as_tuple: bool = False
    words: np.ndarray[Any, np.dtype[np.int64]] = field(init=False)
    _keep: list[object] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        flags = _RELEASE_GIL * self.release_gil | _AS_TUPLE * self.as_tuple
        words = [
            len(self.params),
            self._table([w for p in self.params for w in self._parameter(p)]),
            len(self.results),
            self._table([w for i in range(len(self.results)) for w in self._result(i)]),
            self.run,
            self.arena_bytes,
            0,  # the arena's slot
            self.constants,
            self._object(self.slow),
            self._object("dtype"),
            flags,
            self.threads,
            self._object(self.failure),
            object.__basicsize__ - 8,  # where an object's type stands: last in CPython's head
            self._object(np.ndarray),
            self._object(np.ma.MaskedArray),
        ]
        object.__setattr__(self, "words", np.array(words, np.int64))

    @property
    def address(self) -> int:
        """Where the words stand."""
        return int(self.words.ctypes.data)

    def _object(self, value: object) -> int:
        self._keep.append(value)
        return id(value)

    def _table(self, words: list[int]) -> int:
        table = np.array(words or [0], np.int64)
        self._keep.append(table)
        return int(table.ctypes.data)

    def _parameter(self, spec: ArraySpec) -> tuple[int, ...]:
        """Rank, item size, format characters, exact ``dtype`` object (or null), dimensions."""
        formats = _FORMATS.get(spec.dtype.name)
        exact = 0 if formats else self._object(to_numpy(spec.dtype))
        code = int.from_bytes((formats or "").encode(), "little")
        return len(spec.dims), spec.dtype.bytes, code, exact, self._table(list(spec.dims))

    def _result(self, i: int) -> tuple[int, ...]:
        spec = self.results[i]
        shape, dtype = self._object(spec.dims), self._object(to_numpy(spec.dtype))
        return self._object(self.allocators[i]), shape, dtype

    def callable(self, name: str, call: int, library: object) -> Callable[..., Any]:
        """A built-in function over ``nw_call``, at address ``call``. It keeps ``library`` alive."""
        return builtin(name, call, (self.address, self, library))


def builtin(name: str, address: int, owner: object) -> Callable[..., Any]:
    """A built-in function over a METH_FASTCALL one in native code, which gets ``owner`` as self."""
    new = ctypes.pythonapi.PyCFunction_NewEx
    new.restype = ctypes.py_object
    new.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
    made: Callable[..., Any] = new(ctypes.addressof(_method(name, address)), owner, None)
    return made
