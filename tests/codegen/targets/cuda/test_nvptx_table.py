"""Every operation of the element-wise table and every conversion, on every element type, as PTX.

NVIDIA's assembler takes them, and none needs a stack to speak of. What they compute is tested
on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nestwright.codegen.targets.cuda import nvptx, ptxas
from nestwright.codegen.targets.registry import emit
from nestwright.ir import dtypes
from nestwright.ir.dtypes import DType
from nestwright.ir.elementwise import TABLE
from nestwright.ir.formats import is_narrow
from nestwright.ir.loop.build import add, mul, op
from nestwright.ir.loop.nodes import (
    Buffer,
    Cast,
    Const,
    Expr,
    For,
    Func,
    Kind,
    Load,
    Seq,
    Stmt,
    Store,
    Var,
)
from nestwright.ir.target import Target

TYPES = (
    dtypes.pred,
    dtypes.s8,
    dtypes.s16,
    dtypes.s32,
    dtypes.s64,
    dtypes.u8,
    dtypes.u16,
    dtypes.u32,
    dtypes.u64,
    dtypes.f16,
    dtypes.bf16,
    dtypes.f32,
    dtypes.f64,
)
NARROW = tuple(d for d in dtypes.ALL if is_narrow(d))
KINDS = {"pred": "p", "signed": "s", "unsigned": "u", "float": "f"}
FLOATS = (dtypes.f16, dtypes.bf16, dtypes.f32, dtypes.f64)
COUNT = 1024
CALLS = 16  # bytes of stack that divisions of f64, which are calls, may cost the assembler


def launch(value: Callable[[list[Expr]], Expr], types: list[DType]) -> tuple[list[Buffer], Stmt]:
    """Four elements for each of the threads of a block, and the buffers that it takes."""
    t, v = Var("t"), Var("v")
    at = add(mul(t, 4), v)
    inputs = [Buffer(f"x{n}", (COUNT,), d) for n, d in enumerate(types)]
    result = value([Load(b, (at,)) for b in inputs])
    out = Buffer("out", (COUNT,), result.dtype)
    lanes = For(v, Const(4), Store(out, (at,), result), Kind.VECTOR)
    return [*inputs, out], For(t, Const(COUNT // 4), lanes, Kind.THREAD, "threadIdx.x")


def operations(dtype: DType) -> Func:
    parts = []
    for name, entry in TABLE.items():
        if KINDS[dtype.kind] in entry.kinds:
            types = [dtype] * entry.arity
            if name == "select":
                types[0] = dtypes.pred
            parts.append(launch(lambda xs, name=name: op(name, *xs), types))
    return function(parts)


def conversions(dtype: DType) -> Func:
    targets = (*TYPES, *NARROW)
    parts = [launch(lambda xs, d=d: Cast(xs[0], d), [dtype]) for d in targets]
    parts += [
        launch(lambda xs, d=d: Cast(xs[0], d, bits=True), [dtype])
        for d in targets
        if d.bits == dtype.bits and dtypes.pred not in (d, dtype)
    ]
    return function(parts)


def function(parts: list[tuple[list[Buffer], Stmt]]) -> Func:
    buffers = [b for some, _ in parts for b in some]
    return Func("kernel", tuple(buffers), 1, Seq(tuple(s for _, s in parts)))


CASES = [
    *((operations, d, "sm_80") for d in TYPES),
    *((conversions, d, "sm_80") for d in TYPES),
    *((conversions, dtypes.BY_NAME[name], "sm_80") for name in ("s4", "u2", "f8e4m3fn", "f8e3m4")),
    *((operations, d, "sm_90") for d in (dtypes.bf16, dtypes.f32)),
    *((operations, d, "sm_100") for d in FLOATS),
]


@pytest.mark.parametrize(("make", "dtype", "arch"), CASES)
def test_assembles(make: Callable[[DType], Func], dtype: DType, arch: str) -> None:
    target, func = Target.parse(f"cuda -arch={arch}"), make(dtype)
    ptx = nvptx.compile(emit(func, target), target)
    assert isinstance(func.body, Seq)
    assert ptx.count(".visible .entry") == len(func.body.stmts)
    assert ".local" not in ptx
    if dtype in (dtypes.f32, dtypes.s32):
        assert "ld.global.nc.v4" in ptx
    if ptxas.find() is None:
        pytest.skip("no ptxas on this machine")
    for name, usage in ptxas.assemble(ptx, arch).kernels.items():
        assert usage.stack <= CALLS, name
