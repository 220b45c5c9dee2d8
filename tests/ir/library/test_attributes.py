"""The attributes of custom calls, as XLA and MLIR print them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nestwright.ir.hlo import parse
from nestwright.ir.hlo.library import library_call
from nestwright.ir.library.attributes import read, unquoted


@pytest.mark.parametrize(
    "text, values",
    [
        ("{}", {}),
        ("{mode = 65 : ui8}", {"mode": 65}),
        ("{85 : ui8, 76 : ui8}", {"0": 85, "1": 76}),
        (
            "{a = -1.5e3 : f32, b = 2.0, c = true, d = false}",
            {"a": -1500.0, "b": 2.0, "c": True, "d": False},
        ),
        ('{"quoted name" = "a \\"b\\" \\0A"}', {"quoted name": 'a "b" \n'}),
        ("{x = 0x7F800000 : f32, y = 0xff : i32}", {"x": math.inf, "y": 255}),
        (
            '{v = array<i64: 1, -2>, w = array<i32>, u = [1 : i32, "s"]}',
            {"v": (1, -2), "w": (), "u": (1, "s")},
        ),
        ("{inner = {k = 4 : i64, largest = true}}", {"inner": {"k": 4, "largest": True}}),
    ],
)
def test_what_is_read(text: str, values: dict[str, object]) -> None:
    assert read(text) == values


@pytest.mark.parametrize(
    "text",
    [
        "",
        "plain text",
        '{"json": 1}',
        "{a = }",
        "{a = 1",
        "{a = 1} more",
        "{a = dense<1>}",
        "{" * 50 + "}" * 50,
        "{a = 0x1 : f8}",
        "{a = @symbol}",
    ],
)
def test_other_text_has_no_attributes(text: str) -> None:
    assert read(text) == {}


@given(st.text(alphabet='{}[]<>=:,"\\ax1.-e ', max_size=40))
def test_no_text_is_an_error(text: str) -> None:
    read(text)
    unquoted(text)


CALLS = """HloModule m
ENTRY main {
  x = f32[4,4] parameter(0)
  a = (f32[4,4]{0,1}, s32[]) custom-call(x), custom_call_target="one",
    operand_layout_constraints={f32[4,4]{0,1}}, api_version=API_VERSION_TYPED_FFI,
    frontend_attributes={num_batch_dims="0",rule="#x<([i, j])->([k, l], []) {i=4}, custom>"},
    backend_config={uplo = 76 : ui8}
  b = f32[4] custom-call(x), custom_call_target="two", backend_config="{\\"json\\": [1, 2]}"
  c = (f32[4,4], f32[4]) tuple(x, b)
  t = token[] after-all()
  d = () custom-call(c, t), custom_call_target="three", backend_config="{mode = 65 : ui8}"
  ROOT r = ((f32[4,4], s32[]), f32[4], ()) tuple(a, b, d)
}
"""


def test_what_an_instruction_asks_for() -> None:
    found = {i.name: i for i in parse(CALLS).entry.instructions}
    a, b, d = (library_call(found[name]) for name in "abd")
    assert (a.opcode, a.target, a.api_version) == ("custom-call", "one", "API_VERSION_TYPED_FFI")
    assert [str(t) for t in a.operands] == ["f32[4,4]"]
    assert [str(t) for t in a.results] == ["f32[4,4]", "s32[]"]
    assert a.attributes == {"uplo": 76}
    assert a.frontend_attributes["num_batch_dims"] == "0"
    assert a.frontend_attributes["rule"].startswith("#x<([i, j])")
    assert b.backend_config == '{"json": [1, 2]}' and b.attributes == {}
    assert [str(t) for t in d.operands] == ["f32[4,4]", "f32[4]"] and d.results == ()
    assert d.attributes == {"mode": 65}
