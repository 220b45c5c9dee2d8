"""Compiled collectives on threads, beside NumPy: every operation, reducer and element type."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
import pytest

from nestwright.codegen.driver.build import build
from nestwright.codegen.driver.options import BuildOptions
from nestwright.codegen.driver.oracle import on_devices
from nestwright.codegen.runtime.collectives.operations import DIRECT
from nestwright.ir.dtypes import BY_NAME, to_numpy
from nestwright.ir.hlo.interp.devices import evaluate_devices
from nestwright.ir.hlo.text import parse
from nestwright.ir.target import Target

from .on_threads import run_on_threads

NUMPY = {
    "add": np.add,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
STRICT = BuildOptions(Target.parse("cpu"), excess_precision=False)


def module(body: str, dtype: str = "f32", ops: tuple[str, ...] = ("add",), count: int = 3) -> str:
    """A module for ``count`` replicas on ``x`` of type ``dtype``, with reducers ``ops``."""
    reducers = "".join(
        f"{op}_ {{ a = {dtype}[] parameter(0)\nb = {dtype}[] parameter(1)\n"
        f"ROOT s = {dtype}[] {op}(a, b) }}\n"
        for op in ops
    )
    return f"HloModule m, replica_count={count}\n{reducers}ENTRY e {{\n{body} }}"


def agreed(text: str, args: list[list[Any]]) -> list[Any]:
    """The results of a compiled module on threads, which are the interpreter's, bit for bit."""
    read = parse(text)
    found = run_on_threads(build(read, STRICT), args)
    for own, wanted in zip(found, evaluate_devices(read, args), strict=True):
        mine, theirs = (v if isinstance(v, tuple) else (v,) for v in (own, wanted))
        for a, b in zip(mine, theirs, strict=True):
            assert a.dtype == b.dtype
            assert a.tobytes() == b.tobytes()
    return found


def ops_of(dtype: str) -> tuple[str, ...]:
    kind = BY_NAME[dtype].kind
    if kind == "complex":
        return ("add", "multiply")
    bits = ("and", "or", "xor")
    arithmetic = ("add", "multiply", "maximum", "minimum")
    return arithmetic if kind == "float" else bits if kind == "pred" else arithmetic + bits


@pytest.mark.parametrize(
    "dtype",
    [
        "pred",
        "s4",
        "s8",
        "s32",
        "s64",
        "u8",
        "u64",
        "f8e4m3fn",
        "f16",
        "bf16",
        "f32",
        "f64",
        "c64",
        "c128",
    ],
)
def test_every_reducer_of_every_type(dtype: str) -> None:
    ops = ops_of(dtype)
    rows = [f"{op} = {dtype}[3,5] all-reduce(x), to_apply={op}_, replica_groups={{}}" for op in ops]
    root = f"ROOT t = ({', '.join([f'{dtype}[3,5]'] * len(ops))}) tuple({', '.join(ops)})"
    text = module("\n".join([f"x = {dtype}[3,5] parameter(0)", *rows, root]), dtype, ops)
    kind, draw = to_numpy(BY_NAME[dtype]), np.random.default_rng(1)
    values = [draw.integers(0, 3, (3, 5)).astype(kind) for _ in range(3)]
    found = agreed(text, [[v] for v in values])
    for op, result in zip(ops, found[2], strict=True):  # small integers, exact in every type
        exact = [v.astype("c16" if kind.kind == "c" else "f8") for v in values]
        if op in ("and", "or", "xor"):
            exact = [v.astype("i8") for v in values]
        wanted = reduce(NUMPY[op], exact)
        wrapped = wanted.astype("i8").astype(kind) if kind.kind in "iu" else wanted.astype(kind)
        if dtype == "s4":
            wrapped = ((wanted.astype("i8") + 8) % 16 - 8).astype(kind)
        np.testing.assert_array_equal(result, wrapped)


def test_nan_and_infinity_reach_every_rank() -> None:
    ops = ("add", "maximum", "minimum")
    rows = [f"{op} = f32[4] all-reduce(x), to_apply={op}_, replica_groups={{}}" for op in ops]
    body = "\n".join(["x = f32[4] parameter(0)", *rows])
    body += f"\nROOT t = (f32[4], f32[4], f32[4]) tuple({', '.join(ops)})"
    inf, nan = np.inf, np.nan
    args = [[np.array(v, "f4")] for v in ([nan, inf, -inf, 1], [0, -inf, 2, 2], [1, 1, 1, nan])]
    for total, largest, least in agreed(module(body, ops=ops), args):
        np.testing.assert_array_equal(total, np.array([nan, nan, -inf, nan], "f4"))
        np.testing.assert_array_equal(largest, np.array([nan, inf, 2, nan], "f4"))
        np.testing.assert_array_equal(least, np.array([nan, -inf, -inf, nan], "f4"))


@pytest.mark.parametrize("size", [0, 1, 2, 7, DIRECT // 4, DIRECT // 4 + 1, 3 * DIRECT + 5])
def test_sums_of_any_size(size: int) -> None:
    """Small operands go to all ranks whole, others in pieces; ranks agree to the last bit."""
    body = f"x = f32[{size}] parameter(0)\n"
    body += f"ROOT y = f32[{size}] all-reduce(x), to_apply=add_, replica_groups={{}}"
    draw = np.random.default_rng(size)
    values = [draw.normal(size=size).astype("f4") for _ in range(3)]
    wanted = reduce(np.add, [v.astype("f8") for v in values]).astype("f4")
    for found in agreed(module(body), [[v] for v in values]):
        np.testing.assert_array_equal(found, wanted)


MOVES = [
    ("f32[9,4] all-gather(x), replica_groups={}, dimensions={0}", np.concatenate),
    (
        "f32[3,12] all-gather(x), replica_groups={}, dimensions={1}",
        lambda xs: np.concatenate(xs, axis=1),
    ),
]
X = [np.arange(12, dtype="f4").reshape(3, 4) + 100 * n for n in range(3)]


@pytest.mark.parametrize(("body", "meaning"), MOVES, ids=["rows", "columns"])
def test_all_gather(body: str, meaning: Any) -> None:
    text = module(f"x = f32[3,4] parameter(0)\nROOT y = {body}")
    for found in agreed(text, [[x] for x in X]):
        np.testing.assert_array_equal(found, meaning(X))


@pytest.mark.parametrize("dimension", [0, 1])
def test_reduce_scatter_and_all_to_all(dimension: int) -> None:
    dims = "1,6" if dimension == 0 else "3,2"
    where = f"replica_groups={{{{2,0,1}}}}, dimensions={{{dimension}}}"
    body = f"""x = f32[3,6] parameter(0)
s = f32[{dims}] reduce-scatter(x), to_apply=add_, {where}
a = f32[3,6] all-to-all(x), {where}
ROOT t = (f32[{dims}], f32[3,6]) tuple(s, a)"""
    xs = [np.arange(18, dtype="f4").reshape(3, 6) + 100 * n for n in range(3)]
    found = agreed(module(body), [[x] for x in xs])
    for place, rank in enumerate((2, 0, 1)):  # the order of the group
        total, turned = found[rank]
        np.testing.assert_array_equal(total, np.split(sum(xs), 3, dimension)[place])
        parts = [np.split(xs[r], 3, dimension)[place] for r in (2, 0, 1)]
        np.testing.assert_array_equal(turned, np.concatenate(parts, dimension))


def test_several_operands() -> None:
    body = """x = f32[3,4] parameter(0)
y = s32[2] parameter(1)
g = (f32[9,4], s32[6]) all-gather(x, y), replica_groups={}, dimensions={0}
h = f32[9,4] get-tuple-element(g), index=0
k = s32[6] get-tuple-element(g), index=1
n = f32[3,4] negate(x)
z = f32[3,4] multiply(x, x)
a = (f32[3,4], f32[3,4], f32[3,4]) all-to-all(x, n, z), replica_groups={}
b = f32[3,4] get-tuple-element(a), index=1
r = (f32[3,4], f32[3,4]) all-reduce(x, n), replica_groups={}, to_apply=add_
c = f32[3,4] get-tuple-element(r), index=1
ROOT t = (f32[9,4], s32[6], f32[3,4], f32[3,4]) tuple(h, k, b, c)"""
    ys = [np.array([n, -n], "i4") for n in range(3)]
    found = agreed(module(body), [[x, y] for x, y in zip(X, ys, strict=True)])
    for rank, (h, k, b, c) in enumerate(found):
        np.testing.assert_array_equal(h, np.concatenate(X))
        np.testing.assert_array_equal(k, np.concatenate(ys))
        np.testing.assert_array_equal(b, [X[1], -X[1], X[1] * X[1]][rank])
        np.testing.assert_array_equal(c, -sum(X))


def test_broadcasts_permutations_and_numbers() -> None:
    body = """x = f32[3,4] parameter(0)
b = f32[3,4] collective-broadcast(x), replica_groups={{2,0},{1}}
q = f32[3,4] collective-permute(x), source_target_pairs={{0,2},{1,1}}
n = u32[] replica-id()
ROOT t = (f32[3,4], f32[3,4], u32[]) tuple(b, q, n)"""
    found = agreed(module(body), [[x] for x in X])
    for rank, (b, q, n) in enumerate(found):
        np.testing.assert_array_equal(b, X[(2, 1, 2)[rank]])
        np.testing.assert_array_equal(q, (0 * X[0], X[1], X[0])[rank])
        assert n == rank and n.dtype == np.uint32


def test_a_reducer_of_ones_own_and_one_that_rounds() -> None:
    text = """HloModule m, replica_count=3
mean { a = f32[] parameter(0)
b = f32[] parameter(1)
h = f32[] constant(0.5)
s = f32[] add(a, b)
ROOT r = f32[] multiply(s, h) }
promoted { a = bf16[] parameter(0)
b = bf16[] parameter(1)
p = f32[] convert(a)
q = f32[] convert(b)
s = f32[] add(p, q)
ROOT r = bf16[] convert(s) }
ENTRY e { x = f32[3,4] parameter(0)
y = bf16[2] parameter(1)
m = f32[3,4] all-reduce(x), to_apply=mean, replica_groups={}
n = bf16[2] all-reduce(y), to_apply=promoted, replica_groups={}
ROOT t = (f32[3,4], bf16[2]) tuple(m, n) }"""
    kind = to_numpy(BY_NAME["bf16"])
    ys = [np.array(v, kind) for v in ([256, 1], [1, 1], [1, 1])]
    for mean, total in agreed(text, [[x, y] for x, y in zip(X, ys, strict=True)]):
        np.testing.assert_array_equal(mean, ((X[0] + X[1]) / 2 + X[2]) / 2)
        np.testing.assert_array_equal(total, np.array([258, 3], kind))  # rounded once


def test_collectives_in_loops_and_branches() -> None:
    by_device = "channel_id=1, replica_groups={{0,1,2}}, use_global_device_ids=true"
    text = """HloModule m, num_partitions=3
add_ { a = f32[] parameter(0)
b = f32[] parameter(1)
ROOT s = f32[] add(a, b) }
body { p = (s32[], f32[4]) parameter(0)
n = s32[] get-tuple-element(p), index=0
x = f32[4] get-tuple-element(p), index=1
one = s32[] constant(1)
m = s32[] add(n, one)
y = f32[4] all-reduce(x), BY_DEVICE, to_apply=add_
ROOT t = (s32[], f32[4]) tuple(m, y) }
more { p = (s32[], f32[4]) parameter(0)
n = s32[] get-tuple-element(p), index=0
k = s32[] constant(3)
ROOT c = pred[] compare(n, k), direction=LT }
ENTRY e { x = f32[4] parameter(0)
z = s32[] constant(0)
t = (s32[], f32[4]) tuple(z, x)
w = (s32[], f32[4]) while(t), condition=more, body=body
ROOT y = f32[4] get-tuple-element(w), index=1 }""".replace("BY_DEVICE", by_device)
    xs = [np.arange(4, dtype="f4") + n for n in range(3)]
    for found in agreed(text, [[x] for x in xs]):
        np.testing.assert_array_equal(found, 9 * sum(xs))


def test_the_oracle_of_all_devices_rounds_as_the_build_does() -> None:
    body = """x = bf16[64] parameter(0)
a = bf16[64] exponential(x)
b = bf16[64] multiply(a, x)
r = bf16[64] all-reduce(b), to_apply=add_, replica_groups={}
ROOT y = bf16[64] multiply(r, b)"""
    read = parse(module(body, "bf16"))
    draw = np.random.default_rng(0)
    args = [[draw.normal(size=64).astype(to_numpy(BY_NAME["bf16"]))] for _ in range(3)]
    wanted = on_devices(read, args)
    for got, want in zip(run_on_threads(build(read), args), wanted, strict=True):
        np.testing.assert_allclose(got.astype("f4"), want.astype("f4"), rtol=2**-7)
