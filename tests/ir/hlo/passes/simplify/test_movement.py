"""Data movement simplified: random chains of it have the same elements as before."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from itertools import product
from typing import TypeAlias

import numpy as np
import pytest

from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.passes.simplify.move_transposes import move_transposes
from nestwright.ir.hlo.passes.simplify.shapes import simplify_shapes
from nestwright.ir.hlo.text import parse

REDUCERS = """
sum { a = s32[] parameter(0) b = s32[] parameter(1) ROOT s = s32[] add(a, b) }
max { a = s32[] parameter(0) b = s32[] parameter(1) ROOT s = s32[] maximum(a, b) }
"""
IDENTITY = {"sum": 0, "max": -(2**31)}

Dims: TypeAlias = tuple[int, ...]
Step: TypeAlias = tuple[Dims, str, int]
"""The sizes of a result, how it is made of ``$x`` and the scalar ``$k``, and that scalar."""


def listed(numbers: Dims | list[int]) -> str:
    return "{" + ",".join(map(str, numbers)) + "}"


def reshape(rng: random.Random, dims: Dims) -> Step:
    factors = [f for d in dims for f in ((2, d // 2) if d % 2 == 0 and d else (d,))]
    while len(factors) > 1 and rng.random() < 0.6:
        n = rng.randrange(len(factors) - 1)
        factors[n : n + 2] = [factors[n] * factors[n + 1]]
    if rng.random() < 0.5:
        factors.insert(rng.randrange(len(factors) + 1), 1)
    return tuple(factors), "reshape($x)", 0


def transpose(rng: random.Random, dims: Dims) -> Step:
    order = rng.sample(range(len(dims)), len(dims))
    return tuple(dims[n] for n in order), f"transpose($x), dimensions={listed(order)}", 0


def broadcast(rng: random.Random, dims: Dims) -> Step:
    at = rng.randrange(len(dims) + 1)
    mapped = [n for n in range(len(dims) + 1) if n != at]
    new = (*dims[:at], rng.choice((1, 2, 3)), *dims[at:])
    return new, f"broadcast($x), dimensions={listed(mapped)}", 0


def slice_(rng: random.Random, dims: Dims) -> Step:
    starts = [rng.randrange(max(1, d)) for d in dims]
    parts = [
        (a, rng.randint(a, d), rng.choice((1, 1, 2))) for a, d in zip(starts, dims, strict=True)
    ]
    text = ", ".join(f"[{a}:{b}:{c}]" for a, b, c in parts)
    return tuple(-(-(b - a) // c) for a, b, c in parts), f"slice($x), slice={{{text}}}", 0


def pad(rng: random.Random, dims: Dims) -> Step:
    parts = [
        (rng.randint(0, 2), rng.randint(-1 if d else 0, 2), rng.choice((0, 0, 1))) for d in dims
    ]
    new = tuple(a + b + d + max(0, d - 1) * c for (a, b, c), d in zip(parts, dims, strict=True))
    text = "x".join(f"{a}_{b}_{c}" for a, b, c in parts)
    return new, f"pad($x, $k), padding={text}", rng.choice((7, 7, 8))


def reverse(rng: random.Random, dims: Dims) -> Step:
    some = sorted(rng.sample(range(len(dims)), rng.randint(1, len(dims))))
    return dims, f"reverse($x), dimensions={listed(some)}", 0


def concatenate(rng: random.Random, dims: Dims) -> Step:
    axis = rng.randrange(len(dims))
    new = (*dims[:axis], dims[axis] * 2, *dims[axis + 1 :])
    return new, f"concatenate($x, $x), dimensions={{{axis}}}", 0


def reduce_(rng: random.Random, dims: Dims) -> Step:
    axis, name = rng.randrange(len(dims)), rng.choice(("sum", "max"))
    row = f"reduce($x, $k), dimensions={{{axis}}}, to_apply={name}"
    return (*dims[:axis], *dims[axis + 1 :]), row, rng.choice((IDENTITY[name], IDENTITY[name], 3))


def dynamic_slice(rng: random.Random, dims: Dims) -> Step:
    sizes = tuple(rng.randint(min(1, d), d) for d in dims)
    places = ", ".join("$k" for _ in dims)
    row = f"dynamic-slice($x, {places}), dynamic_slice_sizes={listed(sizes)}"
    return sizes, row, rng.randint(-1, 5)


STEPS: tuple[Callable[[random.Random, Dims], Step], ...] = (
    *(reshape, transpose, broadcast, slice_, pad, reverse, concatenate, reduce_, dynamic_slice),
)


def chain(rng: random.Random) -> str:
    """Return a module of two to seven steps."""
    dims: Dims = (2, 1, 6)
    rows, last = ["x0 = s32[2,1,6] parameter(0)"], ""
    for n in range(rng.randint(2, 7)):
        step = broadcast if not dims else slice_ if math.prod(dims) > 400 else rng.choice(STEPS)
        dims, row, scalar = step(rng, dims)
        rows.append(f"k{n} = s32[] constant({scalar})")
        row = row.replace("$x", f"x{n}").replace("$k", f"k{n}")
        last = f"x{n + 1} = s32[{','.join(map(str, dims))}] {row}"
        rows.append(last)
    rows[-1] = f"ROOT {last}"
    return REDUCERS + "ENTRY main {\n" + "\n".join(rows) + "\n}"


@pytest.mark.parametrize("seed", range(12))
def test_chains_of_movement(seed: int) -> None:
    changed = {simplify_shapes: 0, move_transposes: 0}
    for n in range(40):
        text = chain(random.Random(seed * 100 + n))
        module = parse(text)
        x = np.arange(12, dtype=np.int32).reshape(2, 1, 6)
        want = evaluate(module, [x])
        for change in (simplify_shapes, move_transposes):
            new = change(module)
            changed[change] += new is not module
            np.testing.assert_array_equal(evaluate(new, [x]), want, text)
    assert changed[simplify_shapes] > 15 and changed[move_transposes] > 5, changed


EDGES = list(product((-1, 0, 2), (0, 1), (0, 2)))


@pytest.mark.parametrize("value", [7, 8])
@pytest.mark.parametrize("last", EDGES, ids=str)
def test_pads_of_pads(last: tuple[int, int, int], value: int) -> None:
    for first in EDGES:
        sizes = [4]
        for low, high, interior in (first, last):
            sizes.append(low + high + sizes[-1] + (sizes[-1] - 1) * interior)
        module = parse(
            f"""ENTRY main {{ x = s32[4] parameter(0)
            k = s32[] constant(7)
            l = s32[] constant({value})
            p = s32[{sizes[1]}] pad(x, k), padding={"_".join(map(str, first))}
            ROOT q = s32[{sizes[2]}] pad(p, l), padding={"_".join(map(str, last))} }}"""
        )
        x = np.arange(4, dtype=np.int32)
        want = evaluate(module, [x])
        np.testing.assert_array_equal(evaluate(simplify_shapes(module), [x]), want, str(first))
