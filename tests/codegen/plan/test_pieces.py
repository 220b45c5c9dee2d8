"""Dynamic slices that are pieces of a buffer: kernels get where they begin, none is copied."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nestwright as nw
from nestwright.codegen.plan.nodes import CopyThunk, KernelThunk, walk
from nestwright.ir.arrays import Array
from nestwright.ir.dtypes import BY_NAME, to_numpy
from nestwright.ir.hlo import parse
from nestwright.ir.hlo.interp.evaluate import evaluate

LAYER = """HloModule layer
ENTRY main {{
  x = f32[3,16] parameter(0)
  w = f32[5,16,32] parameter(1)
  i = {dtype}[] parameter(2)
  zero = {dtype}[] constant(0)
  one = f32[1,16,32] dynamic-slice(w, i, zero, zero), dynamic_slice_sizes={{1,16,32}}
  v = f32[16,32] reshape(one)
  ROOT p = f32[3,32] dot(x, v), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}"""
# Four layers: the loop's counter is written before the piece that it begins is copied to the state.
SCAN = """HloModule scan
body {
  s = (s64[], f32[16,16], f32[3,16], f32[4,16,16]) parameter(0)
  n = s64[] get-tuple-element(s), index=0
  last = f32[16,16] get-tuple-element(s), index=1
  x = f32[3,16] get-tuple-element(s), index=2
  w = f32[4,16,16] get-tuple-element(s), index=3
  zero = s64[] constant(0)
  one = s64[] constant(1)
  slice = f32[1,16,16] dynamic-slice(w, n, zero, zero), dynamic_slice_sizes={1,16,16}
  v = f32[16,16] reshape(slice)
  sum = f32[3,16] dot(x, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  y = f32[3,16] dot(sum, last), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  m = s64[] add(n, one)
  ROOT t = (s64[], f32[16,16], f32[3,16], f32[4,16,16]) tuple(m, v, y, w)
}
more {
  s = (s64[], f32[16,16], f32[3,16], f32[4,16,16]) parameter(0)
  n = s64[] get-tuple-element(s), index=0
  four = s64[] constant(4)
  ROOT p = pred[] compare(n, four), direction=LT
}
ENTRY main {
  w = f32[4,16,16] parameter(0)
  x = f32[3,16] parameter(1)
  eye = f32[16,16] parameter(2)
  zero = s64[] constant(0)
  s = (s64[], f32[16,16], f32[3,16], f32[4,16,16]) tuple(zero, eye, x, w)
  r = (s64[], f32[16,16], f32[3,16], f32[4,16,16]) while(s), condition=more, body=body
  a = f32[16,16] get-tuple-element(r), index=1
  b = f32[3,16] get-tuple-element(r), index=2
  ROOT o = (f32[16,16], f32[3,16]) tuple(a, b)
}"""


def thunks(exe: nw.Executable) -> list[Any]:
    return list(walk(exe.bundle.plan.thunks))


def sliced(exe: nw.Executable) -> list[str]:
    """The kernels and copies that make a slice."""
    made = [t for t in thunks(exe) if isinstance(t, KernelThunk | CopyThunk)]
    return [t.name for t in made if "slice" in t.name]


def starts(exe: nw.Executable) -> int:
    """How often a kernel is given a piece."""
    return sum(
        a.start is not None for t in thunks(exe) if isinstance(t, KernelThunk) for a in t.args
    )


def whole(rng: np.random.Generator, *dims: int) -> Array:
    return rng.integers(-4, 5, dims).astype(np.float32)


@pytest.mark.parametrize("dtype", ["s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"])
def test_a_kernel_is_given_a_piece_that_is_clamped(dtype: str) -> None:
    module = parse(LAYER.format(dtype=dtype))
    exe = nw.build(module, target="cpu")
    assert not sliced(exe)
    assert starts(exe) == 1
    rng = np.random.default_rng(0)
    x, w = whole(rng, 3, 16), whole(rng, 5, 16, 32)
    kind = to_numpy(BY_NAME[dtype])
    least, most = np.iinfo(kind).min, np.iinfo(kind).max
    for place in (0, 1, 4, 5, 17, most, most - 1, least, *((-1, -4) if least else ())):
        index = np.array(place, kind)
        np.testing.assert_array_equal(exe(x, w, index), x @ w[min(max(int(place), 0), 4)])


def test_a_place_that_is_computed_is_stored() -> None:
    text = LAYER.format(dtype="s32").replace(
        "zero =", "two = s32[] constant(2)\n  j = s32[] subtract(i, two)\n  zero ="
    )
    exe = nw.build(parse(text.replace("(w, i,", "(w, j,")), target="cpu")
    assert not sliced(exe)
    assert starts(exe) == 1
    rng = np.random.default_rng(1)
    x, w = whole(rng, 3, 16), whole(rng, 5, 16, 32)
    for place in (-3, 2, 4, 9):
        found = exe(x, w, np.int32(place))
        np.testing.assert_array_equal(found, x @ w[min(max(place - 2, 0), 4)])


def test_the_layers_of_a_loop_are_read_where_they_are() -> None:
    exe = nw.build(parse(SCAN), target="cpu")
    assert starts(exe) == 1
    rng = np.random.default_rng(2)
    w, x = whole(rng, 4, 16, 16), whole(rng, 3, 16)
    eye = np.eye(16, dtype=np.float32)
    last, y = exe(w, x, eye)
    np.testing.assert_array_equal(last, w[3])
    for n in range(4):
        x = x @ w[n] @ (w[n - 1] if n else eye)
    np.testing.assert_array_equal(y, x)


WHOLES = {
    "a value that only slices need": "  w = f32[5,16,32] add(u, u)\n",
    "a product": "  flat = f32[5,512] dot(q, r), lhs_contracting_dims={1}, "
    "rhs_contracting_dims={0}\n  w = f32[5,16,32] reshape(flat)\n",
}


@pytest.mark.parametrize("name", WHOLES)
def test_only_what_is_in_memory_has_pieces(name: str) -> None:
    """An element-wise value is computed for the slice alone, not for all of its layers."""
    text = LAYER.format(dtype="s32").replace(
        "  w = f32[5,16,32] parameter(1)\n",
        "  u = f32[5,16,32] parameter(1)\n  q = f32[5,3] parameter(3)\n"
        "  r = f32[3,512] parameter(4)\n" + WHOLES[name],
    )
    module = parse(text)
    exe = nw.build(module, target="cpu")
    assert starts(exe) == (name == "a product")
    rng = np.random.default_rng(3)
    u, q, r = whole(rng, 5, 16, 32), whole(rng, 5, 3), whole(rng, 3, 512)
    arguments = whole(rng, 3, 16), u, np.int32(3), q, r
    np.testing.assert_array_equal(exe(*arguments), evaluate(module, arguments))


CUTS = {
    "not aligned": ("f32[5,3,5]", "f32[1,3,5]", "[3,5]", "i, zero, zero", False),
    "along the second dimension": ("f32[5,16,32]", "f32[5,1,32]", "[5,32]", "zero, i, zero", False),
    "behind one of size 1": ("f32[1,5,32]", "f32[1,2,32]", "[2,32]", "zero, i, zero", True),
    "along two": ("f32[5,16,32]", "f32[1,8,32]", "[8,32]", "i, i, zero", False),
    "several at once": ("f32[9,16]", "f32[4,16]", "[4,16]", "i, zero", True),
}


@pytest.mark.parametrize("name", CUTS)
def test_a_piece_is_contiguous_and_aligned(name: str) -> None:
    all_dims, own, dims, where, expected = CUTS[name]
    rows, columns = dims[1:-1].split(",")
    text = f"""HloModule cut
ENTRY main {{
  x = f32[3,{rows}] parameter(0)
  w = {all_dims} parameter(1)
  i = s32[] parameter(2)
  zero = s32[] constant(0)
  one = {own} dynamic-slice(w, {where}), dynamic_slice_sizes={{{own[4:-1]}}}
  v = f32{dims} reshape(one)
  ROOT p = f32[3,{columns}] dot(x, v), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}"""
    module = parse(text)
    exe = nw.build(module, target="cpu")
    assert starts(exe) == expected
    rng = np.random.default_rng(4)
    x, w = whole(rng, 3, int(rows)), whole(rng, *map(int, all_dims[4:-1].split(",")))
    for place in (-1, 0, 2, 3, 40):
        arguments = x, w, np.int32(place)
        np.testing.assert_array_equal(exe(*arguments), evaluate(module, arguments))


def test_a_piece_outlives_an_update_of_its_buffer() -> None:
    """What is cut before the update is read after it: the update may not be in place."""
    text = """HloModule update
ENTRY main {
  x = f32[16,16] parameter(0)
  w = f32[4,16,16] parameter(1)
  i = s32[] parameter(2)
  zero = s32[] constant(0)
  all = f32[4,256] reshape(w)
  eye = f32[4,4] parameter(3)
  own = f32[4,256] dot(eye, all), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  cube = f32[4,16,16] reshape(own)
  one = f32[1,16,16] dynamic-slice(cube, i, zero, zero), dynamic_slice_sizes={1,16,16}
  v = f32[16,16] reshape(one)
  p = f32[16,16] dot(x, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  q = f32[1,16,16] reshape(p)
  new = f32[4,16,16] dynamic-update-slice(cube, q, i, zero, zero)
  again = f32[16,16] dot(p, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT t = (f32[4,16,16], f32[16,16]) tuple(new, again)
}"""
    module = parse(text)
    exe = nw.build(module, target="cpu")
    assert starts(exe) == 2
    rng = np.random.default_rng(5)
    x, w, eye = whole(rng, 16, 16), whole(rng, 4, 16, 16), np.eye(4, dtype=np.float32)
    for place in range(4):
        arguments = x, w, np.int32(place), eye
        for found, wanted in zip(exe(*arguments), evaluate(module, arguments), strict=True):
            np.testing.assert_array_equal(found, wanted)


def test_a_piece_may_be_a_result_and_part_of_a_constant(tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    x, w = whole(rng, 3, 16), whole(rng, 5, 16, 32)
    module = parse(
        LAYER.format(dtype="s64")
        .replace("ROOT p", "p")
        .replace("\n}", "\n  ROOT t = (f32[3,32], f32[16,32]) tuple(p, v)\n}")
    )
    exe = nw.build(module, target="cpu -mcpu=znver4,skylake-avx512", constants={1: w})
    exe.save(tmp_path / "layer.nw")
    for one in (exe, nw.load(tmp_path / "layer.nw")):
        for place in (-7, 0, 3, 8):
            product, piece = one(x, np.int64(place))
            layer = w[min(max(place, 0), 4)]
            np.testing.assert_array_equal(product, x @ layer)
            np.testing.assert_array_equal(piece, layer)


def test_a_gpu_copies_its_pieces() -> None:
    exe = nw.build(parse(LAYER.format(dtype="s32")), target="cuda-sim -arch=sm_80")
    assert not starts(exe)
    rng = np.random.default_rng(7)
    x, w = whole(rng, 3, 16), whole(rng, 5, 16, 32)
    np.testing.assert_array_equal(exe(x, w, np.int32(9)), x @ w[4])
