"""The cost of interruptible calls, this tree against a revision, and the delay until they end.

Two processes, one for each, build the same models with nothing cached and run them in turn. Printed
are the best time of a call, the ratio of the best times, this tree's by the revision's, and that of
the times of a round: its median, and in brackets its quartiles. Then, for calls that would never
return, the time from a SIGINT to the exception, of ``--signals`` signals at random moments::

    python benchmarks/interrupt.py --base REVISION [--rounds 200] [--signals 20] [only ...]
"""

from __future__ import annotations

import argparse
import io
import os
import random
import signal
import statistics
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from side_by_side import ROOT, seconds_of, show_seconds

TURN = 5e-3  # seconds of one measurement, at least

ADD = """HloModule add
ENTRY e { x = f32[SIZE] parameter(0)
 y = f32[SIZE] parameter(1)
 ROOT z = f32[SIZE] add(x, y) }"""
LOOP = """HloModule loop
c { t = (s32[], s32[], f32[8]) parameter(0)
 i = s32[] get-tuple-element(t), index=0
 n = s32[] get-tuple-element(t), index=1
 ROOT p = pred[] compare(i, n), direction=LT }
b { t = (s32[], s32[], f32[8]) parameter(0)
 i = s32[] get-tuple-element(t), index=0
 n = s32[] get-tuple-element(t), index=1
 x = f32[8] get-tuple-element(t), index=2
 o = s32[] constant(1)
 j = s32[] add(i, o)
 y = f32[8] add(x, x)
 ROOT r = (s32[], s32[], f32[8]) tuple(j, n, y) }
ENTRY e { n = s32[] parameter(0)
 x = f32[8] parameter(1)
 z = s32[] constant(0)
 t = (s32[], s32[], f32[8]) tuple(z, n, x)
 w = (s32[], s32[], f32[8]) while(t), condition=c, body=b
 ROOT y = f32[8] get-tuple-element(w), index=2 }"""
DOT = """HloModule dot
ENTRY e { x = f32[SIZE,SIZE] parameter(0)
 y = f32[SIZE,SIZE] parameter(1)
 ROOT z = f32[SIZE,SIZE] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0} }"""
TANH = """HloModule tanh
ENTRY e { x = f32[SIZE] parameter(0)
 ROOT z = f32[SIZE] tanh(x) }"""
SUM = """HloModule sum
a { p = f32[] parameter(0)
 q = f32[] parameter(1)
 ROOT s = f32[] add(p, q) }
ENTRY e { x = f32[SIZE] parameter(0)
 z = f32[] constant(0)
 ROOT s = f32[] reduce(x, z), dimensions={0}, to_apply=a }"""
SORT = """HloModule sort
c { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT l = pred[] compare(a, b), direction=LT }
ENTRY e { x = f32[SIZE] parameter(0)
 ROOT s = f32[SIZE] sort(x), dimensions={0}, to_apply=c }"""
PAIRS = """HloModule pairs
a { p = f32[] parameter(0)
 q = f32[] parameter(1)
 ROOT s = f32[] add(p, q) }
ENTRY e { x = f32[SIZE] parameter(0)
 z = f32[] constant(0)
 b = f32[SIZE,SIZE] broadcast(x), dimensions={0}
 c = f32[SIZE,SIZE] broadcast(x), dimensions={1}
 d = f32[SIZE,SIZE] multiply(b, c)
 t = f32[SIZE,SIZE] tanh(d)
 ROOT s = f32[] reduce(t, z), dimensions={0,1}, to_apply=a }"""


def calls() -> dict[str, Callable[[], object]]:
    """Return a call of each workload, by name; in a process that has one of the trees."""
    import numpy as np

    import nestwright as nw

    def model(text: str, target: str = "cpu", **sizes: int) -> Callable[[], object]:
        for name, size in sizes.items():
            text = text.replace(name, str(size))
        exe = nw.build(nw.parse(text), target, cache=False)
        args = exe.random_arguments()
        return lambda: exe(*args)

    def example(name: str) -> Callable[[], object]:
        return model((ROOT / "examples" / name).read_text())

    loop = nw.build(nw.parse(LOOP), cache=False)
    million, few, x = np.int32(10**6), np.int32(3), np.zeros(8, np.float32)
    return {
        "add of 8": model(ADD, SIZE=8),
        "add of 20,000": model(ADD, SIZE=20_000),
        "loop of 3 turns": lambda: loop(few, x),
        "loop of 10^6 turns": lambda: loop(million, x),
        "convnet": example("convnet.hlo"),
        "gpt2 greedy": example("gpt2_greedy.hlo"),
        "dot 1024": model(DOT, SIZE=1024),
        "dot 1024, one thread": model(DOT, "cpu -threads=1", SIZE=1024),
        "tanh of 10^7": model(TANH, SIZE=10**7),
        "sum of 10^7": model(SUM, SIZE=10**7),
        "sum of 10^7, one thread": model(SUM, "cpu -threads=1", SIZE=10**7),
        "sort of 10^5": model(SORT, SIZE=10**5),
    }


def serve(only: list[str]) -> None:
    """The child: build, then measure what each line of the input names, once."""
    found = {n: call for n, call in calls().items() if not only or n in only}
    repeats = {}
    for name, call in found.items():
        call()
        repeats[name] = max(1, round(TURN / max(seconds_of(call, 1), 1e-9)))
    print("\t".join(found), flush=True)
    for line in sys.stdin:
        name = line.rstrip("\n")
        print(seconds_of(found[name], repeats[name]), flush=True)


class Child:
    """A process that measures with one tree."""

    def __init__(self, tree: Path, only: list[str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--serve", *only],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(tree)},
        )

    def line(self) -> str:
        """Return the next line that it prints."""
        assert self.process.stdout is not None
        found = self.process.stdout.readline()
        if not found:
            raise SystemExit("a measuring process ended")
        return found.rstrip("\n")

    def measure(self, name: str) -> float:
        """Seconds of one call."""
        assert self.process.stdin is not None
        print(name, file=self.process.stdin, flush=True)
        return float(self.line())


def tree(folder: Path, revision: str) -> Path:
    """Return a folder with this repository's package as it is in a revision, or now (an empty
    name).
    """
    package = folder / (revision or "now").replace("/", "-") / "nestwright"
    if not revision:
        package.parent.mkdir()
        package.symlink_to(ROOT, target_is_directory=True)
        return package.parent
    archive = subprocess.run(
        ["git", "archive", revision], cwd=ROOT, capture_output=True, check=True
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(package, filter="data")
    return package.parent


def compare(base: str, rounds: int, only: list[str]) -> None:
    """Print a row per workload."""
    with tempfile.TemporaryDirectory() as folder:
        children = [Child(tree(Path(folder), r), only) for r in ("", base)]
        names, *_ = (child.line().split("\t") for child in children)
        print(f"{'':26}{'a call':>10}{'best':>8}  ratio to {base}")
        for name in names:
            ratios, best = [], [float("inf")] * 2
            for n in range(rounds):
                order = (0, 1) if n % 2 else (1, 0)
                times = {i: children[i].measure(name) for i in order}
                ratios.append(times[0] / times[1])
                best = [min(best[i], times[i]) for i in range(2)]
            low, middle, high = statistics.quantiles(ratios, n=4)
            shown = f"{middle:.4f}  ({low:.4f} to {high:.4f})"
            print(f"{name:26}{show_seconds(best[0]):>10}{best[0] / best[1]:8.4f}  {shown}")
        for child in children:
            child.process.kill()
            child.process.wait()


def latencies(count: int) -> None:
    """Print, for calls that do not return by themselves, how soon they end at a SIGINT."""
    import numpy as np

    import nestwright as nw

    x = np.zeros(8, np.float32)
    loop, ever = nw.build(nw.parse(LOOP), cache=False), np.int32(2**31 - 1)
    dots = DOT.replace("SIZE", "4096")
    big, wide = np.ones((4096, 4096), np.float32), np.ones(2**20, np.float32)
    pairs = PAIRS.replace("SIZE", str(2**20))
    rows: dict[str, Callable[[], object]] = {"loop": lambda: loop(ever, x)}
    for target in ("cpu", "cpu -threads=1"):
        dot = nw.build(nw.parse(dots), target, cache=False)
        rows[f"dot 4096, {target}"] = lambda dot=dot: dot(big, big)
        pair = nw.build(nw.parse(pairs), target, cache=False)
        rows[f"kernel of hours, {target}"] = lambda pair=pair: pair(wide)
    simulated = nw.build(nw.parse(pairs), "cuda-sim -arch=sm_90", cache=False)
    rows["simulated GPU"] = lambda: simulated(wide)
    print(f"\n{'SIGINT to exception':32}{'median':>10}{'longest':>10}")
    for name, call in rows.items():
        found = [_latency(call) for _ in range(count)]
        middle = statistics.median(found)
        print(f"{name:32}{show_seconds(middle):>10}{show_seconds(max(found)):>10}")


def _latency(call: Callable[[], object]) -> float:
    sent = 0.0

    def send() -> None:
        nonlocal sent
        sent = time.perf_counter()
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(0.05 + 0.2 * random.random(), send)
    try:
        timer.start()
        while True:
            call()
    except KeyboardInterrupt:
        return time.perf_counter() - sent


def main() -> int:
    """Measure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--base", default="")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--signals", type=int, default=10)
    parser.add_argument("--serve", action="store_true")
    parser.add_argument("only", nargs="*")
    options = parser.parse_args()
    if options.serve:
        serve(options.only)
        return 0
    if options.base:
        compare(options.base, options.rounds, options.only)
    if options.signals:
        latencies(options.signals)
    return 0


if __name__ == "__main__":
    sys.exit(main())
