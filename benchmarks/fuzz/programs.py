"""Random programs, built natively and judged by the interpreter, in f64 where they round."""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nestwright.codegen.driver.build import build
from nestwright.ir.comparison import leaves
from nestwright.ir.dtypes import BY_NAME, from_numpy, to_numpy
from nestwright.ir.errors import UnsupportedError
from nestwright.ir.hlo.analysis.verify import verify
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.nodes import HloModule
from nestwright.ir.hlo.text import parse

from . import xla
from .builder import Array, Builder, Value
from .guarded import Guarded, guarded
from .steps.registry import choices

for _file in sorted((Path(__file__).parent / "steps").glob("*.py")):
    importlib.import_module(f"{__package__}.steps.{_file.stem}")

WIDE = {"f16": "f64", "bf16": "f64", "f32": "f64", "c64": "c128"}
EPSILON = {"f64": 2.0**-52, "f32": 2.0**-23, "f16": 2.0**-10, "bf16": 2.0**-7}
LARGEST = {"f64": 1e308, "f32": 3e38, "f16": 65504.0, "bf16": 3e38, "c64": 3e38, "c128": 1e308}
TF32 = 2.0**-10  # steps of operands that tensor cores take for f32
NARROW = 448.0  # of 8-bit floats, at least; XLA's e4m3fn
SLACK = 64  # times the last bit of the largest element, and
LIKE = 16  # times what the interpreter's own rounding moved, is right


@dataclass(frozen=True)
class Program:
    """A random program: its text, its arguments, and whether its results have to be exact."""

    text: str
    arguments: tuple[Array, ...]
    exact: bool


def draw(seed: int, number: int, exact: bool | None = None) -> Program:
    """Return the program of a number; ``exact`` says of which sort, None leaves it to chance."""
    rng = np.random.default_rng([seed, number])
    drawn = bool(rng.random() < 0.6)
    builder = Builder(rng, drawn if exact is None else exact)
    some = choices(builder.exact, inner=False)
    steps = builder.number(2, 14)
    while steps > 0 or not builder.values:  # not every step has something to work on
        builder.pick(some).rule(builder)
        steps -= 1
    made = [v for v in builder.values if not builder.rows[0].startswith(f"{v.name} =")]
    results = _results(builder, made or builder.values)
    return Program(builder.text(results), tuple(builder.arguments), builder.exact)


def _results(b: Builder, values: Sequence[Value]) -> list[Value]:
    """Return the last value, and now and then some of the others."""
    found = [values[-1]]
    while b.chance(0.3) and len(found) < 4:
        found.append(b.pick(values))
    return found


def judge(program: Program, number: int = 0, target: str = "cpu", against_xla: bool = False) -> str:
    """Build it, run it beside guard pages, twice, and compare: ``right`` or what is wrong.

    ``against_xla`` also holds what has to be exact against XLA, where that takes the program.
    """
    module = parse(program.text)
    verify(module)
    try:
        exe = build(module, target)
    except UnsupportedError as error:
        return f"refused: {str(error).splitlines()[0]}"
    with np.errstate(all="ignore"):
        want = leaves(evaluate(module, program.arguments))
    at_end = number % 4 != 3
    held = [guarded(np.asarray(a), at_end) for a in program.arguments]
    outs = [Guarded(w.shape, w.dtype, at_end) for w in want]
    for _ in range(2):
        for out in outs:
            out.array.reshape(-1).view(np.uint8)[:] = 0xFF
        arrays = [out.array for out in outs]
        exe(*(h.array for h in held), out=arrays[0] if _single(module) else tuple(arrays))
        found = [out.array for out in outs]
        told = _damage(program, held, outs) or _differs(
            program, found, want, exe.bundle.target.tf32
        )
        if told:
            break
    if not told and against_xla and program.exact:
        other = xla.results(program.text, program.arguments)
        if other is not None:
            told = _unequal([o.array for o in outs], other, "XLA's")
    for one in (*held, *outs):
        one.close()
    return f"BAD wrong: {told}" if told else "right"


def _single(module: HloModule) -> bool:
    return not isinstance(module.entry.root.shape, tuple) and hasattr(
        module.entry.root.shape, "dtype"
    )


def _damage(program: Program, held: Sequence[Guarded], outs: Sequence[Guarded]) -> str:
    """Describe a write that should not have happened: to an argument or beyond an array; or ''."""
    for n, (one, value) in enumerate(zip(held, program.arguments, strict=True)):
        if one.array.tobytes() != value.tobytes():
            return f"argument {n} was overwritten"
    for n, one in enumerate((*held, *outs)):
        if not one.intact:
            return f"array {n} was left"
    return ""


def _differs(
    program: Program, found: Sequence[Array], want: Sequence[Array], tf32: bool = False
) -> str:
    if program.exact:
        return _unequal(found, want, "the interpreter's")
    precise = in_f64(program)
    for n, (x, y, z) in enumerate(zip(found, want, precise, strict=True)):
        told = _far(program, x, y, z, TF32 if tf32 else 0.0)
        if told:
            return f"result {n} {told}"
    return ""


def _unequal(found: Sequence[Array], want: Sequence[Array], whose: str) -> str:
    for n, (x, y) in enumerate(zip(found, want, strict=True)):
        if not equal_arrays(x, y):
            return f"result {n} is\n{x}\nnot {whose}\n{y}"
    return ""


def equal_arrays(x: Array, y: Array) -> bool:
    """True if types, shapes and values are the same; a NaN equals a NaN."""
    if x.dtype != y.dtype or x.shape != y.shape:
        return False
    with np.errstate(all="ignore"):
        return bool(((x == y) | ((x != x) & (y != y))).all())


_FLOAT = re.compile(r"\b(bf16|f16|f32|c64)(?=\[)")


def in_f64(program: Program) -> list[Array]:
    """Return the program's results if every float had 64 bits."""
    text = _FLOAT.sub(lambda m: WIDE[m[1]], program.text)
    arguments = []
    for a in program.arguments:
        to = WIDE.get(from_numpy(a.dtype).name)
        arguments.append(a if to is None else a.astype(to_numpy(BY_NAME[to])))
    with np.errstate(all="ignore"):
        return leaves(evaluate(parse(text), arguments))


def _far(program: Program, x: Array, y: Array, z: Array, step: float = 0.0) -> str:
    """Describe how a result differs from the interpreter's and the f64 one by more than rounding;
    '' if it does not. Operands may be cut to multiples of ``step``, relative to them."""
    kind = BY_NAME[from_numpy(y.dtype).name].kind
    if kind not in ("float", "complex"):
        return "" if np.array_equal(x, y) or np.array_equal(x, z) else f"is\n{x}\nnot\n{y}"
    to = np.complex128 if kind == "complex" else np.float64
    a, b, c = x.astype(to), y.astype(to), z.astype(to)
    finite = np.isfinite(b) & (np.abs(c) < LARGEST.get(from_numpy(y.dtype).name, NARROW) / 4)
    if not np.isfinite(a[finite]).all():
        return f"is not finite:\n{x}\nnot\n{y}"
    if not finite.any():
        return ""
    a, b, c = a[finite], b[finite], c[finite]
    present = [e for t, e in EPSILON.items() if f"{t}[" in program.text]
    lowest = max(step, EPSILON["f64"], *present)
    scale = max(float(np.abs(c).max()), 1.0)  # of what may have cancelled
    bound = LIKE * float(np.abs(b - c).max()) + SLACK * lowest * scale
    error = float(np.abs(a - c).max())
    return "" if error <= bound else f"is off by {error:.3g}, {bound:.3g} allowed:\n{x}\nnot\n{y}"


def describe(program: Program) -> str:
    """Return the program and its arguments, to be read."""
    with np.printoptions(threshold=200):
        return f"{program.text}\n{[np.asarray(a) for a in program.arguments]!r}\n"


def summary(value: Any) -> str:
    """One line."""
    return str(value).splitlines()[0][:160]
