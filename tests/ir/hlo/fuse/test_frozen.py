"""The mark of constants among a group's parameters: in its text, in its key, in its loops."""

from __future__ import annotations

import numpy as np
import pytest

from nestwright.ir.hlo import parse
from nestwright.ir.hlo.analysis.verify import verify
from nestwright.ir.hlo.fuse.fusion import Group, fuse
from nestwright.ir.hlo.passes.pipeline import optimize
from nestwright.ir.hlo.passes.prepare.freeze_parameters import freeze
from nestwright.ir.hlo.text.canonical import canonical_text, key
from nestwright.ir.hlo.text.printer import show
from nestwright.ir.loop import parser, printer
from nestwright.ir.loop.notes import FROZEN
from nestwright.ir.loop.visit import equal
from nestwright.te.from_hlo import lower_group

DOT = """HloModule m
ENTRY e { x = f32[5,64] parameter(0)
 w = f32[64,64] parameter(1)
 b = f32[2048] parameter(2)
 d = f32[5,64] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 s = f32[64] slice(b), slice={[3:67]}
 bb = f32[5,64] broadcast(s), dimensions={1}
 ROOT r = f32[5,64] add(d, bb) }"""

WEIGHT = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)


def only_group(constants: dict[int, np.ndarray]) -> Group:
    module = parse(DOT)
    (group,) = fuse(optimize(freeze(module, constants) if constants else module).entry).groups
    return group


def marks(group: Group) -> list[tuple[int, ...]]:
    return [p.array.dims for p in group.computation.parameters if p.attrs.get("frozen")]


def test_a_constant_matrix_is_marked_and_nothing_else_is() -> None:
    assert marks(only_group({})) == []
    assert marks(only_group({1: WEIGHT})) == [(64, 64)]
    assert marks(only_group({2: np.zeros(2048, np.float32)})) == []


def test_the_mark_is_part_of_the_key_and_the_numbers_are_not() -> None:
    plain, frozen, other = only_group({}), only_group({1: WEIGHT}), only_group({1: WEIGHT + 1})
    assert key(plain.computation) != key(frozen.computation)
    assert key(frozen.computation) == key(other.computation)


def test_the_canonical_text_keeps_the_mark() -> None:
    text = canonical_text(only_group({1: WEIGHT}).computation)
    assert text.count("frozen=true") == 1
    again = parse(text)
    verify(again)
    assert [p.attrs.get("frozen") for p in again.entry.parameters].count(True) == 1
    assert canonical_text(again.entry) == text
    assert show(parse(show(again))) == show(again)


def test_an_optimized_group_keeps_the_mark() -> None:
    group = parse(canonical_text(only_group({1: WEIGHT}).computation))
    verify(optimize(group))
    assert key(optimize(group).entry) == key(group.entry)


@pytest.mark.parametrize("constants", [{}, {1: WEIGHT}])
def test_the_loops_say_which_inputs_are_constants(constants: dict[int, np.ndarray]) -> None:
    group = only_group(constants)
    func = lower_group(group.computation, "f")
    numbers = [n for n, p in enumerate(group.computation.parameters) if p.attrs.get("frozen")]
    assert list(FROZEN.of(func) or ()) == numbers
    again = parser.parse(printer.show(func))
    assert equal(again, func)
    assert again.notes == func.notes


def test_a_mark_on_a_models_own_parameter_says_nothing() -> None:
    text = DOT.replace("parameter(1)", "parameter(1), frozen=true")
    (group,) = fuse(optimize(parse(text)).entry).groups
    assert marks(group) == []
    assert key(group.computation) == key(only_group({}).computation)
