"""Masked stores of converted vectors: every lane that is on is written, and not a byte besides.

Masks are known to the emitter, or to LLVM alone, or to nobody before the kernel runs. What is
written lies between bytes that must stay. With NESTWRIGHT_MASKED=all in the environment it is every
pair of types under every mask of up to eight lanes, on each processor (an hour or so).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import numpy as np
import pytest

from nestwright.codegen.driver.kernel import compile_flat
from nestwright.codegen.runtime.function import NativeFunc
from nestwright.codegen.targets.registry import emit
from nestwright.ir.arrays import Array
from nestwright.ir.conversion import convert
from nestwright.ir.dtypes import ALL, BY_NAME, index, pred, to_numpy
from nestwright.ir.formats import is_narrow
from nestwright.ir.loop.nodes import (
    Buffer,
    Cast,
    Const,
    Expr,
    For,
    Func,
    If,
    Kind,
    Load,
    Op,
    Stmt,
    Store,
    Var,
)
from nestwright.ir.loop.visit import seq
from nestwright.ir.target import Target

EVERY = os.environ.get("NESTWRIGHT_MASKED") == "all"
SPECS = ("cpu", "cpu -mcpu=skylake-avx512", "cpu -mcpu=haswell", "cpu -mcpu=x86-64")
TARGETS = [t for t in map(Target.parse, SPECS) if t.is_host]
WIDEST = 64  # lanes
GAP = 64  # bytes of which none may change, around each loop's elements
FILL = 0x5A

NARROWED = [
    "s32:s8",
    "s32:s16",
    "s16:s8",
    "s64:s32",
    "s64:s16",
    "s64:s8",
    "u32:u8",
    "u64:u32",
    "f32:bf16",
    "f64:bf16",
    "f32:f8e5m2",
    "f32:s8",
    "bf16:bf16",
    "f32:f16",
    "f64:f32",
    "s8:s8",
    "f32:pred",
    "s32:s4",
]
"""Computed and stored: what narrows by truncation, then some that do otherwise."""
FEW = ["s32:s8", "s64:s32", "f32:bf16"]


def all_pairs() -> list[str]:
    real = [d for d in ALL if d.kind != "complex" and d != pred]
    return [f"{a}:{b}" for a in real for b in (*real, pred)]


def masks(lanes: int) -> list[int]:
    """Bits of masks: none, all, each single lane, each number of first lanes, a few others."""
    if EVERY and lanes <= 8:
        return list(range(1 << lanes))
    ends = (2, lanes // 2, lanes - 1)
    single = range(lanes) if lanes <= 4 or EVERY else (0, 1, lanes // 2, lanes - 1)
    others = (0b0110, 0x8000000100010010)
    full = (1 << lanes) - 1
    chosen = [0, full, *(1 << k for k in single), *((1 << k) - 1 for k in ends)]
    return sorted({m & full for m in (*chosen, *others)})


def bit(bits: Expr, lane: Expr) -> Expr:
    """Whether a bit is set, as an expression of indices."""
    shifted = Op("shift-right-logical", (bits, lane), index)
    one = Op("and", (shifted, Const(1, index)), index)
    return Op("ne", (one, Const(0, index)), pred)


class Case:
    """One kernel: loops of all numbers of lanes under all masks, each with its own place.

    ``way`` is when the masks are known: ``at once``, to the emitter; ``late``, to LLVM once it has
    simplified; ``never``. Of the last two there are also loops ``selected``, which write back what
    was there where the mask is off.
    """

    def __init__(self, pair: str, target: Target, way: str) -> None:
        computed, stored = (BY_NAME[name] for name in pair.split(":"))
        self.way, self.stored, self.source = way, stored, computed
        lanes = min(WIDEST, target.lanes(max(computed, stored, key=lambda d: d.bytes)))
        counts = [n for n in (2, 3, 4, 8, 15, 16, 32, 64) if n <= lanes]
        self.loops = [(n, m) for n in counts for m in masks(n)]
        self.gap = GAP // stored.bytes
        self.places, at = [], self.gap
        for n, _ in self.loops:
            self.places.append(at)
            at += n + self.gap
        self.x = Buffer("x", (WIDEST,), computed)
        self.bits = Buffer("bits", (len(self.loops) + 1,), index)
        self.out = Buffer("out", (at,), stored)
        self.func = Func("masked", (self.x, self.bits, self.out), 2, seq(*self.statements()))
        self.target = target

    def statements(self) -> Iterator[Stmt]:
        late = self.way.endswith("late")
        masks = [Const(m - (m >> 63 << 64), index) for _, m in self.loops]
        if late:
            for number, mask in enumerate(masks):
                yield Store(self.bits, (Const(number, index),), mask)
        for number, ((count, _), place) in enumerate(zip(self.loops, self.places, strict=True)):
            written = Load(self.bits, (Const(number, index),))
            unknown = self.way != "at once"
            loop = self.loop(count, place, written if unknown else masks[number])
            # In a block of its own what was stored before is found late, by value numbering.
            last = Load(self.bits, (Const(len(masks), index),))
            yield If(Op("eq", (last, Const(0, index)), pred), loop) if late else loop

    def loop(self, count: int, place: int, bits: Expr) -> Stmt:
        i = Var("i")
        at = (Op("add", (i, Const(place, index)), index),)
        value = Cast(self.computed(Load(self.x, (i,))), self.stored)
        on = bit(bits, i)
        if self.way.startswith("selected"):
            kept = Op("select", (on, value, Load(self.out, at)), self.stored)
            return For(i, Const(count, index), Store(self.out, at, kept), Kind.VECTOR)
        return For(i, Const(count, index), If(on, Store(self.out, at, value)), Kind.VECTOR)

    def computed(self, x: Expr) -> Expr:
        """Something that LLVM cannot do after narrowing as well; of these values, ``x`` itself."""
        if is_narrow(self.source):
            return x
        return Op("maximum", (x, Const(1, self.source)), self.source)

    def operands(self) -> tuple[Array, Array, Array]:
        """``x``, the masks, and where the results go, filled."""
        x = convert(np.arange(WIDEST) % 3 + 1, to_numpy(self.source))
        bits = np.array([*(m - (m >> 63 << 64) for _, m in self.loops), 0], np.int64)
        fill = 0 if self.stored == pred else FILL
        return x, bits, np.full(self.out.shape[0] * self.stored.bytes, fill, np.uint8)

    def right(self) -> Array:
        """What the memory of the results is to hold."""
        x, _, filled = self.operands()
        values = convert(x, to_numpy(self.stored)).view(np.uint8).reshape(WIDEST, -1)
        rows = filled.reshape(-1, self.stored.bytes)
        for (count, mask), place in zip(self.loops, self.places, strict=True):
            on = [k for k in range(count) if mask >> k & 1]
            rows[[place + k for k in on]] = values[on]
        return filled

    def got(self, kernel: NativeFunc) -> Array:
        x, bits, out = self.operands()
        kernel.run_at([a.ctypes.data for a in (x, bits, out)])
        return out

    def wrong(self) -> list[str]:
        """The loops whose memory is not as it should be, in words."""
        got, right = self.got(NativeFunc.load(compile_flat(self.func, self.target))), self.right()
        bad = np.flatnonzero(got != right) // self.stored.bytes
        middles = np.array(self.places[1:]) - self.gap // 2
        found = sorted(set(np.searchsorted(middles, bad, side="right")))
        return [f"{self.loops[k][0]} lanes, mask {self.loops[k][1]:#b}" for k in found]


def ids(target: Target) -> str:
    return target.cpu if target.spec != "cpu" else "host"


@pytest.mark.parametrize("target", TARGETS, ids=ids)
@pytest.mark.parametrize("way", ["at once", "late", "never", "selected late", "selected never"])
def test_every_lane_that_is_on_is_stored_and_nothing_else(way: str, target: Target) -> None:
    here = target.spec == "cpu" and not way.endswith("never")
    pairs = all_pairs() if EVERY else NARROWED if here else FEW
    wrong = {pair: Case(pair, target, way).wrong() for pair in pairs}
    assert not {pair: found[:5] for pair, found in wrong.items() if found}


@pytest.mark.parametrize("way", ["at once", "late", "selected late"])
def test_llvm_sees_no_narrowing_before_a_store_that_may_be_masked(way: str) -> None:
    """The form itself, for a processor that need not be here."""
    target = Target.parse("llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512")
    for pair in ("s32:s8", "s64:s32", "f32:bf16", "f32:f8e5m2"):
        text = emit(Case(pair, target, way).func, target)
        defined = dict(re.findall(r"^  (%\w+) = (.*)$", text, re.MULTILINE))
        plain = re.findall(r"^  store <\d+ x i\d+> (%\w+), ptr", text, re.MULTILINE)
        masked = re.findall(
            r"@llvm\.masked\.store\S+\(<\d+ x i\d+> (%\w+), .*, <\d+ x i1> (.*)\)$",
            text,
            re.MULTILINE,
        )
        assert masked
        for value in [v for v, _ in masked] + plain * way.startswith("selected"):
            made = defined[value]
            if made.startswith("shufflevector"):
                made = defined[made.split()[4].rstrip(",")]
            assert 'asm "", "=v,0"' in made, f"{pair}: {value} = {made}"
        known = [m for _, m in masked if m.startswith("<")]
        assert bool(known) == (way != "late")
        assert all(m.count("true") > 1 and "false" in m for m in known)
