"""Loops of assembly listings, counted: hand-made ones, and default kernels without spills."""

from __future__ import annotations

import numpy as np
import pytest
from assembly import LoopCounts, hottest_loop, innermost_loops

from nestwright.codegen.driver.stages import stage_text
from nestwright.ir.hlo.text import parse

X86 = """
f:
    movq %rdi, %rax
.LBB0_1:
    xorl %ecx, %ecx
.LBB0_2:                # inner
    vmovups (%rsi,%rcx,4), %zmm0
    vfmadd231ps 64(%rsi){1to16}, %zmm1, %zmm2
    vbroadcastss 8(%rdx), %zmm3
    prefetcht0 512(%rsi)
    vmovups %zmm4, -64(%rsp)
    vmovups (%rsi), %zmm5 {%k1} {z}
    vmovups %zmm0, (%rdi) {%k1}
    leaq 8(%rcx), %rcx
    cmpq $64, 8(%rsp)
    jb .LBB0_2
    decq %rax
    jne .LBB0_1
    retq
"""
ARM = """
.LBB1_3:
    ldp q0, q1, [x1], #32
    ld1r { v3.4s }, [x2]
    fmla v10.4s, v0.4s, v3.s[0]
    fmla v11.4s, v1.4s, v3.s[1]
    prfm pldl1keep, [x1, #256]
    str q4, [sp, #16]
    subs x3, x3, #1
    b.ne .LBB1_3
    cbz x4, .LBB1_9
.LBB1_9:
    ret
"""
TILES = """
.LBB2_1:
    tileloadd (%rsi,%r8), %tmm4
    tileloadd 64(%rdx,%r9), %tmm6
    tdpbf16ps %tmm6, %tmm4, %tmm0
    tdpbssd %tmm6, %tmm4, %tmm1
    tilestored %tmm0, (%rdi,%r9)
    addq $64, %rsi
    cmpq %rcx, %rsi
    jne .LBB2_1
"""


def test_an_x86_loop_is_counted() -> None:
    """Loads, stores and stack accesses of the inner loop alone."""
    assert innermost_loops(X86) == (LoopCounts(".LBB0_2", 10, 1, 5, 2, 2, 1, 2, 1),)


def test_an_arm_loop_is_counted() -> None:
    """Branches with and without a register in front, and element-wise FMAs."""
    assert innermost_loops(ARM) == (LoopCounts(".LBB1_3", 8, 2, 2, 1, 1, 1, 1, 0),)


def test_a_loop_over_tiles_is_counted() -> None:
    """A product of tiles is one, a load or a store of a whole register too."""
    assert innermost_loops(TILES) == (LoopCounts(".LBB2_1", 8, 2, 2, 1, 0, 0, 0, 1),)


def test_no_loop() -> None:
    """Straight-line code has no hottest loop."""
    assert hottest_loop("f:\n  vfmadd231ps %zmm0, %zmm1, %zmm2\n  retq\n") is None


HEAD = """
  a = f32[{m},{k}] parameter(0)
  w = f32[{k},{n}] parameter(1)
  d = f32[{m},{n}] dot(a, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
"""
BIAS = """
  bias = f32[{n}] parameter(2)
  b = f32[{m},{n}] broadcast(bias), dimensions={{1}}
  s = f32[{m},{n}] add(d, b)
"""
EPILOGUES = {
    "dot": "",
    "bias": BIAS,
    "residual": BIAS + "  r = f32[{m},{n}] parameter(3)\n  t = f32[{m},{n}] add(s, r)\n",
    "relu": BIAS + "  t = f32[{m},{n}] maximum(s, c0)\n",
    "relu6": BIAS + "  u = f32[{m},{n}] maximum(s, c0)\n  t = f32[{m},{n}] minimum(u, c6)\n",
    "gelu_erf": BIAS
    + """
  x = f32[{m},{n}] multiply(s, c0.7071)
  e = f32[{m},{n}] erf(x)
  p = f32[{m},{n}] add(e, c1)
  h = f32[{m},{n}] multiply(s, c0.5)
  t = f32[{m},{n}] multiply(h, p)
""",
    "gelu_tanh": BIAS
    + """
  s2 = f32[{m},{n}] multiply(s, s)
  s3 = f32[{m},{n}] multiply(s2, s)
  s4 = f32[{m},{n}] multiply(s3, c0.0447)
  s5 = f32[{m},{n}] add(s, s4)
  s6 = f32[{m},{n}] multiply(s5, c0.7979)
  e = f32[{m},{n}] tanh(s6)
  p = f32[{m},{n}] add(e, c1)
  h = f32[{m},{n}] multiply(s, c0.5)
  t = f32[{m},{n}] multiply(h, p)
""",
}
FEW = 2  # a value that the scheduler of a machine without a free register moves
MACHINES = (
    "cpu -mcpu=emeraldrapids -threads=2",
    "cpu -mcpu=znver4 -threads=2",
    "cpu -mcpu=haswell -threads=2",
    "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-v1 -threads=4",
)


def product(m: int, n: int, k: int, epilogue: str) -> str:
    """Return a product with an epilogue as HLO; operands ``c6`` are the constant 6."""
    body = (HEAD + EPILOGUES[epilogue]).format(m=m, n=n, k=k)
    used = sorted({x.strip("(),") for x in body.split() if x.strip("(),")[:1] == "c"} - {"c"})
    made = []
    for name in (x for x in used if x[1:].replace(".", "").isdigit()):
        made.append(f"  v{name} = f32[] constant({name[1:]})")
        made.append(f"  {name} = f32[{m},{n}] broadcast(v{name}), dimensions={{}}")
    lines = [*made, *(x for x in body.splitlines() if x.strip())]
    lines[-1] = f"  ROOT {lines[-1].strip()}"
    return "HloModule product\nENTRY main {\n" + "\n".join(lines) + "\n}\n"


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("epilogue", EPILOGUES)
def test_default_products_do_not_spill(machine: str, epilogue: str) -> None:
    """No accumulator leaves its register in the loop over k, whatever follows the product."""
    rng = np.random.default_rng(0)
    for m, n, k in ((196, 576, 96), (49, 512, 128)):
        text = product(m, n, k, epilogue)
        constants = {1: rng.random((k, n), np.float32), 2: rng.random(n, np.float32)}
        kept = {i: x for i, x in constants.items() if f"parameter({i})" in text}
        loop = hottest_loop(stage_text(parse(text), machine, "asm", constants=kept))
        assert loop is not None
        assert loop.fmas >= 12
        assert loop.stack <= FEW, (m, n, k, loop)


@pytest.mark.parametrize("machine", MACHINES)
def test_columns_that_end_inside_a_vector_do_not_spill(machine: str) -> None:
    weights = np.random.default_rng(0).random((48, 28), np.float32)
    constants = {1: weights, 2: weights[0]}
    model = parse(product(2240, 28, 48, "bias"))
    loop = hottest_loop(stage_text(model, machine, "asm", constants=constants))
    assert loop is not None
    assert loop.stack <= FEW, loop


PADDED = """HloModule padded
ENTRY main {
  x = f32[1,32,80,32] parameter(0)
  w = f32[3,3,32,64] parameter(1)
  c = f32[1,32,80,64] convolution(x, w), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f
  e = f32[1,32,80,64] logistic(c)
  ROOT t = f32[1,32,80,64] multiply(c, e)
}
"""


@pytest.mark.parametrize("machine", MACHINES)
def test_long_epilogues_leave_the_loops_before_them_plain(machine: str) -> None:
    """A padded convolution before a sigmoid asks for no bounds and spills nothing, as without."""
    weights = {1: np.random.default_rng(0).random((3, 3, 32, 64), np.float32)}
    loop = hottest_loop(stage_text(parse(PADDED), machine, "asm", constants=weights))
    assert loop is not None
    assert loop.fmas >= 12 and loop.stack <= FEW, loop
