"""Workloads of `main.py` as HLO text, each with what torch and jax call the same, and a reference.

A workload draws its arguments from a seed. ``reference`` says in NumPy, in f64, what some rows of
the result must be: it is checked before anything is timed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nestwright.ir.arrays import Array

ADD = "add { a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b) }\n"
MAX = "max { a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] maximum(a, b) }\n"
TOLERANCES = {"f32": 1e-4, "tf32": 2e-3, "f16": 4e-3, "bf16": 2e-2}


@dataclass(frozen=True)
class Work:
    """One kernel's worth of work.

    ``options`` go to the target. ``reference(args)`` gives the index of a part of the result and
    its right values, and ``scale(args)``, where it is given, what errors are held against.
    ``peer`` names functions of ``peers``.
    """

    name: str
    hlo: str
    shapes: tuple[tuple[int, ...], ...]
    dtype: str
    peer: str
    reference: Callable[[Sequence[Array]], tuple[Any, Array]]
    tolerance: float
    flops: float = 0.0
    bytes: float = 0.0
    options: str = ""
    weight: int = 1
    peer_args: tuple[int, ...] = ()
    scale: float = 0.0

    def error(self, args: Sequence[Array], result: Array) -> float:
        """Return the RMS error relative to ``scale``, by default the RMS of the reference."""
        index, right = self.reference(args)
        got, want = np.asarray(result, np.float64)[index], np.asarray(right, np.float64)
        if not np.isfinite(got).all() or np.shape(got) != np.shape(want):
            return float("inf")
        scale = self.scale or float(np.sqrt((want**2).mean()))
        return float(np.sqrt(((got - want) ** 2).mean())) / scale

    def arguments(self, seed: int) -> list[Array]:
        """Normal numbers, of the element type, scaled so that products stay near 1."""
        rng = np.random.default_rng(seed)
        made = [rng.standard_normal(s, dtype=np.float32) for s in self.shapes]
        return [m.astype(numpy_type(self.dtype)) for m in made]


def numpy_type(dtype: str) -> np.dtype[Any]:
    """NumPy's type for an HLO type of these workloads."""
    if dtype == "bf16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype({"f32": "float32", "f16": "float16"}[dtype])


def _wide(x: Array) -> Array:
    return x.astype(np.float64)


def matmul(kind: str, n: int) -> Work:
    """Return a square product; kind tf32 is f32 operands on tensor cores."""
    dtype = "f32" if kind == "tf32" else kind
    text = (
        f"HloModule matmul_{kind}_{n}\nENTRY main {{\n"
        f"  a = {dtype}[{n},{n}] parameter(0)\n  b = {dtype}[{n},{n}] parameter(1)\n"
        f"  ROOT c = {dtype}[{n},{n}] dot(a, b), lhs_contracting_dims={{1}}, "
        "rhs_contracting_dims={0}\n}\n"
    )
    rows = np.linspace(0, n - 1, 24).astype(int)

    def reference(args: Sequence[Array]) -> tuple[Any, Array]:
        return rows, args[0][rows].astype(np.float32) @ args[1].astype(np.float32)

    size = numpy_type(dtype).itemsize
    return Work(
        f"matmul_{kind}_{n}",
        text,
        ((n, n), (n, n)),
        dtype,
        "matmul",
        reference,
        TOLERANCES[kind],
        2.0 * n**3,
        3.0 * size * n * n,
        "-tf32=1" if kind == "tf32" else "",
    )


def softmax(rows: int, columns: int) -> Work:
    """Softmax along rows."""
    m = f"f32[{rows},{columns}]"
    text = (
        f"HloModule softmax\n{MAX}{ADD}ENTRY main {{\n  x = {m} parameter(0)\n"
        "  low = f32[] constant(-inf)\n  zero = f32[] constant(0)\n"
        f"  top = f32[{rows}] reduce(x, low), dimensions={{1}}, to_apply=max\n"
        f"  tops = {m} broadcast(top), dimensions={{0}}\n  d = {m} subtract(x, tops)\n"
        f"  e = {m} exponential(d)\n"
        f"  s = f32[{rows}] reduce(e, zero), dimensions={{1}}, to_apply=add\n"
        f"  ss = {m} broadcast(s), dimensions={{0}}\n  ROOT y = {m} divide(e, ss)\n}}\n"
    )

    def reference(args: Sequence[Array]) -> tuple[Any, Array]:
        some = _some(rows)
        e = np.exp(_wide(args[0][some]))
        return some, e / e.sum(1, keepdims=True)

    return _memory_bound("softmax", text, ((rows, columns),), reference, 2)


def layer_norm(rows: int, columns: int) -> Work:
    """Layer norm along rows, with scale and shift."""
    m, v = f"f32[{rows},{columns}]", f"f32[{rows}]"
    text = (
        f"HloModule layer_norm\n{ADD}ENTRY main {{\n  x = {m} parameter(0)\n"
        f"  g = f32[{columns}] parameter(1)\n  b = f32[{columns}] parameter(2)\n"
        f"  zero = f32[] constant(0)\n  n = f32[] constant({columns})\n"
        "  eps = f32[] constant(1e-05)\n"
        f"  ns = {v} broadcast(n), dimensions={{}}\n  es = {v} broadcast(eps), dimensions={{}}\n"
        f"  s = {v} reduce(x, zero), dimensions={{1}}, to_apply=add\n  mean = {v} divide(s, ns)\n"
        f"  means = {m} broadcast(mean), dimensions={{0}}\n  c = {m} subtract(x, means)\n"
        f"  cc = {m} multiply(c, c)\n"
        f"  q = {v} reduce(cc, zero), dimensions={{1}}, to_apply=add\n  var = {v} divide(q, ns)\n"
        f"  ve = {v} add(var, es)\n  r = {v} rsqrt(ve)\n"
        f"  rs = {m} broadcast(r), dimensions={{0}}\n  y = {m} multiply(c, rs)\n"
        f"  gs = {m} broadcast(g), dimensions={{1}}\n  bs = {m} broadcast(b), dimensions={{1}}\n"
        f"  yg = {m} multiply(y, gs)\n  ROOT z = {m} add(yg, bs)\n}}\n"
    )

    def reference(args: Sequence[Array]) -> tuple[Any, Array]:
        some = _some(rows)
        x = _wide(args[0][some])
        c = x - x.mean(1, keepdims=True)
        y = c / np.sqrt((c * c).mean(1, keepdims=True) + 1e-5)
        return some, y * _wide(args[1]) + _wide(args[2])

    shapes = ((rows, columns), (columns,), (columns,))
    return _memory_bound("layer_norm", text, shapes, reference, 2)


def gelu_chain(rows: int, columns: int) -> Work:
    """gelu(x + bias) + residual."""
    m = f"f32[{rows},{columns}]"
    text = (
        f"HloModule gelu_chain\nENTRY main {{\n  x = {m} parameter(0)\n"
        f"  b = f32[{columns}] parameter(1)\n  r = {m} parameter(2)\n"
        "  half = f32[] constant(0.5)\n  one = f32[] constant(1)\n"
        f"  root = f32[] constant({math.sqrt(0.5)!r})\n"
        f"  bs = {m} broadcast(b), dimensions={{1}}\n  v = {m} add(x, bs)\n"
        f"  roots = {m} broadcast(root), dimensions={{}}\n  w = {m} multiply(v, roots)\n"
        f"  e = {m} erf(w)\n  ones = {m} broadcast(one), dimensions={{}}\n"
        f"  f = {m} add(e, ones)\n  halves = {m} broadcast(half), dimensions={{}}\n"
        f"  g = {m} multiply(v, halves)\n  h = {m} multiply(g, f)\n  ROOT y = {m} add(h, r)\n}}\n"
    )

    def reference(args: Sequence[Array]) -> tuple[Any, Array]:
        some = _some(rows)
        v = _wide(args[0][some]) + _wide(args[1])
        erf = np.vectorize(math.erf)(v * math.sqrt(0.5))
        return some, 0.5 * v * (1 + erf) + _wide(args[2][some])

    shapes = ((rows, columns), (columns,), (rows, columns))
    return _memory_bound("gelu_chain", text, shapes, reference, 3)


def sum_xyz(count: int) -> Work:
    """sum(x + y * z)."""
    m = f"f32[{count}]"
    text = (
        f"HloModule sum_xyz\n{ADD}ENTRY main {{\n  x = {m} parameter(0)\n  y = {m} parameter(1)\n"
        f"  z = {m} parameter(2)\n  p = {m} multiply(y, z)\n  s = {m} add(x, p)\n"
        "  zero = f32[] constant(0)\n"
        "  ROOT r = f32[] reduce(s, zero), dimensions={0}, to_apply=add\n}\n"
    )

    def reference(args: Sequence[Array]) -> tuple[Any, Array]:
        x, y, z = args
        total = x.sum(dtype=np.float64) + np.einsum("i,i->", y, z, dtype=np.float64)
        return (), np.asarray(total)

    made = _memory_bound("sum_xyz", text, ((count,),) * 3, reference, 3)
    return replace(made, scale=math.sqrt(2.0 * count))  # the spread of such a sum, which may be 0


def _memory_bound(
    name: str,
    text: str,
    shapes: tuple[tuple[int, ...], ...],
    reference: Callable[[Sequence[Array]], tuple[Any, Array]],
    passes: int,
) -> Work:
    """Return a memory-bound workload; ``passes`` counts the arrays of the largest size read or
    written.
    """
    moved = 4.0 * passes * max(math.prod(s) for s in shapes)
    size = math.prod(shapes[0])
    title = f"{name}_{size * 4 >> 20}MiB" if size >= 1 << 18 else f"{name}_{size}"
    return Work(title, text, shapes, "f32", name, reference, TOLERANCES["f32"], 0.0, moved)


def _some(rows: int) -> Array:
    return np.linspace(0, rows - 1, min(rows, 16)).astype(int)


RESNET50 = (
    # height, channels in, channels out, kernel, stride, how often
    (224, 3, 64, 7, 2, 1),
    (56, 64, 64, 1, 1, 1),
    (56, 64, 64, 3, 1, 3),
    (56, 64, 256, 1, 1, 4),
    (56, 256, 64, 1, 1, 2),
    (56, 256, 128, 1, 1, 1),
    (56, 128, 128, 3, 2, 1),
    (28, 128, 512, 1, 1, 4),
    (56, 256, 512, 1, 2, 1),
    (28, 512, 128, 1, 1, 3),
    (28, 128, 128, 3, 1, 3),
    (28, 512, 256, 1, 1, 1),
    (28, 256, 256, 3, 2, 1),
    (14, 256, 1024, 1, 1, 6),
    (28, 512, 1024, 1, 2, 1),
    (14, 1024, 256, 1, 1, 5),
    (14, 256, 256, 3, 1, 5),
    (14, 1024, 512, 1, 1, 1),
    (14, 512, 512, 3, 2, 1),
    (7, 512, 2048, 1, 1, 3),
    (14, 1024, 2048, 1, 2, 1),
    (7, 2048, 512, 1, 1, 2),
    (7, 512, 512, 3, 1, 2),
)


def convolution(
    batch: int, height: int, c_in: int, c_out: int, k: int, stride: int, often: int, dtype: str
) -> Work:
    """Return a convolution, channels last."""
    pad, out = k // 2, (height + 2 * (k // 2) - k) // stride + 1
    window = f"{{size={k}x{k} stride={stride}x{stride} pad={pad}_{pad}x{pad}_{pad}}}"
    x_shape, w_shape = (batch, height, height, c_in), (k, k, c_in, c_out)
    shown = [f"{dtype}[{','.join(map(str, s))}]" for s in (x_shape, w_shape)]
    y_shape = (batch, out, out, c_out)
    text = (
        f"HloModule conv\nENTRY main {{\n  x = {shown[0]} parameter(0)\n"
        f"  w = {shown[1]} parameter(1)\n"
        f"  ROOT y = {dtype}[{','.join(map(str, y_shape))}] convolution(x, w), window={window}, "
        "dim_labels=b01f_01io->b01f\n}\n"
    )

    def reference(args: Sequence[Array]) -> tuple[Any, Array]:
        image = np.pad(args[0][-1].astype(np.float32), ((pad, pad), (pad, pad), (0, 0)))
        kernel = args[1].astype(np.float32)
        total = np.zeros((out, out, c_out), np.float32)
        for i in range(k):
            for j in range(k):
                ends = i + stride * (out - 1) + 1, j + stride * (out - 1) + 1
                total += image[i : ends[0] : stride, j : ends[1] : stride] @ kernel[i, j]
        return -1, total

    name = f"conv_{dtype}_{height}_{c_in}_{c_out}_{k}s{stride}"
    flops = 2.0 * batch * out * out * c_out * c_in * k * k
    return Work(
        name,
        text,
        (x_shape, w_shape),
        dtype,
        "convolution",
        reference,
        TOLERANCES[dtype],
        flops,
        0.0,
        "",
        often,
        (stride, pad),
    )


def products(small: bool) -> list[Work]:
    """Matrix products: bf16, f16, tf32."""
    return [
        matmul(k, n) for n in ((64,) if small else (4096, 8192)) for k in ("bf16", "f16", "tf32")
    ]


def passes(small: bool) -> list[Work]:
    """Return the memory-bound workloads; large arrays have 256 MiB each."""
    rows, columns, count = (16, 64, 4096) if small else (1 << 16, 1 << 10, 1 << 26)
    return [
        softmax(rows, columns),
        layer_norm(rows, columns),
        gelu_chain(rows, columns),
        sum_xyz(count),
    ]


def convolutions(small: bool) -> list[Work]:
    """ResNet-50's convolutions, by shape."""
    if small:
        return [convolution(2, 8, 8, 16, 3, 1, 1, "f32")]
    return [convolution(32, *shape, "bf16") for shape in RESNET50]


def every(small: bool) -> list[Work]:
    """Return all workloads."""
    return [*products(small), *passes(small), *convolutions(small)]
