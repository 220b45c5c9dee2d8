"""Random sorts, gathers and scatters: any dimensions, indices out of bounds, any combiner."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from nestwright.ir.dtypes import BY_NAME, to_numpy

INTEGERS = ("s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64")
NUMBERS = (*INTEGERS, "f16", "bf16", "f32", "f64")


def shape_of(dtype: str, dims: Sequence[int]) -> str:
    return f"{dtype}[{','.join(map(str, dims))}]"


def joined(shapes: Sequence[str]) -> str:
    return shapes[0] if len(shapes) == 1 else f"({', '.join(shapes)})"


def listed(name: str, dims: Sequence[int]) -> str:
    return f"{name}={{{','.join(map(str, dims))}}}"


def sort(m: Any) -> None:
    types = [m.pick(("pred", *NUMBERS)) for _ in range(m.number(1, 3))]
    rank = m.number(1, 3)
    dims = m.dims(rank, 9)
    direction = m.pick(["LT", "GT", "LT", "GT", "LE"])
    key = m.number(0, len(types) - 1)
    total = types[key] in ("f16", "bf16", "f32", "f64") and m.chance(0.5)
    m.odd = m.odd if total else 0.0  # among NaNs a plain comparison is no order
    arrays = [m.parameter(t, dims) for t in types]
    pair = f"q{2 * key}, q{2 * key + 1}"
    more = ", type=TOTALORDER" if total else ""
    rows = [f"r = pred[] compare({pair}), direction={direction}{more}"]
    given = [t for t in types for _ in range(2)]
    if len(types) > 1 and m.chance(0.4) and direction != "LE":  # ties by another operand
        other = (key + 1) % len(types)
        rows = [
            f"a = pred[] compare({pair}), direction={direction}",
            f"b = pred[] compare({pair}), direction=EQ",
            f"c = pred[] compare(q{2 * other}, q{2 * other + 1}), direction=GT",
            "d = pred[] and(b, c)",
            "r = pred[] or(a, d)",
        ]
    by = m.computation(given, rows)
    m.emit(
        joined([shape_of(t, dims) for t in types]),
        f"sort({', '.join(arrays)}), dimensions={{{m.number(0, rank - 1)}}}, "
        f"is_stable=true, to_apply={by}",
    )


def topk(m: Any) -> None:
    t = m.pick(NUMBERS)
    dims = m.dims(m.number(1, 3), 9)
    k = m.number(0, dims[-1])
    x = m.parameter(t, dims)
    out = [*dims[:-1], k]
    largest = m.pick(["true", "false"])
    m.emit(joined([shape_of(t, out), shape_of("s32", out)]), f"topk({x}), k={k}, largest={largest}")


def indices(m: Any, dims: Sequence[int], bounds: Sequence[int]) -> tuple[str, Any]:
    """Index vectors, most inside, some far out; unsigned ones wrap to large numbers."""
    t = m.pick(INTEGERS)
    to = to_numpy(BY_NAME[t])
    drawn = np.asarray(m.rng.integers(-2, max([*bounds, 1]) + 2, dims)).astype(to)
    if m.chance(0.2):
        info = np.iinfo(to)
        far = np.array([info.min, info.max], to)[m.rng.integers(0, 2, dims)]
        drawn = np.where(m.rng.random(dims) < 0.2, far, drawn)
    return t, drawn


class Places:
    """Dimension numbers that gathers and scatters share, drawn at random."""

    def __init__(self, m: Any) -> None:
        rank = m.number(0, 4)
        self.operand = [max(d, 1) if m.chance(0.95) else d for d in m.dims(rank)]
        roles = [m.pick(["window", "window", "dropped", "batching"]) for _ in range(rank)]
        batching = [d for d in range(rank) if roles[d] == "batching"]
        self.dropped = [d for d in range(rank) if roles[d] == "dropped"]
        self.kept = [d for d in range(rank) if roles[d] == "window"]
        self.batching = batching
        indexed = [d for d in range(rank) if roles[d] != "batching" and m.chance(0.7)]
        indexed += [d for d in self.dropped if d not in indexed]
        self.indexed = [indexed[k] for k in m.order(len(indexed))]
        outer = m.dims(m.number(0, 2), 3)
        self.batch = [("free", n) for n in outer] + [("of", d) for d in self.batching]
        self.batch = [self.batch[k] for k in m.order(len(self.batch))]
        self.outer = [n if kind == "free" else self.operand[n] for kind, n in self.batch]
        self.vector = m.number(0, len(self.outer))
        self.implicit = len(self.indexed) == 1 and m.chance(0.4)
        self.index_dims = list(self.outer)
        if self.implicit:
            self.vector = len(self.outer)
        else:
            self.index_dims.insert(self.vector, len(self.indexed))
        self.index_batching = []
        for d in self.batching:
            at = self.batch.index(("of", d))
            self.index_batching.append(at if at < self.vector or self.implicit else at + 1)
        self.sizes = [
            min(n, 1) if d not in self.kept else m.number(min(1, n), n) if d in self.indexed else n
            for d, n in enumerate(self.operand)
        ]
        if not self.sizes and m.chance(0.5):
            self.sizes = []
        window = [self.sizes[d] for d in self.kept]
        spots = sorted(m.order(len(window) + len(self.outer))[: len(window)])
        self.window_dims = spots
        inner, rest = iter(window), iter(self.outer)
        self.result = [
            next(inner) if k in spots else next(rest) for k in range(len(window) + len(self.outer))
        ]


def gather(m: Any) -> None:
    p, t = Places(m), m.pick(("pred", *NUMBERS))
    if any(p.sizes[d] == 0 for d in p.dropped + p.batching):
        p = Places(m)
    x = m.parameter(t, p.operand)
    it, at = indices(m, p.index_dims, p.operand)
    y = m.parameter(it, p.index_dims, at)
    attrs = [
        listed("offset_dims", p.window_dims),
        listed("collapsed_slice_dims", p.dropped),
        listed("start_index_map", p.indexed),
        f"index_vector_dim={p.vector}",
        listed("slice_sizes", p.sizes),
    ]
    if p.batching:
        attrs.append(listed("operand_batching_dims", p.batching))
        attrs.append(listed("start_indices_batching_dims", p.index_batching))
    m.emit(shape_of(t, p.result), f"gather({x}, {y}), {', '.join(attrs)}")


def combiner(m: Any, types: Sequence[str]) -> str:
    """Of the old values and the updates, in this order; it need not commute."""
    n = len(types)
    rows = []
    for k, t in enumerate(types):
        old, new = f"q{k}", f"q{k + n}"
        ops = ["add", "multiply", "maximum", "minimum", "subtract", "keep", "old"]
        match m.pick(ops if t != "pred" else ["and", "or", "keep", "xor"]):
            case "keep":
                rows.append(f"x{k} = {t}[] copy({new})")
            case "old":
                rows.append(f"x{k} = {t}[] copy({old})")
            case op:
                rows.append(f"x{k} = {t}[] {op}({old}, {new})")
    if n > 1:
        named = ", ".join(f"x{k}" for k in range(n))
        rows.append(f"r = ({', '.join(f'{t}[]' for t in types)}) tuple({named})")
    return str(m.computation([*types, *types], rows))


def scatter(m: Any) -> None:
    p = Places(m)
    types = [m.pick(("pred", *NUMBERS)) for _ in range(m.pick([1, 1, 1, 2]))]
    by = combiner(m, types)
    operands = [m.parameter(t, p.operand) for t in types]
    it, at = indices(m, p.index_dims, p.operand)
    y = m.parameter(it, p.index_dims, at)
    updates = [m.parameter(t, p.result) for t in types]
    attrs = [
        listed("update_window_dims", p.window_dims),
        listed("inserted_window_dims", p.dropped),
        listed("scatter_dims_to_operand_dims", p.indexed),
        f"index_vector_dim={p.vector}",
    ]
    if p.batching:
        attrs.append(listed("input_batching_dims", p.batching))
        attrs.append(listed("scatter_indices_batching_dims", p.index_batching))
    m.emit(
        joined([shape_of(t, p.operand) for t in types]),
        f"scatter({', '.join([*operands, y, *updates])}), {', '.join(attrs)}, to_apply={by}",
    )


@pytest.mark.parametrize("generator", [sort, topk, gather, scatter])
def test_agrees(agrees: Callable[..., None], generator: Callable[[Any], None]) -> None:
    agrees(generator, 18, simulated=2)
