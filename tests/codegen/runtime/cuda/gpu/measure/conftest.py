"""Stand-ins for torch, jax and cupy: the few functions that the benchmark uses, over NumPy.

Their arrays say that they are on a GPU: the stand-in for the driver has its memory in this process.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import erf
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from nestwright.ir.arrays import Array


class Tensor(np.lib.mixins.NDArrayOperatorsMixin):
    """An array that is none of NumPy's, with the methods of torch's, jax's and cupy's arrays."""

    def __init__(self, held: Any) -> None:
        self.held = np.asarray(held)
        self.shape, self.dtype = self.held.shape, self.held.dtype

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return self.held if dtype is None else self.held.astype(dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *given: Any, **how: Any) -> Tensor:
        plain = [x.held if isinstance(x, Tensor) else x for x in given]
        return Tensor(getattr(ufunc, method)(*plain, **how))

    def __getitem__(self, place: Any) -> Tensor:
        return Tensor(self.held[place])

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        told = self.held.__array_interface__
        return {k: told[k] for k in ("shape", "typestr", "data", "strides")} | {"version": 3}

    def sum(self, *axis: int, **how: Any) -> Tensor:
        return Tensor(self.held.sum(*axis, **how))

    def mean(self, *axis: int, **how: Any) -> Tensor:
        return Tensor(self.held.mean(*axis, **how))

    def max(self, *axis: int, **how: Any) -> Tensor:
        return Tensor(self.held.max(*axis, **how))

    def astype(self, dtype: Any) -> Tensor:
        return Tensor(self.held.astype(dtype))

    def view(self, dtype: Any) -> Tensor:
        return Tensor(self.held.view(dtype))

    def cuda(self) -> Tensor:
        return Tensor(self.held.copy())

    cpu = cuda

    def numpy(self) -> Array:
        return self.held

    get = numpy

    def float(self) -> Tensor:
        return self.astype(np.float32)

    def t(self) -> Tensor:
        return self.permute(1, 0)

    def permute(self, *dims: int) -> Tensor:
        return Tensor(self.held.transpose(dims))

    def contiguous(self, memory_format: str = "") -> Tensor:
        assert memory_format in ("", "channels_last")
        return Tensor(np.ascontiguousarray(self.held))


def softmax(x: Any, axis: int) -> Tensor:
    e = np.exp(x - x.max(axis, keepdims=True))
    return Tensor(e / e.sum(axis, keepdims=True))


def gelu(x: Any, approximate: bool = False) -> Tensor:
    assert not approximate
    return Tensor(0.5 * x * (1 + np.vectorize(erf)(np.asarray(x) * 0.5**0.5)))


def layer_norm(x: Any, shape: Sequence[int], g: Any, b: Any) -> Tensor:
    c = x - x.mean(1, keepdims=True)
    return Tensor(c / np.sqrt((c * c).mean(1, keepdims=True) + 1e-5) * g + b)


def conv2d(x: Any, w: Any, bias: None, stride: int, padding: int) -> Tensor:
    side = x.shape[2] // stride
    return Tensor(np.zeros((x.shape[0], w.shape[0], side, side), np.float32))


def matmul(x: Any, y: Any) -> Tensor:
    return Tensor(np.matmul(x.astype(np.float32), y.astype(np.float32)))


def lent(array: Any) -> Tensor:
    """What DLPack brings."""
    return Tensor(array.numpy())


class Event:
    """torch's events; the time that they tell is made up."""

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing
        self.recorded = False

    def record(self) -> None:
        self.recorded = True

    def synchronize(self) -> None:
        assert self.recorded

    def elapsed_time(self, end: Event) -> float:
        assert self.recorded and end.recorded
        return 2.0


class Graph:
    """torch's graph: it counts its replays."""

    replays = 0

    def replay(self) -> None:
        Graph.replays += 1


def torch() -> Namespace:
    @contextmanager
    def graph(into: Graph) -> Iterator[None]:
        assert isinstance(into, Graph)
        yield

    return Namespace(
        cuda=Namespace(
            is_available=lambda: True,
            synchronize=lambda: None,
            CUDAGraph=Graph,
            Event=Event,
            graph=graph,
        ),
        backends=Namespace(cuda=Namespace(matmul=Namespace()), cudnn=Namespace()),
        nn=Namespace(functional=Namespace(conv2d=conv2d, layer_norm=layer_norm, gelu=gelu)),
        from_numpy=Tensor,
        from_dlpack=lent,
        matmul=matmul,
        softmax=softmax,
        compile=lambda function: function,
        bfloat16=np.dtype(ml_dtypes.bfloat16),
        channels_last="channels_last",
    )


def jax() -> Namespace:
    def put(value: Any) -> Any:
        return [Tensor(a) for a in value] if isinstance(value, list) else Tensor(value)

    def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *arguments: Tensor(function(*arguments))

    def deserialize(data: bytearray) -> Namespace:
        assert isinstance(data, bytearray)
        return Namespace(call=lambda *arguments: arguments[0] * 2)

    return Namespace(
        numpy=Namespace(matmul=matmul),
        nn=Namespace(softmax=softmax, gelu=gelu),
        lax=Namespace(rsqrt=lambda x: 1 / np.sqrt(x)),
        dlpack=Namespace(from_dlpack=lent),
        export=Namespace(deserialize=deserialize),
        devices=lambda kind: [kind],
        jit=compiled,
        device_put=put,
        block_until_ready=lambda value: value,
    )


def cupy() -> Namespace:
    runtime = Namespace(getDeviceCount=lambda: 1)
    return Namespace(asarray=Tensor, from_dlpack=lent, cuda=Namespace(runtime=runtime))


@pytest.fixture
def libraries(monkeypatch: pytest.MonkeyPatch) -> dict[str, Namespace]:
    """torch, jax and cupy, in the place of this machine's."""
    made = {"torch": torch(), "jax": jax(), "cupy": cupy()}
    for name, module in made.items():
        monkeypatch.setitem(sys.modules, name, module)  # type: ignore[arg-type]
    Graph.replays = 0
    return made


@pytest.fixture
def graph() -> type[Graph]:
    """The class of torch's graphs."""
    return Graph
