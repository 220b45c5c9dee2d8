"""Arrays of torch, jax and cupy go to a kernel of ours and come back, without a copy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from . import peers, workloads
from .part import Part
from .peers import Unavailable

TOLERANCE = 1e-5
SHAPE = (64, 96)


def exchange(part: Part) -> None:
    """Softmax of each library's arrays, its results taken by that library."""
    if not part.on_gpu:
        part.write("skipped", "other libraries' arrays", why="they are not on a GPU")
        return
    work = workloads.softmax(*SHAPE)
    exe, _ = part.build(work.hlo)
    for name, (here, given, back) in LIBRARIES.items():
        library = here()
        if isinstance(library, Unavailable):
            part.write("skipped", f"arrays of {name}", why=library.why)
            continue
        for kind, array in given(library):
            error = _error(back(library, array), back(library, exe(array)))
            part.write("right", f"{name}: {kind}", ok=error < TOLERANCE, error=error)


def _error(x: Any, y: Any) -> float:
    e = np.exp(x - x.max(1, keepdims=True))
    return float(np.abs(y - e / e.sum(1, keepdims=True)).max())


def _drawn(rows: int, columns: int) -> Any:
    return np.random.default_rng(0).standard_normal((rows, columns), dtype=np.float32)


def _of_torch(torch: Any) -> Iterator[tuple[str, Any]]:
    rows, columns = SHAPE
    x = torch.from_numpy(_drawn(rows, columns)).cuda()
    yield "as it is", x
    yield "transposed", x.t().contiguous().t()
    yield "a part", torch.from_numpy(_drawn(rows + 1, columns + 1)).cuda()[1:, 1:]


def _from_torch(torch: Any, array: Any) -> Any:
    return torch.from_dlpack(array).cpu().numpy()


def _of_jax(jax: Any) -> Iterator[tuple[str, Any]]:
    yield "as it is", jax.device_put(_drawn(*SHAPE))


def _from_jax(jax: Any, array: Any) -> Any:
    return np.asarray(jax.dlpack.from_dlpack(array))


def cupy_here() -> Any:
    """cupy with a GPU, or why not."""
    try:
        import cupy

        cupy.cuda.runtime.getDeviceCount()
    except Exception as error:
        return Unavailable("cupy", f"{type(error).__name__}: {str(error).splitlines()[0][:120]}")
    return cupy


def _of_cupy(cupy: Any) -> Iterator[tuple[str, Any]]:
    rows, columns = SHAPE
    yield "as it is", cupy.asarray(_drawn(rows, columns))
    yield "a part", cupy.asarray(_drawn(rows + 1, columns + 1))[1:, 1:]


def _from_cupy(cupy: Any, array: Any) -> Any:
    return cupy.from_dlpack(array).get()


LIBRARIES: Mapping[str, tuple[Callable[[], Any], Callable[[Any], Any], Callable[..., Any]]] = {
    "torch": (peers.torch_here, _of_torch, _from_torch),
    "jax": (peers.jax_here, _of_jax, _from_jax),
    "cupy": (cupy_here, _of_cupy, _from_cupy),
}
