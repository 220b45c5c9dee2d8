"""Weights that follow from constants are computed ahead of time, unless kernels decode them."""

from __future__ import annotations

import numpy as np
import pytest

from nestwright.ir.hlo import freeze, parse
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.nodes import HloModule, Instruction
from nestwright.ir.hlo.passes.pipeline import finish, optimize
from nestwright.ir.target import Target

CPU = Target.parse("cpu -mcpu=x86-64-v4")
GPU = Target.parse("cuda -arch=sm_90")
TABLE = """HloModule table
ENTRY main {
  x = f32[3,80] parameter(0)
  c = u8[80,64] parameter(1)
  t = f32[16] parameter(2)
  i = s32[80,64] convert(c)
  w = f32[80,64] gather(t, i), offset_dims={}, collapsed_slice_dims={0},
      start_index_map={0}, index_vector_dim=2, slice_sizes={1}
  ROOT y = f32[3,64] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
CONV = """HloModule conv
ENTRY main {
  x = f32[1,8,8,16] parameter(0)
  c = u8[3,3,16,32] parameter(1)
  z = f32[32] parameter(2)
  f = f32[3,3,16,32] convert(c)
  zs = f32[3,3,16,32] broadcast(z), dimensions={3}
  w = f32[3,3,16,32] subtract(f, zs)
  ROOT y = f32[1,8,8,32] convolution(x, w), window={size=3x3 pad=1_1x1_1},
      dim_labels=b01f_01io->b01f
}
"""


def product(module: HloModule) -> Instruction:
    return next(i for i in module.entry.instructions if i.opcode in ("dot", "convolution"))


@pytest.mark.parametrize("target", [CPU, GPU])
@pytest.mark.parametrize(
    ("text", "held"),
    [(TABLE, ((80, 64), (16,))), (CONV, ((3, 3, 16, 32), (32,)))],
)
def test_what_constants_say_is_a_constant(
    target: Target, text: str, held: tuple[tuple[int, ...], ...]
) -> None:
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 16, held[0]).astype(np.uint8)
    given = {1: codes, 2: rng.standard_normal(held[1]).astype(np.float32)}
    module = freeze(parse(text), given)
    new, _ = finish(optimize(module), None, target)
    assert product(new).operands[1].opcode == "constant"
    x = rng.standard_normal(module.entry.parameters[0].array.dims).astype(np.float32)
    assert np.allclose(evaluate(new, [x]), evaluate(module, [x]), rtol=1e-4, atol=1e-4)


def test_arguments_small_weights_and_much_of_little_are_not_computed() -> None:
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 16, (80, 64)).astype(np.uint8)
    table = rng.standard_normal(16).astype(np.float32)
    one = optimize(freeze(parse(TABLE), {1: codes}))
    assert finish(one, None, CPU)[0] is one
    small = TABLE.replace("80", "40").replace("64", "32")
    little = optimize(freeze(parse(small), {1: codes[:40, :32], 2: table}))
    assert product(finish(little, None, CPU)[0]).operands[1].opcode != "constant"


def test_codes_that_kernels_read_stay_narrow() -> None:
    text = CONV.replace("subtract(f, zs)", "multiply(f, zs)").replace("u8[", "s8[")
    codes = np.random.default_rng(0).integers(-9, 9, (3, 3, 16, 32)).astype(np.int8)
    module = optimize(freeze(parse(text), {1: codes, 2: np.arange(1, 33, dtype=np.float32)}))
    weights = product(finish(module, None, CPU)[0]).operands[1]
    assert weights.opcode == "convert" and weights.operands[0].opcode == "constant"
