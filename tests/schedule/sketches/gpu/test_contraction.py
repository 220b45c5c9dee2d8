"""Matrix products on GPUs: every point of a sketch computes what the function says."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from nestwright.ir.dtypes import to_numpy
from nestwright.ir.hlo.fuse.fusion import fuse
from nestwright.ir.hlo.passes.pipeline import optimize
from nestwright.ir.hlo.text import parse
from nestwright.ir.loop.interp.evaluate import run
from nestwright.ir.loop.nodes import Func, Intrinsic, Kind
from nestwright.ir.loop.verify import verify
from nestwright.ir.loop.visit import equal, walk
from nestwright.ir.target import Target
from nestwright.schedule.language.schedule import Schedule, Trace
from nestwright.schedule.sketches.generate import generate
from nestwright.schedule.sketches.gpu.products.contraction import matmul_sketches
from nestwright.schedule.sketches.gpu.products.matmul import Matmul, find_matmul
from nestwright.schedule.space.space import Sketch
from nestwright.te.from_hlo import lower_group

SM80 = Target.parse("cuda -arch=sm_80")
TF32 = Target.parse("cuda -arch=sm_80 -tf32=1")

GROUPS = {
    "plain": """
        x = f16[64,96] parameter(0)
        w = f16[96,48] parameter(1)
        ROOT c = f16[64,48] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}""",
    "odd": """
        x = f16[37,51] parameter(0)
        w = f16[51,43] parameter(1)
        ROOT c = f32[37,43] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}""",
    "batch": """
        x = bf16[3,40,64] parameter(0)
        w = bf16[3,64,36] parameter(1)
        b = bf16[36] parameter(2)
        c = bf16[3,40,36] dot(x, w), lhs_batch_dims={0}, rhs_batch_dims={0},
            lhs_contracting_dims={2}, rhs_contracting_dims={1}
        bb = bf16[3,40,36] broadcast(b), dimensions={2}
        ROOT r = bf16[3,40,36] add(c, bb)""",
    "heads": """
        x = f16[48,72] parameter(0)
        w = f16[72,40] parameter(1)
        c = f16[48,40] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
        r = f16[2,24,4,10] reshape(c)
        ROOT t = f16[2,4,24,10] transpose(r), dimensions={0,2,1,3}""",
    "turned": """
        x = f16[48,72] parameter(0)
        w = f16[72,40] parameter(1)
        c = f16[48,40] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
        ROOT t = f16[40,48] transpose(c), dimensions={1,0}""",
    "conv": """
        x = bf16[2,6,5,16] parameter(0)
        w = bf16[3,3,16,24] parameter(1)
        c = bf16[2,3,3,24] convolution(x, w), window={size=3x3 stride=2x2 pad=1_1x1_1},
            dim_labels=b01f_01io->b01f
        z = bf16[] constant(0)
        zero = bf16[2,3,3,24] broadcast(z), dimensions={}
        ROOT r = bf16[2,3,3,24] maximum(c, zero)""",
    "bytes": """
        x = s8[40,70] parameter(0)
        w = s8[70,36] parameter(1)
        ROOT c = s32[40,36] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}""",
    "single": """
        x = f32[40,70] parameter(0)
        w = f32[70,36] parameter(1)
        ROOT c = f32[40,36] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}""",
}


def group(body: str) -> Func:
    module = optimize(parse(f"HloModule m\nENTRY main {{{body}}}"))
    fusion = fuse(module.entry, SM80.row.groups)
    (found,) = (g for g in fusion.groups if g.kind in ("dot", "convolution"))
    return lower_group(found.computation, "main")


def product(func: Func) -> Matmul:
    found = find_matmul(Schedule(func))
    assert found is not None
    return found


def inputs(func: Func) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(5)
    buffers = func.params[: len(func.params) - func.outputs]
    return [rng.integers(-3, 4, b.shape).astype(to_numpy(b.dtype)) for b in buffers]


def some(sketch: Sketch, count: int) -> Iterator[dict[str, Any]]:
    """The default and some valid points, the smallest tiles preferred: they are quick to run."""
    yield dict(sketch.default)
    points = [p for p in sketch.points() if p["tile_m"] == p["tile_n"] == 32]
    for p in random.Random(7).sample(points, count):
        yield dict(p)


def scheduled(func: Func, sketch: Sketch, choices: dict[str, Any]) -> Schedule:
    sch = Schedule(func)
    sketch.apply(sch, choices)
    verify(sch.func)
    return sch


@pytest.mark.parametrize("name", [n for n in GROUPS if n != "single"])
def test_tensor_cores_compute_the_same(name: str) -> None:
    func = group(GROUPS[name])
    (sketch,) = (s for s in matmul_sketches(product(func), SM80) if s.name == "gpu_mma@1")
    args = inputs(func)
    want = run(func, args)
    for choices in some(sketch, int(name in ("odd", "conv"))):
        sch = scheduled(func, sketch, choices)
        assert any(
            isinstance(s, Intrinsic) and s.name.startswith("mma") for s in walk(sch.func.body)
        )
        for x, y in zip(run(sch.func, args), want, strict=True):
            np.testing.assert_array_equal(x, y, err_msg=str(choices))
        again = Trace.from_json(json.loads(json.dumps(sch.trace.to_json()))).replay(func)
        assert equal(again.func, sch.func)


@pytest.mark.parametrize("join", ["last", "launch"])
def test_ordinary_cores_compute_the_same(join: str) -> None:
    odd = GROUPS["odd"].replace("37", "33").replace("51", "29").replace("43", "35")
    func = group(odd)
    (sketch,) = (s for s in matmul_sketches(product(func), SM80) if s.name == "gpu_simt@1")
    choices = {"tile_m": 16, "tile_n": 16, "rows": 8, "columns": 4, "tile_k": 8, "stages": 2}
    sch = scheduled(func, sketch, {**choices, "split": 2, "join": join, "group": 1})
    args = inputs(func)
    for x, y in zip(run(sch.func, args), run(func, args), strict=True):
        np.testing.assert_array_equal(x, y)


def test_which_core_is_allowed() -> None:
    names = [s.name for s in matmul_sketches(product(group(GROUPS["plain"])), SM80)]
    assert names == ["gpu_mma@1", "gpu_simt@1"]
    single = product(group(GROUPS["single"]))
    assert [s.name for s in matmul_sketches(single, SM80)] == ["gpu_simt@1"]
    assert matmul_sketches(single, TF32)[0].name == "gpu_mma@1"
    old = Target.parse("cuda -arch=sm_75")
    assert [s.name for s in matmul_sketches(product(group(GROUPS["plain"])), old)] == ["gpu_simt@1"]


def test_rounding_to_tf32_keeps_small_integers() -> None:
    func = group(GROUPS["single"])
    sketch = matmul_sketches(product(func), TF32)[0]
    args = inputs(func)
    sch = scheduled(func, sketch, dict(sketch.default))
    np.testing.assert_array_equal(run(sch.func, args)[0], run(func, args)[0])


def test_what_is_no_matter_of_tiles() -> None:
    thin = GROUPS["plain"].replace("64", "4")
    assert find_matmul(Schedule(group(thin))) is None
    names = [s.name for s in generate(group(thin), SM80)]
    assert not {"gpu_mma@1", "gpu_simt@1"} & set(names)
    assert generate(group(GROUPS["plain"]), SM80)[0].name == "gpu_mma@1"


def test_operands_are_taken_as_they_lie() -> None:
    found = product(group(GROUPS["plain"]))
    assert (found.left.along, found.left.across) == (8, 1)
    assert (found.right.along, found.right.across) == (1, 8)
    assert not found.left.transposed
    assert found.right.transposed
    odd = product(group(GROUPS["odd"]))
    assert (odd.left.along, odd.right.across, odd.result.vector) == (1, 1, 1)
    conv = product(group(GROUPS["conv"]))
    assert conv.feeders == ("pad",)
    assert (conv.left.along, conv.left.plain, conv.result.vector) == (8, True, 8)
    assert product(group(GROUPS["turned"])).result.last in ("m", "n")
    assert [len(product(group(GROUPS["heads"])).result.axes[r]) for r in "bmn"] == [0, 2, 2]


def test_a_large_product_gets_large_tiles() -> None:
    body = """
        x = f16[4096,4096] parameter(0)
        w = f16[4096,4096] parameter(1)
        ROOT c = f16[4096,4096] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}"""
    func = group(body)
    sketch = matmul_sketches(product(func), SM80)[0]
    c = sketch.default
    assert c["tile_m"] * c["tile_n"] >= 128 * 128  # type: ignore[operator]
    assert c["split"] == 1
    assert sketch.cost(c) < 1.3 * 2 * 4096**3 / 312e12 / 0.7
    sch = scheduled(func, sketch, dict(c))
    threads = {s.thread for s in walk(sch.func.body) if getattr(s, "kind", None) is Kind.THREAD}
    assert threads >= {"blockIdx.x", "threadIdx.x", "threadIdx.y", "threadIdx.z"}


def test_a_deep_narrow_product_is_split() -> None:
    func = group("""
        x = f16[64,16384] parameter(0)
        w = f16[16384,64] parameter(1)
        ROOT c = f16[64,64] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}""")
    assert int(matmul_sketches(product(func), SM80)[0].default["split"]) > 4


def test_points_fit_the_machine() -> None:
    small = Target.parse("cuda -arch=sm_75")
    for target in (SM80, small):
        for sketch in matmul_sketches(product(group(GROUPS["plain"])), target):
            assert sketch.valid(sketch.default)
            points = list(sketch.points())
            assert 0 < len(points) < sketch.size()
            assert min(map(sketch.cost, points)) <= sketch.cost(sketch.default)


def test_parts_are_added_up_by_whole_blocks() -> None:
    func = group("""
        x = f16[49,512] parameter(0)
        w = f16[512,80] parameter(1)
        ROOT c = f16[49,80] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}""")
    sketch = matmul_sketches(product(func), SM80)[0]
    sch = scheduled(func, sketch, {**sketch.default, "split": 4, "join": "launch"})
    last = sch.get_loops("out")
    assert [sch.extent(x) for x in last[:2]] == [2, 245]
