"""Counts of launches, copies and waits of small models that are built for a GPU."""

from __future__ import annotations

import pytest
from gpu.launches.count import ModelCount, count, to_json

import nestwright as nw

CACHE = """HloModule cache
ENTRY main {
  cache = f32[64,8] parameter(0)
  row = f32[1,8] parameter(1)
  at = s32[] parameter(2)
  zero = s32[] constant(0)
  ROOT new = f32[64,8] dynamic-update-slice(cache, row, at, zero)
}
"""
LOOP = """HloModule loop
more { s = (s32[], f32[9]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[9] get-tuple-element(s), index=1
  n = s32[] constant(11)
  ROOT c = pred[] compare(i, n), direction=LT }
step { s = (s32[], f32[9]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  j = s32[] add(i, one)
  x = f32[9] get-tuple-element(s), index=1
  y = f32[9] reverse(x), dimensions={0}
  ROOT r = (s32[], f32[9]) tuple(j, y) }
ENTRY main {
  k = s32[] parameter(0)
  x = f32[9] parameter(1)
  zero = s32[] constant(0)
  s = (s32[], f32[9]) tuple(FIRST, x)
  w = (s32[], f32[9]) while(s), condition=more, body=step
  ROOT y = f32[9] get-tuple-element(w), index=1
}
"""


def counted(text: str) -> ModelCount:
    return count(nw.build(nw.parse(text), "cuda -arch=sm_80", cache=False).bundle)


def test_copy_of_a_cache_is_not_left_where_it_is_the_result() -> None:
    found = counted(CACHE)
    assert (found.launches, found.copies, found.left, found.reads) == (1, 1, 0, 0)
    assert found.small == 1 and to_json(found)["kernels"][0][1] == 1


@pytest.mark.parametrize(("first", "launches", "reads"), [("zero", 11, 0), ("k", 1, 1)])
def test_loop_counts_as_often_as_its_trips_are_known(first: str, launches: int, reads: int) -> None:
    found = counted(LOOP.replace("FIRST", first))
    assert found.reads == reads
    assert found.launches >= launches
