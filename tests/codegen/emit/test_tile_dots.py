"""Products in tile registers: results of all shapes, and what touches the registers and memory."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from nestwright.codegen.driver.stages import stage_text
from nestwright.ir.arrays import Array
from nestwright.ir.dtypes import bf16, to_numpy
from nestwright.ir.hlo import parse
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.loop.nodes import Func
from nestwright.ir.loop.notes import FROZEN
from nestwright.ir.target import Target
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.sketches.generate import generate
from nestwright.schedule.space.space import Choices
from nestwright.te.from_hlo import lower_group

NUMPY = {"u8": np.uint8, "s8": np.int8, "bf16": to_numpy(bf16), "s32": np.int32, "f32": np.float32}
DOT = """HloModule product
ENTRY main {{
  x = {a}[{m},{k}] parameter(0)
  w = {b}[{k},{n}] parameter(1)
  ROOT d = {c}[{m},{n}] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}
"""
KINDS = {
    "uu": ("u8", "u8", "s32", 4),
    "us": ("u8", "s8", "s32", 4),
    "su": ("s8", "u8", "s32", 4),
    "ss": ("s8", "s8", "s32", 4),
    "bf16": ("bf16", "bf16", "f32", 2),
}
"""Types of the operands and of the sums, and the terms of a group."""


def product(kind: str, m: int, k: int, n: int, rest: str = "") -> str:
    """Return a product as HLO; ``rest`` is what makes the result of ``d``."""
    a, b, c, _ = KINDS[kind]
    text = DOT.format(a=a, b=b, c=c, m=m, k=k, n=n)
    if rest:
        text = text.replace("ROOT d", "d").replace("\n}", f"\n  {rest.format(m=m, n=n, c=c)}\n}}")
    return text


def drawn(text: str) -> list[Array]:
    """Return arguments, integers of the whole range."""
    rng, found = np.random.default_rng(0), []
    for p in parse(text).entry.parameters:
        dtype = NUMPY[str(p.array.dtype)]
        if np.issubdtype(dtype, np.integer):
            limits = np.iinfo(dtype)
            x = rng.integers(limits.min, limits.max, p.array.dims, endpoint=True)
        else:
            x = rng.standard_normal(p.array.dims)
        found.append(x.astype(dtype))
    return found


def scheduled(
    text: str,
    target: Target,
    frozen: bool,
    asked: Choices | None = None,
    name: str = "tiles@1",
) -> Func:
    """Schedule a group by a sketch, its default or other choices."""
    func = lower_group(parse(text).entry, "kernel", target.vectors)
    func = FROZEN.put(func, (1,)) if frozen else func
    (sketch,) = (s for s in generate(func, target) if s.name == name)
    sch = Schedule(func)
    sketch.apply(sch, {**sketch.default, **(asked or {})})
    return sch.func


def same(text: str, arguments: list[Array], found: Array) -> bool:
    """Compare a result with the reference's: that of integers is exact."""
    wanted = np.asarray(evaluate(parse(text), arguments))
    if np.issubdtype(found.dtype, np.integer):
        return np.array_equal(found, wanted)
    step = 2.0**-8 if found.dtype == NUMPY["bf16"] else 2e-5
    wanted, found = wanted.astype(np.float64), found.astype(np.float64)
    return bool(np.abs(found - wanted).max() < step * max(1.0, np.abs(wanted).max()))


SHAPES = [
    (4, 8, 1, 2),
    (5, 9, 15, 17),
    (15, 2, 16, 3),
    (16, 16, 31, 4),
    (17, 17, 32, 2),
    (31, 5, 33, 4),
    (32, 24, 48, 2),
    (33, 25, 17, 3),
    (48, 16, 16, 4),
    (50, 3, 50, 2),
    (50, 50, 33, 4),
]
"""Rows, groups of terms, columns, and what the groups are multiplied by to have still more."""


@pytest.mark.parametrize(
    ("kind", "shape"),
    [(kind, s) for kind in KINDS for s in (SHAPES if kind in ("us", "bf16") else SHAPES[4::3])],
)
def test_every_extent(kind: str, shape: tuple[int, int, int, int], tiles: Any) -> None:
    rows, groups, columns, more = shape
    depth = KINDS[kind][3]
    frozen = rows < 8 or shape[1] % 2 == 0
    for terms in (depth * groups, depth * groups * more):
        text = product(kind, rows, terms, max(columns, 2))
        given = drawn(text)
        found, machine = tiles.run_in_tiles(scheduled(text, tiles.TILES, frozen), given)
        assert same(text, given, found)
        assert sum(n for name, n in machine.calls.items() if name.startswith("tdp"))
        assert machine.calls["tilerelease"] == 1


CHOICES = [
    {"rows": 16, "vectors": 1},
    {"rows": 32, "vectors": 2},
    {"rows": 48, "vectors": 1, "order": "row"},
    {"rows": 16, "vectors": 3, "order": "row", "chunks": 2},
    {"rows": 25, "vectors": 2, "chunks": 2},
]


@pytest.mark.parametrize("kind", ["us", "bf16"])
@pytest.mark.parametrize("choices", CHOICES)
@pytest.mark.parametrize("threads", [1, 3])
def test_tiles_of_every_shape(kind: str, choices: Choices, threads: int, tiles: Any) -> None:
    """With tails of rows, of columns and of terms; by several threads, each its own registers."""
    text = product(kind, 50, KINDS[kind][3] * 21, 50)
    given = drawn(text)
    target = Target.parse(f"cpu {tiles.FEATURES} -threads={threads}")
    asked = {**choices, "parallel": int(threads > 1)}
    found, machine = tiles.run_in_tiles(scheduled(text, target, True, asked), given, target)
    assert same(text, given, found)
    assert len(set(machine.shapes)) > 2


def test_shapes_are_set_only_where_they_change(tiles: Any) -> None:
    text = product("us", 64, 128, 64)
    func = scheduled(text, tiles.TILES, True, {"rows": 32, "vectors": 2, "order": "column"})
    machine = tiles.run_in_tiles(func, drawn(text))[1]
    assert machine.calls["ldtilecfg"] == 1 and machine.calls["tilezero"] == 16
    assert machine.calls["tdpbusd"] == 4 * 4 * 2
    assert machine.calls["tileloadd64"] == 2 * machine.calls["tdpbusd"] // 2
    text = product("us", 48, 128, 64)
    func = scheduled(text, tiles.TILES, True, {"rows": 32, "vectors": 2, "order": "column"})
    machine = tiles.run_in_tiles(func, drawn(text))[1]
    assert machine.calls["ldtilecfg"] == 4 and len(set(machine.shapes)) == 2


@pytest.mark.parametrize("kind", ["us", "bf16"])
@pytest.mark.parametrize(
    "rest",
    [
        "z = {c}[] constant(0)\n  y = {c}[{m},{n}] broadcast(z), dimensions={{}}\n"
        "  ROOT r = {c}[{m},{n}] maximum(d, y)",
        "v = {c}[{n}] parameter(2)\n  y = {c}[{m},{n}] broadcast(v), dimensions={{1}}\n"
        "  ROOT r = {c}[{m},{n}] add(d, y)",
        "v = {c}[{m},{n}] parameter(2)\n  ROOT r = {c}[{m},{n}] add(d, v)",
        "ROOT r = bf16[{m},{n}] convert(d)",
    ],
    ids=["relu", "bias", "sum", "narrow"],
)
def test_consumers_read_the_sums(kind: str, rest: str, tiles: Any) -> None:
    text = product(kind, 33, 72, 35, rest)
    given = drawn(text)
    found, _ = tiles.run_in_tiles(scheduled(text, tiles.TILES, False), given)
    assert same(text, given, found)


CONV = """HloModule windows
ENTRY main {{
  x = {a}[2,7,9,{k}] parameter(0)
  w = {b}[{taps},{k},{n}] parameter(1)
  ROOT y = {c}[2,{down},{across},{n}] convolution(x, w), window={{{window}}},
      dim_labels=b01f_01io->b01f
}}
"""
WINDOWS = {
    "size=3x3 pad=1_1x1_1": ("3,3", 7, 9),
    "size=1x2": ("1,2", 7, 8),
    "size=3x1 stride=2x3": ("3,1", 3, 3),
    "size=2x3 pad=1_0x2_2 rhs_dilate=1x2": ("2,3", 7, 9),
}


@pytest.mark.parametrize("kind", ["ss", "us", "bf16"])
@pytest.mark.parametrize("window", list(WINDOWS))
def test_convolutions(kind: str, window: str, tiles: Any) -> None:
    """Taps are terms around the groups; rows of a stride are as many elements apart."""
    a, b, c, depth = KINDS[kind]
    taps, down, across = WINDOWS[window]
    sizes = {"k": depth * 5, "n": 37, "taps": taps, "down": down, "across": across}
    text = CONV.format(a=a, b=b, c=c, window=window, **sizes)
    given = drawn(text)
    func = scheduled(text, tiles.TILES, True)
    found, machine = tiles.run_in_tiles(func, given)
    assert same(text, given, found)
    assert machine.calls["tilezero"]


BATCH = """HloModule batch
ENTRY main {{
  x = {a}[3,{rows}] parameter(0)
  w = {b}[3,{columns}] parameter(1)
  ROOT d = {c}[3,19,34] dot(x, w), lhs_batch_dims={{0}}, rhs_batch_dims={{0}},
      lhs_contracting_dims={{2}}, rhs_contracting_dims={{{along}}}
}}
"""


@pytest.mark.parametrize("kind", ["su", "bf16"])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("frozen", [False, True])
def test_batches_and_turned_weights(kind: str, turned: bool, frozen: bool, tiles: Any) -> None:
    a, b, c, _ = KINDS[kind]
    columns, along = ("34,36", 2) if turned else ("36,34", 1)
    text = BATCH.format(a=a, b=b, c=c, rows="19,36", columns=columns, along=along)
    given = drawn(text)
    found, _ = tiles.run_in_tiles(scheduled(text, tiles.TILES, frozen), given)
    assert same(text, given, found)


@pytest.mark.parametrize("pieces", [2, 3])
@pytest.mark.parametrize("shape", [(33, 32, 35), (50, 96, 17), (20, 66, 64), (16, 34, 16)])
def test_products_of_pieces(pieces: int, shape: tuple[int, int, int], tiles: Any) -> None:
    """Pairs of pieces are terms, too; an operand stays in its registers from one to the next."""
    target = Target.parse(f"cpu {tiles.FEATURES} -threads=1 -accuracy=1e-5")
    text = product("bf16", *shape).replace("bf16", "f32")
    x, w = drawn(text)
    asked = {"pieces": pieces, "rows": 16, "vectors": 1}
    func = scheduled(text, target, True, asked, "pieces@1")
    found, machine = tiles.run_in_tiles(func, [x, w], target)
    exact = x.astype(np.float64) @ w.astype(np.float64)
    step = np.sqrt(np.mean(np.square(exact))) * (4e-5 if pieces == 2 else 4e-6)
    assert np.abs(found - exact).max() < step
    pairs, loads = machine.calls["tdpbf16ps"], machine.calls["tileloadd64"]
    assert pairs % (3 * pieces - 3) == 0
    if shape[1] % 32 == 0:
        assert loads == pairs // (3 * pieces - 3) * (4 if pieces == 2 else 7)


def test_numbers_of_bf16_beyond_its_range(tiles: Any) -> None:
    """Infinities and NaN are as in plain sums; the smallest numbers are 0."""
    text = product("bf16", 5, 34, 20)
    x, w = drawn(text)
    x[0, 5], w[7, 2], x[2, 1] = np.inf, np.nan, -np.inf
    func = scheduled(text, tiles.TILES, True)
    with np.errstate(invalid="ignore"):
        wanted = x.astype(np.float32) @ w.astype(np.float32)
    found, _ = tiles.run_in_tiles(func, [x, w])
    assert np.array_equal(np.isnan(found), np.isnan(wanted))
    infinite = np.isinf(wanted)
    assert infinite.any() and np.array_equal(found[infinite], wanted[infinite])
    x = np.full_like(x, 2.0**-130)
    assert not tiles.run_in_tiles(func, [x, np.full_like(w, 2.0**100)])[0].any()


def test_an_interrupted_product_leaves_no_registers_in_use() -> None:
    """A long part of one thread polls, and may return early, by a label of its own."""
    text = product("bf16", 65536, 256, 32)
    made = stage_text(parse(text), "cpu -mcpu=emeraldrapids -threads=2", "llvm")
    left = re.findall(r"^leave:\n(.*)\n  ret void", made, re.M)
    assert [line for line in left if "tilerelease" in line]


def test_the_stand_in_finds_faults(tiles: Any) -> None:
    """What it is for: registers without a shape, other shapes, accesses beyond the arrays."""
    machine = tiles.TileMachine()
    run = {name: f for name, f in vars(type(machine)).items() if name.startswith("_")}
    shape = bytearray(64)
    shape[0] = 1
    for register, rows, words in ((0, 4, 5), (1, 4, 3), (2, 3, 5), (3, 3, 4)):
        shape[16 + 2 * register], shape[48 + register] = 4 * words, rows
    memory = np.frombuffer(bytes(shape), np.uint8)
    with pytest.raises(tiles.TileFault, match="no shape"):
        run["_zero"](machine, 0)
    run["_configure"](machine, memory.ctypes.data)
    multiply = machine._bytes("us")
    multiply(0, 1, 2)
    for sums, left, right in ((0, 0, 2), (0, 2, 1), (0, 1, 3), (1, 1, 2), (0, 1, 7)):
        with pytest.raises(tiles.TileFault):
            multiply(sums, left, right)
    array = np.zeros(80, np.uint8)
    machine.arrays.append((array.ctypes.data, array.size))
    run["_load"](machine, 0, array.ctypes.data, 20)
    for at, apart in ((1, 20), (0, 21), (0, -20), (-1, 20)):
        with pytest.raises(tiles.TileFault, match="of an array of 80"):
            run["_load"](machine, 0, array.ctypes.data + at, apart)
    for byte, value in ((0, 2), (1, 1), (16, 65), (48, 17), (48, 0), (40, 1)):
        wrong = memory.copy()
        wrong[byte] = value
        with pytest.raises(tiles.TileFault):
            run["_configure"](machine, wrong.ctypes.data)
    run["_release"](machine)
    with pytest.raises(tiles.TileFault, match="no shape"):
        multiply(0, 1, 2)
