"""What follows from a declaration: methods, checks of arguments, names, steps of a trace."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nestwright.te as te
from nestwright.ir.loop.nodes import Func, Scope
from nestwright.ir.loop.visit import equal
from nestwright.schedule import cursor
from nestwright.schedule.cursor import BlockRef, LoopRef
from nestwright.schedule.declare import PRIMITIVES
from nestwright.schedule.errors import ScheduleError
from nestwright.schedule.language.listing import methods_text, page_text
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.language.trace import Trace
from nestwright.schedule.primitives import reduce, stage
from nestwright.schedule.primitives.products import matmul

ROOT = Path(__file__).parents[2]


def product() -> Func:
    a, b = te.placeholder((8, 8), name="A"), te.placeholder((8, 8), name="B")
    k = te.reduce_axis(8, "k")
    c = te.compute((8, 8), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    d = te.compute((8, 8), lambda y, x: te.maximum(c[y, x], 0.0), name="D")
    return te.create_func([a, b, d], name="product")


def test_methods_are_as_declared(request: pytest.FixtureRequest) -> None:
    file, text = ROOT / "schedule/language/methods.py", methods_text(PRIMITIVES.values())
    if request.config.getoption("--bless"):
        file.write_text(text)
    assert file.read_text() == text, "pytest --bless tests/schedule writes it"


def test_the_page_is_as_declared(request: pytest.FixtureRequest) -> None:
    """What its examples print is compared by ``tests/docs``."""
    file = ROOT / "docs/primitives.md"
    text = page_text(PRIMITIVES.values(), file.read_text())
    if request.config.getoption("--bless"):
        file.write_text(text)
    assert file.read_text() == text, "pytest --bless tests/schedule writes it"


def test_every_primitive_says_what_it_refuses() -> None:
    for p in PRIMITIVES.values():
        assert p.summary() and p.section("Refused:") and p.section("Example:"), p.name


def test_arguments_by_name_and_from_numpy() -> None:
    sch, plain = Schedule(product()), Schedule(product())
    sch.split(factors=np.array([2, 4]).tolist(), loop="k")
    sch.cache_read(index=np.int64(1), block=BlockRef("C"), scope=Scope.SHARED)
    (_, _, k) = plain.get_loops("C")
    plain.split(k, (2, 4))
    plain.cache_read("C", 1, "shared")
    assert equal(sch.func, plain.func)
    assert sch.trace == plain.trace


WRONG: list[tuple[Callable[[Any], object], str]] = [
    (lambda s: s.split("k", 4), "`factors` must be a sequence, each item an integer or None"),
    (lambda s: s.split("k", [2, 4.0]), "`factors` must be"),
    (lambda s: s.split("k", [2, True]), "`factors` must be"),
    (lambda s: s.split(None, [2, 4]), "`loop` must be a loop, not None"),
    (lambda s: s.fuse("k", 3), "`refs` must be a sequence, each item a loop"),
    (lambda s: s.cache_read("C", "one"), "`index` must be an integer, not 'one'"),
    (lambda s: s.cache_read("C", 1, "moon"), "`scope` must be one of 'global', "),
    (lambda s: s.cache_read(LoopRef, 1), "`block` must be a block"),
    (lambda s: s.compute_at("C", "y", 1), "`keep_unit_loops` must be True or False, not 1"),
    (lambda s: s.transform_layout("C", 0, None, [(1, 2, 3)]), "`pack` must be"),
    (lambda s: s.to_matmul("C", [1, 1, 1], "mk"), "`layouts` must be"),
    (lambda s: s.annotate("C", "key", 1.5), "`value` must be an integer or a string, not 1.5"),
    (lambda s: s.parallel("kk"), "did you mean `k`"),
    (lambda s: s.annotate("E", "key", 1), "no loop has that name"),
]


@pytest.mark.parametrize(("ask", "why"), WRONG, ids=[w for _, w in WRONG])
def test_arguments_of_other_kinds_are_refused(ask: Callable[[Any], object], why: str) -> None:
    sch = Schedule(product())
    before = sch.func
    with pytest.raises(ScheduleError) as e:
        ask(sch)
    assert why in str(e.value) and e.value.hint
    assert sch.func is before and not sch.trace.steps


def test_a_misspelt_method_is_corrected() -> None:
    sch: Any = Schedule(product())
    with pytest.raises(AttributeError, match="did you mean `vectorize`"):
        sch.vectorise("x")
    with pytest.raises(AttributeError, match="did you mean `get_loops`"):
        sch.get_loop("C")
    with pytest.raises(AttributeError, match="primitives: add_unit_loop, annotate, "):
        sch.wxyz  # noqa: B018


def test_loops_by_name() -> None:
    sch, plain = Schedule(product()), Schedule(product())
    sch.parallel("y")
    sch.unroll(sch.find_loop("k"))
    assert sch.extent("k") == 8
    plain.parallel(plain.get_loops("D")[0])
    plain.unroll(plain.get_loops("C")[2])
    assert equal(sch.func, plain.func)
    assert sch.trace == plain.trace, "a trace holds no name of a loop"


def test_a_name_of_several_loops() -> None:
    sch = Schedule(product())
    i, j, _ = sch.get_loops("C")
    sch.decompose_reduction("C", i)
    assert "for j_1 in range(" in sch.show()
    assert sch.find_loop("j_1") == sch.find_loop("j", "C_init") == sch.get_loops("C_init")[1]
    assert sch.find_loop("j") == sch.find_loop("j", "C") == j, "it keeps its name"
    with pytest.raises(ScheduleError, match="loops: i, j, k"):
        sch.find_loop("x", "C")


def test_loops_go_by_the_names_that_are_printed() -> None:
    sch = Schedule(product())
    sch.split("i", [None, 2, 4])
    sch.split(sch.find_loop("j", "C"), [None, 4])
    sch.vectorize("j_in")
    sch.parallel("i_tile")
    printed = re.findall(r"for (\w+) in", sch.show())[:5]
    assert printed == ["i_par", "i_tile", "i_in", "j_tile", "j_lane"]
    assert [sch.find_loop(name) for name in printed] == sch.get_loops("C")[:5]
    assert sch.find_loop("j_in") == sch.find_loop("j_lane"), "the name that it was made by"
    sch.fuse("i_tile", "i_in")
    assert [sch.loop(x).var.name for x in sch.get_loops("C")][:2] == ["i_tile", "i"]
    assert "_tile" not in str(sch.trace.to_json()), "names of loops may change"
    assert equal(sch.trace.replay(sch.origin).func, sch.func)


def test_refusals_name_loops_as_they_print() -> None:
    sch = Schedule(product())
    sch.decompose_reduction("C", "i")
    sch.split(sch.find_loop("j", "C_init"), [None, 4])
    sch.split(sch.find_loop("j", "C"), [None, 4])
    sch.vectorize("j_in_1")
    with pytest.raises(ScheduleError) as e:
        sch.unroll("j_lane")
    assert e.value.what == "unroll loop `j_lane`"
    assert e.value.why == "loop `j_lane` is already vectorized"
    sch.unroll("j_in")
    sch.unroll("j_tile")
    with pytest.raises(ScheduleError, match="loop `j_unroll_1` is already unrolled"):
        sch.vectorize("j_unroll_1")


def staged() -> Schedule:
    """Every primitive that gives a block, and the blocks used by name and by reference."""
    sch = Schedule(product())
    a = sch.cache_read("C", 1)
    sch.transform_layout("A_cache", 0, [1, 0])
    out = sch.cache_write("D", 0)
    sch.reverse_compute_inline("D_store")
    sch.annotate("A_cache", "kept", 1)
    outer, inner = sch.split("k", [2, 4])
    part = sch.rfactor(inner)
    sch.decompose_reduction(part, outer)
    sch.vectorize(sch.get_loops("C_rf_init")[-1])
    sch.compute_at(a, sch.get_loops(part)[0])
    assert out.name == "D_store"
    return sch


def test_new_blocks_are_named_in_the_trace() -> None:
    text = staged().trace.show()
    assert 'b0 = sch.cache_read("C", 1)\nsch.transform_layout(b0, 0, [1, 0])\n' in text
    assert "b3 = sch.decompose_reduction(b2, " in text
    assert "_cache" not in text and "_rf" not in text and "_store" not in text


def test_other_names_of_new_blocks_break_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    sch = staged()
    for module in (stage, reduce, matmul):
        if hasattr(module, "fresh_name"):
            monkeypatch.setattr(module, "fresh_name", lambda f, n: cursor.fresh_name(f, f"{n}_new"))
    again = Trace.from_json(sch.trace.to_json()).replay(product())
    assert "A_cache_new" in [b.name for b in again.blocks()]
    assert again.show().replace("_new", "") == sch.show()


def test_a_name_that_is_free_again() -> None:
    sch = Schedule(product())
    sch.cache_read("D", 0)
    sch.compute_inline("C_cache")
    second = sch.cache_read("D", 0)
    sch.annotate(second, "kept", 1)
    assert "sch.annotate(b1, " in sch.trace.show()
    assert equal(sch.trace.replay(product()).func, sch.func)


def test_results_of_one_and_of_many_are_shown_as_python() -> None:
    sch = Schedule(product())
    sch.add_unit_loop("D")
    sch.split("k", [8])
    sch.to_matmul("C")
    assert sch.trace.show() == (
        'l0 = sch.add_unit_loop("D")\n'
        'l1, l2, l3 = sch.get_loops("C")\n'
        "(l4,) = sch.split(l3, [8])\n"
        'b0, b1, b2 = sch.to_matmul("C")\n'
    )
    again = Schedule(product())
    exec(compile(sch.trace.show(), "trace", "exec"), {"sch": again})
    assert again.trace == sch.trace and equal(again.func, sch.func)


BEFORE: list[Any] = [
    ["cache_read", ["C", 1, "shared"], []],
    ["cache_write", ["D", 0, "global"], []],
    ["get_loops", ["C"], ["l0", "l1", "l2"]],
    ["compute_at", ["A_cache", {"loop": "l1"}, True], []],
    ["annotate", [{"block": "A_cache"}, "kept", 1], []],
    ["annotate", [{"loop": "l0"}, "grain", "auto"], []],
    ["reorder", [[{"loop": "l1"}, {"loop": "l0"}]], []],
    ["fuse", [[{"loop": "l1"}, {"loop": "l0"}]], ["l3"]],
    ["decompose_reduction", ["C", {"loop": "l2"}], []],
    ["get_loops", ["D_store"], ["l4", "l5"]],
]


def test_traces_of_the_version_before_replay() -> None:
    """They name no blocks, write loops as ``{"loop": name}`` and either as ``{"block": name}``."""
    sch = Trace.from_json(BEFORE[:6] + BEFORE[8:]).replay(product())
    assert [b.name for b in sch.blocks()] == ["A_cache", "C_init", "C", "D", "D_store"]
    assert sch.block("A_cache").notes["kept"] == 1
    assert (
        Trace.from_json(BEFORE[2:3] + BEFORE[6:8])
        .replay(product())
        .trace.show()
        .endswith("l3 = sch.fuse(l1, l0)\n")
    )


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        ([["cache_reed", ["C", 1], []]], "did you mean `cache_read`"),
        ([["unroll", [{"result": "l7"}], []]], "no earlier step returns `l7`"),
        ([["cache_read", ["C"], []]], "missing a required argument: 'index'"),
        ([["cache_read", ["C", 1, "shared", [], False, 5], []]], "too many positional arguments"),
        ([["cache_read", ["C", 1], ["b0", "b1"]]], "names 2 results, and there are 1"),
        ([["cache_read", ["C", 1], ["a"]], ["cache_read", ["C", 2], ["a"]]], "already taken"),
    ],
)
def test_traces_that_make_no_sense(steps: list[Any], why: str) -> None:
    with pytest.raises(ScheduleError) as e:
        Trace.from_json(steps).replay(product())
    assert why in str(e.value)
