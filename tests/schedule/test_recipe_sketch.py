"""The recipe for a sketch: a function that gives it, and a rank; the tuner tries it by itself."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import nestwright.te as te
from nestwright.autotune.cost.features import NAMES, Encoder
from nestwright.autotune.search.space import Space
from nestwright.ir.loop.nodes import Func
from nestwright.ir.target import Target
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.sketches.cpu.nests.matching import CPU, FuncInfo
from nestwright.schedule.sketches.generate import generate
from nestwright.schedule.sketches.gpu.launches.clusters import CLUSTERS, Cluster
from nestwright.schedule.space.space import Choices, Sketch

HOST = Target.parse("cpu -mcpu=haswell -threads=2")
GPU = Target.parse("cuda -arch=sm_90")


def toy(name: str, cost: float) -> Sketch:
    def apply(sch: Schedule, c: Choices) -> None:
        for block in sch.blocks():
            outer, _ = sch.split(sch.get_loops(block)[0], [None, int(c["width"])])
            if c["kind"] == "unrolled":
                sch.unroll(outer)

    return Sketch(
        name=name,
        kind="elementwise",
        decisions={"width": tuple(range(1, 101)), "kind": ("serial", "unrolled")},
        default={"width": 4, "kind": "serial"},
        apply=apply,
        valid=lambda c: int(c["width"]) % 2 == 0,
        cost=lambda c: cost,
    )


@pytest.fixture
def registered() -> Iterator[None]:
    for target in (HOST, GPU):
        generate(scaled(2.0), target)  # imports the rows of its folder
    before = dict(CPU.rows), dict(CLUSTERS.rows)

    @CPU.row(5)
    def match_toy(work: FuncInfo, target: Target) -> Sketch | None:
        return toy("toy@1", 1e-6) if len(work.blocks) == 1 else None

    @CLUSTERS.row(5)
    def match_toy_cluster(k: Cluster, target: Target) -> Sketch | None:
        return toy("gpu_toy@1", 1e-12) if len(k.blocks) == 1 else None

    yield
    for rows, old in zip((CPU.rows, CLUSTERS.rows), before, strict=True):
        rows.clear()
        rows.update(old)


def scaled(*factors: float) -> Func:
    a = b = te.placeholder((400,), name="A")
    for f in factors:
        b = times(b, f)
    return te.create_func([a, b], name="scaled")


def times(x: te.Tensor, factor: float) -> te.Tensor:
    return te.compute((400,), lambda i: x[i] * factor, name=f"B{int(factor)}")


@pytest.mark.usefixtures("registered")
def test_rows_stand_in_order_of_rank() -> None:
    assert [s.name for s in generate(scaled(2.0), HOST)] == ["toy@1", "alone@1"]
    assert [s.name for s in generate(scaled(2.0, 3.0), HOST)] == ["alone@1"]
    assert generate(scaled(2.0), GPU)[0].name == "gpu_toy@1", "the cheapest first"


def test_without_it_there_is_nothing_of_it() -> None:
    assert [s.name for s in generate(scaled(2.0), HOST)] == ["alone@1"]


@pytest.mark.usefixtures("registered")
def test_its_points_are_searched_and_encoded_at_once() -> None:
    func = scaled(2.0)
    space = Space(generate(func, HOST))
    points = [p for p in space.everything() or () if p.sketch == 0]
    assert len(points) == 100, "the even widths, serial and unrolled"
    rows = Encoder(func, space, HOST, 400.0, 3200.0).encode(points)
    assert rows.shape == (100, len(NAMES))
    widths = rows[:, NAMES.index("extra0")]
    np.testing.assert_allclose(np.unique(2.0**widths), np.arange(2, 101, 2), rtol=1e-5)
