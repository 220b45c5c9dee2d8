"""Models as their owners hold them, through each door, beside what runs them now.

::

    python benchmarks/doors/speed.py --json doors.json              # all torch models
    python benchmarks/doors/speed.py --models bert vit --tune 200   # and tuned: 200 trials a graph
    python benchmarks/doors/speed.py --training                     # a step without its optimizer
    python benchmarks/doors/speed.py --jax                          # JAX's steps, with optax
    python benchmarks/doors/onnx/models.py folder                   # write ONNX files, and
    python benchmarks/doors/speed.py --onnx folder/*.onnx           # measure them

Torch models: eager, Inductor (skipped without a C++ compiler), nestwright, and nestwright tuned, by
``torch.compile``. ONNX files: ONNX Runtime and OpenVINO (where installed), nestwright, and tuned,
on the arrays of the ``.npz`` beside the file. All of a model run in one process in turn, with a
pause and untimed calls before each timed one, so that the threads of the way before are asleep
(without it, a model of 1.5 ms takes 2.9 ms beside ONNX Runtime); each result is compared with the
first way's. A row has the seconds of the first call, which compiles, and of a
call, the median. ``--realtime`` gives the process real-time priority while it times (root).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # names begin at benchmarks/

import numpy as np
from side_by_side import medians, show_seconds

from nestwright.autotune.bench.peers import table
from nestwright.autotune.bench.peers.table import Given, Open, ways_of
from nestwright.ir.lazy import resolve

Call: TypeAlias = Callable[[], Any]
TOLERANCE = 1e-4  # of the largest value of a result
OF_GRADIENTS = 2e-2  # the same: an activation at a kink has one slope or the other
PAUSE = 0.2  # seconds; threads of OpenMP, TBB and ONNX Runtime spin for up to a tenth of one


@dataclass(frozen=True)
class Row:
    """A model run one way: seconds of the first call and of others, and the error; or why not."""

    model: str
    way: str
    first: float = math.nan
    seconds: float = math.nan
    error: float = math.nan
    skipped: str = ""


def torch_ways(workload: Any, trials: int, threads: int) -> dict[str, Call | str]:
    """Return the ways to run a torch model, or why one cannot be taken."""
    import torch

    torch.set_num_threads(threads)

    def through(backend: str, **options: Any) -> Call:
        run = torch.compile(workload.model, backend=backend, options=options or None)
        return lambda: workload(run)

    compiler = os.environ.get("CXX", "g++")
    ways: dict[str, Call | str] = {
        "eager": lambda: workload(workload.model),
        "inductor": through("inductor") if shutil.which(compiler) else f"there is no {compiler}",
        "nestwright": through("nestwright"),
    }
    if trials:
        ways["nestwright tuned"] = through("nestwright", tune=trials, log="auto")
    return ways


def jax_ways(training: Any) -> dict[str, Call | str]:
    """Return the ways to run a training step of JAX; XLA may write over the state."""
    import jax

    import nestwright as nw
    from doors.jax.training import Run

    return {
        "xla": Run(jax.jit(training.step, donate_argnums=0), training),
        "nestwright": Run(nw.jit(training.step, donate_argnums=0), training),
    }


def onnx_ways(path: Path, trials: int, threads: int) -> dict[str, Call | str]:
    """Return the ways to run an ONNX file; what each makes of it belongs to its first call.

    The inputs are those of the ``.npz`` beside the file, else random.
    """
    feeds = _inputs(path)
    ways: dict[str, Call | str] = {
        "onnxruntime": _made(
            lambda: _peer("onnxruntime", path, feeds, threads), feeds, "onnxruntime"
        ),
        "openvino": _made(lambda: _peer("openvino", path, feeds, threads), feeds, "openvino"),
        "nestwright": _made(lambda: _nestwright(path, feeds, 0), feeds),
    }
    if trials:
        ways["nestwright tuned"] = _made(lambda: _nestwright(path, feeds, trials), feeds)
    return ways


def _inputs(path: Path) -> dict[str, Any]:
    import nestwright as nw

    beside = path.with_suffix(".npz")
    if beside.exists():
        with np.load(beside) as arrays:
            return dict(arrays)
    exe = nw.build(path)
    return dict(zip(exe.input_names, exe.random_arguments(0), strict=True))


def _made(
    make: Callable[[], Callable[[Mapping[str, Any]], Any]],
    feeds: Mapping[str, Any],
    package: str = "",
) -> Call | str:
    """Return a call of what the first call makes, or that the package it needs is missing."""
    if package and importlib.util.find_spec(package) is None:
        return f"{package} is not installed"
    made = cache(make)
    return lambda: made()(feeds)


def _peer(
    name: str, path: Path, feeds: Mapping[str, Any], threads: int
) -> Callable[[Mapping[str, Any]], Any]:
    """Return a peer's call, as `nestwright bench --peers` makes it."""
    open_model: Open = resolve(ways_of([name])[0].open, table.__package__ or "")
    opened = open_model(Given(path, feeds, threads))
    return lambda feeds: opened.arrays(opened.call())


def _nestwright(
    path: Path, feeds: Mapping[str, Any], trials: int
) -> Callable[[Mapping[str, Any]], Any]:
    import nestwright as nw

    lowered = nw.lower(path, shapes={name: x.shape for name, x in feeds.items()})
    log = lowered.tune(trials).log if trials else None
    exe = lowered.compile(log)
    return lambda feeds: exe(**feeds)


def measure(
    model: str, ways: Mapping[str, Call | str], seconds: float, realtime: bool
) -> list[Row]:
    """Run a model in all ways, in turn, and compare their results with the first way's."""
    calls: dict[str, Call] = {}
    firsts: dict[str, float] = {}
    errors: dict[str, float] = {}
    skipped: dict[str, str] = {}
    want: list[Any] = []
    for way, call in ways.items():
        if isinstance(call, str):
            skipped[way] = call
            continue
        begin = time.perf_counter()
        try:
            found = arrays(call())
        except Exception as error:  # other people's compilers: the row says what they said
            skipped[way] = f"{type(error).__name__}: {error}".splitlines()[0]
            continue
        firsts[way] = time.perf_counter() - begin
        want = want or found
        errors[way] = max(map(distance, found, want), default=0.0)
        calls[way] = call
    with at_real_time() if realtime else at_ease():
        times = medians(calls, seconds, PAUSE)
    rows = [Row(model, way, firsts[way], times[way], errors[way]) for way in calls]
    return rows + [Row(model, way, skipped=why) for way, why in skipped.items()]


def arrays(result: Any) -> list[Any]:
    """Return the floating-point arrays of a result, whatever holds them."""
    if isinstance(result, Mapping):
        return [a for value in result.values() for a in arrays(value)]
    if isinstance(result, tuple | list):
        return [a for value in result for a in arrays(value)]
    if hasattr(result, "detach"):
        result = result.detach()
    if hasattr(result, "__array__"):  # as torch's and JAX's have it
        result = np.asarray(result)
    is_float = isinstance(result, np.ndarray) and result.dtype.kind == "f"
    return [np.array(result)] if is_float else []


def distance(a: Any, b: Any) -> float:
    """Return the largest difference of two arrays, as a share of the largest value."""
    if not a.size:
        return 0.0
    largest = float(np.abs(b).max())
    return float(np.abs(a - b).max()) / (largest or 1.0)


@contextmanager
def at_real_time() -> Iterator[None]:
    """Give every thread of the process real-time priority for a while."""
    _schedule(os.SCHED_FIFO, 10)
    try:
        yield
    finally:
        _schedule(os.SCHED_OTHER, 0)


def _schedule(policy: int, priority: int) -> None:
    """Set the policy of all threads of the process; some may end meanwhile."""
    for name in os.listdir("/proc/self/task"):
        with suppress(ProcessLookupError):
            os.sched_setscheduler(int(name), policy, os.sched_param(priority))


@contextmanager
def at_ease() -> Iterator[None]:
    """Leave the priority as it is."""
    yield


def show(rows: list[Row], tolerance: float) -> None:
    """Print the rows of a model; errors above ``tolerance`` are wrong."""
    base = next((r.seconds for r in rows if not r.skipped), math.nan)
    for r in rows:
        if r.skipped:
            print(f"{r.model:17} {r.way:18} skipped: {r.skipped[:160]}", flush=True)
            continue
        wrong = "" if r.error <= tolerance else "  WRONG"
        print(
            f"{r.model:17} {r.way:18} {show_seconds(r.seconds):>9} {base / r.seconds:6.2f}x "
            f"first call {show_seconds(r.first):>9}  error {r.error:.1e}{wrong}",
            flush=True,
        )


def summarize(rows: list[Row], ours: str) -> None:
    """Print the geometric mean of the others' times over ours, for each and the best of them."""
    times: dict[str, dict[str, float]] = {}
    for r in rows:
        if not r.skipped:
            times.setdefault(r.model, {})[r.way] = r.seconds
    others = list(dict.fromkeys(r.way for r in rows if not r.way.startswith("nestwright")))
    for name, group in [*((o, [o]) for o in others), ("the best of them", others)]:
        pairs = [
            min(found[o] for o in group if o in found) / found[ours]
            for found in times.values()
            if ours in found and any(o in found for o in group)
        ]
        if pairs:
            mean = math.exp(sum(map(math.log, pairs)) / len(pairs))
            ahead = sum(p > 1 for p in pairs)
            print(f"{name} / {ours}: {mean:.2f}, ahead in {ahead} of {len(pairs)}")


def main() -> None:
    """Measure the models that are asked for; print the rows, and write them as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="*", help="models by name, all by default")
    parser.add_argument("--onnx", nargs="*", type=Path, default=[], help="ONNX files instead")
    parser.add_argument("--training", action="store_true", help="losses and their gradients")
    parser.add_argument("--jax", action="store_true", help="training steps of JAX instead")
    parser.add_argument("--tune", type=int, default=0, help="trials for each graph")
    parser.add_argument("--small", action="store_true", help="small sizes, to try it out")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seconds", type=float, default=4.0, help="of timing, for each way")
    parser.add_argument("--realtime", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    os.environ["NESTWRIGHT_NUM_THREADS"] = str(options.threads)
    rows: list[Row] = []
    for name, ways in chosen(options):
        rows += (found := measure(name, ways, options.seconds, options.realtime))
        show(found, OF_GRADIENTS if options.training or options.jax else TOLERANCE)
    for ours in ("nestwright", "nestwright tuned"):
        summarize(rows, ours)
    if options.json:
        options.json.write_text(json.dumps([asdict(r) for r in rows], indent=1) + "\n")


def chosen(options: argparse.Namespace) -> Iterator[tuple[str, dict[str, Call | str]]]:
    """Yield the names of the models asked for, each with the ways to run it."""
    if options.onnx:
        for path in options.onnx:
            yield path.stem, onnx_ways(path, options.tune, options.threads)
        return
    if options.jax:
        from doors.jax import training

        for name in options.models or training.TRAINED:
            yield name, jax_ways(training.TRAINED[name](options.small))
        return
    import torch

    from doors.torch.models import MODELS
    from doors.torch.training import TRAINED

    models = TRAINED if options.training else MODELS
    for name in options.models or models:
        torch._dynamo.reset()
        torch.manual_seed(0)
        with torch.set_grad_enabled(options.training):
            yield name, torch_ways(models[name](options.small), options.tune, options.threads)


if __name__ == "__main__":
    main()
