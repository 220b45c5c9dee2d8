"""Other compilers and libraries on the same arguments: torch as one graph, jax by calls."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from .clocks import Array, Contender
from .ours import leaves

MODULES = "(torch|triton|jax|jaxlib|cupy|cupyx|cupy_backends)"
WARNINGS = rf"default:::{MODULES}(\..*)?$"
"""The filter, as pytest's mark takes it, that lets warnings from inside of peers pass."""


@contextmanager
def theirs() -> Iterator[None]:
    """Within the block warnings are shown and none is an error: it calls nothing but peers.

    For those that a peer raises in the name of its caller, which ``WARNINGS`` does not know.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        yield


@dataclass(frozen=True)
class Unavailable:
    """A contender that is not here, and why."""

    name: str
    why: str


def torch_here() -> Any:
    """torch with a GPU, or why not."""
    try:
        import torch
    except Exception as error:
        return Unavailable("torch", f"{type(error).__name__}: {error}")
    if not torch.cuda.is_available():
        return Unavailable("torch", "it sees no GPU")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    return torch


def torch_peer(kind: str, sets: Sequence[Sequence[Array]], more: Sequence[int]) -> Any:
    """PyTorch: its library's kernel for products and convolutions, torch.compile for the rest."""
    torch = torch_here()
    if isinstance(torch, Unavailable):
        return torch
    function = _torch_function(torch, kind, more)
    put = [[_to_torch(torch, a, kind, i) for i, a in enumerate(arrays)] for arrays in sets]

    def result() -> list[Array]:
        made = function(*put[0])
        if kind == "convolution":
            made = made.permute(0, 2, 3, 1)
        return [made.float().cpu().numpy()]

    return torch_contender(torch, function, put, result)


def torch_contender(
    torch: Any,
    function: Callable[..., Any],
    put: Sequence[Sequence[Any]],
    result: Callable[[], list[Array]],
) -> Contender:
    """Return a function on sets of tensors; one graph with a call on each, where torch can capture
    it.
    """

    def calls() -> list[Any]:
        return [function(*arrays) for arrays in put]

    calls()  # compiles, and chooses algorithms
    torch.cuda.synchronize()
    submit: Callable[[], object]
    try:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            held = calls()

        def replayed(kept: object = held) -> None:
            graph.replay()

        replayed()
        torch.cuda.synchronize()
        how, submit = "graph", replayed
    except RuntimeError:
        how, submit = "calls", calls

    def events(action: Callable[[], object]) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        action()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e-3

    return Contender("torch", how, len(put), submit, torch.cuda.synchronize, events, result)


def _torch_function(torch: Any, kind: str, more: Sequence[int]) -> Callable[..., Any]:
    nn = torch.nn.functional
    libraries: Mapping[str, Callable[..., Any]] = {
        "matmul": torch.matmul,
        "convolution": lambda x, w: nn.conv2d(x, w, None, *more),
    }
    compiled: Mapping[str, Callable[..., Any]] = {
        "softmax": lambda x: torch.softmax(x, 1),
        "layer_norm": lambda x, g, b: nn.layer_norm(x, g.shape, g, b),
        "gelu_chain": lambda x, b, r: nn.gelu(x + b) + r,
        "sum_xyz": lambda x, y, z: (x + y * z).sum(),
    }
    return libraries[kind] if kind in libraries else torch.compile(compiled[kind])


def _to_torch(torch: Any, array: Array, kind: str, number: int) -> Any:
    if array.dtype.name == "bfloat16":
        made = torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    else:
        made = torch.from_numpy(array)
    made = made.cuda()
    if kind == "convolution":  # [N, H, W, C] and [k, k, C, O], in the layout that cuDNN likes best
        dims = (3, 2, 0, 1) if number else (0, 3, 1, 2)
        made = made.permute(*dims).contiguous(memory_format=torch.channels_last)
    return made


def jax_here() -> Any:
    """jax with a GPU, or why not."""
    try:
        import jax

        jax.devices("gpu")
    except Exception as error:
        return Unavailable("jax", f"{type(error).__name__}: {str(error).splitlines()[0][:120]}")
    return jax


def jax_peer(kind: str, sets: Sequence[Sequence[Array]], more: Sequence[int]) -> Any:
    """jax.jit of the same function."""
    jax = jax_here()
    if isinstance(jax, Unavailable):
        return jax
    jnp, nn = jax.numpy, jax.nn

    def layer_norm(x: Any, g: Any, b: Any) -> Any:
        c = x - x.mean(1, keepdims=True)
        return c * jax.lax.rsqrt((c * c).mean(1, keepdims=True) + 1e-5) * g + b

    functions: Mapping[str, Callable[..., Any]] = {
        "matmul": jnp.matmul,
        "softmax": lambda x: nn.softmax(x, axis=1),
        "layer_norm": layer_norm,
        "gelu_chain": lambda x, b, r: nn.gelu(x + b, approximate=False) + r,
        "sum_xyz": lambda x, y, z: (x + y * z).sum(),
    }
    if kind not in functions:
        return Unavailable("jax", f"not compared for {kind}")
    return jax_contender(jax, functions[kind], sets)


def exported_peer(data: bytes, arguments: Sequence[Array]) -> Any:
    """Return a contender that compiles and runs what ``jax.export`` wrote; arguments are flat."""
    jax = jax_here()
    if isinstance(jax, Unavailable):
        return jax
    return jax_contender(jax, jax.export.deserialize(bytearray(data)).call, [arguments])


def jax_contender(
    jax: Any, function: Callable[..., Any], sets: Sequence[Sequence[Any]]
) -> Contender:
    """Return a jitted function on sets of arguments. jax has no graphs: by the host's
    clock alone.
    """
    compiled = jax.jit(function)
    put = [jax.device_put(list(arrays)) for arrays in sets]
    last: list[Any] = [compiled(*put[0])]

    def submit() -> None:
        for arrays in put:
            last[0] = compiled(*arrays)

    def result() -> list[Array]:
        return [np.asarray(x, np.float32) for x in leaves(compiled(*put[0]))]

    def wait() -> None:
        jax.block_until_ready(last[0])

    return Contender("jax", "calls", len(put), submit, wait, None, result)
