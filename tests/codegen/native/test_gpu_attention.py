"""Attention for GPUs: the simulation gives what the graph says, and nothing of it spills."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nestwright as nw
from nestwright.codegen.driver.kernel import compile_func
from nestwright.codegen.targets.cuda import ptxas
from nestwright.codegen.targets.registry import lower
from nestwright.ir.arrays import Array
from nestwright.ir.dtypes import to_numpy
from nestwright.ir.hlo.fuse.fusion import fuse
from nestwright.ir.hlo.interp.evaluate import evaluate_computation
from nestwright.ir.hlo.nodes import HloModule
from nestwright.ir.hlo.passes.pipeline import optimize
from nestwright.ir.hlo.text import parse
from nestwright.ir.loop.interp.evaluate import run as interpret
from nestwright.ir.loop.nodes import Func
from nestwright.ir.loop.printer import show
from nestwright.ir.target import Target
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.sketches.generate import generate
from nestwright.schedule.space.space import Choices
from nestwright.te.from_hlo import lower_group

HERE = Path(__file__).parent / "attention"
SIM = "cuda-sim -arch=sm_80"
GROUPS = "cuda-sim -arch=sm_90a"
ERRORS = {"f32": 5e-6, "f16": 6e-3, "bf16": 4e-2}
TEXT = """HloModule m
sum {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }}
max {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] maximum(a, b) }}
ENTRY main {{
  q = {dt}[{h},{s},{d}] parameter(0)
  k = {dt}[{h},{t},{d}] parameter(1)
  v = {dt}[{h},{t},{w}] parameter(2)
  bias = f32[{s},{t}] parameter(3)
  raw = f32[{h},{s},{t}] dot(q, k), lhs_batch_dims={{0}}, rhs_batch_dims={{0}},
    lhs_contracting_dims={{2}}, rhs_contracting_dims={{2}}
  biases = f32[{h},{s},{t}] broadcast(bias), dimensions={{1,2}}
  y = f32[{h},{s},{t}] add(raw, biases)
  row = s32[{s},{t}] iota(), iota_dimension=0
  col = s32[{s},{t}] iota(), iota_dimension=1
  later = s32[] constant({later})
  laters = s32[{s},{t}] broadcast(later), dimensions={{}}
  last = s32[{s},{t}] add(row, laters)
  seen = pred[{s},{t}] compare(col, last), direction=LE
  seens = pred[{h},{s},{t}] broadcast(seen), dimensions={{1,2}}
  lowest = f32[] constant(-inf)
  low = f32[{h},{s},{t}] broadcast(lowest), dimensions={{}}
  x = f32[{h},{s},{t}] select(seens, y, low)
  zero = f32[] constant(0)
  m = f32[{h},{s}] reduce(x, lowest), dimensions={{2}}, to_apply=max
  ms = f32[{h},{s},{t}] broadcast(m), dimensions={{0,1}}
  z = f32[{h},{s},{t}] subtract(x, ms)
  e = f32[{h},{s},{t}] exponential(z)
  n = f32[{h},{s}] reduce(e, zero), dimensions={{2}}, to_apply=sum
  ns = f32[{h},{s},{t}] broadcast(n), dimensions={{0,1}}
  p = f32[{h},{s},{t}] divide(e, ns)
  pn = {dt}[{h},{s},{t}] convert(p)
  o = {dt}[{h},{s},{w}] dot(pn, v), lhs_batch_dims={{0}}, rhs_batch_dims={{0}},
    lhs_contracting_dims={{2}}, rhs_contracting_dims={{1}}
  ROOT r = {dt}[{s},{h},{w}] transpose(o), dimensions={{1,0,2}}
}}
"""

PACKED = """HloModule m
sum {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }}
max {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] maximum(a, b) }}
ENTRY main {{
  x = {dt}[2,{s},{all}] parameter(0)
  qs = {dt}[2,{s},{qd}] slice(x), slice={{[0:2],[0:{s}],[{at}:{k0}]}}
  ks = {dt}[2,{s},{kd}] slice(x), slice={{[0:2],[0:{s}],[{k0}:{v0}]}}
  vs = {dt}[2,{s},{kd}] slice(x), slice={{[0:2],[0:{s}],[{v0}:{all}]}}
  q = {dt}[2,{s},2,{g},{d}] reshape(qs)
  k = {dt}[2,{s},2,{d}] reshape(ks)
  v = {dt}[2,{s},2,{d}] reshape(vs)
  y = f32[2,2,{s},{g},{s}] dot(q, k), lhs_batch_dims={{0,2}}, rhs_batch_dims={{0,2}},
    lhs_contracting_dims={{4}}, rhs_contracting_dims={{3}}
  lowest = f32[] constant(-inf)
  zero = f32[] constant(0)
  m = f32[2,2,{s},{g}] reduce(y, lowest), dimensions={{4}}, to_apply=max
  ms = f32[2,2,{s},{g},{s}] broadcast(m), dimensions={{0,1,2,3}}
  z = f32[2,2,{s},{g},{s}] subtract(y, ms)
  e = f32[2,2,{s},{g},{s}] exponential(z)
  n = f32[2,2,{s},{g}] reduce(e, zero), dimensions={{4}}, to_apply=sum
  ns = f32[2,2,{s},{g},{s}] broadcast(n), dimensions={{0,1,2,3}}
  p = f32[2,2,{s},{g},{s}] divide(e, ns)
  pn = {dt}[2,2,{s},{g},{s}] convert(p)
  o = {dt}[2,2,{s},{g},{d}] dot(pn, v), lhs_batch_dims={{0,1}}, rhs_batch_dims={{0,2}},
    lhs_contracting_dims={{4}}, rhs_contracting_dims={{1}}
  t = {dt}[2,{s},2,{g},{d}] transpose(o), dimensions={{0,2,1,3,4}}
  ROOT r = {dt}[2,{s},{qd}] reshape(t)
}}
"""


def packed(dt: str, s: int, g: int, d: int, at: int) -> HloModule:
    """Queries, keys and values side by side from column ``at`` on; ``g`` queries share a key."""
    k0, v0, all_ = at + 2 * g * d, at + 2 * g * d + 2 * d, at + 2 * g * d + 4 * d
    sizes = {"s": s, "g": g, "d": d, "at": at, "qd": 2 * g * d, "kd": 2 * d}
    return parse(PACKED.format(dt=dt, k0=k0, v0=v0, all=all_, **sizes))


def module(dt: str, h: int, s: int, t: int, d: int, w: int) -> HloModule:
    """Attention with a bias, whose last query sees the last key."""
    return parse(TEXT.format(dt=dt, h=h, s=s, t=t, d=d, w=w, later=t - s))


def hide(bias: Array) -> None:
    """Hide a row wholly, and the first keys of another one; of one row, only these."""
    if bias.ndim == 2:
        bias[-1] = -np.inf
    row = bias[len(bias) // 2] if bias.ndim == 2 else bias
    row[: len(row) // 2] = -np.inf


def attention_of(m: HloModule, target: Target) -> Func:
    fusion = fuse(optimize(m).entry, target.row.groups, excess_precision=True)
    (group,) = (g for g in fusion.groups if g.kind == "attention")
    return lower_group(group.computation, "attention")


def assert_same_as_in_order(
    shape: tuple[int, int, int, int, int],
    dt: str,
    name: str,
    choices: Choices | None = None,
    odd: float | None = None,
) -> None:
    """Compare a schedule under the simulation with the function in its default order.

    One value of a key and one of a value are ``odd``.
    """
    spec = GROUPS if "wgmma" in name else SIM
    target, rng = Target.parse(spec), np.random.default_rng(0)
    func = attention_of(module(dt, *shape), target)
    sketch = next(s for s in generate(func, target) if s.name == name)
    sch = Schedule(func)
    sketch.apply(sch, {**sketch.default, **(choices or {})})
    args = [(rng.standard_normal(p.shape) / 3).astype(to_numpy(p.dtype)) for p in func.params[:-1]]
    hide(next(x for x in args if x.shape in (shape[1:3], shape[2:3])))
    for x in args if odd is not None else ():
        if x.shape[-2:] in (shape[2:4], (shape[2], shape[4])):
            x[..., shape[2] // 2, 3] = odd
    with np.errstate(all="ignore"):
        (expected,) = interpret(func, args)
    found = np.asarray(compile_func(sch.func, target)(*args)).astype(np.float64)
    error = ERRORS[dt]
    np.testing.assert_allclose(found, expected.astype(np.float64), rtol=error, atol=error)


def assert_same(found: Array, m: HloModule, args: list[Array], dt: str) -> None:
    with np.errstate(all="ignore"):
        expected = np.asarray(evaluate_computation(m.entry, args)).astype(np.float64)
    error = ERRORS[dt]
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=error, atol=error)


CASES = [
    ("f32", (2, 3, 7, 40, 40), "gpu_attention@1"),
    ("f32", (1, 7, 65, 16, 24), "gpu_attention@1"),
    ("f32", (1, 65, 130, 64, 32), "gpu_attention@1"),
    ("bf16", (1, 32, 130, 40, 80), "gpu_attention_mma@1"),
    ("f16", (1, 16, 40, 128, 128), "gpu_attention_mma@1"),
    ("bf16", (1, 33, 65, 64, 64), "gpu_attention@1"),
    ("bf16", (2, 16, 7, 16, 16), "gpu_attention_mma@1"),
    ("f32", (1, 3, 70, 32, 256), "gpu_attention_split@1"),
    ("bf16", (2, 4, 257, 72, 72), "gpu_attention_split@1"),
    ("f16", (1, 16, 96, 96, 40), "gpu_attention_split@1"),
]


@pytest.mark.parametrize(("dt", "shape", "name"), CASES)
@pytest.mark.parametrize("seed", [7])
def test_the_simulation_gives_what_the_graph_says(
    dt: str,
    shape: tuple[int, int, int, int, int],
    name: str,
    seed: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NESTWRIGHT_SIM_SEED", str(seed))
    assert_same_as_in_order(shape, dt, name)


@pytest.mark.parametrize(
    "choices",
    [
        {"warps": 2, "keys": 32, "stages": 3},
        {"warps": 4, "keys": 32, "stages": 2},
    ],
    ids=str,
)
def test_choices_on_tensor_cores(choices: dict[str, int]) -> None:
    assert_same_as_in_order((2, 64, 96, 32, 48), "bf16", "gpu_attention_mma@1", choices)


@pytest.mark.parametrize(
    ("dt", "shape", "choices", "odd"),
    [
        ("bf16", (1, 64, 130, 80, 72), {"keys": 64, "stages": 2, "bulk": 0}, None),
        ("f16", (1, 128, 130, 64, 64), {"groups": 2, "keys": 64, "stages": 3}, np.inf),
        ("bf16", (1, 64, 7, 96, 128), {"keys": 64, "stages": 1}, np.nan),
    ],
)
def test_products_of_warp_groups(
    dt: str,
    shape: tuple[int, int, int, int, int],
    choices: dict[str, int],
    odd: float | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Heads that are no multiple of a swizzle, ragged lengths, a row without keys, odd numbers."""
    monkeypatch.setenv("NESTWRIGHT_SIM_SEED", str(shape[2]))
    assert_same_as_in_order(shape, dt, "gpu_attention_wgmma@1", choices, odd)


@pytest.mark.parametrize("bulk", [0, 1])
def test_only_what_threads_copy_has_to_be_made_visible(bulk: int) -> None:
    """That is the queries alone, if keys and values are bulk copies."""
    target = Target.parse(GROUPS)
    func = attention_of(module("bf16", 1, 64, 256, 64, 64), target)
    sketch = next(s for s in generate(func, target) if s.name == "gpu_attention_wgmma@1")
    sch = Schedule(func)
    sketch.apply(sch, {**sketch.default, "keys": 64, "bulk": bulk})
    before, loop = show(lower(sch.func, target)).split("for k0_tile in range(4)")
    assert ("fence_proxy_async" in loop) == (not bulk)
    assert ("fence_proxy_async" in before) == bulk


@pytest.mark.parametrize("shape", [(2, 1, 100, 24, 40), (1, 2, 70, 40, 40)])
def test_the_last_block_of_a_head_joins_its_parts(shape: tuple[int, int, int, int, int]) -> None:
    """Of one query, and of some whose elements are no multiple of the threads."""
    choices = {"warps": 1, "keys": 32}
    assert_same_as_in_order(shape, "f32", "gpu_attention_split@1", choices)


@pytest.mark.parametrize("name", ["decomposed_bool_f32", "jax_grouped_causal_f32", "jax_mask_bf16"])
def test_masks_and_grouped_queries(name: str) -> None:
    m, rng = parse((HERE / f"{name}.hlo").read_text()), np.random.default_rng(0)
    args = [
        rng.random(p.array.dims) < 0.6
        if p.array.dtype.kind == "pred"
        else rng.standard_normal(p.array.dims).astype(to_numpy(p.array.dtype))
        for p in m.entry.parameters
    ]
    assert_same(np.asarray(nw.build(m, target=SIM)(*args)), m, args, name.rsplit("_", 1)[1])


@pytest.mark.parametrize(
    ("dt", "s", "g", "d", "at"),
    [("bf16", 16, 3, 40, 0), ("f16", 16, 2, 16, 3), ("f32", 9, 2, 6, 1)],
)
def test_operands_and_results_are_accessed_in_place(
    dt: str, s: int, g: int, d: int, at: int
) -> None:
    """Slices, reshapes and transposes are index maps of the one launch, aligned or not."""
    m, rng = packed(dt, s, g, d, at), np.random.default_rng(0)
    (x,) = m.entry.parameters
    args = [rng.standard_normal(x.array.dims).astype(to_numpy(x.array.dtype))]
    built = nw.build(m, target=SIM)
    assert len(built.bundle.kernels) == 1
    assert_same(np.asarray(built(*args)), m, args, dt)


@pytest.mark.parametrize(
    ("arch", "dt", "rows"),
    [
        *((arch, "bf16", rows) for arch in ("sm_80", "sm_90a", "sm_100a") for rows in (4096, 4)),
        *(("sm_90a", "f32", rows) for rows in (4096, 1)),
    ],
)
def test_one_launch_without_spills(arch: str, dt: str, rows: int) -> None:
    if ptxas.find() is None:
        pytest.skip("there is no ptxas on this machine")
    target = Target.parse(f"cuda -arch={arch}")
    func = attention_of(module(dt, 12, rows, 4096, 64, 64), target)
    sch = Schedule(func)
    sketch = generate(func, target)[0]
    sketch.apply(sch, sketch.default)
    code: Any = compile_func(sch.func, target).compiled.code
    assert len(code.launches) == 1 and not sum(code.spills)
    assert "st.local" not in code.ptx
    product = "wgmma.mma_async" if arch == "sm_90a" else "mma.sync"
    assert (product in code.ptx) == (dt == "bf16" and rows > 16)
    made = ptxas.assemble(code.ptx, arch)
    assert not made.warnings
    assert ("atom." in code.ptx) == (rows <= 16)
