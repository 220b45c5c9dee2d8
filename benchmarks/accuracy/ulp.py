"""Errors of built element-wise functions, in units in the last place (ulp).

::

    python benchmarks/accuracy/ulp.py --op tanh --op erf --stride 17       # every 17th f32
    python benchmarks/accuracy/ulp.py --dtype f32 --json results           # all 2**32, resumable
    python benchmarks/accuracy/ulp.py --dtype f64 --samples 100000000
    python benchmarks/accuracy/ulp.py --dtype f16 --dtype bf16             # all 65,536 inputs

A module of one instruction is built and run. One argument of at most 32 bits takes every stride-th
bit pattern; f64 and pairs of arguments take ``--samples`` numbers drawn by ``--seed``, special ones
first. With ``--json DIR`` each row is kept in a file, and a sweep that was stopped goes on from its
last save. Exit status 1 if a result is of another class (NaN, infinity, sign of zero), is off by
more than ``--most`` ulp, or, in fewer than 32 bits, is not the nearest.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # names begin at benchmarks/

import ml_dtypes
import numpy as np

import nestwright as nw
from accuracy.reference import ARITY, EXTENDED, FUNCTIONS, exact
from nestwright.codegen.emit.expr import Emitter
from nestwright.codegen.emit.statements import module as llvm_ir
from nestwright.ir.arrays import Array
from nestwright.ir.conversion import to_odd
from nestwright.ir.dtypes import BY_NAME, DType, to_numpy
from nestwright.ir.target import Target

CHUNK = 1 << 18  # elements of a call
SAVE_SECONDS = 10.0
SPECIAL = (
    0.0,
    1e-45,
    1e-39,
    2.0**-126,
    5e-324,
    1e-310,
    2.0**-1022,
    2.0**-24,
    6e-8,
    0.25,
    0.5,
    1.0,
    1.5,
    2.0,
    3.0,
    10.0,
    88.8,
    104.0,
    709.7,
    745.2,
    65504.0,
    16777217.0,
    2.0**31,
    1e10,
    3.4e38,
    1.7e308,
    float("inf"),
    float("nan"),
)
"""With their negatives, the numbers that are paired and sampled first."""
BARE = " (bare)"
"""Ends a target's name where code is to be that of GPUs."""
TEXT = "HloModule one\nENTRY e {{\n{parameters}  ROOT y = {dtype}[{n}] {op}({names})\n}}\n"


class Bare(Emitter):
    """Writes code as for GPUs: it calls no library, and has the worst estimates PTX allows."""

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self.libm, self.estimates = False, True


@dataclass
class Row:
    """The errors found for one operation. ``next`` is the sweep's next chunk.

    ``worst`` has operands, result and exact result; ``classes`` counts results of a wrong class,
    ``examples`` has the first of each. ``misrounded`` counts what is not the nearest number.
    """

    op: str
    dtype: str
    target: str
    stride: int
    samples: int
    seed: int
    next: int = 0
    count: int = 0
    most: float = 0.0
    worst: list[float] = field(default_factory=list)
    misrounded: int = 0
    over_one: int = 0
    classes: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[float]] = field(default_factory=dict)
    seconds: float = 0.0

    def show(self) -> str:
        """One line."""
        classes = " ".join(f"{k}={v}" for k, v in self.classes.items()) or "none"
        return (
            f"{self.op:22}{self.dtype:10}{self.count:>14,}  max {self.most:.4f} ulp at "
            f"{self.worst}  not nearest {self.misrounded:,}  over 1: {self.over_one:,}  "
            f"wrong class: {classes} {self.examples or ''} [{self.seconds:.0f} s]"
        )


def nearest(values: Array, dtype: DType) -> Array:
    """Exact values rounded once."""
    with np.errstate(all="ignore"):
        if dtype.bits >= 32 or dtype.name == "f16":
            return values.astype(to_numpy(dtype))
        return to_odd(values).astype(to_numpy(dtype))


def unit(values: Array, dtype: DType) -> Array:
    """Return the distance between numbers of a type at ``values``, as numbers of the
    values' type.
    """
    info = ml_dtypes.finfo(to_numpy(dtype))
    lowest = round(float(np.log2(info.smallest_normal)))
    exponent = np.where(values == 0, lowest, np.frexp(values)[1] - 1)
    one = values.dtype.type(1)
    return np.ldexp(one, np.maximum(exponent, lowest) - info.nmant)


def judge(row: Row, args: tuple[Array, ...], got: Array, dtype: DType) -> None:
    """Compare results with the exact ones and enter what is found."""
    values = exact(row.op, *args)
    right = nearest(values, dtype)
    bits = f"u{got.dtype.itemsize}"
    at = np.flatnonzero(got.view(bits) != right.view(bits))
    row.count += got.size
    with np.errstate(invalid="ignore"):
        values, right, mine = (a[at].astype(values.dtype) for a in (values, right, got))
    both = np.isnan(mine) & np.isnan(right)
    limit = values.dtype.type(ml_dtypes.finfo(to_numpy(dtype)).max)
    beyond = np.abs(values) > limit * (1 + values.dtype.type(ml_dtypes.finfo(got.dtype).eps))
    least = unit(np.zeros_like(values), dtype)
    wrong = {
        "nan": np.isnan(mine) != np.isnan(right),
        "infinity": (np.isinf(mine) & (np.abs(values) < limit))
        | (beyond & ~np.isinf(mine) & ~both),
        "zero": (mine == 0) & (right == 0),
        "flushed": (mine == 0) & (np.abs(values) >= least),
    }
    for name, mask in wrong.items():
        hits = np.flatnonzero(mask)
        if hits.size:
            row.classes[name] = row.classes.get(name, 0) + int(hits.size)
            j = int(hits[0])
            told = [*(a[at[j]] for a in args), mine[j], values[j]]
            row.examples.setdefault(name, [float(v) for v in told])
    with np.errstate(all="ignore"):
        edge = np.copysign(limit + unit(limit, dtype), mine)  # what infinity stands for
        off = np.abs(np.where(np.isinf(mine), edge, mine) - values) / unit(values, dtype)
    off = np.where(np.isfinite(off) & ~both, off, 0)
    # A reference in f64 tells the nearer of two narrow numbers, an extended one of f64 does not.
    row.misrounded += int((off > (0.5 if dtype.bits == 64 else 0)).sum())
    row.over_one += int((off > 1).sum())
    row.most = max(row.most, 0.5)
    if off.size and off.max() > row.most:
        j = int(np.argmax(off))
        row.most = float(off[j])
        row.worst = [float(v) for v in (*(a[at[j]] for a in args), mine[j], values[j])]


@contextmanager
def emitter(kind: type[Emitter]) -> Iterator[None]:
    """Code is written by ``kind``."""
    usual, llvm_ir.Emitter = llvm_ir.Emitter, kind
    try:
        yield
    finally:
        llvm_ir.Emitter = usual


def build(op: str, dtype: DType, target: str, size: int) -> Callable[..., Array]:
    """Return the operation on arrays of ``size`` elements; ``target`` may end in ``BARE``."""
    names = [f"x{k}" for k in range(ARITY[op])]
    parameters = "".join(f"  {x} = {dtype}[{size}] parameter({k})\n" for k, x in enumerate(names))
    text = TEXT.format(parameters=parameters, dtype=dtype, n=size, op=op, names=", ".join(names))
    machine = target.removesuffix(BARE)
    with emitter(Emitter if machine == target else Bare):
        return nw.build(nw.parse(text), machine, cache=False)


def special(dtype: DType, arity: int) -> tuple[Array, ...]:
    """Special numbers of both signs, or all pairs of them."""
    with np.errstate(all="ignore"):
        one = np.array([*SPECIAL, *(-s for s in SPECIAL)]).astype(to_numpy(dtype))
    if arity == 1:
        return (one,)
    return tuple(g.reshape(-1) for g in np.meshgrid(one, one))


def chunk(dtype: DType) -> int:
    """Elements of a call: all of a narrow type."""
    return min(CHUNK, 1 << dtype.bits)


def patterns(dtype: DType, first: int, stride: int) -> Array:
    """Return a chunk of numbers whose bits are multiples of ``stride``, from the ``first`` multiple
    on.
    """
    at = (np.arange(first, first + chunk(dtype), dtype=np.uint64) * np.uint64(stride)) & np.uint64(
        (1 << dtype.bits) - 1
    )
    return at.astype(f"u{max(dtype.bits // 8, 1)}").view(to_numpy(dtype))


def drawn(op: str, dtype: DType, rng: np.random.Generator) -> tuple[Array, ...]:
    """Return a chunk of random operands: any bits, and ranges where functions bend or end."""
    kind = to_numpy(dtype)
    wide = dtype.bits == 64
    n = chunk(dtype)

    def any_bits() -> Array:
        return rng.integers(0, 1 << dtype.bits, n, f"u{dtype.bytes}", False).view(kind)

    def middling() -> Array:
        sign = rng.choice([-1.0, 1.0], n)
        near_one = 1 + sign * np.exp2(rng.uniform(-53 if wide else -24, 0, n))
        by_size = sign * np.exp2(rng.uniform(-60, 12, n))
        flat = rng.choice([1.0, 8.0, 40.0, 110.0 if not wide else 750.0], n)
        return np.choose(
            rng.integers(0, 4, n), [near_one, by_size, flat * rng.uniform(-1, 1, n), any_bits()]
        ).astype(kind)

    with np.errstate(all="ignore"):
        x = middling()
        if ARITY[op] == 1:
            return (x,)
        y = middling()
        if op == "power":
            size = np.abs(x).astype(np.float64)
            bend = np.log2(np.where((size > 0) & np.isfinite(size) & (size != 1), size, 2.0))
            to = rng.uniform(-1080, 1030, n) if wide else rng.uniform(-151, 129, n)
            y = np.where(rng.random(n) < 0.7, to / bend, y).astype(kind)
            x = np.where(rng.random(n) < 0.7, np.abs(x), x).astype(kind)
        elif dtype.bits >= 32:
            factor = rng.choice([1.0, 3.0, 4.0, 1e6, 1e-6], n) * rng.uniform(-1, 1, n)
            y = np.where(rng.random(n) < 0.5, x * factor, y).astype(kind)
        return x, y


def operands(row: Row, dtype: DType) -> Iterator[tuple[Array, ...]]:
    """Return the chunks of a sweep that are still to do."""
    arity = ARITY[row.op]
    if arity == 2 and dtype.bits <= 8:
        every = patterns(dtype, 0, 1)
        for x in every[row.next :]:
            yield np.full_like(every, x), every
        return
    if arity == 1 and dtype.bits <= 32:
        total = -(-(1 << dtype.bits) // row.stride)
        for k in range(row.next, -(-total // chunk(dtype))):
            yield (patterns(dtype, k * chunk(dtype), row.stride),)
        return
    for k in range(row.next, -(-row.samples // chunk(dtype))):
        args = drawn(row.op, dtype, np.random.default_rng((row.seed, k)))
        if k == 0:
            for a, s in zip(args, special(dtype, arity), strict=True):
                a[: s.size] = s[: a.size]
        yield args


def sweep(row: Row, dtype: DType, keep: Path | None) -> None:
    """Measure one operation, saving now and then."""
    run = build(row.op, dtype, row.target, chunk(dtype))
    spent, saved = row.seconds, time.monotonic()
    start = saved
    for args in operands(row, dtype):
        judge(row, args, np.asarray(run(*args)), dtype)
        row.next += 1
        row.seconds = spent + time.monotonic() - start
        if keep is not None and time.monotonic() - saved > SAVE_SECONDS:
            save(row, keep)
            saved = time.monotonic()
    if keep is not None:
        save(row, keep)


def save(row: Row, path: Path) -> None:
    """Replace the row's file."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps(asdict(row)))
    os.replace(new, path)


def begun(row: Row, folder: Path | None) -> tuple[Row, Path | None]:
    """Return the row as it was saved, and its file."""
    if folder is None:
        return row, None
    folder.mkdir(parents=True, exist_ok=True)
    parts = (row.op, row.dtype, row.target, row.stride, row.samples, row.seed)
    path = folder / ("_".join(str(p).replace(" ", "") for p in parts) + ".json")
    return (Row(**json.loads(path.read_text())) if path.exists() else row), path


def acceptable(row: Row, dtype: DType, most: float) -> bool:
    """True if a row stays within ``most`` ulp, with no result of a wrong class, and for f16 and
    narrower no misrounded one."""
    if row.classes or (dtype.bits < 32 and row.misrounded):
        return False
    return row.most <= most


def main() -> int:
    """Print a row per operation and type."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--op", action="append", choices=sorted(FUNCTIONS))
    parser.add_argument("--dtype", action="append", help="f32, f64, f16, bf16, f8e4m3fn, ...")
    parser.add_argument("--target", default="cpu", help='such as "cpu -mcpu=haswell"')
    parser.add_argument("--stride", type=int, default=1, help="of bit patterns; odd is best")
    parser.add_argument("--samples", type=int, default=10_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--most", type=float, help="ulp; 1 for f32, 2 for f64")
    parser.add_argument("--bare", action="store_true", help="code for machines without libm")
    parser.add_argument("--json", type=Path, metavar="DIR")
    args = parser.parse_args()
    os.environ.setdefault("NESTWRIGHT_NUM_THREADS", "1")
    good = True
    for name in args.dtype or ["f32"]:
        dtype = BY_NAME[name]
        if dtype.bits == 64 and not EXTENDED:
            print("f64 needs 80-bit extended precision, which this machine lacks", file=sys.stderr)
            return 2
        for op in args.op or FUNCTIONS:
            target = args.target + BARE * args.bare
            fresh = Row(op, name, target, args.stride, args.samples, args.seed)
            row, path = begun(fresh, args.json)
            sweep(row, dtype, path)
            print(row.show(), flush=True)
            most = args.most or (2.0 if dtype.bits == 64 else 1.0)
            good &= acceptable(row, dtype, most)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
