"""The parts of `main.py`, each run in a child process of its own."""

from __future__ import annotations

import math
import traceback
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from . import ours, peers, prebuilt, workloads
from .clocks import Contender, medians, ratios, seconds
from .exchange import exchange
from .part import Part
from .peers import Unavailable
from .prediction import predictions
from .tuning import tuning

SETS = 4  # of arguments, at most, that timing rotates through, so that no cache holds them
CALLS = 3
COLD = 1 << 28  # bytes that no cache holds
PACKAGES = (
    "numpy",
    "llvmlite",
    "cuda-bindings",
    "torch",
    "jax",
    "cupy-cuda13x",
    "ml_dtypes",
    "triton",
    "platformdirs",
    "xgboost-cpu",
    "optuna",
)


def run_part(name: str, options: Namespace) -> None:
    """Run one part to its end."""
    PARTS[name](Part(name, options))


def machine(part: Part) -> None:
    """Record versions, speeds of a copy and an empty launch, and torch.compile's first run."""
    for package in PACKAGES:
        try:
            part.write("fact", package, value=version(package))
        except PackageNotFoundError:
            part.write("fact", package, value="not installed")
    from nestwright.codegen.targets.cuda import ptxas

    found = ptxas.find()
    part.write("fact", "ptxas", value=found.version if found else "not found")
    if not part.on_gpu:
        return
    from nestwright.codegen.runtime.cuda.device import device

    part.write("fact", "GPU", value=repr(device()))
    gpu = part.target().gpu
    bytes_ = f"{gpu.board}: {gpu.bandwidth / 1e9:.0f} GB/s"
    part.write("fact", "the row it is taken for", value=bytes_, number=gpu.bandwidth)
    part.attempt("copy bandwidth", lambda: _copy(part))
    part.attempt("launch in a graph", lambda: _launch(part))
    part.attempt("torch.compile", lambda: _warm(part))


def _copy(part: Part) -> None:
    rate = ours.copy_bandwidth()
    part.write("fact", "copy bandwidth", value=f"{rate / 1e9:.0f} GB/s, median", number=rate)


def _launch(part: Part) -> None:
    took = ours.launch_seconds(part.build(ours.SMALL)[0])
    part.write("fact", "launch in a graph", value=f"{took * 1e6:.2f} us, median", number=took)


def _warm(part: Part) -> None:
    """Compile what part `passes` times; torch keeps it on disk."""
    for work in workloads.passes(part.options.dry_run):
        peer = peers.torch_peer(work.peer, [work.arguments(0)], work.peer_args)
        if isinstance(peer, Unavailable):
            part.write("skipped", "torch.compile", why=peer.why)
            return


def once(part: Part) -> None:
    """Three calls of the workload that the options name: one by one, recorded, replayed."""
    named, small = part.options.once, part.options.dry_run
    found = {w.name: w for w in workloads.every(small)}
    if named not in found:
        raise SystemExit(f"no workload {named!r}: there are {', '.join(found)}")
    work = found[named]
    exe, _ = part.ready(work.name, work.hlo, work.options)
    arguments = [exe.put(a) for a in work.arguments(0)]
    for _ in range(CALLS):
        exe(*arguments)


def small(part: Part) -> None:
    """Small workloads of every kind against their references, and other libraries' arrays."""
    for work in workloads.every(True):
        part.attempt(work.name, partial(_checked, part, work, 1))
    part.attempt("other libraries' arrays", lambda: exchange(part))


def passes(part: Part) -> None:
    """Measure memory-bound workloads against torch.compile and jax."""
    _all(part, workloads.passes(part.options.dry_run))


def matmul(part: Part) -> None:
    """Matrix products on tensor cores, against torch (cuBLAS) and jax."""
    _all(part, workloads.products(part.options.dry_run))


def convolutions(part: Part) -> None:
    """ResNet-50's convolutions, batch 32, against torch (cuDNN)."""
    _all(part, workloads.convolutions(part.options.dry_run))


def _all(part: Part, works: Sequence[workloads.Work]) -> None:
    for n, work in enumerate(works):
        turns = len(works) - n
        part.attempt(work.name, partial(_timed, part, work, turns))


def _checked(part: Part, work: workloads.Work, sets: int) -> tuple[Contender, list[Any]] | None:
    """Return a workload that was built and found right, and its sets of arguments; None if it is
    wrong.

    The sets hold the same numbers, at different places of the device's memory.
    """
    exe, took = part.ready(work.name, work.hlo, work.options)
    arguments = [work.arguments(0)] * sets
    made = ours.nestwright(exe, arguments)
    error = max(work.error(arguments[0], made.result()[0]) for _ in range(2))
    ok = error <= work.tolerance
    part.write("right", work.name, ok=ok, error=error, build_seconds=took)
    return (made, arguments) if ok else None


def _timed(part: Part, work: workloads.Work, turns: int) -> None:
    """Check one workload, then time it beside its peers; ``turns`` share the time that is left.

    It is timed alone first: a peer that hangs takes its own figure with it and not ours.
    """
    end = part.left() - part.left() / turns
    found = _checked(part, work, _sets(work))
    if found is None:
        part.write("skipped", work.name, why="wrong results are not timed")
        return
    mine, sets = found
    facts: dict[str, Any] = {"flops": work.flops, "bytes": work.bytes, "weight": work.weight}
    facts |= _predicted(part, work)
    rows = medians([mine], 0.3)
    part.write("timed", work.name, contenders=rows, ratios={}, **facts)
    others = _peers(part, work, sets) if part.on_gpu else []
    if others:
        rows = medians([mine, *others], min(4.0, max(0.3, part.left() - end)))
        part.write("timed", work.name, contenders=rows, ratios=ratios(rows), **facts)
    if len(facts.get("sketches", ())) == 1:
        told = {"sketch": facts["sketches"][0], "predicted": facts["predicted"]}
        part.write("kernel", work.name, **told, measured=seconds(rows["nestwright"]), count=1)


def _sets(work: workloads.Work) -> int:
    """Sets of arguments that together are far larger than a cache."""
    size = workloads.numpy_type(work.dtype).itemsize * sum(map(math.prod, work.shapes))
    return max(1, min(SETS, -(-COLD // size)))


def _predicted(part: Part, work: workloads.Work) -> dict[str, Any]:
    """Return the cost model's seconds for a workload, and its sketches; nothing where a log has
    better.
    """
    from nestwright.ir.hlo.text import parse

    if part.options.log:
        return {}
    found = predictions(parse(work.hlo), part.predicted_target(work.options)).values()
    total = math.fsum(p.seconds for p in found)
    return {"predicted": total, "sketches": [p.sketch for p in found]}


def _peers(part: Part, work: workloads.Work, sets: Sequence[Any]) -> list[Contender]:
    """Return the contenders that are here; the others are noted."""
    every = (
        ("torch", lambda: peers.torch_peer(work.peer, sets, work.peer_args)),
        ("jax", lambda: peers.jax_peer(work.peer, sets, work.peer_args)),
    )
    return [p for name, make in every if (p := _peer(part, work.name, name, make)) is not None]


def _peer(part: Part, work: str, name: str, make: Callable[[], Any]) -> Contender | None:
    try:
        peer = make()
    except Exception as error:
        traceback.print_exc()
        peer = Unavailable(name, f"{type(error).__name__}: {error}"[:200])
    if isinstance(peer, Unavailable):
        part.write("skipped", f"{work} beside {name}", why=peer.why)
        return None
    assert isinstance(peer, Contender)
    return peer


def whole_models(part: Part) -> None:
    """Whole models out of the kit, against jax on what it exported of the same."""
    if part.options.dry_run:
        _example(part)
    folder = part.options.kit / "models"
    names = sorted(p.name for p in folder.glob("*")) if folder.is_dir() else []
    if not names:
        part.write("skipped", "models", why="there is no kit: see benchmarks/gpu/kit")
    for n, name in enumerate(names):
        turns = len(names) - n
        part.attempt(
            name,
            lambda name=name, turns=turns: _model(part, prebuilt.read(folder / name), turns),
            8,
        )


def _example(part: Part) -> None:
    """For a dry run, a kit with one small model."""
    from nestwright.ir.hlo.interp.evaluate import evaluate
    from nestwright.ir.hlo.text import parse

    work = workloads.layer_norm(16, 64)
    recipes = tuple(prebuilt.Recipe(n, s) for n, s in zip("xgb", work.shapes, strict=True))
    module = parse(work.hlo)
    wanted = evaluate(module, [r.drawn() for r in recipes])
    made = prebuilt.Prebuilt(
        "layer_norm",
        part.build(work.hlo)[0],
        recipes,
        (prebuilt.sample(wanted),),
        predictions(module, part.predicted_target()),
    )
    part.options.kit = part.options.out / "kit"
    prebuilt.write(part.options.kit / "models" / made.name, made)


def _model(part: Part, model: prebuilt.Prebuilt, turns: int) -> None:
    arguments = model.arguments()
    mine = ours.nestwright(model.exe, [arguments])
    error = model.error(mine.result())
    ok = error <= 10 * workloads.TOLERANCES["tf32"]
    part.write("right", model.name, ok=ok, error=error)
    if not ok:
        part.write("skipped", model.name, why="wrong results are not timed")
        return
    _profiled(part, model, arguments)
    rows = medians([mine], 0.3)
    part.write("timed", model.name, contenders=rows, ratios={}, weight=1)
    if model.exported and part.on_gpu:
        theirs = _peer(
            part, model.name, "jax", lambda: peers.exported_peer(model.exported, arguments)
        )
        if theirs is not None:
            rows = medians([mine, theirs], min(6.0, max(0.5, part.left() / turns / 2)))
            part.write("timed", model.name, contenders=rows, ratios=ratios(rows), weight=1)


def _profiled(part: Part, model: prebuilt.Prebuilt, arguments: Sequence[Any]) -> None:
    """A row for each distinct group of a model, run alone: what it takes beside its prediction."""
    found: dict[str, list[Any]] = {}
    for row in model.exe.profile(*arguments).rows:
        found.setdefault(row.task, []).append(row)
    for task, rows in found.items():
        if (p := model.predicted.get(task)) is not None:
            measured = sorted(r.seconds for r in rows)[len(rows) // 2]
            told = {"sketch": p.sketch, "predicted": p.seconds, "measured": measured}
            part.write("kernel", f"{model.name}: {rows[0].name}", **told, count=len(rows))


PARTS: Mapping[str, Callable[[Part], None]] = {
    "machine": machine,
    "small": small,
    "matmul": matmul,
    "passes": passes,
    "convolutions": convolutions,
    "models": whole_models,
    "tuning": tuning,
}
