"""The kernels whose machine code is counted, as HLO text."""

from __future__ import annotations

from ..measure import workloads

_SUM = "add { a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b) }\n"
_MAX = "max { a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] maximum(a, b) }\n"
_LATER = """later {
  v = f32[] parameter(0)
  i = s32[] parameter(1)
  w = f32[] parameter(2)
  j = s32[] parameter(3)
  more = pred[] compare(v, w), direction=GT
  same = pred[] compare(v, w), direction=EQ
  first = pred[] compare(i, j), direction=LT
  tie = pred[] and(same, first)
  mine = pred[] or(more, tie)
  value = f32[] select(mine, v, w)
  place = s32[] select(mine, i, j)
  ROOT both = (f32[], s32[]) tuple(value, place)
}
"""


def softmax_narrow(rows: int, columns: int) -> str:
    """Softmax along rows of bf16, in f32 inside."""
    m, wide = f"bf16[{rows},{columns}]", f"f32[{rows},{columns}]"
    return (
        f"HloModule softmax\n{_MAX}{_SUM}ENTRY main {{\n  n = {m} parameter(0)\n"
        f"  x = {wide} convert(n)\n  low = f32[] constant(-inf)\n  zero = f32[] constant(0)\n"
        f"  top = f32[{rows}] reduce(x, low), dimensions={{1}}, to_apply=max\n"
        f"  tops = {wide} broadcast(top), dimensions={{0}}\n  d = {wide} subtract(x, tops)\n"
        f"  e = {wide} exponential(d)\n"
        f"  s = f32[{rows}] reduce(e, zero), dimensions={{1}}, to_apply=add\n"
        f"  ss = {wide} broadcast(s), dimensions={{0}}\n  y = {wide} divide(e, ss)\n"
        f"  ROOT r = {m} convert(y)\n}}\n"
    )


def attention(dtype: str, heads: int, length: int, width: int) -> str:
    """Attention of as many queries as keys, without a mask."""
    x, y = f"{dtype}[{heads},{length},{width}]", f"f32[{heads},{length},{length}]"
    batch, row = "lhs_batch_dims={0}, rhs_batch_dims={0}", f"f32[{heads},{length}]"
    return (
        f"HloModule attention\n{_MAX}{_SUM}ENTRY main {{\n  q = {x} parameter(0)\n"
        f"  k = {x} parameter(1)\n  v = {x} parameter(2)\n"
        f"  x = {y} dot(q, k), {batch}, lhs_contracting_dims={{2}}, rhs_contracting_dims={{2}}\n"
        "  low = f32[] constant(-inf)\n  zero = f32[] constant(0)\n"
        f"  top = {row} reduce(x, low), dimensions={{2}}, to_apply=max\n"
        f"  tops = {y} broadcast(top), dimensions={{0,1}}\n  d = {y} subtract(x, tops)\n"
        f"  e = {y} exponential(d)\n"
        f"  s = {row} reduce(e, zero), dimensions={{2}}, to_apply=add\n"
        f"  ss = {y} broadcast(s), dimensions={{0,1}}\n  p = {y} divide(e, ss)\n"
        f"  n = {dtype}[{heads},{length},{length}] convert(p)\n"
        f"  ROOT o = {x} dot(n, v), {batch}, lhs_contracting_dims={{2}}, "
        "rhs_contracting_dims={1}\n}\n"
    )


def transpose(dtype: str, n: int) -> str:
    """A square matrix turned."""
    m = f"{dtype}[{n},{n}]"
    return (
        f"HloModule transpose\nENTRY main {{\n  x = {m} parameter(0)\n"
        f"  ROOT y = {m} transpose(x), dimensions={{1,0}}\n}}\n"
    )


def product(dtype: str, m: int, k: int, n: int) -> str:
    """A matrix product."""
    return (
        f"HloModule product\nENTRY main {{\n  a = {dtype}[{m},{k}] parameter(0)\n"
        f"  b = {dtype}[{k},{n}] parameter(1)\n  ROOT c = {dtype}[{m},{n}] dot(a, b), "
        "lhs_contracting_dims={1}, rhs_contracting_dims={0}\n}\n"
    )


def argmax(rows: int, columns: int) -> str:
    """The first place of the largest element of each row."""
    return (
        f"HloModule argmax\n{_LATER}ENTRY main {{\n  x = f32[{rows},{columns}] parameter(0)\n"
        f"  i = s32[{rows},{columns}] iota(), iota_dimension=1\n  low = f32[] constant(-inf)\n"
        f"  none = s32[] constant(0)\n  both = (f32[{rows}], s32[{rows}]) reduce(x, i, low, none), "
        f"dimensions={{1}}, to_apply=later\n"
        f"  ROOT y = s32[{rows}] get-tuple-element(both), index=1\n}}\n"
    )


def joined(rows: int, left: int, right: int) -> str:
    """Two matrices side by side."""
    return (
        f"HloModule joined\nENTRY main {{\n  x = f32[{rows},{left}] parameter(0)\n"
        f"  z = f32[{rows},{right}] parameter(1)\n"
        f"  ROOT y = f32[{rows},{left + right}] concatenate(x, z), dimensions={{1}}\n}}\n"
    )


def max_pool(batch: int, size: int, channels: int) -> str:
    """The largest of 3 by 3 pixels, every second pixel, padded by one; channels last."""
    return (
        f"HloModule max_pool\n{_MAX}ENTRY main {{\n"
        f"  x = f32[{batch},{size},{size},{channels}] parameter(0)\n"
        "  low = f32[] constant(-inf)\n"
        f"  ROOT y = f32[{batch},{size // 2},{size // 2},{channels}] reduce-window(x, low), "
        "window={size=1x3x3x1 stride=1x2x2x1 pad=0_0x1_1x1_1x0_0}, to_apply=max\n}\n"
    )


TEXTS = {
    "softmax f32": workloads.softmax(1 << 16, 1 << 10).hlo,
    "softmax bf16": softmax_narrow(1 << 16, 1 << 10),
    "layer norm f32": workloads.layer_norm(1 << 16, 1 << 10).hlo,
    "gelu f32": workloads.gelu_chain(1 << 16, 1 << 10).hlo,
    "sum f32": workloads.sum_xyz(1 << 26).hlo,
    "transpose f32": transpose("f32", 8192),
    "transpose bf16": transpose("bf16", 8192),
    "matmul bf16": product("bf16", 4096, 4096, 4096),
    "matmul f32": product("f32", 2048, 2048, 2048),
    "conv bf16": workloads.convolution(32, 56, 64, 64, 3, 1, 1, "bf16").hlo,
    "gemv f32": product("f32", 1, 768, 3072),
    "concatenate f32": joined(4096, 300, 200),
    "max pool f32": max_pool(32, 112, 64),
    "attention bf16": attention("bf16", 16, 4096, 64),
    "argmax f32": argmax(1, 1 << 26),
}
"""By name; each model is one kernel, in one launch or more."""
