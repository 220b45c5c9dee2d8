"""Arrays on a GPU: our own, and those of other libraries, taken without a copy."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ....ir.arrays import Array
from ....ir.dtypes import from_numpy, to_numpy
from ....ir.errors import ArgumentError, NestwrightError
from ...plan.signature import ArraySpec
from ..arguments import as_seen
from ..dlpack import capsules, elements
from .device import Device
from .memory import DeviceMemory
from .staging import Staging
from .strided import gather

ALIGNMENT = 16  # bytes that kernels rely on


class DeviceArray:
    """An array on a GPU, laid out as its spec says; ``numpy()`` copies it to the host.

    Other libraries take it without a copy, through DLPack (``torch.from_dlpack``) or
    ``__cuda_array_interface__``. Work on it is ordered after the work that made it, without
    waiting.
    """

    def __init__(
        self,
        device: Device,
        memory: DeviceMemory,
        spec: ArraySpec,
        staging: Staging,
    ) -> None:
        self.device = device
        self.memory = memory
        self.spec = spec
        self.element = spec.dtype
        self.shape = spec.dims
        self._staging = staging

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type as NumPy (or ml_dtypes) names it."""
        return to_numpy(self.element)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The size in bytes."""
        return self.size * self.element.bytes

    @property
    def address(self) -> int:
        """Its address on the device."""
        return self.memory.address

    def fits(self, spec: ArraySpec, device: Device) -> bool:
        """True if an executable on that device takes it as this argument without a conversion."""
        same = self.element is spec.dtype or self.element == spec.dtype
        lies = self.spec.order == spec.order and self.shape == spec.dims
        return same and lies and self.device is device

    @property
    def strides(self) -> tuple[int, ...] | None:
        """In elements; None if row-major."""
        if not self.spec.order:
            return None
        dense = _dense(self.spec.stored)
        return tuple(dense[self.spec.order.index(d)] for d in range(self.ndim))

    def numpy(self) -> Array:
        """Copy it to a NumPy array."""
        made = np.empty(self.spec.stored, self.dtype)
        with self.device.during(f"{self!r} cannot be copied to the host"):
            self._staging.download(self.address, made)
        return as_seen(made, self.spec)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError("an array on a GPU cannot become a NumPy array without a copy")
        made = self.numpy()
        return made if dtype is None else made.astype(dtype, copy=False)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.dtype.isbuiltin != 1:  # a type of ml_dtypes: NumPy has no name that says which
            other = "; DLPack does" if self.element.bits >= 8 else ""
            raise AttributeError(f"__cuda_array_interface__ has no {self.element}{other}")
        steps = self.strides
        self.memory.lend()
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.address, False),
            "strides": steps and tuple(s * self.element.bytes for s in steps),
            "version": 3,
            "stream": int(self.device.stream),
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return elements.CUDA, self.device.ordinal

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """Return a capsule for ``stream``, which will wait for the work that makes this array.

        The capsule is versioned if ``max_version`` allows it. ``BufferError`` where the request
        cannot be met: for another GPU, or for the host without a copy.
        """
        versioned = max_version is not None and max_version[0] >= capsules.VERSION[0]
        here = self.__dlpack_device__()
        where = here if dl_device is None else (int(dl_device[0]), int(dl_device[1]))
        if where[0] == elements.CPU:
            return self._on_host(versioned, copy)
        if where != here:
            raise BufferError(f"the array is on device {here}, not on {where}")
        array = self._copy() if copy else self
        array.memory.lend()
        if stream is not None and stream != -1:
            with self.device.during("no stream can be made to wait for an array"):
                self.device.lead(stream)
        return capsules.capsule(
            array.address,
            self.element,
            self.shape,
            here[1],
            array,
            array.strides,
            versioned=versioned,
            copied=array is not self,
        )

    def _on_host(self, versioned: bool, copy: bool | None) -> object:
        """Return a capsule over a copy in the host's memory."""
        if copy is False:
            raise BufferError("an array on a GPU cannot be on the host without a copy")
        made = self.numpy()
        steps = tuple(s // max(1, made.itemsize) for s in made.strides)
        return capsules.capsule(
            made.ctypes.data,
            self.element,
            self.shape,
            0,
            made,
            steps,
            kind=elements.CPU,
            versioned=versioned,
            copied=True,
        )

    def _copy(self) -> DeviceArray:
        """Copy it to other memory of the device."""
        device = self.device
        with device.during(f"{self!r} cannot be copied"):
            made = device.allocate(self.nbytes, "a copy")
            if self.nbytes:
                device.driver.call(
                    "cuMemcpyDtoDAsync", made.address, self.address, self.nbytes, device.stream
                )
        return DeviceArray(device, made, self.spec, self._staging)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array of rank 0 has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        dims = ",".join(map(str, self.shape))
        return f"<DeviceArray {self.element}[{dims}] on {self.device.name}>"


class Placed(NamedTuple):
    """An argument on the device: its address, and the object that keeps it alive.

    ``foreign`` is what another library may reuse as soon as it is released; ``copied`` is true if
    the array itself was not usable, ``read_only`` if its owner forbids writing.
    """

    address: int
    owner: object
    foreign: object = None
    copied: bool = False
    read_only: bool = False


def is_on_gpu(value: object) -> bool:
    """True if this is an array in a GPU's memory."""
    if type(value) is DeviceArray:
        return True
    if isinstance(value, np.ndarray | np.generic | int | float | complex | list | tuple):
        return False
    where = getattr(value, "__dlpack_device__", None)
    if where is not None:
        return where()[0] in (elements.CUDA, elements.CUDA_MANAGED)
    return hasattr(value, "__cuda_array_interface__")


def take(value: Any, spec: ArraySpec, what: str, where: str, device: Device) -> Placed:
    """Return an array in a GPU's memory as a kernel takes it: dense in its order and aligned, else
    a copy.

    ``ArgumentError`` for another element type, another shape or another device.
    """
    found = _found(value, what, where, device)
    if found.dtype != spec.dtype or found.shape != spec.dims:
        name = found.dtype.name if found.dtype is not None else "unknown type"
        got = f"{name}[{','.join(map(str, found.shape))}]"
        raise ArgumentError(what, f"expected {spec}, got {got}", where)
    foreign = None if isinstance(value, DeviceArray) else found.owner
    strides = found.strides if found.strides is not None else _dense(found.shape)
    strides = tuple(strides[d] for d in spec.order or range(len(strides)))
    if found.address % ALIGNMENT == 0 and _is_dense(spec.stored, strides):
        return Placed(found.address, found.owner, foreign, read_only=found.read_only)
    copy = device.allocate(spec.bytes, what)
    gather(device, copy.address, found.address, spec.dtype.bytes, spec.stored, strides)
    return Placed(copy.address, copy, foreign, copied=True, read_only=found.read_only)


def _found(value: Any, what: str, where: str, device: Device) -> capsules.Found:
    if isinstance(value, DeviceArray):
        _same_device(value.device.ordinal, what, where, device)
        return capsules.Found(value.address, value.element, value.shape, value.strides, value)
    try:
        if hasattr(value, "__dlpack_device__"):
            _same_device(value.__dlpack_device__()[1], what, where, device)
            return capsules.read(_capsule(value, int(device.stream)))
        return _by_interface(value, value.__cuda_array_interface__, device)
    except NestwrightError:
        raise
    except Exception as error:  # the interfaces are other people's code
        why = (
            f"{type(value).__name__} does not convert to an array: {type(error).__name__}: {error}"
        )
        raise ArgumentError(what, why, where) from error


def _capsule(value: Any, stream: int) -> object:
    """Return a versioned capsule where the owner supports it, else an unversioned one."""
    try:
        return value.__dlpack__(stream=stream, max_version=capsules.VERSION)
    except TypeError:  # it is older than versions are
        return value.__dlpack__(stream=stream)


def _same_device(ordinal: int, what: str, where: str, device: Device) -> None:
    if ordinal != device.ordinal:
        why = f"it is on GPU {ordinal}, and the executable runs on GPU {device.ordinal}"
        raise ArgumentError(what, why, where)


def _by_interface(value: object, facts: dict[str, Any], device: Device) -> capsules.Found:
    dtype = np.dtype(facts["typestr"])
    if facts.get("stream") is not None:
        device.follow(int(facts["stream"]))
    strides = facts.get("strides")
    if strides is not None:
        if any(s % dtype.itemsize for s in strides):
            raise ValueError("its strides are not multiples of the element size")
        strides = tuple(s // dtype.itemsize for s in strides)
    shape = tuple(map(int, facts["shape"]))
    address, read_only = facts["data"]
    return capsules.Found(int(address), from_numpy(dtype), shape, strides, value, bool(read_only))


def _dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


def _is_dense(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    if 0 in shape:
        return True
    pairs = zip(shape, strides, _dense(shape), strict=True)
    return all(extent == 1 or stride == dense for extent, stride, dense in pairs)
