"""Random HLO modules of one operation: built natively, and compared with the interpreter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import pytest

from nestwright.codegen.driver.build import build
from nestwright.ir.arrays import Array
from nestwright.ir.dtypes import BY_NAME, to_numpy
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.text import parse

T = TypeVar("T")

INTEGERS = ("s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64")
FLOATS = ("f16", "bf16", "f32", "f64")
NUMBERS = (*INTEGERS, *FLOATS)
TYPES = ("pred", *NUMBERS)


def shape_of(dtype: str, dims: Sequence[int]) -> str:
    return f"{dtype}[{','.join(map(str, dims))}]"


@dataclass
class Maker:
    """A module under construction, everything in it drawn from ``rng``."""

    rng: np.random.Generator
    rows: list[str] = field(default_factory=list)
    computations: list[str] = field(default_factory=list)
    args: list[Array] = field(default_factory=list)
    odd: float = 0.1  # how likely an array holds NaNs, infinities, the largest integers

    def pick(self, choices: Sequence[T]) -> T:
        return choices[int(self.rng.integers(len(choices)))]

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def number(self, low: int, high: int) -> int:
        """An integer of [low, high]."""
        return int(self.rng.integers(low, high + 1))

    def order(self, n: int) -> list[int]:
        return [int(i) for i in self.rng.permutation(n)]

    def subset(self, n: int, p: float = 0.5) -> list[int]:
        return [i for i in range(n) if self.chance(p)]

    def dims(self, rank: int, most: int = 5) -> list[int]:
        """Small extents; now and then 1 or 0."""
        return [
            0 if self.chance(0.03) else 1 if self.chance(0.15) else self.number(1, most)
            for _ in range(rank)
        ]

    def values(self, dtype: str, dims: Sequence[int]) -> Array:
        """Small numbers whose sums and products are exact, with a few NaNs and infinities."""
        to, kind = to_numpy(BY_NAME[dtype]), BY_NAME[dtype].kind
        if kind == "pred":
            return np.asarray(self.rng.integers(0, 2, dims)).astype(to)
        low = 0 if kind == "unsigned" else -3
        found = np.asarray(self.rng.integers(low, 4, dims)).astype(to)
        if kind == "complex":
            found = (found + 1j * self.rng.integers(low, 4, dims)).astype(to)
        if kind == "float" and self.chance(self.odd) and found.size:
            odd = np.array([np.nan, np.inf, -np.inf, -0.0]).astype(to)
            mask = self.rng.random(dims) < 0.2
            found = np.where(mask, odd[self.rng.integers(0, 4, dims)], found)
        if kind in ("signed", "unsigned") and self.chance(self.odd) and found.size:
            info = np.iinfo(to)
            odd = np.array([info.min, info.max], to)
            mask = self.rng.random(dims) < 0.2
            found = np.where(mask, odd[self.rng.integers(0, 2, dims)], found)
        return np.asarray(found, to)

    def parameter(self, dtype: str, dims: Sequence[int], values: Array | None = None) -> str:
        name, shape = f"p{len(self.args)}", shape_of(dtype, dims)
        self.rows.append(f"{name} = {shape} parameter({len(self.args)})")
        self.args.append(self.values(dtype, dims) if values is None else values)
        return name

    def emit(self, shape: str, text: str) -> str:
        name = f"v{len(self.rows)}"
        self.rows.append(f"{name} = {shape} {text}")
        return name

    def computation(self, types: Sequence[str], rows: Sequence[str], name: str = "") -> str:
        """A computation of scalars ``q0, q1, ..``; the last row is its root."""
        name = name or f"c{len(self.computations)}"
        given = [f"q{n} = {t}[] parameter({n})" for n, t in enumerate(types)]
        lines = [*given, *rows]
        lines[-1] = f"ROOT {lines[-1]}"
        self.computations.append(f"{name} {{\n  " + "\n  ".join(lines) + "\n}\n")
        return name

    def simple(self, dtype: str, opcode: str = "") -> str:
        """A reducer that is one operation, its operands in either order."""
        kind = BY_NAME[dtype].kind
        choices = ["add", "multiply"]
        if kind != "complex":
            choices += ["maximum", "minimum"]
        if kind not in ("float", "complex"):
            choices += ["and", "or", "xor"]
        opcode = opcode or self.pick(choices)
        pair = "q0, q1" if self.chance(0.6) else "q1, q0"
        return self.computation([dtype] * 2, [f"r = {dtype}[] {opcode}({pair})"])

    def text(self) -> str:
        rows = [*self.rows]
        rows[-1] = f"ROOT {rows[-1]}"
        body = "\n  ".join(rows)
        return "HloModule m\n\n" + "\n".join(self.computations) + f"\nENTRY main {{\n  {body}\n}}\n"


Generator = Callable[[Maker], None]


def leaves(value: Any) -> list[Array]:
    if isinstance(value, tuple | list):
        return [x for v in value for x in leaves(v)]
    return [np.asarray(value)]


def differs(found: Any, wanted: Any) -> str:
    """What is wrong with a result; empty where nothing is. Integers have to be equal."""
    a, b = leaves(found), leaves(wanted)
    if len(a) != len(b):
        return f"{len(a)} results, not {len(b)}"
    for n, (x, y) in enumerate(zip(a, b, strict=True)):
        if x.shape != y.shape or x.dtype != y.dtype:
            return f"result {n} is {x.dtype}{x.shape}, not {y.dtype}{y.shape}"
        if y.dtype.kind in "biu":
            same = np.array_equal(x, y)
        else:
            wide = np.complex128 if y.dtype.kind == "c" else np.float64
            limit = 2e-2 if y.dtype.itemsize < 4 else 1e-5
            with np.errstate(all="ignore"):
                same = np.allclose(x.astype(wide), y.astype(wide), limit, limit, equal_nan=True)
        if not same:
            return f"result {n} is\n{x}\nnot\n{y}"
    return ""


def make(generator: Generator, seed: int) -> Maker:
    name = getattr(generator, "__name__", "")
    maker = Maker(np.random.default_rng([seed, *name.encode()]))
    generator(maker)
    return maker


def compare(generator: Generator, seed: int, target: str = "cpu") -> None:
    maker = make(generator, seed)
    module = parse(maker.text())
    wanted = evaluate(module, maker.args)
    found = build(module, target)(*maker.args)
    wrong = differs(found, wanted)
    assert not wrong, f"seed {seed}: {wrong}\n{maker.text()}\n{maker.args}"


@pytest.fixture
def agrees() -> Callable[..., None]:
    """``agrees(generator, count)``: that many modules give what the interpreter says.

    The first ``simulated`` of them are run as a GPU would run them, too.
    """

    def check(generator: Generator, count: int, simulated: int = 0) -> None:
        for seed in range(count):
            compare(generator, seed)
        for seed in range(simulated):
            compare(generator, seed, "cuda-sim")

    return check
