"""What a kernel leaves alone of its arrays does not count as moved."""

from __future__ import annotations

import pytest

import nestwright as nw
from nestwright.ir.hlo.analysis.untouched import untouched
from nestwright.ir.hlo.text import parse

TABLE = 40 * 16 * 4
ROW = 16 * 4


def left(body: str, updates: tuple[tuple[int, int], ...] = ()) -> int:
    text = f"""HloModule m
ENTRY main {{
  x = f32[40,16] parameter(0)
  i = s32[] parameter(1)
  row = f32[1,16] parameter(2)
  zero = s32[] constant(0)
  {body}
}}"""
    return untouched(parse(text).entry, updates)


CUT = "dynamic-slice(x, i, zero), dynamic_slice_sizes={1,16}"
PUT = "ROOT r = f32[40,16] dynamic-update-slice(x, row, i, zero)"
OTHERS = ROW + 4  # the row and the index are read by nothing


@pytest.mark.parametrize(
    ("body", "bytes_left"),
    [
        (f"c = f32[1,16] {CUT}\n  ROOT r = f32[1,16] add(c, row)", TABLE - ROW),
        (f"ROOT r = f32[1,16] {CUT}", TABLE),  # and the other row is read by nothing
        ("ROOT r = f32[40,16] negate(x)", OTHERS),
        ("ROOT r = f32[3,16] slice(x), slice={[2:5],[0:16]}", TABLE - 3 * ROW + OTHERS),
        (
            "v = f32[640] reshape(x)\n  ROOT r = f32[8] slice(v), slice={[2:10]}",
            TABLE - 8 * 4 + OTHERS,
        ),
        (
            f"c = f32[1,16] {CUT}\n  b = f32[1,16] add(c, row)\n"
            "  f = f32[16] reshape(b)\n  w = f32[40,16] broadcast(f), dimensions={1}\n"
            "  ROOT r = f32[40,16] add(w, x)",
            0,
        ),
        (f"c = f32[1,16] {CUT}\n  ROOT r = (f32[1,16], f32[40,16]) tuple(c, x)", ROW),
        (PUT, 0),
    ],
)
def test_what_is_cut_counts(body: str, bytes_left: int) -> None:
    assert left(body) == bytes_left


def test_an_update_in_place_writes_the_row() -> None:
    assert left(PUT, ((0, 0),)) == 2 * TABLE - ROW


def test_an_executable_counts_the_rows() -> None:
    text = f"""HloModule m
ENTRY main {{ x = f32[40,16] parameter(0)
  i = s32[] parameter(1)
  row = f32[1,16] parameter(2)
  zero = s32[] constant(0)
  c = f32[1,16] {CUT}
  ROOT r = f32[1,16] add(c, row) }}"""
    assert nw.build(parse(text)).cost_analysis()["bytes accessed"] == 3 * ROW + 4
