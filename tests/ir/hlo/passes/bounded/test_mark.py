"""Graphs of two sizes become one with bounded dimensions, or what is in the way is named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nestwright as nw
from nestwright.ir.errors import UnsupportedError
from nestwright.ir.hlo import digest, verify
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.nodes import HloModule
from nestwright.ir.hlo.passes.bounded.mark import mark

REDUCERS = """
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
most { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] maximum(a, b) }
"""

SOFTMAX = """
  x = f32[{n},3] parameter(0)
  low = f32[] constant(-inf)
  m = f32[3] reduce(x, low), dimensions={{0}}, to_apply=most
  ms = f32[{n},3] broadcast(m), dimensions={{1}}
  d = f32[{n},3] subtract(x, ms)
  e = f32[{n},3] exponential(d)
  zero = f32[] constant(0)
  s = f32[3] reduce(e, zero), dimensions={{0}}, to_apply=add
  ss = f32[{n},3] broadcast(s), dimensions={{1}}
  ROOT y = f32[{n},3] divide(e, ss)
"""
CONTRACTED = """
  x = f32[2,{n}] parameter(0)
  w = f32[{n},4] parameter(1)
  ROOT y = f32[2,4] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
"""
COUNTED = """
  x = f32[{n}] parameter(0)
  unused = s32[2] constant({{{n}, 1}})
  i = f32[{n}] iota(), iota_dimension=0
  one = f32[] constant(1)
  ones = f32[{n}] broadcast(one), dimensions={{}}
  zero = f32[] constant(0)
  a = f32[] reduce(i, zero), dimensions={{0}}, to_apply=add
  b = f32[] reduce(ones, zero), dimensions={{0}}, to_apply=add
  ROOT t = (f32[], f32[], f32[{n}]) tuple(a, b, x)
"""
MOVED = """
  x = f32[{n},2,3] parameter(0)
  flat = f32[{n},6] reshape(x)
  t = f32[6,{n}] transpose(flat), dimensions={{1,0}}
  rest = f32[6,{m}] slice(t), slice={{[0:6], [1:{n}]}}
  first = f32[6,1] slice(t), slice={{[0:6], [0:1]}}
  both = f32[6,{n}] concatenate(rest, first), dimensions={{1}}
  ROOT back = f32[6,{n}] reverse(both), dimensions={{1}}
"""
CUMULATIVE = """
  x = f32[{n},2] parameter(0)
  zero = f32[] constant(0)
  ROOT y = f32[{n},2] reduce-window(x, zero), window={{size={n}x1 pad={m}_0x0_0}}, to_apply=add
"""
TABLE = """
  table = f32[7,2] parameter(0)
  ids = s32[{n}] parameter(1)
  column = s32[{n},1] reshape(ids)
  ROOT rows = f32[{n},2] gather(table, column), offset_dims={{1}}, collapsed_slice_dims={{0}},
    start_index_map={{0}}, index_vector_dim=1, slice_sizes={{1,2}}
"""
MEAN = """
  x = f32[{n}] parameter(0)
  zero = f32[] constant(0)
  s = f32[] reduce(x, zero), dimensions={{0}}, to_apply=add
  count = f32[] constant({n})
  ROOT y = f32[] divide(s, count)
"""
SCALED = MEAN.replace("f32[] constant({n})", "f32[] constant({inverse})").replace(
    "divide(s, count)", "multiply(s, count)"
)
SHIFTED = MEAN.replace("constant({n})", "constant({k1})")
LAST = """
  x = f32[{n}] parameter(0)
  ROOT y = f32[1] slice(x), slice={{[{m}:{n}]}}
"""
DRAWN = """
  x = f32[{n}] parameter(0)
  s = u64[2] constant({{1, 2}})
  r = (u64[2], u32[{n}]) rng-bit-generator(s), algorithm=rng_three_fry
  b = u32[{n}] get-tuple-element(r), index=1
  f = f32[{n}] convert(b)
  ROOT y = f32[{n}] add(x, f)
"""
DOUBLED = """
  x = f32[{n}] parameter(0)
  xx = f32[{k}] concatenate(x, x), dimensions={{0}}
  i = f32[{k}] iota(), iota_dimension=0
  ROOT y = f32[{k}] add(xx, i)
"""
ALONE = """
  x = f32[{n}] parameter(0)
  i = f32[{k}] iota(), iota_dimension=0
  ROOT t = (f32[{n}], f32[{k}]) tuple(x, i)
"""
OTHER = """
  x = f32[{n}] parameter(0)
  ROOT y = f32[{n}] {op}(x)
"""


def sized(body: str, n: int) -> HloModule:
    inverse = np.float32(1) / np.float32(3 * n)
    values = {
        "n": n,
        "m": n - 1,
        "k": 2 * n,
        "k1": 2 * n + 1,
        "inverse": inverse,
        "op": "negate" if n % 2 else "exponential",
    }
    return nw.parse(f"HloModule m\n{REDUCERS}\nENTRY main {{{body.format(**values)}}}")


def drawn(module: HloModule) -> list[Any]:
    rng = np.random.default_rng(0)
    found = []
    for p in module.entry.parameters:
        if p.array.dtype.name == "s32":
            found.append(rng.integers(0, 7, p.array.dims, np.int32))
        else:
            found.append(rng.standard_normal(p.array.dims).astype(np.float32))
    return found


SERVED = [SOFTMAX, CONTRACTED, COUNTED, MOVED, CUMULATIVE, TABLE, DOUBLED, MEAN, SCALED]


@pytest.mark.parametrize("body", SERVED)
def test_one_graph_serves_smaller_sizes(body: str) -> None:
    big = sized(body, 8)
    marked = mark(big, [sized(body, 7)])
    verify(marked)
    for n in (1, 2, 5, 7):
        small = sized(body, n)
        assert digest(mark(big, [sized(body, 7), small])) == digest(marked)
        args = drawn(small)
        expected = evaluate(small, args)
        exact = nw.build(marked)(*args)
        pairs = (
            zip(expected, exact, strict=True) if isinstance(exact, tuple) else [(expected, exact)]
        )
        for a, b in pairs:
            np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-6)
    args = drawn(big)
    whole, padded = nw.build(big)(*args), nw.build(marked)(*args)
    for a, b in zip(*((r if isinstance(r, tuple) else (r,)) for r in (whole, padded)), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (SHIFTED, "constant `count`: its literal depends on the size"),
        (LAST, "slice `y`: its slice depends on the size"),
        (DRAWN, "rng-bit-generator `r`: its result has a size that varies"),
        (ALONE, "iota `i`: its size 16 is that of no argument"),
        (OTHER, "exponential `y`: it is another operation for other sizes"),
    ],
)
def test_what_depends_on_the_size_is_refused_by_name(body: str, told: str) -> None:
    with pytest.raises(UnsupportedError) as e:
        mark(sized(body, 8), [sized(body, 5)])
    assert told in str(e.value) and 'rule="exact"' in str(e.value)


def test_equal_graphs_stay_as_they_are() -> None:
    big = sized(SOFTMAX, 8)
    assert mark(big, []) is big
    assert "<=" not in nw.show(mark(big, [sized(SOFTMAX, 8)]))


def test_a_graph_that_is_longer_for_other_sizes_is_refused() -> None:
    longer = SOFTMAX.replace("ROOT y", "y") + "  ROOT z = f32[{n},3] negate(y)\n"
    with pytest.raises(UnsupportedError, match="another one for other sizes"):
        mark(sized(longer, 8), [sized(SOFTMAX, 5)])


def test_loops_are_marked_inside() -> None:
    text = """HloModule m
body {{
  s = (s32[], f32[{n},2]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[{n},2] get-tuple-element(s), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  half = f32[] constant(0.5)
  halves = f32[{n},2] broadcast(half), dimensions={{}}
  y = f32[{n},2] multiply(x, halves)
  ROOT t = (s32[], f32[{n},2]) tuple(next, y)
}}
more {{
  s = (s32[], f32[{n},2]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  most = s32[] constant(3)
  ROOT c = pred[] compare(i, most), direction=LT
}}
ENTRY main {{
  x = f32[{n},2] parameter(0)
  zero = s32[] constant(0)
  s = (s32[], f32[{n},2]) tuple(zero, x)
  w = (s32[], f32[{n},2]) while(s), condition=more, body=body
  ROOT y = f32[{n},2] get-tuple-element(w), index=1
}}
"""
    exe = nw.build(mark(nw.parse(text.format(n=8)), [nw.parse(text.format(n=3))]))
    x = np.arange(10, dtype=np.float32).reshape(5, 2)
    np.testing.assert_array_equal(exe(x), x / 8)
