"""``docs/opcodes.md``: what becomes of each opcode on each element type, as it was seen.

A small computation for every opcode and type is built natively, run, and compared with the
interpreter. ``NESTWRIGHT_BLESS=1`` tries all of them and writes the page. Otherwise every cell is
checked by verifying, and one of ``SPREAD`` by building: each opcode on several types, each type
with several opcodes.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nestwright.codegen.driver.build import build
from nestwright.codegen.plan.nodes import library_thunks
from nestwright.ir.comparison import compare_all
from nestwright.ir.conversion import convert
from nestwright.ir.dtypes import ALL, BY_NAME, DType, to_numpy
from nestwright.ir.errors import UnsupportedError, VerifyError
from nestwright.ir.hlo.analysis.support import findings
from nestwright.ir.hlo.analysis.verify import verify
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.text import parse
from nestwright.ir.target import Target

PAGE = Path(__file__).parents[4] / "docs" / "opcodes.md"
BLESS = os.environ.get("NESTWRIGHT_BLESS") == "1"
SPREAD = 13
HOST = Target.parse("cpu")
NATIVE, LIBRARY, REFUSED, UNDEFINED = "native", "library", "refused", "-"
OF_LIBRARIES = frozenset({"cholesky", "triangular-solve", "rng", "rng-get-and-update-state"})
GROUPS = {
    "pred": "pred",
    "s2 s4": "s2 s4",
    "s8 ... s64": "s8 s16 s32 s64",
    "u2 u4": "u2 u4",
    "u8 ... u64": "u8 u16 u32 u64",
    "f8, f4": " ".join(d.name for d in ALL if d.is_float and d.bits <= 8),
    "f16 bf16": "f16 bf16",
    "f32 f64": "f32 f64",
    "c64 c128": "c64 c128",
}
HEAD = """\
# Opcodes and element types

What becomes of each HLO opcode on each element type. A test builds a small program for every cell,
runs it and compares it with the interpreter; `NESTWRIGHT_BLESS=1 pytest
tests/codegen/native/opcode_table` writes this page.

- `native`: compiled to machine code;
- `library`: done by a library call of the host, or with one (`docs/decisions/library-calls.md`);
- `refused`: read and printed, and named by an error when it should be compiled;
- `-`: HLO does not define it. What needs a zero is not defined for f8e8m0fnu, which has none.

Where the types of a column differ, the cell names those that are not like most. The halves of
operations cut in two (`-start`, `-update`, `-done`) are tried together, in the row of the start;
`convert` is tried to f32, `bitcast-convert` to the unsigned integer of as many bits. Collectives
are those of one device; [collectives.md](collectives.md) has several.

"""

Cells = dict[tuple[str, str], str]


def names(group: str) -> list[str]:
    return GROUPS[group].split()


def arguments(dtype: DType) -> list[np.ndarray[Any, Any]]:
    """Small numbers that every type has."""
    top = 1 if dtype.bits <= 2 or dtype.kind == "pred" else 3
    x = np.minimum(np.array([[1, 0, 1, 2, 1, 3]] * 4), top)
    if dtype.name == "f8e8m0fnu":
        x = np.maximum(x, 1)
    half = 2 if dtype.is_float or dtype.kind == "complex" else 1
    to = to_numpy(dtype)
    return [convert(x / half, to), convert(x[::-1, ::-1].astype(np.float64), to)]


def judged(recipe: Any, recipes: Any, dtype: DType) -> str:
    """``-`` or ``refused`` as verifying tells, else ``native``, which building has to show."""
    if not recipe.fits(dtype):
        return UNDEFINED
    module = parse(recipes.module([recipe], dtype))
    try:
        verify(module)
    except VerifyError:
        return UNDEFINED
    return REFUSED if next(iter(findings(module.entry)), None) else NATIVE


def built(some: Sequence[Any], recipes: Any, dtype: DType) -> Iterator[tuple[Any, str]]:
    """What became of each of these: one module for all of them, or for halves where one fails."""
    module = parse(recipes.module(list(some), dtype))
    try:
        executable = build(module, HOST)
    except UnsupportedError:
        if len(some) == 1:
            yield some[0], REFUSED
            return
        middle = len(some) // 2
        yield from built(some[:middle], recipes, dtype)
        yield from built(some[middle:], recipes, dtype)
        return
    args = arguments(dtype)
    wanted = evaluate(module, args)
    results = executable(*args)
    calls = library_thunks(executable.plan)
    assert not calls or len(some) == 1, f"{calls[0].name} calls a library"
    for recipe, got, want in zip(some, results, wanted, strict=True):
        wrong = [str(c) for c in compare_all((got,), (want,)) if not c.ok]
        yield recipe, " ".join(wrong) or (LIBRARY if calls else NATIVE)


def seen(recipes: Any, dtype: DType, chosen: Sequence[Any]) -> Cells:
    """The states of these recipes' cells."""
    together = [r for r in chosen if r.opcode not in OF_LIBRARIES]
    found: Cells = {}
    groups = [together, *([r] for r in chosen if r.opcode in OF_LIBRARIES)]
    for group in filter(None, groups):
        found |= {(r.opcode, dtype.name): state for r, state in built(group, recipes, dtype)}
    return found


def cell(states: Mapping[str, str]) -> str:
    """The state of most types, then the others with theirs."""
    first, *rest = (state for state, _ in Counter(sorted(states.values())).most_common())
    others = (f"{k}: {' '.join(t for t, s in states.items() if s == k)}" for k in rest)
    return "; ".join((first, *others))


def page(cells: Cells) -> str:
    rows = ["| opcode | " + " | ".join(GROUPS) + " |", "|---" * (len(GROUPS) + 1) + "|"]
    for opcode in sorted({o for o, _ in cells}):
        parts = [cell({t: cells[opcode, t] for t in names(g)}) for g in GROUPS]
        rows.append(f"| {opcode} | " + " | ".join(parts) + " |")
    return HEAD + "\n".join(rows) + "\n"


def read(text: str) -> Cells:
    """The cells of a page."""
    cells: Cells = {}
    for row in re.findall(r"^\| ([a-z0-9-]+) \| (.*) \|$", text, re.MULTILINE):
        if row[0] == "opcode":
            continue
        for group, part in zip(GROUPS, row[1].split(" | "), strict=True):
            for state in part.split("; "):
                kind, _, types = state.partition(": ")
                cells |= {(row[0], t): kind for t in types.split() or names(group)}
    return cells


@pytest.fixture(scope="module")
def expected(recipes: Any) -> Cells:
    """The page's cells; when blessing, what building shows of all of them, and then the page."""
    if not BLESS:
        return read(PAGE.read_text())
    cells: Cells = {}
    for dtype in ALL:
        states = {r: judged(r, recipes, dtype) for r in recipes.all}
        for r, state in states.items():
            if cells.get((r.opcode, dtype.name), UNDEFINED) == UNDEFINED:
                cells[r.opcode, dtype.name] = state
        cells |= seen(recipes, dtype, [r for r, state in states.items() if state == NATIVE])
    wrong = {at: state for at, state in cells.items() if "WRONG" in state}
    assert not wrong, wrong
    PAGE.write_text(page(cells))
    return cells


def test_the_page_names_every_opcode_and_type(recipes: Any, expected: Cells) -> None:
    assert page(expected) == PAGE.read_text()
    assert {o for o, _ in expected} == {r.opcode for r in recipes.all}
    assert {t for _, t in expected} == {*BY_NAME}
    for opcode in {o for o, _ in expected}:
        assert any(expected[opcode, t] != UNDEFINED for t in BY_NAME), opcode


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_cells(dtype: DType, recipes: Any, expected: Cells) -> None:
    chosen, cells = [], dict.fromkeys((r.opcode for r in recipes.all), UNDEFINED)
    for n, recipe in enumerate(recipes.all):
        state = judged(recipe, recipes, dtype)
        if state != UNDEFINED:
            cells[recipe.opcode] = state
        if state == NATIVE and (n + ALL.index(dtype)) % SPREAD == 0:
            chosen.append(recipe)
    for opcode, state in cells.items():
        told = expected[opcode, dtype.name]
        assert told == state or (state == NATIVE and told in (LIBRARY, REFUSED)), (
            f"{opcode} on {dtype}"
        )
    for (opcode, _), state in seen(recipes, dtype, chosen).items():
        assert state == expected[opcode, dtype.name], f"{opcode} on {dtype}"
