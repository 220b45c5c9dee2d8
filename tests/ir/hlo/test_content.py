"""The digest of a module: the same for the same work, whatever line it came from."""

from __future__ import annotations

import pytest

from nestwright.ir.hlo.text import parse
from nestwright.ir.hlo.text.content import digest, literal_size

MODULE = """HloModule m
f { ROOT x = f32[2] parameter(0) }
ENTRY e {
  x = f32[2] parameter(0)
  c = f32[2] constant({1, 0})
  p = (s32[], (pred[3], f32[])) constant((1, ({1, 0, 1}, 2.5)))
  ROOT y = f32[2] add(x, c), metadata={op_name="add" source_line=3}
}
"""


def test_same_modules_have_the_same_digest() -> None:
    assert digest(parse(MODULE)) == digest(parse(MODULE))
    assert digest(parse(MODULE.replace("source_line=3", "source_line=9"))) == digest(parse(MODULE))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("{1, 0})", "{1, -0})"),
        ("2.5", "2.25"),
        ("HloModule m", "HloModule n"),
        ("HloModule m", "HloModule m, is_scheduled=true"),
        ("add(x, c)", "add(c, x)"),
        ("f32[2] add", "f32[2] subtract"),
        ("ENTRY e", "ENTRY g"),
        ("ROOT y", "y"),
        ("f { ROOT x = f32[2]", "f { ROOT x = f32[3]"),
        ("constant({1, 0})", "constant({...})"),
    ],
)
def test_other_modules_have_another(old: str, new: str) -> None:
    assert old in MODULE
    changed = MODULE.replace(old, new, 1)
    if old == "ROOT y":
        changed = changed.replace("  c =", "  ROOT c =")
    assert digest(parse(changed)) != digest(parse(MODULE))


def test_size_of_constants() -> None:
    assert literal_size(parse(MODULE)) == 2 + 1 + 3 + 1
    assert literal_size(parse(MODULE.replace("constant({1, 0})", "constant({...})"))) == 5
