"""Transposes on GPUs: vectors of global memory both ways, tiles that run over the edges."""

from __future__ import annotations

import random

import numpy as np
import pytest

from nestwright.codegen.driver.kernel import compile_func
from nestwright.codegen.targets.registry import lower
from nestwright.ir.dtypes import BY_NAME, to_numpy
from nestwright.ir.hlo.fuse.fusion import fuse
from nestwright.ir.hlo.passes.pipeline import optimize
from nestwright.ir.hlo.text import parse
from nestwright.ir.loop.nodes import For, Func, Kind
from nestwright.ir.loop.visit import walk
from nestwright.ir.target import Target
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.sketches.generate import default_schedule, generate
from nestwright.te.from_hlo import lower_group

SIM = Target.parse("cuda-sim -arch=sm_80")
CUDA = Target.parse("cuda -arch=sm_90")


def transpose(dtype: str, shape: tuple[int, ...]) -> Func:
    order = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)
    source, result = (",".join(str(shape[d]) for d in o) for o in (range(len(shape)), order))
    text = f"""HloModule transpose
ENTRY main {{
  x = {dtype}[{source}] parameter(0)
  ROOT y = {dtype}[{result}] transpose(x), dimensions={{{",".join(map(str, order))}}}
}}"""
    (group,) = fuse(optimize(parse(text)).entry).groups
    return lower_group(group.computation, "main")


@pytest.mark.parametrize("dtype", ["f32", "bf16", "s8"])
@pytest.mark.parametrize("shape", [(24, 40), (65, 72), (33, 21), (3, 16, 48)])
def test_transposes_compute_the_same(dtype: str, shape: tuple[int, ...]) -> None:
    func, rng = transpose(dtype, shape), random.Random(f"{dtype} {shape}")
    sketch = next(s for s in generate(func, SIM) if s.name.startswith("gpu_transpose"))
    size = np.prod(shape) * BY_NAME[dtype].bytes
    bits = np.random.default_rng(0).integers(0, 256, size).astype(np.uint8)
    x = bits.view(to_numpy(BY_NAME[dtype])).reshape(shape)  # any bits: NaN are moved as they are
    points = list(sketch.points())
    widest = max(int(c["vector"]) for c in points)
    chosen = [sketch.default, rng.choice([c for c in points if c["vector"] == widest])]
    for choices in chosen:
        sch = Schedule(func)
        sketch.apply(sch, choices)
        found = np.asarray(compile_func(sch.func, SIM)(x))
        assert found.tobytes() == np.ascontiguousarray(x.swapaxes(-1, -2)).tobytes(), choices


@pytest.mark.parametrize(("dtype", "lanes"), [("f32", 4), ("bf16", 8), ("s8", 16)])
def test_large_transposes_access_memory_16_bytes_at_a_time(dtype: str, lanes: int) -> None:
    flat = lower(default_schedule(transpose(dtype, (1024, 2048)), CUDA).func, CUDA)
    vectors = [s for s in walk(flat.body) if isinstance(s, For) and s.kind is Kind.VECTOR]
    assert len(vectors) == 2 and {s.extent.value for s in vectors} == {lanes}
