"""Operands of products of warp groups in PTX: registers before their fence, descriptors."""

from __future__ import annotations

import re

import pytest

from nestwright.codegen.plan.groups import fuse_module
from nestwright.codegen.targets.cuda import nvptx, ptxas
from nestwright.codegen.targets.registry import emit, lower
from nestwright.ir.hlo.passes.pipeline import optimize
from nestwright.ir.hlo.text import parse
from nestwright.ir.target import Target
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.sketches.generate import generate
from nestwright.te.from_hlo import lower_group

HOPPER = Target.parse("cuda -arch=sm_90a")
PRODUCT = """HloModule product
ENTRY main {{ a = {dtype}[{m},{k}] parameter(0)
  b = {dtype}[{k},{n}] parameter(1)
  ROOT c = {sums}[{m},{n}] dot(a, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}} }}
"""
ATTENTION = """HloModule attention
max {{ a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] maximum(a, b) }}
add {{ a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }}
ENTRY main {{ q = {dtype}[2,{m},64] parameter(0)
  k = {dtype}[2,{n},64] parameter(1)
  v = {dtype}[2,{n},64] parameter(2)
  s = f32[2,{m},{n}] dot(q, k), lhs_batch_dims={{0}}, rhs_batch_dims={{0}}, \
lhs_contracting_dims={{2}}, rhs_contracting_dims={{2}}
  low = f32[] constant(-inf)
  zero = f32[] constant(0)
  m = f32[2,{m}] reduce(s, low), dimensions={{2}}, to_apply=max
  mb = f32[2,{m},{n}] broadcast(m), dimensions={{0,1}}
  d = f32[2,{m},{n}] subtract(s, mb)
  e = f32[2,{m},{n}] exponential(d)
  t = f32[2,{m}] reduce(e, zero), dimensions={{2}}, to_apply=add
  tb = f32[2,{m},{n}] broadcast(t), dimensions={{0,1}}
  p = f32[2,{m},{n}] divide(e, tb)
  pn = {dtype}[2,{m},{n}] convert(p)
  ROOT r = {dtype}[2,{m},64] dot(pn, v), lhs_batch_dims={{0}}, rhs_batch_dims={{0}}, \
lhs_contracting_dims={{2}}, rhs_contracting_dims={{1}} }}
"""


def code(text: str, sketch: str, choices: dict[str, int]) -> str:
    """The PTX of a module's one group by a sketch with some choices."""
    (group,) = fuse_module(optimize(parse(text)), target=HOPPER).distinct.values()
    func = lower_group(group.computation, "k", HOPPER.vectors)
    found = next(s for s in generate(func, HOPPER) if s.name == sketch)
    chosen = {**found.default, **choices}
    assert found.valid(chosen)
    sch = Schedule(func)
    found.apply(sch, chosen)
    return nvptx.compile(emit(lower(sch.func, HOPPER), HOPPER), HOPPER)


def late_writes(text: str) -> list[str]:
    """The registers that a group of products touches and that are written after its fence."""
    found = []
    for behind in text.split("wgmma.fence.sync.aligned;")[1:]:
        group = behind.partition("wgmma.commit_group")[0]
        lists = re.findall(r"wgmma\.mma_async[\w.]* (\{[^}]*\})(?:, (\{[^}]*\}))?", group)
        used = {r for pair in lists for registers in pair for r in re.findall(r"%\w+", registers)}
        assert used
        begun = group.rpartition("wgmma.mma_async")[0]
        plain = re.sub(r"// begin inline asm.*?(// end inline asm|$)", "", begun, flags=re.S)
        writes = re.findall(r"^\s+(?:@!?%\w+ )?[a-z][\w.]* +\t?(%\w+)[,|].*$", plain, re.M)
        found += [w for w in writes if w in used]
    return found


@pytest.mark.parametrize(
    ("dtype", "sums", "shape", "choices"),
    [
        ("bf16", "f32", (1024, 1024, 1024), {}),
        ("bf16", "f32", (136, 128, 40), {"tile_m": 128, "tile_n": 64, "groups_m": 1}),
        ("s8", "s32", (136, 64, 24), {"tile_m": 192, "tile_n": 64}),
        ("f16", "f32", (64, 64, 64), {"bulk": 1, "copiers": 0, "stages": 3}),
    ],
)
def test_sums_of_products(
    dtype: str, sums: str, shape: tuple[int, int, int], choices: dict[str, int]
) -> None:
    """Depths of one step: what LLVM knows of their sums before is that they are 0."""
    m, n, k = shape
    text = code(PRODUCT.format(dtype=dtype, sums=sums, m=m, n=n, k=k), "gpu_wgmma@1", choices)
    assert late_writes(text) == []
    if ptxas.find() is not None:
        assert not ptxas.assemble(text, HOPPER.cpu).warnings


@pytest.mark.parametrize(("dtype", "bulk"), [("f16", 0), ("bf16", 1)])
def test_sums_and_held_operands_of_attention(dtype: str, bulk: int) -> None:
    module = ATTENTION.format(dtype=dtype, m=128, n=320)
    text = code(module, "gpu_attention_wgmma@1", {"bulk": bulk})
    assert late_writes(text) == []
    if ptxas.find() is not None:
        assert not ptxas.assemble(text, HOPPER.cpu).warnings


def test_a_descriptor_has_18_bits_of_an_address() -> None:
    """Above them an address tells which block of a cluster it is in."""
    text = code(PRODUCT.format(dtype="f16", sums="f32", m=64, n=64, k=256), "gpu_wgmma@1", {})
    assert text.count("bfe.u64") >= 2
    for line in re.findall(r".*bfe\.u64.*", text):
        assert line.endswith(", 4, 14;")
