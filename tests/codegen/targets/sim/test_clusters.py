"""Clusters of blocks: parts of sums that go through the shared memory of the blocks that made them,
simulated, thread by thread, and as PTX."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from nestwright import te
from nestwright.codegen.driver.kernel import Kernel, compile_flat
from nestwright.codegen.emit.launches import launches
from nestwright.codegen.lower.gpu.remote import reach_remote
from nestwright.codegen.runtime.sim.process import SEED
from nestwright.codegen.targets.cuda import nvptx, ptxas
from nestwright.codegen.targets.registry import emit, lower
from nestwright.ir.errors import SimulationError, UnsupportedError
from nestwright.ir.loop.interp.evaluate import run
from nestwright.ir.loop.interp.races import UndefinedError
from nestwright.ir.loop.nodes import Func
from nestwright.ir.loop.notes import CLUSTER
from nestwright.ir.loop.parser import parse
from nestwright.ir.loop.printer import show
from nestwright.ir.target import Target
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.sketches.generate import generate

SIMULATED = Target.parse("cuda-sim -arch=sm_90")
IN_A_CLUSTER = "in a cluster"
ROWS, DEPTH, PARTS = 5, 77, 3
X = np.random.default_rng(0).integers(-4, 5, (ROWS, DEPTH)).astype(np.float32)


def rows_in_parts(parts: int = PARTS, threads: int = 32) -> Schedule:
    """Sums of rows, each by the blocks of a cluster, of which the first adds their parts."""
    a, k = te.placeholder((ROWS, DEPTH), "f32", "A"), te.reduce_axis(DEPTH, "k")
    s = te.compute((ROWS,), lambda i: te.sum(a[i, k], axis=k), name="S")
    sch = Schedule(te.create_func([a, s], name="rows"))
    row, depth = sch.get_loops("S")
    part, _ = sch.split(depth, [parts, None])
    sch.bind(row, "blockIdx.x")
    partial = sch.rfactor(part, 0)
    _, part, depth = sch.get_loops(partial)
    thread, _ = sch.split(depth, [threads, None])
    sch.bind(part, "blockIdx.y")
    sch.bind(thread, "threadIdx.x")
    sch.annotate(part, CLUSTER.key, 1)
    return sch


FLAT = show(lower(rows_in_parts().func, SIMULATED))
BARRIER = 'intrinsic("cluster_barrier")'


def without(number: int, other: str = "pass") -> str:
    """The kernel with something else for one of its two barriers."""
    parts = FLAT.split(BARRIER)
    assert len(parts) == 3
    return BARRIER.join(parts[: number + 1]) + other + BARRIER.join(parts[number + 1 :])


FAULTS = {
    "no barrier before a remote read": (without(0), "S_rf"),
    "the block's barrier": (without(0, 'intrinsic("barrier")'), "S_rf"),
    "a block that ends while it is read": (without(1), "may end while its S_rf is read"),
    "a block that is not there": (
        FLAT.replace("cast(s32, k_tile)", "cast(s32, k_tile + 1)"),
        "that the cluster does not have",
    ),
    "an element that is not there": (
        FLAT.replace('alloc(f32[1], scope="shared")', 'alloc(f32[2], scope="shared")').replace(
            "reads(S_rf[0], rank", "reads(S_rf[1], rank"
        ),
        "before anything is written there",
    ),
}


def test_the_first_block_adds_up_what_the_others_have(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "counter" not in FLAT and FLAT.count("load_remote") == 1
    kernel = Kernel(compile_flat(parse(FLAT), SIMULATED))
    for seed in range(4):
        monkeypatch.setenv(SEED, str(seed))
        np.testing.assert_array_equal(kernel(X.ravel()), X.sum(1))
        (found,) = run(parse(FLAT), [X.ravel()], seed=seed, check_races=True)
        np.testing.assert_array_equal(found, X.sum(1))


CHOSEN = """\
@func(outputs=1)
def rows(A: f32[3, 32], S: f32[5]):
    with alloc(f32[3]) as P:
        for by in thread("blockIdx.y", 3, cluster=1):
            for tx in thread("threadIdx.x", 32):
                if tx == 0:
                    P[by] = A[by, 0]
                intrinsic("cluster_barrier")
                if by == 0:
                    if tx == 0:
                        for k in range(5):
                            S[k] = {value}
                intrinsic("cluster_barrier")
"""


@pytest.mark.parametrize(
    ("value", "remote"),
    [("P[k // 2]", True), ("select(k < 3, P[k], f32(0.0))", False)],
)
def test_a_part_that_may_not_be_there_is_not_fetched_from_a_block(value: str, remote: bool) -> None:
    text = show(reach_remote(parse(CHOSEN.format(value=value))))
    assert ("load_remote" in text) == remote == ('scope="shared"' in text)


@pytest.mark.parametrize("name", FAULTS)
def test_what_is_wrong_is_found(name: str) -> None:
    text, message = FAULTS[name]
    assert text != FLAT
    with pytest.raises(SimulationError, match=message):
        Kernel(compile_flat(parse(text), SIMULATED))(X.ravel())
    with pytest.raises(UndefinedError):
        run(parse(text), [X.ravel()], seed=0, check_races=True)


def test_a_barrier_that_only_one_block_reaches() -> None:
    inner = " " * 20
    text = without(1, f"if by == 0:\n{inner}{BARRIER}")
    with pytest.raises(SimulationError, match="not all threads reach cluster_barrier"):
        Kernel(compile_flat(parse(text), SIMULATED))(X.ravel())
    with pytest.raises(UndefinedError, match="not all of 96 threads"):
        run(parse(text), [X.ravel()], seed=0, check_races=True)


@pytest.mark.parametrize(
    ("arch", "parts", "threads", "why"),
    [
        ("sm_80", 2, 32, "a cluster of 2 blocks"),
        ("sm_90", 9, 32, "a cluster of 9 blocks"),
        ("sm_90", 2, 3, "whole warps"),
    ],
)
def test_what_a_gpu_does_not_hold_is_refused(arch: str, parts: int, threads: int, why: str) -> None:
    with pytest.raises(UnsupportedError, match=why):
        lower(rows_in_parts(parts, threads).func, Target.parse(f"cuda -arch={arch}"))


def product(m: int, n: int, k: int, dtype: str, out: str) -> Func:
    a, b = te.placeholder((m, k), dtype, "A"), te.placeholder((k, n), dtype, "B")
    r = te.reduce_axis(k, "k")

    def term(i: Any, j: Any) -> Any:
        return te.sum(te.cast(a[i, r], "f32") * te.cast(b[r, j], "f32"), axis=r)

    c = te.compute((m, n), term, name="C")
    d = te.compute((m, n), lambda i, j: te.cast(c[i, j] + 1.0, out), name="D")
    return te.create_func([a, b, d], name="product")


def totals(n: int) -> Func:
    a, k = te.placeholder((n,), "f32", "A"), te.reduce_axis(n, "k")
    return te.create_func(
        [a, te.compute((), lambda: te.sum(a[k], axis=k), name="S")], name="totals"
    )


TILE = {"tile_m": 32, "tile_n": 32, "split": 2, "stages": 2, "group": 1}
CASES: dict[str, tuple[Func, dict[str, Any]]] = {
    "gpu_mma@1": (
        product(48, 40, 520, "f16", "f16"),
        {**TILE, "tile_k": 32, "warps_m": 2, "warps_n": 1},
    ),
    "gpu_columns@1": (product(3, 40, 128, "f32", "f16"), {"columns": 32, "share": 4, "blocks": 4}),
    "gpu_total@1": (totals(20000), {"blocks": 8, "threads": 128}),
}


@pytest.mark.parametrize("name", CASES)
def test_sketches_join_parts_in_clusters(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    func, chosen = CASES[name]
    (sketch,) = [s for s in generate(func, SIMULATED) if s.name == name]
    assert sketch.default.get("join") != IN_A_CLUSTER  # until it is measured
    asked = {n: v for n, v in chosen.items() if n in sketch.decisions} | {"join": IN_A_CLUSTER}
    rest = {n: v for n, v in sketch.decisions.items() if n not in asked}
    found = (dict(zip(rest, v, strict=True)) for v in itertools.product(*rest.values()))
    choices = next(c for f in found if sketch.valid(c := {**f, **asked}))
    sch = Schedule(func)
    sketch.apply(sch, choices)
    flat = lower(sch.func, SIMULATED)
    assert len(launches(flat)) == 1
    assert "load_remote" in show(flat) and "counter" not in show(flat)
    rng = np.random.default_rng(1)
    args = [
        rng.integers(-3, 4, b.shape).astype(b.dtype.name.replace("f", "float"))
        for b in func.params[:-1]
    ]
    wanted = np.matmul(*(x.astype(np.float32) for x in args)) + 1 if args[1:] else args[0].sum()
    kernel = Kernel(compile_flat(flat, SIMULATED))
    for seed in range(2):
        monkeypatch.setenv(SEED, str(seed))
        got = np.asarray(kernel(*(x.ravel() for x in args)), np.float32)
        np.testing.assert_array_equal(got.reshape(np.shape(wanted)), wanted)
    check_assembled(sch)


def check_assembled(sch: Schedule) -> None:
    """Clusters are part of the code, which spills nothing and has no counters."""
    for arch in ("sm_90a", "sm_100a"):
        target = Target.parse(f"cuda -arch={arch}")
        code = nvptx.compile(emit(lower(sch.func, target), target), target)
        assert ".reqnctapercluster" in code and "ld.shared::cluster" in code
        assert "atom." not in code
        if ptxas.find() is None:
            pytest.skip("no ptxas on this machine")
        (usage,) = ptxas.assemble(code, arch).kernels.values()
        assert usage.spill_stores == usage.stack == 0
