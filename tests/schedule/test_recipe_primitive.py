"""The recipe for a primitive: one declaration, and everything else follows from it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

import nestwright.te as te
from nestwright.ir.loop.nodes import Func
from nestwright.ir.loop.visit import equal
from nestwright.schedule.cursor import BlockRef, LoopRef
from nestwright.schedule.declare import PRIMITIVES, primitive
from nestwright.schedule.errors import ScheduleError
from nestwright.schedule.language.listing import methods_text, page_text
from nestwright.schedule.language.schedule import Schedule, Trace
from nestwright.schedule.primitives.loops import add_unit_loop, split


@pytest.fixture
def declared() -> Iterator[None]:
    @primitive
    def strip_mine(
        func: Func, loop: LoopRef, width: int = 4, around: tuple[BlockRef, ...] = ()
    ) -> tuple[Func, tuple[LoopRef, ...]]:
        """Split a loop into strips of a width.

        The blocks ``around`` get loops of their own.

        Refused:
            - a width below 1

        Example:
            sch = chain()
            sch.strip_mine("i")
        """
        func, strips = split(func, loop, (None, width))
        for block in around:
            func, _ = add_unit_loop(func, block)
        return func, strips

    yield
    del PRIMITIVES["strip_mine"]


def chain() -> Func:
    a = te.placeholder((10,), name="A")
    b = te.compute((10,), lambda i: a[i] * 2.0, name="B")
    c = te.compute((10,), lambda j: b[j] + 1.0, name="C")
    return te.create_func([a, c], name="chain")


@pytest.mark.usefixtures("declared")
def test_the_declaration_is_all() -> None:
    sch: Any = Schedule(chain())
    outer, _ = sch.strip_mine("i", around=["C"])
    sch.parallel(outer)
    assert sch.trace.show() == (
        '(l0,) = sch.get_loops("B")\nl1, l2 = sch.strip_mine(l0, 4, ["C"])\nsch.parallel(l1)\n'
    )
    again = Trace.from_json(json.loads(json.dumps(sch.trace.to_json()))).replay(chain())
    assert equal(again.func, sch.func)
    shown: dict[str, Any] = {"sch": Schedule(chain())}
    exec(compile(sch.trace.show(), "trace", "exec"), shown)
    assert equal(shown["sch"].func, sch.func)
    with pytest.raises(ScheduleError, match="`width` must be an integer, not 'wide'"):
        sch.strip_mine("j", "wide")
    with pytest.raises(AttributeError, match="did you mean `strip_mine`"):
        sch.stripmine("j")


@pytest.mark.usefixtures("declared")
def test_the_method_and_the_page_follow() -> None:
    text = methods_text(PRIMITIVES.values())
    assert "    def strip_mine(\n" in text and "around: Sequence[BlockRef | str] = ()" in text
    assert '= self.perform("strip_mine", loop, width, around)' in text
    page = page_text(PRIMITIVES.values(), "# Page\n\n## All of them\n")
    assert "| [`strip_mine`](#strip_mine) | Split a loop into strips of a width. |" in page
    assert "- a width below 1" in page and 'sch.strip_mine("i")' in page
