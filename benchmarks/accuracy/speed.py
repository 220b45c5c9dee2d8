"""The cost of accuracy: nanoseconds of element-wise functions, this tree against an older one.

::

    git worktree add ../old 7c8387b
    python benchmarks/accuracy/speed.py --old ../old --op tanh --dtype f32 --size 4096

Two processes, one per tree, take turns of some milliseconds on one thread. The ratio is that of the
fastest turns, which others' work on the machine disturbs least; the median of the turns' ratios
stands beside it. The default sizes lie in the first and in the second cache.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # names begin at benchmarks/

HERE = Path(__file__).resolve().parents[2]
HOT = ("exponential", "exponential-minus-one", "log", "logistic", "tanh", "erf", "rsqrt")
BODIES = {
    "softmax": (
        "max { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT c = f32[] maximum(a, b) }\n"
        "sum { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT c = f32[] add(a, b) }\n",
        " n = f32[] constant(-inf)\n z = f32[] constant(0)\n"
        " m = f32[{r}] reduce(x, n), dimensions={{1}}, to_apply=max\n"
        " mb = f32[{r},{c}] broadcast(m), dimensions={{0}}\n d = f32[{r},{c}] subtract(x, mb)\n"
        " e = f32[{r},{c}] exponential(d)\n"
        " s = f32[{r}] reduce(e, z), dimensions={{1}}, to_apply=sum\n"
        " sb = f32[{r},{c}] broadcast(s), dimensions={{0}}\n"
        " ROOT y = f32[{r},{c}] divide(e, sb)\n",
    ),
    "gelu": (
        "",
        " h = f32[] constant(0.5)\n hb = f32[{r},{c}] broadcast(h), dimensions={{}}\n"
        " k = f32[] constant(0.70710678)\n kb = f32[{r},{c}] broadcast(k), dimensions={{}}\n"
        " o = f32[] constant(1)\n ob = f32[{r},{c}] broadcast(o), dimensions={{}}\n"
        " t = f32[{r},{c}] multiply(x, kb)\n e = f32[{r},{c}] erf(t)\n"
        " p = f32[{r},{c}] add(e, ob)\n q = f32[{r},{c}] multiply(x, hb)\n"
        " ROOT y = f32[{r},{c}] multiply(p, q)\n",
    ),
    "silu": (
        "",
        " s = f32[{r},{c}] logistic(x)\n ROOT y = f32[{r},{c}] multiply(x, s)\n",
    ),
}
"""Rows of models in which these functions are hot: what stands before the entry, and its body."""


def _text(name: str, dtype: str, size: int) -> str:
    rows, columns = max(size // 256, 1), min(size, 256)
    if name in BODIES:
        before, body = BODIES[name]
        shape = f"{rows},{columns}"
        return (
            f"HloModule m\n{before}ENTRY e {{\n x = f32[{shape}] parameter(0)\n"
            f"{body.format(r=rows, c=columns)}}}\n"
        )
    return (
        f"HloModule m\nENTRY e {{\n x = {dtype}[{rows},{columns}] parameter(0)\n"
        f" ROOT y = {dtype}[{rows},{columns}] {name}(x)\n}}\n"
    )


def work() -> None:
    """Answer lines ``name dtype size`` with nanoseconds an element, a turn each."""
    import numpy as np
    from side_by_side import seconds_of

    import nestwright as nw
    from nestwright.ir.dtypes import BY_NAME, to_numpy

    calls: dict[tuple[str, ...], tuple[Callable[[], Any], int]] = {}
    for line in sys.stdin:
        name, dtype, size = key = tuple(line.split())
        if key not in calls:
            exe = nw.build(nw.parse(_text(name, dtype, int(size))), cache=False)
            rng = np.random.default_rng(1)
            x = rng.standard_normal((max(int(size) // 256, 1), min(int(size), 256))) * 3
            x = (np.abs(x) if name in ("log", "rsqrt") else x).astype(to_numpy(BY_NAME[dtype]))

            def call(exe: Any = exe, x: Any = x) -> Any:
                return exe(x)

            call()
            calls[key] = call, max(1, round(3e-3 / max(seconds_of(call, 20), 1e-9)))
        run, repeat = calls[key]
        print(seconds_of(run, repeat) / int(size) * 1e9, flush=True)


@contextmanager
def worker(tree: Path) -> Iterator[Callable[[str], float]]:
    """Return a function that asks a process of one tree."""
    env = {**os.environ, "PYTHONPATH": str(tree / ".src"), "NESTWRIGHT_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--work"]
    with subprocess.Popen(
        command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        pipes = process.stdin, process.stdout

        def ask(line: str) -> float:
            pipes[0].write(line + "\n")
            pipes[0].flush()
            return float(pipes[1].readline())

        yield ask
        pipes[0].close()


def main() -> None:
    """Print a row per function, type and size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--old", type=Path, help="a checkout of an older commit")
    parser.add_argument("--op", action="append")
    parser.add_argument("--dtype", action="append")
    parser.add_argument("--size", action="append", type=int)
    parser.add_argument("--turns", type=int, default=25)
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.work:
        work()
        return
    if args.old is None:
        parser.error("--old PATH: what to compare with")
    with worker(args.old.resolve()) as old, worker(HERE) as new:
        for size in args.size or [8192, 131072]:
            for dtype in args.dtype or ["f32"]:
                for name in args.op or [*HOT, *BODIES]:
                    line = f"{name} {dtype} {size}"
                    old(line), new(line)
                    pairs = [(old(line), new(line)) for _ in range(args.turns)]
                    before, after = (min(p) for p in zip(*pairs, strict=True))
                    middle = statistics.median(n / o for o, n in pairs)
                    print(
                        f"{line:40} {before:7.3f} -> {after:7.3f} ns  {after / before:5.2f}"
                        f"  (median of turns {middle:5.2f})",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
