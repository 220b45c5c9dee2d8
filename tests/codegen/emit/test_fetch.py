"""Prefetches of the next panel of packed weights: each line once, none from anywhere else."""

from __future__ import annotations

from itertools import product

import pytest
from assembly import hottest_loop

from nestwright.codegen.driver.prepack import split_packs
from nestwright.codegen.emit.fetch import LINE, FetchedLines, streams
from nestwright.codegen.targets.cpu.toolchain import assembly
from nestwright.codegen.targets.registry import backend, lower
from nestwright.ir.hlo.text import parse
from nestwright.ir.loop.affine import linear
from nestwright.ir.loop.build import as_int
from nestwright.ir.loop.nodes import For, Func, Kind, Var
from nestwright.ir.loop.notes import FETCH_AHEAD, FROZEN
from nestwright.ir.loop.visit import walk
from nestwright.ir.target import Target
from nestwright.schedule.errors import ScheduleError
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.sketches.generate import generate
from nestwright.te.from_hlo import lower_group

MACHINE = Target.parse("cpu -mcpu=x86-64-v4 -threads=2")
TEXT = """HloModule product
ENTRY main {{
  a = f32[{m},{k}] parameter(0)
  w = f32[{k},{n}] parameter(1)
  ROOT d = f32[{m},{n}] dot(a, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}
"""


def panels(m: int, k: int, n: int, rows: int, unroll: int) -> Func:
    """Return a flat product whose pieces are four panels of packed weights, 32 columns wide."""
    func = FROZEN.put(lower_group(parse(TEXT.format(m=m, k=k, n=n)).entry, "f"), (1,))
    sketch = generate(func, MACHINE)[0]
    choices = {**sketch.default, "rows": rows, "vectors": 2, "unroll": unroll, "order": "column"}
    sch = Schedule(func)
    sketch.apply(sch, {**choices, "chunks": 1, "panels": 4, "pack": 2})
    main, packs = split_packs(sch.func)
    assert packs
    return lower(main, MACHINE)


def noted(func: Func) -> For:
    """Return the loop over panels."""
    (found,) = (s for s in walk(func.body) if isinstance(s, For) and FETCH_AHEAD.of(s))
    return found


def lines_of(stream: FetchedLines, values: dict[Var, int]) -> list[int]:
    """Return the elements at which the lines that one iteration fetches begin."""
    form = linear(stream.at)
    known = {v: c for v, c in form.terms.items() if isinstance(v, Var)}
    assert len(known) == len(form.terms)
    at = form.constant + sum(c * values.get(v, 0) for v, c in known.items())
    return [at + n * LINE // 4 for n in range(stream.lines)]


@pytest.mark.parametrize(
    ("m", "k", "rows", "unroll"),
    [(40, 256, 8, 2), (43, 96, 7, 1), (8, 64, 8, 4), (24, 96, 8, 2), (16, 64, 8, 3)],
)
def test_the_next_panel_is_fetched_once(m: int, k: int, rows: int, unroll: int) -> None:
    """All lines of the panel behind this one, and at most one iteration's share beyond."""
    loop = noted(panels(m, k, 256, rows, unroll))
    ((inner, (stream,)),) = streams(loop).items()
    around = [s for s in walk(loop.body) if isinstance(s, For) and _holds(s, inner)]
    size = k * 32
    fetched = [
        at // 16
        for turn in product(*(range(as_int(s.extent) or 0) for s in around))
        for at in lines_of(stream, dict(zip((s.var for s in around), turn, strict=True)))
    ]
    own = range(size // 16, 2 * size // 16)
    assert set(own) <= set(fetched)
    assert min(fetched) == own[0]
    assert max(fetched) < own[-1] + 1 + len(own) // 4


def _holds(s: For, inner: int) -> bool:
    return any(id(x) == inner for x in walk(s)) and s.kind is Kind.SERIAL


def test_the_hot_loop_fetches() -> None:
    """The code has a prefetch in the loop over k, and no note means none."""
    flat = panels(40, 256, 256, 8, 2)
    loop = hottest_loop(assembly(backend(MACHINE).emit(flat, MACHINE), MACHINE))
    assert loop is not None
    assert loop.prefetches == 1


def test_a_parallel_loop_cannot_fetch_ahead() -> None:
    """Which iteration is next on a thread is not known."""
    func = lower_group(parse(TEXT.format(m=8, k=8, n=8)).entry, "f")
    sch = Schedule(func)
    first = sch.get_loops(sch.blocks()[0])[0]
    sch.parallel(first)
    with pytest.raises(ScheduleError, match="in order"):
        sch.annotate(first, "fetch_ahead", 1)
