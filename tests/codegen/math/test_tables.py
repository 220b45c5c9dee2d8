"""Tables in registers: every width looks up the same numbers, on machines of either size."""

from __future__ import annotations

import numpy as np
import pytest

from nestwright.codegen.driver.kernel import compile_func
from nestwright.codegen.emit.llvm.builder import IRBuilder
from nestwright.codegen.emit.llvm.tables import look_up, table_entries
from nestwright.ir.arrays import Array
from nestwright.ir.dtypes import f32, s32
from nestwright.ir.loop.build import op
from nestwright.ir.loop.nodes import Buffer, Const, For, Func, Kind, Load, Store, Var
from nestwright.ir.target import Target

HOST = Target.parse("cpu")
X86 = "llvm -mtriple=x86_64-linux-gnu"


def erf_of(x: Array, kind: Kind, target: Target) -> Array:
    n = len(x)
    source, out, i = Buffer("x", (n,), f32), Buffer("out", (n,), f32), Var("i")
    body = For(i, Const(n), Store(out, (i,), op("erf", Load(source, (i,)))), kind)
    return np.asarray(compile_func(Func("k", (source, out), 1, body), target)(x))


@pytest.mark.parametrize("spec", ["cpu", "cpu -mcpu=haswell"])
@pytest.mark.parametrize("lanes", [2, 3, 7, 8, 11, 16, 17, 31, 40])
def test_vectors_and_single_numbers_agree(lanes: int, spec: str) -> None:
    if HOST.machine != "x86_64" or not Target.parse(spec).is_host:
        pytest.skip("this machine lacks AVX2")
    x = np.random.default_rng(lanes).uniform(-5, 5, lanes).astype(np.float32)
    x[0], x[-1] = -0.0, np.nan
    vector, single = (erf_of(x, kind, Target.parse(spec)) for kind in (Kind.VECTOR, Kind.SERIAL))
    np.testing.assert_array_equal(vector.view(np.int32), single.view(np.int32))


@pytest.mark.parametrize(
    ("spec", "entries"),
    [
        (f"{X86} -mcpu=znver4", 16),
        (f"{X86} -mcpu=haswell", 8),
        (f"{X86} -mcpu=nehalem", 0),
        ("llvm -mtriple=aarch64-linux-gnu", 0),
    ],
)
def test_a_table_fills_a_register(spec: str, entries: int) -> None:
    assert table_entries(IRBuilder(Target.parse(spec))) == entries


def test_a_known_index_is_looked_up_at_once() -> None:
    b = IRBuilder(Target.parse(f"{X86} -mcpu=haswell"))
    table = [k / 8 for k in range(8)]
    assert look_up(b, table, b.const(8 + 3, s32, 4)).literal == 3 / 8
