"""Tiles stored transposed: the right elements, none besides them, and no scatter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from nestwright.codegen.driver.kernel import compile_flat
from nestwright.codegen.runtime.function import NativeFunc
from nestwright.codegen.targets.registry import emit
from nestwright.ir.arrays import Array
from nestwright.ir.dtypes import BY_NAME, to_numpy
from nestwright.ir.loop.build import add, mul
from nestwright.ir.loop.nodes import (
    Buffer,
    Const,
    Expr,
    For,
    Func,
    Kind,
    Load,
    Op,
    Stmt,
    Store,
    Var,
)
from nestwright.ir.loop.visit import seq
from nestwright.ir.target import Target

SPECS = ("cpu", "cpu -mcpu=skylake-avx512", "cpu -mcpu=haswell")
TARGETS = [t for t in map(Target.parse, SPECS) if t.is_host]
FAR = 41  # elements from one lane to the next
GAP = 16  # elements around the result that must stay
FILL = 90


@dataclass(frozen=True)
class Tile:
    """``out[start + step i + far (lanes j + k)] = x[i, j, k] + x[i, j, k]``, all unrolled or lanes.

    With ``again``, ``out[0]`` is added.
    """

    near: int
    between: int = 1
    lanes: int = 16
    step: int = 1
    far: int = FAR
    again: bool = False

    @property
    def columns(self) -> int:
        return self.between * self.lanes

    @property
    def size(self) -> int:
        """Elements from the first that is stored to the last, and a gap."""
        return GAP + self.step * self.near + abs(self.far) * self.columns

    def start(self, place: int) -> int:
        """The place of ``i = j = k = 0``, where the first is at ``place``."""
        return place if self.far > 0 else place - self.far * (self.columns - 1)

    def nest(self, x: Buffer, out: Buffer, place: int) -> Stmt:
        i, j, k = Var("i"), Var("j"), Var("k")
        column = add(mul(j, self.lanes), k)
        at = add(add(mul(i, self.step), mul(column, self.far)), self.start(place))
        read = Load(x, (add(mul(i, self.columns), column),))
        value: Expr = Op("add", (read, read), x.dtype)
        if self.again:
            value = Op("add", (value, Load(out, (Const(0),))), x.dtype)
        body: Stmt = For(k, Const(self.lanes), Store(out, (at,), value), Kind.VECTOR)
        for var, extent in ((j, self.between), (i, self.near)):
            body = For(var, Const(extent), body, Kind.UNROLLED)
        return body

    def fill(self, x: Array, out: Array, place: int) -> None:
        """Store what the nest stores."""
        i, column = np.mgrid[: self.near, : self.columns]
        values = x[: self.near * self.columns].reshape(self.near, -1)
        out[self.start(place) + self.step * i + self.far * column] = values + values


TILES = [
    Tile(near, *shape)
    for near in (3, 4, 7, 17)
    for shape in (
        (1, 16),
        (2, 16, 1, -FAR),
        (1, 13),
        (1, 8, 2, 61),
    )
]


def kernel(tiles: Sequence[Tile], dtype: str) -> tuple[Func, list[int]]:
    """Return a function that stores tiles one behind another, and where each of them begins."""
    kind = BY_NAME[dtype]
    places = [GAP, *(GAP + n for n in np.cumsum([t.size for t in tiles]).tolist())]
    x = Buffer("x", (max(t.near * t.columns for t in tiles),), kind)
    out = Buffer("out", (places[-1],), kind)
    nests = (t.nest(x, out, place) for t, place in zip(tiles, places, strict=False))
    return Func("tiles", (x, out), 1, seq(*nests)), places[:-1]


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.cpu)
@pytest.mark.parametrize("dtype", ["f32", "u64", "s8"])
def test_every_element_is_stored_and_nothing_else(dtype: str, target: Target) -> None:
    func, places = kernel(TILES, dtype)
    x = np.arange(func.params[0].shape[0]).astype(to_numpy(func.params[0].dtype))
    found = np.full(func.params[1].shape, FILL, x.dtype)
    wanted = found.copy()
    for t, place in zip(TILES, places, strict=True):
        t.fill(x, wanted, place)
    NativeFunc.load(compile_flat(func, target)).run_at([a.ctypes.data for a in (x, found)])
    wrong = np.flatnonzero(found != wanted)
    assert not {TILES[n - 1] for n in np.searchsorted(places, wrong, side="right")}


@pytest.mark.parametrize(("near", "step", "scatters"), [(13, 1, 0), (3, 1, 6), (13, 2, 26)])
def test_few_neighbors_or_none_are_scattered(near: int, step: int, scatters: int) -> None:
    target = Target.parse("llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512")
    func, _ = kernel([Tile(near, 2, 16, step, 61)], "f32")
    assert emit(func, target).count("call void @llvm.masked.scatter") == scatters


def test_a_tile_that_reads_what_it_writes_stays_in_order() -> None:
    target = Target.parse("llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512")
    func, _ = kernel([Tile(8, again=True)], "f32")
    assert emit(func, target).count("call void @llvm.masked.scatter") == 8
