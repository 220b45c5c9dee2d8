"""A random HLO program under construction: values, their types, and what they may hold.

Programs are of one of two sorts. In an *exact* one every float is an integer small enough that no
operation rounds, whatever the order of evaluation: results have to be equal to the bit. In a
*smooth* one operations are continuous, so that rounding stays rounding and can be bounded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from nestwright.ir.arrays import Array
from nestwright.ir.dtypes import BY_NAME, to_numpy

T = TypeVar("T")

SIGNED = ("s8", "s16", "s32", "s64")
UNSIGNED = ("u8", "u16", "u32", "u64")
FEW_BITS = ("s2", "s4", "u2", "u4")
WIDE_FLOATS = ("f16", "bf16", "f32", "f64")
NARROW_FLOATS = ("f8e4m3fn", "f8e5m2", "f8e4m3b11fnuz", "f8e5m2fnuz")
COMPLEX = ("c64", "c128")
PART = {"c64": "f32", "c128": "f64"}
EXACT_TO = {
    "f64": 2.0**53,
    "f32": 2.0**24,
    "f16": 2.0**11,
    "bf16": 2.0**8,
    "c128": 2.0**53,
    "c64": 2.0**24,
    "f8e4m3fn": 16.0,
    "f8e5m2": 8.0,
    "f8e4m3b11fnuz": 16.0,
    "f8e5m2fnuz": 8.0,
}
"""The largest magnitude up to which a type holds every integer."""
ELEMENTS = 6000  # of one value, at most
SMALL = 3.0  # the largest magnitude of what exact programs begin with


@dataclass(frozen=True, slots=True)
class Value:
    """An array of the program. ``bound`` is the largest magnitude that it can hold."""

    name: str
    dtype: str
    dims: tuple[int, ...]
    bound: float

    @property
    def shape(self) -> str:
        """Its shape as HLO writes it."""
        return shape_of(self.dtype, self.dims)

    @property
    def kind(self) -> str:
        """pred, signed, unsigned, float or complex."""
        return BY_NAME[self.dtype].kind

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.dims)


def shape_of(dtype: str, dims: Sequence[int]) -> str:
    """Return ``f32[2,3]``."""
    return f"{dtype}[{','.join(map(str, dims))}]"


def listed(numbers: Sequence[int]) -> str:
    """Return ``{0,1}``."""
    return "{" + ",".join(map(str, numbers)) + "}"


def range_of(dtype: str) -> float:
    """Return the largest magnitude of an integer type; of others how far integers are exact."""
    t = BY_NAME[dtype]
    match t.kind:
        case "pred":
            return 1.0
        case "signed":
            return 2.0 ** (t.bits - 1)
        case "unsigned":
            return 2.0**t.bits - 1
        case _:
            return EXACT_TO[dtype]


@dataclass
class Builder:
    """One computation; ``root`` is the whole program's, which holds the arguments and the rest.

    Only the entry draws parameters; inner computations make what they need out of constants.
    """

    rng: np.random.Generator
    exact: bool
    rows: list[str] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    computations: list[str] = field(default_factory=list)
    arguments: list[Array] = field(default_factory=list)
    outer: Builder | None = None
    count: list[int] = field(default_factory=lambda: [0])

    # Drawing

    def pick(self, choices: Sequence[T]) -> T:
        """One of them, each as likely."""
        return choices[int(self.rng.integers(len(choices)))]

    def chance(self, p: float) -> bool:
        """True with probability ``p``."""
        return bool(self.rng.random() < p)

    def number(self, low: int, high: int) -> int:
        """Return an integer of [low, high]."""
        return int(self.rng.integers(low, high + 1))

    def extent(self) -> int:
        """Mostly small and odd, now and then 0, 1 or past a vector register."""
        match self.number(0, 19):
            case 0:
                return self.pick((0, 1))
            case 1 | 2:
                return 1
            case 3 | 4 | 5 | 6:
                return self.number(6, 20)
            case 7:
                return self.pick((31, 32, 33, 47, 63, 64, 65, 70, 129))
            case _:
                return self.number(2, 5)

    def dims(self, rank: int) -> tuple[int, ...]:
        """Extents of at most ``ELEMENTS`` elements."""
        while True:
            found = tuple(self.extent() for _ in range(rank))
            if math.prod(found) <= ELEMENTS:
                return found

    def shuffled(self, n: int) -> list[int]:
        """Return a permutation of range(n)."""
        return [int(i) for i in self.rng.permutation(n)]

    def subset(self, n: int, p: float = 0.5) -> list[int]:
        """Some of range(n), in order."""
        return [i for i in range(n) if self.chance(p)]

    def dtype(self, kinds: str = "isf") -> str:
        """Return an element type: i(ntegers), s(mall integers), f(loats), n(arrow floats), c, p."""
        pools: list[tuple[str, ...]] = []
        for k in kinds:
            pools += {
                "i": [SIGNED, UNSIGNED],
                "s": [FEW_BITS],
                "f": [WIDE_FLOATS] * 4,
                "n": [NARROW_FLOATS],
                "c": [COMPLEX],
                "p": [("pred",)],
            }[k]
        return self.pick(self.pick(pools))

    # Values

    def emit(self, dtype: str, dims: Sequence[int], text: str, bound: float) -> Value:
        """Return a new instruction and its value."""
        name = self.row(shape_of(dtype, dims), text)
        if BY_NAME[dtype].kind in ("pred", "signed", "unsigned"):
            bound = range_of(dtype)  # whether it wraps is nobody's concern
        value = Value(name, dtype, tuple(dims), bound)
        self.values.append(value)
        return value

    def row(self, shape: str, text: str) -> str:
        """Return a new instruction; its name."""
        self.count[0] += 1
        name = f"v{self.count[0]}"
        self.rows.append(f"{name} = {shape} {text}")
        return name

    def holds(self, dtype: str, bound: float) -> bool:
        """True if values as large as ``bound`` are exact in a type, or need not be."""
        if BY_NAME[dtype].kind in ("pred", "signed", "unsigned"):
            return True
        return not self.exact or bound <= EXACT_TO[dtype]

    def fresh(self, dtype: str, dims: Sequence[int], bound: float = SMALL) -> Value:
        """Something new: a parameter of the entry, in inner computations made of an iota."""
        if self.outer is None:
            values = self.draw(dtype, tuple(dims), bound)
            number = len(self.arguments)
            self.arguments.append(values)
            return self.emit(dtype, dims, f"parameter({number})", bound)
        limit = min(bound, range_of(dtype) if dtype not in EXACT_TO else bound)
        if dtype == "pred":
            flag = self.emit("pred", (), f"constant({self.pick(('true', 'false'))})", 1.0)
            return self.emit(dtype, dims, f"broadcast({flag.name}), dimensions={{}}", 1.0)
        low = 0 if BY_NAME[dtype].kind == "unsigned" else -int(limit) + 1
        number = self.number(min(low, 0), max(int(limit) - 1, 0))
        one = self.emit(dtype, (), f"constant({self.literal(dtype, number)})", bound)
        return self.emit(dtype, dims, f"broadcast({one.name}), dimensions={{}}", bound)

    def literal(self, dtype: str, number: int) -> str:
        """Return a number as a constant of a type is written."""
        match BY_NAME[dtype].kind:
            case "complex":
                return f"({number}, 0)"
            case "pred":
                return "true" if number else "false"
            case _:
                return str(number)

    def scalar(self, dtype: str, number: int) -> Value:
        """Return a constant."""
        return self.emit(dtype, (), f"constant({self.literal(dtype, number)})", float(abs(number)))

    def draw(self, dtype: str, dims: tuple[int, ...], bound: float = SMALL) -> Array:
        """Values for a parameter."""
        to, kind = to_numpy(BY_NAME[dtype]), BY_NAME[dtype].kind
        rng = self.rng
        match kind:
            case "pred":
                return np.asarray(rng.integers(0, 2, dims)).astype(to)
            case "signed" | "unsigned":
                t = BY_NAME[dtype]
                if self.chance(0.3):  # the whole range
                    low = -(2 ** (t.bits - 1)) if kind == "signed" else 0
                    high = 2 ** (t.bits - 1) if kind == "signed" else 2**t.bits
                    wide = np.int64 if kind == "signed" else np.uint64
                    return np.asarray(rng.integers(low, high, dims, dtype=wide)).astype(to)
                high = min(8, 2 ** (t.bits - 1))
                low = 0 if kind == "unsigned" else -high
                return np.asarray(rng.integers(low, high, dims)).astype(to)
            case "complex":
                parts = [self._floats(dims, bound) for _ in range(2)]
                return np.asarray(parts[0] + 1j * parts[1]).astype(to)
            case _:
                return np.asarray(self._floats(dims, bound)).astype(to)

    def _floats(self, dims: tuple[int, ...], bound: float) -> Array:
        if self.exact:
            top = int(min(bound, SMALL))
            return np.asarray(self.rng.integers(-top, top + 1, dims)).astype(np.float64)
        return np.asarray(self.rng.standard_normal(dims)).clip(-bound, bound)

    def some(self, ok: Callable[[Value], bool] = lambda _: True) -> Value | None:
        """One of the values, the younger the likelier; None if there is none."""
        found = [v for v in self.values if ok(v)]
        if not found:
            return None
        at = int(len(found) * self.rng.random() ** 0.5)
        return found[at]

    def floats(self) -> Value:
        """Return a value of floats, made if there is none."""
        found = self.some(lambda v: v.kind == "float" and v.dtype in WIDE_FLOATS)
        if found is None or self.chance(0.1):
            return self.fresh(self.dtype("f"), self.dims(self.number(0, 3)))
        return found

    def like(self, v: Value, bound: float = SMALL) -> Value:
        """Another value of the same shape and type."""
        found = self.some(lambda x: x.shape == v.shape and x is not v)
        return self.fresh(v.dtype, v.dims, bound) if found is None or self.chance(0.3) else found

    # Computations

    def inner(self) -> Builder:
        """Return a computation that this one will call."""
        return Builder(
            self.rng, self.exact, outer=self, computations=self.computations, count=self.count
        )

    def close(self, builder: Builder, root: str | None = None) -> str:
        """Write an inner computation down; its name. ``root`` names the result."""
        self.count[0] += 1
        name = f"c{self.count[0]}"
        rows = [_rooted(r, root) for r in builder.rows]
        if root is None:
            rows[-1] = f"ROOT {rows[-1]}"
        self.computations.append(f"{name} {{\n  " + "\n  ".join(rows) + "\n}\n")
        return name

    def combiner(self, types: Sequence[str], rows: Sequence[str]) -> str:
        """Return a computation of scalars ``q0, q1, ..``, the last row its root."""
        inner = self.inner()
        inner.rows = [f"q{n} = {t}[] parameter({n})" for n, t in enumerate(types)]
        inner.rows += rows
        return self.close(inner)

    def simple(self, dtype: str, opcode: str) -> str:
        """Return a combiner of one operation."""
        return self.combiner([dtype, dtype], [f"r = {dtype}[] {opcode}(q0, q1)"])

    def text(self, results: Sequence[Value]) -> str:
        """Return the module, whose results are these values."""
        rows = list(self.rows)
        if len(results) == 1:
            rows = [_rooted(r, results[0].name) for r in rows]
        else:
            shapes = ", ".join(v.shape for v in results)
            names = ", ".join(v.name for v in results)
            rows.append(f"ROOT result = ({shapes}) tuple({names})")
        body = "\n  ".join(rows)
        inner = "\n".join(self.computations)
        return f"HloModule random\n\n{inner}\nENTRY main {{\n  {body}\n}}\n"


def _rooted(row: str, name: str | None) -> str:
    return f"ROOT {row}" if name is not None and row.startswith(f"{name} = ") else row
