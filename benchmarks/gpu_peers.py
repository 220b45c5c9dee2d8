"""What `gpu.py` compares: each contender submits a call and says how long a number of them took."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
TURN = 0.03  # seconds that one turn takes, about
ROUNDS = (5, 15)  # of turns, at least and at most


@dataclass(frozen=True)
class Contender:
    """``seconds(n)`` makes n calls and gives their time; ``events`` says whose clock that is."""

    name: str
    seconds: Callable[[int], float]
    events: bool
    result: Callable[[], list[Array]]


def medians(contenders: Sequence[Contender], budget: float) -> dict[str, dict[str, Any]]:
    """Seconds of one call of each, in turns that alternate; medians and quartiles."""
    repeats = {}
    for c in contenders:
        c.seconds(2)
        repeats[c.name] = int(min(500, max(1, round(TURN / max(c.seconds(2) / 2, 1e-7)))))
    found: dict[str, list[float]] = {c.name: [] for c in contenders}
    end = time.perf_counter() + budget
    for turn in range(ROUNDS[1]):
        if turn >= ROUNDS[0] and time.perf_counter() > end:
            break
        for c in contenders if turn % 2 == 0 else reversed(contenders):
            found[c.name].append(c.seconds(repeats[c.name]) / repeats[c.name])
    rows = {}
    for c in contenders:
        low, middle, high = statistics.quantiles(found[c.name], n=4)
        rows[c.name] = {
            "seconds": middle, "low": low, "high": high, "events": c.events,
            "rounds": len(found[c.name]), "calls": repeats[c.name],
        }  # fmt: skip
    return rows


def leaves(value: Any) -> list[Any]:
    return [y for x in value for y in leaves(x)] if isinstance(value, tuple | list) else [value]


def on_host(call: Callable[[int], Any]) -> Callable[[int], float]:
    """The host's clock around calls, the last of which is waited for by ``call`` itself."""

    def seconds(times: int) -> float:
        start = time.perf_counter()
        call(times)
        return time.perf_counter() - start

    return seconds


def nestwright(exe: Any, sets: Sequence[Sequence[Array]]) -> Contender:
    """An executable on sets of arguments, one after the other."""
    if exe.bundle.target.kind != "cuda":
        return _on_this_processor(exe, sets)
    program = exe.loaded()
    put = [[program.put(a) for a in arrays] for arrays in sets]
    outs = [exe(*arrays) for arrays in put]

    def submit(times: int) -> None:
        for n in range(times):
            exe(*put[n % len(put)], out=outs[n % len(put)])

    def result() -> list[Array]:
        exe(*put[0], out=outs[0])
        return [x.numpy() for x in leaves(outs[0])]

    return Contender(
        "nestwright", lambda times: program.seconds(lambda: submit(times)), True, result
    )


def _on_this_processor(exe: Any, sets: Sequence[Sequence[Array]]) -> Contender:
    def run(times: int) -> None:
        for n in range(times):
            exe(*sets[n % len(sets)])

    def result() -> list[Array]:
        return [np.asarray(x) for x in leaves(exe(*sets[0]))]

    return Contender("nestwright", on_host(run), False, result)


@dataclass(frozen=True)
class Unavailable:
    """A contender that is not here, and why."""

    name: str
    why: str


def torch_peer(kind: str, sets: Sequence[Sequence[Array]], more: Sequence[int]) -> Any:
    """PyTorch: its library's kernel for products and convolutions, torch.compile for the rest."""
    try:
        import torch
    except Exception as error:
        return Unavailable("torch", f"{type(error).__name__}: {error}")
    if not torch.cuda.is_available():
        return Unavailable("torch", "it sees no GPU")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    functions: Mapping[str, Callable[..., Any]] = {
        "matmul": torch.matmul,
        "convolution": lambda x, w: torch.nn.functional.conv2d(x, w, None, *more),
        "softmax": torch.compile(lambda x: torch.softmax(x, 1)),
        "layer_norm": torch.compile(
            lambda x, g, b: torch.nn.functional.layer_norm(x, g.shape, g, b)
        ),
        "gelu_chain": torch.compile(lambda x, b, r: torch.nn.functional.gelu(x + b) + r),
        "sum_xyz": torch.compile(lambda x, y, z: (x + y * z).sum()),
    }
    function = functions[kind]
    put = [[_to_torch(torch, a, kind, i) for i, a in enumerate(arrays)] for arrays in sets]
    function(*put[0])
    torch.cuda.synchronize()

    def seconds(times: int) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for n in range(times):
            function(*put[n % len(put)])
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e-3

    def result() -> list[Array]:
        made = function(*put[0])
        if kind == "convolution":
            made = made.permute(0, 2, 3, 1)
        return [made.float().cpu().numpy()]

    return Contender("torch", seconds, True, result)


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


def jax_peer(kind: str, sets: Sequence[Sequence[Array]], more: Sequence[int]) -> Any:
    """jax.jit of the same function."""
    found = jax_here()
    if isinstance(found, Unavailable):
        return found
    jax = found
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


def jax_here() -> Any:
    """jax with a GPU, or why not."""
    try:
        import jax

        jax.devices("gpu")
    except Exception as error:
        return Unavailable("jax", f"{type(error).__name__}: {str(error).splitlines()[0][:120]}")
    return jax


def jax_contender(
    jax: Any, function: Callable[..., Any], sets: Sequence[Sequence[Any]]
) -> Contender:
    """A jitted function on sets of arguments."""
    compiled = jax.jit(function)
    put = [jax.device_put(list(arrays)) for arrays in sets]
    jax.block_until_ready(compiled(*put[0]))

    def run(times: int) -> None:
        made = None
        for n in range(times):
            made = compiled(*put[n % len(put)])
        jax.block_until_ready(made)

    def result() -> list[Array]:
        return [np.asarray(x, np.float32) for x in leaves(compiled(*put[0]))]

    return Contender("jax", on_host(run), False, result)
