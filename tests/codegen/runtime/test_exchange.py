"""Arrays of another library that are read by DLPack's C function: no call of Python's own."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nestwright as nw
from nestwright.codegen.runtime.dlpack.elements import CPU, CUDA, code_of, packed
from nestwright.codegen.runtime.dlpack.exchange import (
    ATTRIBUTE,
    Exchange,
    exchange_of,
    has_exchange,
)
from nestwright.codegen.runtime.executable import Executable
from nestwright.ir.arrays import Array
from nestwright.ir.dtypes import BY_NAME, from_numpy, to_numpy
from nestwright.ir.errors import ArgumentError


class DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("dims", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset", ctypes.c_uint64),
    )


class Interface(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32 * 2), ("functions", ctypes.c_void_p * 6))


class Lent:
    """An array of a library that tells its memory in C; it counts what Python asks of it."""

    requires_grad = False

    def __init__(
        self, array: Array, *, device: int = CPU, offset: int = 0, dense: bool = False
    ) -> None:
        self.array, self.device, self.offset, self.dense = array, device, offset, dense
        self.asked, self.filled = 0, 0
        self.negative = False
        self.keep: list[object] = []

    def is_neg(self) -> bool:
        return self.negative

    def resolve_neg(self) -> Lent:
        return Lent(-self.array)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self, **named: Any) -> object:
        self.asked += 1
        if self.requires_grad:
            raise ValueError("its gradient would be lost")
        return self.array.__dlpack__(**named)


def fill(lent: Any, place: Any) -> int:
    if not hasattr(lent, "array"):
        return -1
    array, t = lent.array, place[0]
    lent.filled += 1
    lent.keep = [(ctypes.c_int64 * 8)(*array.shape), (ctypes.c_int64 * 8)()]
    for i, stride in enumerate(array.strides):
        lent.keep[1][i] = stride // array.itemsize
    t.data, t.offset = array.ctypes.data - lent.offset, lent.offset
    t.device_type, t.device_id, t.rank, t.lanes = lent.device, 0, array.ndim, 1
    t.code, t.bits = code_of(from_numpy(array.dtype))
    t.dims = ctypes.cast(lent.keep[0], ctypes.POINTER(ctypes.c_int64))
    t.strides = ctypes.cast(None if lent.dense else lent.keep[1], type(t.dims))
    return 0


_fill = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(DLTensor))(fill)
_interfaces: list[Interface] = []  # a capsule's memory is static, as libraries have it


def capsule(major: int = 1, name: bytes = b"dlpack_exchange_api") -> object:
    address = ctypes.cast(_fill, ctypes.c_void_p).value
    interface = Interface((major, 3), (None, None, None, None, address, None))
    _interfaces.append(interface)
    new = ctypes.pythonapi.PyCapsule_New
    new.restype = ctypes.py_object
    new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return new(ctypes.addressof(interface), name, None)


setattr(Lent, ATTRIBUTE, capsule())

SUM = """HloModule sums
ENTRY e {{
  a = {0} parameter(0)
  b = {0} parameter(1)
  ROOT c = {0} {1}(a, b)
}}
"""


def sums(shape: str = "f32[3,4]", operator: str = "add") -> Executable:
    return nw.build(nw.parse(SUM.format(shape, operator)), target="cpu -threads=1")


def drawn(*dims: int, dtype: str = "float32") -> Array:
    return np.random.default_rng(5).integers(0, 9, dims).astype(dtype)


@pytest.fixture
def exe() -> Executable:
    """An executable that has seen arrays of the type."""
    found = sums()
    found(Lent(drawn(3, 4)), Lent(drawn(3, 4)))
    return found


def test_the_second_call_reads_memory_by_the_c_function(exe: Executable) -> None:
    x, y = Lent(drawn(3, 4)), Lent(2 * drawn(3, 4), offset=64)
    assert (exe(x, y) == 3 * drawn(3, 4)).all()
    assert (x.asked, y.asked, x.filled, y.filled) == (0, 0, 1, 1)
    assert (exe(x, drawn(3, 4)) == 2 * drawn(3, 4)).all()
    assert (exe(drawn(3, 4), y) == 3 * drawn(3, 4)).all()


@pytest.mark.parametrize(
    ("shape", "array"),
    [
        ("f32[]", drawn()),
        ("f32[0,3]", drawn(0, 3)),
        ("f32[1,5,1]", drawn(1, 5, 1)),
        ("f32[5,1]", np.lib.stride_tricks.as_strided(drawn(5), (5, 1), (4, 400))),
        ("s8[7]", drawn(7, dtype="int8")),
        ("u16[7]", drawn(7, dtype="uint16")),
        ("s64[2,3]", drawn(2, 3, dtype="int64")),
        ("f64[2,3]", drawn(2, 3, dtype="float64")),
        ("c64[3]", drawn(3, dtype="complex64")),
        ("bf16[6]", drawn(6, dtype="float32").astype(to_numpy(BY_NAME["bf16"]))),
    ],
    ids=["scalar", "empty", "ones", "padded", "s8", "u16", "s64", "f64", "c64", "bf16"],
)
@pytest.mark.parametrize("dense", [False, True])
def test_types_and_shapes(shape: str, array: Array, dense: bool) -> None:
    exe = sums(shape)
    want = exe(array.copy(), array.copy())
    exe.loaded().entry.read(Exchange(Lent, False))  # type: ignore[attr-defined]
    x, y = Lent(array, dense=dense), Lent(array)
    assert np.array_equal(exe(x, y), want)
    assert x.asked == y.asked == 0
    assert x.filled == y.filled == 1


def test_what_does_not_lie_row_by_row_is_copied(exe: Executable) -> None:
    wide, turned = drawn(3, 8), drawn(4, 3)
    x, y = Lent(wide[:, ::2]), Lent(turned.T)
    assert (exe(x, y) == wide[:, ::2] + turned.T).all()
    assert (x.asked, y.asked) == (1, 1)


def test_a_view_that_is_negated_when_read(exe: Executable) -> None:
    for one in (exe, sums()):
        x = Lent(drawn(3, 4))
        x.negative = True
        assert (one(x, Lent(drawn(3, 4))) == 0).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: setattr(x, "requires_grad", True), "its gradient would be lost"),
        (lambda x: setattr(x, "array", drawn(4, 3)), r"expected f32\[3,4\], got f32\[4,3\]"),
        (lambda x: setattr(x, "array", drawn(12)), r"expected f32\[3,4\], got f32\[12\]"),
        (lambda x: setattr(x, "array", drawn(3, 4, dtype="int32")), r"got s32\[3,4\]"),
        (lambda x: delattr(x, "array"), "does not convert to an array"),
    ],
)
def test_what_is_refused(exe: Executable, change: Callable[[Lent], None], message: str) -> None:
    x = Lent(drawn(3, 4))
    change(x)
    with pytest.raises(ArgumentError, match=message):
        exe(x, Lent(drawn(3, 4)))
    assert (exe(Lent(drawn(3, 4)), Lent(drawn(3, 4))) == 2 * drawn(3, 4)).all()


def test_memory_of_another_device_is_not_read(exe: Executable) -> None:
    x = Lent(drawn(3, 4), device=CUDA)
    assert (exe(x, Lent(drawn(3, 4))) == 2 * drawn(3, 4)).all()
    assert x.asked == 1


def test_a_subclass_is_asked_itself(exe: Executable) -> None:
    class Doubled(Lent):
        def __dlpack__(self, **named: Any) -> object:
            return (2 * self.array).__dlpack__(**named)

    assert (exe(Doubled(drawn(3, 4)), Lent(drawn(3, 4))) == 3 * drawn(3, 4)).all()


def test_interfaces_that_are_not_known() -> None:
    class Newer:
        __dlpack_c_exchange_api__ = capsule(major=2)

    class Other:
        __dlpack_c_exchange_api__ = capsule(name=b"other")

    class Text:
        __dlpack_c_exchange_api__ = "dlpack_exchange_api"

    assert not any(map(has_exchange, (Newer, Other, Text, np.ndarray, int)))
    assert exchange_of(Newer) is None
    with pytest.raises(TypeError, match="Text has no __dlpack_c_exchange_api__ of version 1"):
        Exchange(Text, False)


def test_results_in_the_librarys_own_arrays(exe: Executable) -> None:
    exchange = Exchange(Lent, derived=True)
    strange: list[tuple[Any, ...]] = []

    def made(dims: Any, _: Any) -> Lent:
        return Lent(np.empty(dims, np.float32))

    def slow(*args: Any) -> str:
        strange.append(args)
        return "slow"

    loaded: Any = exe.loaded()
    call = loaded.tensor_call(exchange, [(made, (3, 4), None)], slow)
    (found,) = call(Lent(drawn(3, 4)), Lent(drawn(3, 4)))
    assert type(found) is Lent
    assert (found.array == 2 * drawn(3, 4)).all()
    assert call(Lent(drawn(3, 4)), Lent(drawn(4, 3).T)) == "slow"
    assert len(strange) == 1


def test_element_types_as_numbers() -> None:
    assert packed(BY_NAME["f32"]) == 2 | 32 << 8 | 1 << 16
    assert packed(BY_NAME["s4"]) == 0
