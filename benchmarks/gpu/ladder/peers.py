"""Libraries that arrays are exchanged with: torch, cupy or jax where they are, else our hands.

All that a peer does goes to a stream of its own, beside the default one.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Protocol

import numpy as np

from .rung import Array

NAPS = 8  # pieces of work that keep a stream busy for about half a millisecond together
NAP_BYTES = 1 << 28
RING = 8  # arrays of each size that our hands have


class Peer(Protocol):
    """A library with arrays on the GPU; used within ``side()``."""

    name: str
    views: bool  # whether it has strided ones

    def side(self) -> Any:
        """Return a context in which the library works on its own stream."""

    def put(self, values: Array) -> Any:
        """These values on the GPU."""

    def view(self, array: Any, index: Callable[[Any], Any]) -> Any:
        """Return a strided view, by what makes it of a NumPy array too."""

    def take(self, ours: Any) -> Any:
        """Return an array of ours, through DLPack."""

    def busy(self) -> None:
        """Give the stream something to do before what comes next."""

    def copy(self, array: Any) -> Any:
        """Return a copy on the GPU."""

    def host(self, array: Any) -> Array:
        """Return the values, once the stream is done."""


class Torch:
    """PyTorch."""

    name, views = "torch", True

    def __init__(self) -> None:
        import torch

        if not torch.cuda.is_available():
            raise ImportError("torch sees no GPU")
        self.torch = torch
        self.stream = torch.cuda.Stream()
        self.load = torch.zeros(NAP_BYTES, dtype=torch.uint8, device="cuda")
        torch.cuda.synchronize()

    def side(self) -> Any:
        return self.torch.cuda.stream(self.stream)

    def put(self, values: Array) -> Any:
        return self.torch.from_numpy(values).cuda()

    def view(self, array: Any, index: Callable[[Any], Any]) -> Any:
        return index(array)

    def take(self, ours: Any) -> Any:
        return self.torch.from_dlpack(ours)

    def busy(self) -> None:
        for _ in range(NAPS):
            self.load += 1

    def copy(self, array: Any) -> Any:
        return array.clone()

    def host(self, array: Any) -> Array:
        made: Array = array.cpu().numpy()
        return made


class Cupy:
    """CuPy."""

    name, views = "cupy", True

    def __init__(self) -> None:
        import cupy

        if not cupy.cuda.is_available():
            raise ImportError("cupy sees no GPU")
        self.cupy = cupy
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.load = cupy.zeros(NAP_BYTES, cupy.uint8)
        cupy.cuda.Device().synchronize()

    def side(self) -> Any:
        return self.stream

    def put(self, values: Array) -> Any:
        return self.cupy.asarray(values)

    def view(self, array: Any, index: Callable[[Any], Any]) -> Any:
        return index(array)

    def take(self, ours: Any) -> Any:
        return self.cupy.from_dlpack(ours)

    def busy(self) -> None:
        for _ in range(NAPS):
            self.load += 1

    def copy(self, array: Any) -> Any:
        return array.copy()

    def host(self, array: Any) -> Array:
        made: Array = array.get()
        return made


class Jax:
    """JAX, whose own stream is beside the default one."""

    name, views = "jax", False

    def __init__(self) -> None:
        import jax

        try:
            jax.devices("gpu")
        except RuntimeError as error:
            raise ImportError("jax sees no GPU") from error
        self.jax = jax
        self.load = jax.numpy.zeros(NAP_BYTES, np.uint8)

    def side(self) -> Any:
        return nullcontext()

    def put(self, values: Array) -> Any:
        return self.jax.device_put(values)

    def view(self, array: Any, index: Callable[[Any], Any]) -> Any:
        raise NotImplementedError("jax has no strided views")

    def take(self, ours: Any) -> Any:
        return self.jax.dlpack.from_dlpack(ours)

    def busy(self) -> None:
        for _ in range(NAPS):
            self.load = self.load + np.uint8(1)

    def copy(self, array: Any) -> Any:
        return self.jax.numpy.copy(array)

    def host(self, array: Any) -> Array:
        return np.array(array)


class Lent:
    """Memory on the device as another library would offer it; strides in bytes."""

    def __init__(
        self,
        address: int,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        owner: object = None,
        strides: tuple[int, ...] | None = None,
        stream: int | None = None,
    ) -> None:
        self.address, self.shape, self.dtype = address, shape, dtype
        self.owner, self.strides, self.stream = owner, strides, stream

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.address, False),
            "strides": self.strides,
            "version": 3,
            "stream": self.stream,
        }


class Given(Lent):
    """The same with DLPack: whoever takes it has a stream wait for ours."""

    def __init__(self, hands: Hands, address: int, shape: tuple[int, ...], dtype: Any) -> None:
        super().__init__(address, shape, dtype, stream=int(hands.stream))
        self.hands = hands

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self.hands.device.ordinal

    def __dlpack__(self, *, stream: int | None = None, **more: object) -> object:
        from nestwright.codegen.runtime.dlpack import capsules
        from nestwright.ir.dtypes import from_numpy

        if stream is not None and stream != -1:
            self.hands.order(self.hands.stream, stream)
        dtype, ordinal = from_numpy(self.dtype), self.hands.device.ordinal
        return capsules.capsule(self.address, dtype, self.shape, ordinal, self)


class Hands:
    """No library: the driver's own calls, the array interface and DLPack as they are defined.

    Its memory is a ring for each size: what is older than ``RING`` arrays may be overwritten.
    """

    name, views = "the driver's calls alone", True

    def __init__(self, device: Any, small: bool) -> None:
        from nestwright.codegen.runtime.cuda.device import NON_BLOCKING

        self.device = device
        self.naps = 1 if small else NAPS
        with device:
            self.stream = device.driver.call("cuStreamCreate", NON_BLOCKING)
        self.load = device.allocate(1 << 16 if small else NAP_BYTES, "a load")
        self.rings: dict[int, deque[Any]] = {}

    @contextmanager
    def side(self) -> Iterator[None]:
        with self.device:
            yield

    def order(self, first: Any, then: Any) -> None:
        """Make later work of stream ``then`` wait for all work so far of stream ``first``."""
        call = self.device.driver.call
        event = self.device.event(False)
        call("cuEventRecord", event, first)
        call("cuStreamWaitEvent", then, event, 0)
        call("cuEventDestroy", event)

    def room(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Given:
        """Return the ring's next array of this size."""
        size = math.prod(shape) * dtype.itemsize
        if size not in self.rings:
            made = (self.device.allocate(size, "a ring") for _ in range(RING))
            self.rings[size] = deque(made)
            self.order(self.device.stream, self.stream)
        self.rings[size].rotate()
        return Given(self, self.rings[size][0].address, shape, dtype)

    def put(self, values: Array) -> Given:
        made, source = self.room(values.shape, values.dtype), np.ascontiguousarray(values)
        call = self.device.driver.call
        place = int(source.ctypes.data)
        call("cuMemcpyHtoDAsync", made.address, place, source.nbytes, self.stream)
        call("cuStreamSynchronize", self.stream)
        return made

    def view(self, array: Lent, index: Callable[[Any], Any]) -> Lent:
        count = math.prod(array.shape) * array.dtype.itemsize
        model = np.zeros(count, np.uint8).view(array.dtype).reshape(array.shape)
        part = index(model)
        at = array.address + part.ctypes.data - model.ctypes.data
        return Lent(at, part.shape, array.dtype, array.owner, part.strides, array.stream)

    def take(self, ours: Any) -> Lent:
        from nestwright.codegen.runtime.dlpack import capsules
        from nestwright.ir.dtypes import to_numpy

        found = capsules.read(ours.__dlpack__(stream=int(self.stream)))
        assert found.dtype is not None
        return Lent(found.address, found.shape, to_numpy(found.dtype), found)

    def busy(self) -> None:
        for turn in range(self.naps):
            load = self.load
            self.device.driver.call("cuMemsetD8Async", load.address, turn, load.bytes, self.stream)

    def copy(self, array: Lent) -> Given:
        made = self.room(array.shape, array.dtype)
        size = math.prod(array.shape) * array.dtype.itemsize
        call = self.device.driver.call
        call("cuMemcpyDtoDAsync", made.address, array.address, size, self.stream)
        return made

    def host(self, array: Lent) -> Array:
        made = np.empty(array.shape, array.dtype)
        call = self.device.driver.call
        place = int(made.ctypes.data)
        call("cuMemcpyDtoHAsync", place, array.address, made.nbytes, self.stream)
        call("cuStreamSynchronize", self.stream)
        return made


def find_peer(device: Any, dry: bool, views: bool) -> Peer:
    """Return the first library that is here, with strided views if they are asked for."""
    for kind in () if dry else (Torch, Cupy, Jax):
        try:
            found = kind()
        except ImportError:
            continue
        if found.views or not views:
            return found
    return Hands(device, dry)
