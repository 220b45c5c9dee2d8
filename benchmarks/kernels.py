"""Common kernels: the default schedule, the tuned one, and NumPy, timed turn by turn.

With ``--trials``, each kernel is tuned first, as far as its log in ``--log`` has not come already::

    OPENBLAS_NUM_THREADS=1 chrt -f 10 python benchmarks/kernels.py --threads 1 --trials 32
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from side_by_side import ROOT, medians, show_seconds

import nestwright as nw
from nestwright.ir.hlo.analysis.inputs import random_arguments

REDUCERS = """
larger {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT m = f32[] maximum(a, b)
}
sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}
"""


@dataclass(frozen=True)
class Kernel:
    """The same work as HLO instructions and as a NumPy function of the same arguments."""

    body: str
    numpy: Callable[..., Any]
    flops: float

    def module(self, name: str) -> Any:
        """Parse the kernel as a module of this name."""
        return nw.parse(f"HloModule {name}\n{REDUCERS}\nENTRY main {{\n{self.body}\n}}")


def matmul(m: int, n: int, k: int) -> Kernel:
    """Return a product ``[m, k] x [k, n]``."""
    body = f"""
      a = f32[{m},{k}] parameter(0)
      b = f32[{k},{n}] parameter(1)
      ROOT c = f32[{m},{n}] dot(a, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"""
    return Kernel(body, lambda a, b: a @ b, 2.0 * m * n * k)


def convolution(size: int, inputs: int, outputs: int) -> Kernel:
    """Return a 3x3 convolution of one square NHWC image, padded to keep its size."""
    body = f"""
      x = f32[1,{size},{size},{inputs}] parameter(0)
      w = f32[3,3,{inputs},{outputs}] parameter(1)
      ROOT c = f32[1,{size},{size},{outputs}] convolution(x, w),
        window={{size=3x3 pad=1_1x1_1}}, dim_labels=b01f_01io->b01f"""

    def by_numpy(x: Any, w: Any) -> Any:
        padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
        columns = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))
        columns = columns.transpose(0, 1, 2, 4, 5, 3).reshape(size * size, -1)
        return (columns @ w.reshape(-1, outputs)).reshape(1, size, size, outputs)

    return Kernel(body, by_numpy, 2.0 * size * size * outputs * 9 * inputs)


def softmax(rows: int, n: int) -> Kernel:
    """Softmax of each row."""
    body = f"""
      x = f32[{rows},{n}] parameter(0)
      lowest = f32[] constant(-inf)
      zero = f32[] constant(0)
      m = f32[{rows}] reduce(x, lowest), dimensions={{1}}, to_apply=larger
      ms = f32[{rows},{n}] broadcast(m), dimensions={{0}}
      d = f32[{rows},{n}] subtract(x, ms)
      e = f32[{rows},{n}] exponential(d)
      s = f32[{rows}] reduce(e, zero), dimensions={{1}}, to_apply=sum
      ss = f32[{rows},{n}] broadcast(s), dimensions={{0}}
      ROOT p = f32[{rows},{n}] divide(e, ss)"""

    def by_numpy(x: Any) -> Any:
        e = np.exp(x - x.max(1, keepdims=True))
        return e / e.sum(1, keepdims=True)

    return Kernel(body, by_numpy, 12.0 * rows * n)


def layer_norm(rows: int, n: int) -> Kernel:
    """Layer normalization of each row, with scale and offset."""
    body = f"""
      x = f32[{rows},{n}] parameter(0)
      g = f32[{n}] parameter(1)
      b = f32[{n}] parameter(2)
      zero = f32[] constant(0)
      eps = f32[] constant(1e-5)
      count = f32[{rows}] broadcast(f32[] constant({n})), dimensions={{}}
      s = f32[{rows}] reduce(x, zero), dimensions={{1}}, to_apply=sum
      mean = f32[{rows}] divide(s, count)
      means = f32[{rows},{n}] broadcast(mean), dimensions={{0}}
      d = f32[{rows},{n}] subtract(x, means)
      q = f32[{rows},{n}] multiply(d, d)
      v = f32[{rows}] reduce(q, zero), dimensions={{1}}, to_apply=sum
      var = f32[{rows}] divide(v, count)
      small = f32[{rows}] broadcast(eps), dimensions={{}}
      lifted = f32[{rows}] add(var, small)
      r = f32[{rows}] rsqrt(lifted)
      rs = f32[{rows},{n}] broadcast(r), dimensions={{0}}
      z = f32[{rows},{n}] multiply(d, rs)
      gs = f32[{rows},{n}] broadcast(g), dimensions={{1}}
      bs = f32[{rows},{n}] broadcast(b), dimensions={{1}}
      y = f32[{rows},{n}] multiply(z, gs)
      ROOT o = f32[{rows},{n}] add(y, bs)"""

    def by_numpy(x: Any, g: Any, b: Any) -> Any:
        d = x - x.mean(1, keepdims=True)
        return d / np.sqrt((d * d).mean(1, keepdims=True) + np.float32(1e-5)) * g + b

    return Kernel(body, by_numpy, 9.0 * rows * n)


def gelu(n: int) -> Kernel:
    """GELU in its tanh form, since NumPy has no erf."""
    body = f"""
      x = f32[{n}] parameter(0)
      c = f32[{n}] broadcast(f32[] constant(0.044715)), dimensions={{}}
      s = f32[{n}] broadcast(f32[] constant(0.7978845608)), dimensions={{}}
      h = f32[{n}] broadcast(f32[] constant(0.5)), dimensions={{}}
      one = f32[{n}] broadcast(f32[] constant(1)), dimensions={{}}
      xx = f32[{n}] multiply(x, x)
      xxx = f32[{n}] multiply(xx, x)
      t = f32[{n}] multiply(xxx, c)
      u = f32[{n}] add(x, t)
      v = f32[{n}] multiply(u, s)
      w = f32[{n}] tanh(v)
      y = f32[{n}] add(w, one)
      z = f32[{n}] multiply(x, h)
      ROOT o = f32[{n}] multiply(y, z)"""

    def by_numpy(x: Any) -> Any:
        inner = np.float32(0.7978845608) * (x + np.float32(0.044715) * x * x * x)
        return np.float32(0.5) * x * (1 + np.tanh(inner))

    return Kernel(body, by_numpy, 28.0 * n)


def weighted_sum(n: int) -> Kernel:
    """Return the sum of ``x + y z``."""
    body = f"""
      x = f32[{n}] parameter(0)
      y = f32[{n}] parameter(1)
      z = f32[{n}] parameter(2)
      zero = f32[] constant(0)
      p = f32[{n}] multiply(y, z)
      q = f32[{n}] add(x, p)
      ROOT s = f32[] reduce(q, zero), dimensions={{0}}, to_apply=sum"""
    return Kernel(body, lambda x, y, z: np.sum(x + y * z), 3.0 * n)


def transpose(m: int, n: int) -> Kernel:
    """Return a transpose of ``[m, n]``."""
    body = f"""
      x = f32[{m},{n}] parameter(0)
      ROOT t = f32[{n},{m}] transpose(x), dimensions={{1,0}}"""
    return Kernel(body, lambda x: np.ascontiguousarray(x.T), 0.0)


KERNELS: dict[str, Kernel] = {
    "matmul_64": matmul(64, 64, 64),
    "matmul_256": matmul(256, 256, 256),
    "matmul_512": matmul(512, 512, 512),
    "matmul_1024": matmul(1024, 1024, 1024),
    "matmul_odd": matmul(127, 311, 253),
    "conv_3x3": convolution(56, 64, 64),
    "softmax": softmax(512, 1000),
    "layer_norm": layer_norm(128, 768),
    "gelu": gelu(1 << 18),
    "sum_xyz": weighted_sum(1 << 22),
    "transpose": transpose(1024, 1024),
}


def measure(name: str, kernel: Kernel, options: argparse.Namespace) -> str:
    """One row of the table; an ``AssertionError`` where a result is wrong."""
    target = nw.Target.parse(f"cpu -threads={options.threads}" if options.threads else "cpu")
    module = kernel.module(name)
    args = [np.asarray(a) for a in random_arguments(module.entry)]
    wanted = kernel.numpy(*args)
    default = nw.build(module, target)
    calls = {"default": lambda: default(*args), "NumPy": lambda: kernel.numpy(*args)}
    outputs = [default(*args)]
    if options.trials:
        log = f"{options.log}/{name}.jsonl"
        nw.tune(module, target=target, trials=options.trials, log=log)
        tuned = nw.build(module, target, log=log)
        outputs.append(tuned(*args))
        calls["tuned"] = lambda: tuned(*args)
    for got in outputs:
        bound = 1e-3 * max(1.0, float(np.max(np.abs(wanted))))
        assert float(np.max(np.abs(got - wanted))) <= bound, name
    times = medians(calls, options.seconds)
    best = times.get("tuned", times["default"])
    rate = f"{kernel.flops / best / 1e9:8.1f}" if kernel.flops else " " * 8
    gain = f"{times['default'] / times['tuned']:12.2f}" if "tuned" in times else " " * 12
    shown = [show_seconds(times[n]) if n in times else "" for n in ("default", "tuned", "NumPy")]
    columns = "".join(f"{s:>10}" for s in shown)
    return f"{name:12}{columns}{rate}{gain}{times['NumPy'] / best:12.2f}"


def main() -> None:
    """Print one row per kernel."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("only", nargs="*", metavar="KERNEL", help=", ".join(KERNELS))
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--trials", type=int, default=0, help="0: default schedules only")
    parser.add_argument("--log", default=ROOT / "report/benchmarks", help="folder of logs")
    parser.add_argument("--seconds", type=float, default=0.5, help="for each call")
    options = parser.parse_args()
    print(f"{'':12}{'default':>10}{'tuned':>10}{'NumPy':>10}{'GFLOP/s':>8}", end="")
    print(f"{'tuned gain':>12}{'over NumPy':>12}")
    for name in options.only or KERNELS:
        print(measure(name, KERNELS[name], options), flush=True)


if __name__ == "__main__":
    main()
