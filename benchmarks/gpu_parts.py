"""The parts of `gpu.py`, each run in a child process; every result is a JSON line at once.

Rows have a ``kind``: ``fact`` (of the machine), ``right`` (a check), ``timed`` (seconds and
ratios), ``skipped`` and ``failed`` (with ``why``).
"""

from __future__ import annotations

import json
import math
import time
import traceback
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import gpu_models
import gpu_peers
import gpu_work
import numpy as np
from gpu_peers import Contender, Unavailable

ROOT = Path(__file__).resolve().parents[1]
SETS = 4  # of arguments, at most, that timing rotates through, so that no cache holds them
COLD = 1 << 28  # bytes that no cache holds
PACKAGES = ("numpy", "llvmlite", "cuda-bindings", "torch", "jax", "ml_dtypes", "triton")
COPIED = 1 << 30  # bytes of the copy that bandwidths are held against


@dataclass
class Part:
    """One part's rows, options and clock."""

    name: str
    options: Namespace
    begun: float = field(default_factory=time.perf_counter)

    def write(self, kind: str, name: str, **facts: Any) -> None:
        row = {"kind": kind, "part": self.name, "name": name, **facts}
        with (self.options.out / f"{self.name}.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")

    def left(self) -> float:
        """Seconds until this part should be done."""
        return float(self.options.seconds) - (time.perf_counter() - self.begun)

    def attempt(self, name: str, action: Callable[[], None], needs: float = 3) -> None:
        """Do one thing; a failure is a row. Skipped where less than ``needs`` seconds are left."""
        if self.left() < needs:
            self.write("skipped", name, why=f"{self.left():.0f} s were left")
            return
        try:
            action()
        except MemoryError as error:
            self.write("failed", name, why=f"out of memory: {error}")
        except Exception as error:
            traceback.print_exc()
            told = str(error).split("\n")[0]
            self.write("failed", name, why=f"{type(error).__name__}: {told}"[:300])
            if type(error).__name__ == "DeviceError":
                raise  # this process cannot use the GPU any more

    @cached_property
    def copy_bandwidth(self) -> float:
        """Bytes per second of a copy on the device, reads and writes counted; 0 if unknown."""
        return _copy_bandwidth() if self.options.target.startswith("cuda") else 0.0


def run_part(name: str, options: Namespace) -> None:
    """Run one part to its end."""
    part = Part(name, options)
    {
        "machine": machine, "small": small, "passes": passes, "matmul": matmul,
        "models": models, "convolutions": convolutions,
    }[name](part)  # fmt: skip


def build(part: Part, text: str, options: str = "") -> tuple[Any, float]:
    """The executable of HLO text under the log's schedules, and the seconds it took."""
    from nestwright.codegen.driver.build import build as build_module
    from nestwright.ir.hlo.text import parse
    from nestwright.ir.target import Target

    spec = part.options.target
    target = Target.parse(f"{spec} {options}" if options and spec.startswith("cuda") else spec)
    schedules: Mapping[str, Any] = {}
    if part.options.log:
        from nestwright.autotune.build import best_traces

        schedules = best_traces(part.options.log, target)
    start = time.perf_counter()
    made = build_module(parse(text), target, schedules=schedules)
    return made, time.perf_counter() - start


def machine(part: Part) -> None:
    """What is here, and how fast a copy is."""
    for package in PACKAGES:
        try:
            part.write("fact", package, value=version(package))
        except PackageNotFoundError:
            part.write("fact", package, value="not installed")
    from nestwright.codegen.targets.cuda import ptxas

    found = ptxas.find()
    part.write("fact", "ptxas", value=found.version if found else "not found")
    if not part.options.target.startswith("cuda"):
        return
    from nestwright.codegen.runtime.cuda.device import device

    part.write("fact", "GPU", value=repr(device()))
    part.write("fact", "copy bandwidth", value=f"{part.copy_bandwidth / 1e9:.0f} GB/s")


def _copy_bandwidth() -> float:
    from nestwright.codegen.runtime.cuda.device import device

    gpu = device()
    a, b = gpu.allocate(COPIED), gpu.allocate(COPIED)
    call, best = gpu.driver.call, float("inf")
    with gpu:
        for _ in range(12):
            start, end = gpu.event(), gpu.event()
            call("cuEventRecord", start, gpu.stream)
            call("cuMemcpyDtoDAsync", b.address, a.address, COPIED, gpu.stream)
            call("cuEventRecord", end, gpu.stream)
            gpu.synchronize("a copy")
            best = min(best, float(call("cuEventElapsedTime", start, end)) * 1e-3)
            call("cuEventDestroy", start)
            call("cuEventDestroy", end)
    return 2 * COPIED / best


def small(part: Part) -> None:
    """Small models and kernels of every kind against the interpreter."""
    from nestwright.ir.frontends.load import load_model

    paths = sorted((ROOT / "examples").glob("*.hlo"))
    paths += sorted(part.options.corpus.glob("*.hlo")) if part.options.corpus else []
    for path in paths:
        if path.stat().st_size < 100_000:
            part.attempt(path.stem, lambda path=path: _against_interpreter(part, load_model(path)))
    works = [*gpu_work.products(True), *gpu_work.passes(True), *gpu_work.convolutions(True)]
    for work in works:
        part.attempt(work.name, lambda work=work: _checked(part, work, 1))
    part.attempt("other libraries' arrays", lambda: _exchange(part))


def _against_interpreter(part: Part, module: Any) -> None:
    from nestwright.codegen.driver.build import build as build_module
    from nestwright.ir.accuracy import relative_error, tolerance
    from nestwright.ir.dtypes import from_numpy
    from nestwright.ir.hlo.analysis.inputs import random_arguments
    from nestwright.ir.hlo.interp.evaluate import evaluate

    exe = build_module(module, part.options.target)
    args = random_arguments(module.entry, 0)
    with np.errstate(all="ignore"):
        wanted = gpu_peers.leaves(evaluate(module, args))
    worst, ok = 0.0, True
    for _ in range(3):  # one by one, recorded, replayed
        for got, want in zip(gpu_peers.leaves(exe(*args)), wanted, strict=True):
            error = float(relative_error(np.asarray(got), np.asarray(want)))
            worst = max(worst, error)
            ok = ok and error <= tolerance(from_numpy(np.asarray(want).dtype))
    part.write("right", module.name, ok=ok, error=worst)


def _exchange(part: Part) -> None:
    """torch gives arrays and takes the results, without a copy."""
    try:
        import torch
    except ImportError:
        part.write("skipped", "other libraries' arrays", why="torch is not installed")
        return
    if not torch.cuda.is_available() or not part.options.target.startswith("cuda"):
        part.write("skipped", "other libraries' arrays", why="torch sees no GPU")
        return
    work = gpu_work.softmax(64, 96)
    exe, _ = build(part, work.hlo)
    x = torch.randn(64, 96, device="cuda")
    for given in (x, x.t().contiguous().t(), torch.randn(65, 97, device="cuda")[1:, 1:]):
        made = torch.from_dlpack(exe(given))
        error = float((made - torch.softmax(given, 1)).abs().max())
        strides = tuple(given.stride())
        part.write("right", f"torch array of strides {strides}", ok=error < 1e-5, error=error)


def _checked(part: Part, work: gpu_work.Work, sets: int) -> tuple[Contender, list[Any]] | None:
    """A workload that was built and found right, and its sets of arguments; None if it is wrong.

    The sets hold the same numbers, at different places of the device's memory.
    """
    exe, seconds = build(part, work.hlo, work.options)
    arguments = [work.arguments(0)] * sets
    ours = gpu_peers.nestwright(exe, arguments)
    error = max(work.error(arguments[0], ours.result()[0]) for _ in range(2))
    ok = error <= work.tolerance
    part.write("right", work.name, ok=ok, error=error, build_seconds=seconds)
    return (ours, arguments) if ok else None


def passes(part: Part) -> None:
    """What memory bounds, against the copy, torch.compile and jax."""
    works = gpu_work.passes(part.options.dry_run)
    for n, work in enumerate(works):
        part.attempt(work.name, lambda work=work, n=n: _timed(part, work, len(works) - n), 8)


def matmul(part: Part) -> None:
    """Matrix products on tensor cores, against torch (cuBLAS)."""
    works = gpu_work.products(part.options.dry_run)
    for n, work in enumerate(works):
        part.attempt(work.name, lambda work=work, n=n: _timed(part, work, len(works) - n), 8)


def convolutions(part: Part) -> None:
    """ResNet-50's convolutions, batch 32, against torch (cuDNN)."""
    works = gpu_work.convolutions(part.options.dry_run)
    for n, work in enumerate(works):
        part.attempt(work.name, lambda work=work, n=n: _timed(part, work, len(works) - n))


def _timed(part: Part, work: gpu_work.Work, turns: int) -> None:
    """Check one workload, then time it beside its peers; ``turns`` share the time that is left.

    It is timed alone first: a peer that hangs takes its own figure with it and not ours.
    """
    start, left = time.perf_counter(), part.left()
    found = _checked(part, work, _sets(work))
    if found is None:
        part.write("skipped", work.name, why="wrong results are not timed")
        return
    ours, sets = found
    _write_times(part, work, gpu_peers.medians([ours], 0.3))
    peers = [] if part.options.dry_run else _peers(part, work, sets)
    if peers:
        budget = left / turns - (time.perf_counter() - start)
        _write_times(part, work, gpu_peers.medians([ours, *peers], min(4.0, max(0.3, budget))))


def _sets(work: gpu_work.Work) -> int:
    """Sets of arguments that together are far larger than a cache."""
    size = gpu_work.numpy_type(work.dtype).itemsize * sum(map(math.prod, work.shapes))
    return max(1, min(SETS, -(-COLD // size)))


def _peers(part: Part, work: gpu_work.Work, sets: Sequence[Any]) -> list[Contender]:
    """The contenders that are here; the others are noted."""
    found = []
    for name, make in (("torch", gpu_peers.torch_peer), ("jax", gpu_peers.jax_peer)):
        try:
            peer = make(work.peer, sets, work.peer_args)
        except Exception as error:
            traceback.print_exc()
            peer = Unavailable(name, f"{type(error).__name__}: {error}"[:200])
        if isinstance(peer, Unavailable):
            part.write("skipped", f"{work.name} beside {name}", why=peer.why)
        else:
            found.append(peer)
    return found


def _write_times(part: Part, work: gpu_work.Work, rows: dict[str, dict[str, Any]]) -> None:
    mine = rows["nestwright"]["seconds"]
    facts: dict[str, Any] = {"contenders": rows, "weight": work.weight}
    if work.flops:
        facts["tflops"] = work.flops / mine / 1e12
    else:
        facts["gbytes"] = work.bytes / mine / 1e9
        if part.copy_bandwidth:
            facts["of_copy"] = work.bytes / mine / part.copy_bandwidth
    facts["ratios"] = {n: r["seconds"] / mine for n, r in rows.items() if n != "nestwright"}
    part.write("timed", work.name, **facts)


def models(part: Part) -> None:
    """Whole models against jax, which also writes their HLO."""
    jax = gpu_peers.jax_here()
    if isinstance(jax, Unavailable):
        part.write("skipped", "models", why=f"their HLO is jax's: {jax.why}")
        return
    names = list(gpu_models.MODELS)
    for n, name in enumerate(names):
        turns = len(names) - n
        part.attempt(name, lambda name=name, turns=turns: _model(part, jax, name, turns), 15)


def _model(part: Part, jax: Any, name: str, turns: int) -> None:
    model = gpu_models.MODELS[name]
    inputs = model.inputs(np.random.default_rng(0))
    held = gpu_models.weights(model, inputs)
    text = gpu_models.hlo(model, held, inputs)
    flat = [*jax.tree.leaves(held), *inputs]
    exe, seconds = build(part, text, "-tf32=1")
    ours = gpu_peers.nestwright(exe, [flat])
    function = gpu_models.applied(model)
    with jax.default_matmul_precision("highest"):
        exact = jax.jit(function)(held, *inputs)
    errors = [
        _distance(got, np.asarray(want))
        for got, want in zip(ours.result(), gpu_peers.leaves(exact), strict=True)
    ]
    ok = max(errors) <= 10 * gpu_work.TOLERANCES["tf32"]
    part.write("right", name, ok=ok, error=max(errors), build_seconds=seconds)
    if not ok:
        part.write("skipped", name, why="wrong results are not timed")
        return
    theirs = gpu_peers.jax_contender(jax, function, [[held, *inputs]])
    rows = gpu_peers.medians([ours, theirs], min(8.0, max(1.0, part.left() / turns / 3)))
    ratio = rows["jax"]["seconds"] / rows["nestwright"]["seconds"]
    slowest = sorted(exe.profile(*flat), key=lambda row: -row.seconds)[:8]
    heavy = [[row.name, row.seconds] for row in slowest]
    part.write("timed", name, contenders=rows, ratios={"jax": ratio}, weight=1, heaviest=heavy)


def _distance(got: Any, want: Any) -> float:
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    if got.shape != want.shape or not np.isfinite(got).all():
        return float("inf")
    return float(np.linalg.norm(got - want) / max(float(np.linalg.norm(want)), 1e-30))
