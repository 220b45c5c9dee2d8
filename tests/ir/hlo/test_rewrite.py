"""Computations are rebuilt as values: what did not change is the same object."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from nestwright.ir.errors import VerifyError
from nestwright.ir.hlo import parse, show
from nestwright.ir.hlo.analysis.verify import verify
from nestwright.ir.hlo.nodes import HloModule, Instruction, Raw
from nestwright.ir.hlo.rewrite import (
    assemble,
    called,
    constant,
    make,
    map_computations,
    parameter,
    rebuild,
    users,
    with_attrs,
    with_entry,
)
from nestwright.ir.hlo.text.canonical import canonical_text, key
from nestwright.ir.hlo.text.printer import show_computation

TEXT = """HloModule m
r { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b) }
ENTRY e {
  x = f32[4] parameter(0)
  y = f32[4] parameter(1)
  n = f32[4] negate(x)
  nn = f32[4] negate(n)
  dead = f32[4] exponential(n)
  z = f32[] constant(0)
  t = f32[4] add(nn, x)
  ROOT s = f32[] reduce(t, z), dimensions={0}, to_apply=r
}
"""


@pytest.fixture
def module() -> HloModule:
    return parse(TEXT)


def double_negation(i: Instruction) -> Instruction | None:
    match i:
        case Instruction(opcode="negate", operands=(Instruction(opcode="negate", operands=(x,)),)):
            return x
        case _:
            return None


def test_rule_is_applied_and_dead_code_dropped(module: HloModule) -> None:
    after = rebuild(module.entry, double_negation)
    assert [i.name for i in after.instructions] == ["x", "y", "z", "t", "s"]
    assert after.parameters == module.entry.parameters
    by_name = {i.name: i for i in after.instructions}
    assert by_name["t"].operands == (by_name["x"], by_name["x"])


def test_nothing_changed_is_the_same_object(module: HloModule) -> None:
    clean = rebuild(module.entry, lambda i: None)
    assert [i.name for i in clean.instructions] == ["x", "y", "n", "nn", "z", "t", "s"]
    assert rebuild(clean, lambda i: None) is clean
    assert rebuild(clean, lambda i: i) is clean


def test_new_instructions_get_fresh_names(module: HloModule) -> None:
    def square(i: Instruction) -> Instruction | None:
        return make("multiply", i.shape, [i, i], name="t") if i.opcode == "add" else None

    after = rebuild(module.entry, square)
    names = [i.name for i in after.instructions]
    assert len(set(names)) == len(names) and "t.1" in names
    assert show_computation(rebuild(module.entry, square)) == show_computation(after)


def test_users(module: HloModule) -> None:
    found = {i.name: [u.name for u in us] for i, us in users(module.entry).items()}
    assert found["x"] == ["n", "t"] and found["n"] == ["nn", "dead"] and found["s"] == []


def test_assemble_orders_and_names() -> None:
    x = parameter(0, constant(np.zeros(3, "f4")).shape, "x")
    two = constant(np.full(3, 2, "f4"))
    root = make("add", x.shape, [make("add", x.shape, [x, two]), two])
    c = assemble("e", [x], root)
    assert [i.name for i in c.instructions] == ["x", "constant", "add", "add.1"]
    verify(HloModule("m", (c,), c))


def test_callers_are_linked_to_new_callees(module: HloModule) -> None:
    def to_max(i: Instruction) -> Instruction | None:
        scalar = i.opcode == "add" and not i.array.dims
        return make("maximum", i.shape, i.operands, name=i.name) if scalar else None

    after = map_computations(module, lambda c: rebuild(c, to_max))
    verify(after)
    (reducer,) = called(after.entry.root)
    assert reducer.root.opcode == "maximum" and reducer in after.computations
    assert map_computations(after, lambda c: c) is after
    assert called(module.entry.root)[0].root.opcode == "add"


def test_uncalled_computations_are_dropped(module: HloModule) -> None:
    entry = assemble("e", module.entry.parameters, module.entry.parameters[0])
    assert [c.name for c in with_entry(module, entry).computations] == ["e"]


def test_deep_graphs_need_no_recursion() -> None:
    x = parameter(0, constant(np.float32(0)).shape)
    root = x
    for _ in range(20_000):
        root = make("negate", x.shape, [root])
    c = assemble("deep", [x], root)
    assert len(c.instructions) == 20_001
    assert rebuild(c, lambda i: None) is c
    assert len(key(c)) == 64


def test_key_ignores_names_order_and_metadata(module: HloModule) -> None:
    renamed = TEXT.replace("nn", "q.7").replace(
        "n = f32[4] negate(x)", 'n = f32[4]{0} negate(x), metadata={op_name="k"}, sharding={a}'
    )
    moved = renamed.replace("  z = f32[] constant(0)\n", "").replace(
        "  x = f32[4] parameter(0)\n", "  z = f32[] constant(0)\n  x = f32[4] parameter(0)\n"
    )
    assert key(parse(moved).entry) == key(module.entry)


@pytest.mark.parametrize(
    ("old", "new"),
    [("add(nn, x)", "add(x, nn)"), ("constant(0)", "constant(1)"), ("add(a, b)", "maximum(a, b)")],
)
def test_key_tells_different_work_apart(module: HloModule, old: str, new: str) -> None:
    assert key(parse(TEXT.replace(old, new)).entry) != key(module.entry)


def test_canonical_text_parses_and_is_its_own(module: HloModule) -> None:
    text = canonical_text(module.entry)
    again = parse(text)
    verify(again)
    assert canonical_text(again.entry) == text
    assert show(again).startswith("HloModule canonical")


def test_attributes_change_by_value(module: HloModule) -> None:
    root = module.entry.root
    marked = with_attrs(root, note=Raw("1"))
    assert "note" not in root.attrs and marked.attrs["note"] == Raw("1")
    with pytest.raises(VerifyError):
        other = with_attrs(root, dimensions=(3,))
        verify(with_entry(module, assemble("e", module.entry.parameters, other)))


BRANCHES = """HloModule m, is_scheduled=true
one { p = f32[4] parameter(0)
  ROOT r = f32[4] negate(p) }
two { p = f32[4] parameter(0)
  ROOT r = f32[4] exponential(p) }
ENTRY e { x = f32[4] parameter(0)
  c = s4[4] constant({1,-2,3,-4})
  k = s32[] parameter(1)
  y = f32[4] conditional(k, x, x), branch_computations={one, two}
  z = f32[4] convert(c)
  ROOT s = f32[4] add(y, z), metadata={op_name="sum"} }"""


@pytest.mark.parametrize("text", [TEXT, BRANCHES])
def test_modules_are_pickled_and_copied_deeply(text: str) -> None:
    module = parse(text)
    for new in (pickle.loads(pickle.dumps(module)), copy.deepcopy(module)):
        verify(new)
        assert show(new) == show(module)
        literals = [i.attrs["literal"] for i in new.entry.instructions if i.opcode == "constant"]
        assert not any(x.flags.writeable for x in literals)


def test_pickles_do_not_go_as_deep_as_the_graph() -> None:
    steps = "\n".join(f"a{n + 1} = f32[2] negate(a{n})" for n in range(2000))
    module = parse(f"ENTRY e {{ a0 = f32[2] parameter(0)\n{steps} }}")
    assert show(pickle.loads(pickle.dumps(module))) == show(module)
