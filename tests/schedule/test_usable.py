"""Schedules for tile registers on processors that have none: refused, and built by default."""

from __future__ import annotations

import logging

import pytest

from nestwright.codegen.driver.compile_group import replay
from nestwright.ir.hlo.text import parse
from nestwright.ir.loop.notes import FROZEN
from nestwright.ir.target import Target
from nestwright.schedule.errors import ScheduleError
from nestwright.schedule.sketches.generate import default_schedule, require_finished
from nestwright.te.from_hlo import lower_group

TEXT = """HloModule product
ENTRY main {
  x = bf16[40,64] parameter(0)
  w = bf16[64,48] parameter(1)
  ROOT y = f32[40,48] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
TILES, NONE = map(Target.parse, ("cpu -mcpu=emeraldrapids", "cpu -mcpu=cooperlake"))


def test_a_trace_for_tile_registers_is_of_no_use_without_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    func = FROZEN.put(lower_group(parse(TEXT).entry, "kernel", True), (1,))
    tiled = default_schedule(func, TILES)
    require_finished(tiled.func, TILES)
    with pytest.raises(ScheduleError, match=r"in tile registers.*has none"):
        require_finished(tiled.func, NONE)
    require_finished(default_schedule(func, NONE).func, NONE)
    assert replay(func, TILES, tiled.trace) is not None
    with caplog.at_level(logging.WARNING):
        assert replay(func, NONE, tiled.trace) is None
    assert "no longer applies" in caplog.text
