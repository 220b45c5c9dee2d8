"""The grammars at the top of the two `nodes.py`: complete, closed, and what the parsers take."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import re
from types import ModuleType

import pytest

from nestwright.ir.errors import ParseError
from nestwright.ir.hlo import nodes as hlo
from nestwright.ir.hlo import parse as parse_hlo
from nestwright.ir.hlo import show as show_hlo
from nestwright.ir.loop import nodes as loop
from nestwright.ir.loop.parser import parse as parse_loops
from nestwright.ir.loop.printer import RESERVED
from nestwright.ir.loop.printer import show as show_loops

RULE = re.compile(r"^  (\w+) +: ", re.MULTILINE)
TOKENS = {
    "loop": {
        *("INT", "FLOAT", "STR", "INTS", "NAME", "DTYPE", "SCOPE", "THREAD"),
        *("OPERATION", "INFIX"),
    },
    "hlo": {
        *("INT", "FLOAT", "STRING", "TEXT", "WORD", "NAME", "DTYPE", "OPCODE", "LABELS"),
        *("TABLES", "TILES", "FIELDS", "PARAMETERS"),
    },
}
LOOP = """@func(outputs=1, in_place=1)
def f(A: f32[4, 4], B: f32[4, 4], n: s64):
    T = alloc(f32[4, 4], scope="shared", align=(0, 8, 4), swizzle=2)
    for i in parallel(4, **{"own note": (1, "a")}):
        for j in vectorize(4):
            with block("T", opaque=1):
                vi, vk = spatial(4, i), reduce(4, j)
                where(vi < 3 and not vk == 2)
                reads(T[vi, vk], A[vi, 0 : 4])
                writes(T[vi, vk])
                with init():
                    T[vi, vk] = f32(0.0)
                T[vi, vk] = T[vi, vk] + -A[vi, vk] * cast(f32, vi % 2)
    for u in unroll(2):
        for v in range(n):
            pass
    for t in thread("threadIdx.x", 32):
        with alloc(f32[1], scope="register") as R:
            R[0] = max(A[0, 0], f32(inf))
            all_reduce(32, R, lambda a, b: a + b)
        with let(s64, t + n) as x:
            if x < 8 or True and not False:
                B[0, 0] = bitcast(f32, ~cast(u32, x))
            else:
                B[0, 1] = A[0, 1]
        intrinsic("copy_async", writes(T[0, 0 : 4]), reads(A[0, 0 : 4]), args(16))
        k = let(f32, f32(-nan))
        B[1, 1] = k
"""
HLO = """HloModule m, is_scheduled=true

FileNames
1 "a.py"

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}, execution_thread="main"

ENTRY %main (x: f32[1,4,4,1]) -> f32[1,2,2,1] {
  %x = f32[1,4,4,1]{3,2,1,0:T(8,128)} parameter(0), metadata={op_name="x"}
  z = f32[] constant(0)
  p = (f32[2], pred[2], c64[]) constant(({1.5, inf}, {true, false}, (1, nan)))
  d = f32[<=4] iota(), iota_dimension=0
  t = token[] after-all()
  g = opaque[] parameter(1)
  h = b(f32[2]) parameter(2)
  r = f32[1,2,2,1] reduce-window(x, z), window={size=1x2x2x1 stride=1x2x2x1}, to_apply=add
  w = f32[1,1,1,1] constant({ { { {2} } } })
  c = f32[1,2,2,1] convolution(r, w),
    window={size=1x1 stride=1x1 pad=0_0x0_0 lhs_dilate=1x1 rhs_dilate=1x2 rhs_reversal=0x1},
    dim_labels=b01f_01io->b01f
  q = f32[1,6,4,1] pad(x, z), padding=0_0x1_1x0_0_0x0_0
  s = f32[1,2,4,1] slice(q), slice={[0:1], [0:4:2], [0:4], [0:1]}
  ROOT o = f32[1,2,2,1] add(c, negate(c))
}
"""


def grammar(module: ModuleType) -> str:
    """Return the rules of a page."""
    text = inspect.getdoc(module) or ""
    first = RULE.search(text)
    assert first is not None
    return text[first.start() :]


def words(text: str) -> set[str]:
    """Return the terminals that are words."""
    return set(re.findall(r'"([A-Za-z]\w*)"', text))


PAGES = pytest.mark.parametrize(
    ("name", "page", "sample"), [("loop", loop, LOOP), ("hlo", hlo, HLO)], ids=["loop", "hlo"]
)


@PAGES
def test_a_grammar_is_one_screen_and_closed(name: str, page: ModuleType, sample: str) -> None:
    text = grammar(page)
    rules = set(RULE.findall(text))
    assert 25 <= len(text.splitlines()) <= 45
    plain = re.sub(r'"[^"]*"|<\w+>|^  \w+ +:', " ", text, flags=re.MULTILINE)
    used = set(re.findall(r"\b[A-Za-z_]+\b", plain))
    assert used - rules - TOKENS[name] == set(), "every symbol is a rule or a token"
    assert rules - used == {next(iter(RULE.findall(text)))}, "every rule but the first is used"


@PAGES
def test_every_node_is_made_by_a_rule(name: str, page: ModuleType, sample: str) -> None:
    made = set(re.findall(r"<(\w+)>", grammar(page)))
    own = {
        x.__name__
        for x in vars(page).values()
        if inspect.isclass(x)
        and x.__module__ == page.__name__
        and (dataclasses.is_dataclass(x) or issubclass(x, enum.Enum))
    }
    assert made == own


@PAGES
def test_the_sample_has_every_word_and_is_read(name: str, page: ModuleType, sample: str) -> None:
    assert {w for w in words(grammar(page)) if not re.search(rf"\b{w}\b", sample)} == set()
    if name == "loop":
        once = show_loops(parse_loops(sample))
        assert show_loops(parse_loops(once)) == once
    else:
        once = show_hlo(parse_hlo(sample))
        assert show_hlo(parse_hlo(once)) == once


def test_words_of_the_loop_grammar_are_reserved() -> None:
    attributes = {"outputs", "scope", "align", "swizzle"}
    assert words(grammar(loop)) - attributes <= RESERVED


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("parallel(4", "parallelize(4"),
        ("spatial(4", "space(4"),
        ("where(", "when("),
        ("with init():", "with start():"),
        ("let(s64", "name(s64"),
        ("bitcast(", "bits("),
        ("args(16)", "constants(16)"),
        ("@func(", "@function("),
        ('scope="shared"', 'scope="near"'),
    ],
)
def test_other_words_are_refused(right: str, wrong: str) -> None:
    assert right in LOOP
    with pytest.raises(ParseError):
        parse_loops(LOOP.replace(right, wrong, 1))
