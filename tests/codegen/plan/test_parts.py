"""Slices that are pieces of a buffer, scalars and iotas: no kernels of their own."""

from __future__ import annotations

import numpy as np
import pytest

import nestwright as nw
from nestwright.codegen.plan.nodes import CopyThunk, KernelThunk
from nestwright.ir.hlo import parse

HEAD = """HloModule parts
ENTRY main {
  x = f32[1,24] parameter(0)
  w = f32[24,144] parameter(1)
  v = f32[48,48] parameter(2)
  all = f32[1,144] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
"""
TARGETS = ("cpu", "cuda-sim -arch=sm_80")


def kernels(exe: nw.Executable) -> list[str]:
    return [t.name for t in exe.bundle.plan.thunks if isinstance(t, KernelThunk)]


def arrays(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.integers(-4, 5, s).astype(np.float32) for s in shapes]


@pytest.mark.parametrize("target", TARGETS)
def test_pieces_of_a_result_are_read_where_they_are(target: str) -> None:
    text = (
        HEAD
        + """
  a = f32[1,48] slice(all), slice={[0:1], [0:48]}
  b = f32[1,48] slice(all), slice={[0:1], [48:96]}
  half = f32[1,96] slice(all), slice={[0:1], [48:144]}
  c = f32[1,48] slice(half), slice={[0:1], [48:96]}
  p = f32[1,48] dot(a, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  q = f32[1,48] dot(b, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  column = f32[48,1] reshape(c)
  outer = f32[48,48] dot(column, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = (f32[1,48], f32[48,48], f32[1,48]) tuple(p, outer, b)
}"""
    )
    exe = nw.build(parse(text), target=target)
    assert not [n for n in kernels(exe) if "slice" in n]
    x, w, v = arrays((1, 24), (24, 144), (48, 48))
    a, b, c = np.split(x @ w, 3, axis=1)
    for found, wanted in zip(exe(x, w, v), (a @ v, c.T @ (b @ v), b), strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("cut", ["[1:49]", "[0:96:2]"])
def test_what_is_no_aligned_piece_is_copied(cut: str) -> None:
    text = (
        HEAD
        + f"""
  a = f32[1,48] slice(all), slice={{[0:1], {cut}}}
  ROOT p = f32[1,48] dot(a, v), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}"""
    )
    exe = nw.build(parse(text), target="cpu")
    assert any("slice" in n for n in kernels(exe))
    x, w, v = arrays((1, 24), (24, 144), (48, 48))
    at = slice(*(int(n) for n in cut[1:-1].split(":")))
    np.testing.assert_array_equal(exe(x, w, v), (x @ w)[:, at] @ v)


@pytest.mark.parametrize("target", TARGETS)
def test_a_piece_outlives_an_update_of_the_whole(target: str) -> None:
    text = """HloModule update
ENTRY main {
  x = f32[4,16] parameter(0)
  w = f32[16,16] parameter(1)
  n = s32[] parameter(2)
  zero = s32[] constant(0)
  all = f32[4,16] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  row = f32[1,16] slice(all), slice={[1:2], [0:16]}
  new = f32[4,16] dynamic-update-slice(all, row, n, zero)
  p = f32[1,16] dot(row, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = (f32[4,16], f32[1,16]) tuple(new, p)
}"""
    exe = nw.build(parse(text), target=target)
    x, w = arrays((4, 16), (16, 16))
    for n in (0, 1, 3):
        wanted = x @ w
        row = wanted[1:2].copy()
        wanted[n] = row
        new, p = exe(x, w, np.int32(n))
        np.testing.assert_array_equal(new, wanted)
        np.testing.assert_array_equal(p, row @ w)


def test_positions_are_computed_where_they_are_needed() -> None:
    """A clamped position and a mask of the tokens before it take no kernels of their own."""
    text = """HloModule positions
ENTRY main {
  n = s32[] parameter(0)
  x = f32[1,2,40] parameter(1)
  y = f32[40] parameter(2)
  zero = s32[] constant(0)
  forty = s32[] constant(40)
  before = pred[] compare(n, zero), direction=LT
  more = s32[] add(n, forty)
  at = s32[] select(before, more, n)
  line = s32[40] iota(), iota_dimension=0
  place = s32[1,2,40] broadcast(line), dimensions={2}
  here = s32[1,2,40] broadcast(at), dimensions={}
  seen = pred[1,2,40] compare(place, here), direction=LE
  low = f32[] constant(-1)
  lows = f32[1,2,40] broadcast(low), dimensions={}
  masked = f32[1,2,40] select(seen, x, lows)
  flat = s32[40] broadcast(at), dimensions={}
  near = pred[40] compare(line, flat), direction=LE
  none = f32[40] broadcast(low), dimensions={}
  other = f32[40] select(near, y, none)
  ROOT r = (f32[1,2,40], f32[40]) tuple(masked, other)
}"""
    exe = nw.build(parse(text), target="cpu")
    assert len(kernels(exe)) == 2
    assert not [t for t in exe.bundle.plan.thunks if isinstance(t, CopyThunk)]
    x, y = arrays((1, 2, 40), (40,))
    for n in (5, -3):
        seen = np.arange(40) <= n % 40
        found = exe(np.int32(n), x, y)
        np.testing.assert_array_equal(found[0], np.where(seen, x, np.float32(-1)))
        np.testing.assert_array_equal(found[1], np.where(seen, y, np.float32(-1)))
