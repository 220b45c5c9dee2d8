"""Kernels run on this machine, against the interpreter: accesses, loops, memory, arguments."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from nestwright.codegen.driver.kernel import compile_func, compile_object
from nestwright.codegen.runtime import jit
from nestwright.codegen.runtime.process import runtime
from nestwright.codegen.targets.cpu import toolchain as cpu
from nestwright.codegen.targets.registry import emit, lower
from nestwright.ir.dtypes import to_numpy
from nestwright.ir.errors import ArgumentError, TargetError, UnsupportedError, VerifyError
from nestwright.ir.loop.interp.evaluate import run
from nestwright.ir.loop.nodes import Buffer, Func
from nestwright.ir.loop.parser import parse
from nestwright.ir.target import Target

HOST = Target.parse("cpu")
ARM = Target.parse("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-v1")
AVX2 = Target.parse("llvm -mtriple=x86_64-linux-gnu -mcpu=haswell")
BASELINE = Target.parse("llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64")

COPY = "@func(outputs=1)\ndef f(A: f32[{n}], C: f32[{n}]):\n"

PROGRAMS = {
    "reversed": COPY.format(n=75) + "    for i in vectorize(75):\n        C[i] = A[74 - i]\n",
    "strided": """\
@func(outputs=1)
def f(A: f32[100], C: f32[33]):
    for i in vectorize(33):
        C[i] = A[i * 3 + 1]
""",
    "scattered": """\
@func(outputs=1)
def f(A: f32[33], C: f32[66]):
    for i in vectorize(33):
        C[i * 2] = A[i]
        C[i * 2 + 1] = -A[i]
""",
    "gathered": """\
@func(outputs=1)
def f(I: s32[40], A: f32[9], C: f32[40]):
    for i in vectorize(40):
        C[i] = A[clamp(0, cast(s64, I[i]), 8)]
""",
    "quotients": """\
@func(outputs=1)
def f(A: f32[7, 11], C: f32[11, 7]):
    for i in vectorize(77):
        C[i // 7, i % 7] = A[i % 7, i // 7]
""",
    "selected": """\
@func(outputs=1)
def f(A: f32[30], P: pred[30], C: f32[30]):
    for i in vectorize(30):
        if P[i]:
            C[i] = exp(A[i])
        else:
            C[i] = select(A[i] < f32(0.0), -A[i], f32(1.0))
""",
    "predicates": """\
@func(outputs=1)
def f(A: s8[50], P: pred[50], C: pred[50]):
    for i in vectorize(50):
        C[i] = bitand(A[i] < s8(3), P[i])
""",
    "uniform element": """\
@func(outputs=1)
def f(A: f32[40], B: f32[1], C: f32[1]):
    C[0] = B[0]
    for i in vectorize(40):
        if i < 25:
            C[0] = C[0] + A[i] * B[0]
""",
    "long reduction": """\
@func(outputs=1)
def f(A: s32[1000], C: s32[1]):
    C[0] = s32(0)
    for i in vectorize(1000):
        C[0] = C[0] + A[i]
""",
    "pair": """\
@func(outputs=2)
def f(A: f32[20], C: f32[1], D: s32[1]):
    C[0] = f32(-inf)
    D[0] = s32(0)
    for i in vectorize(20):
        if A[i] > C[0]:
            D[0] = cast(s32, i)
            C[0] = A[i]
""",
    "parallel": """\
@func(outputs=1)
def f(A: f32[12, 40], B: f32[40], C: f32[12, 40]):
    T = alloc(f32[40])
    for j in range(40):
        T[j] = B[j] * f32(2.0)
    x = let(f32, B[3])
    for i in parallel(12):
        for k in parallel(2):
            for j in vectorize(20):
                C[i, k * 20 + j] = A[i, k * 20 + j] * T[k * 20 + j] + x
""",
    "scratch": """\
@func(outputs=1)
def f(A: f32[6, 4000], C: f32[6, 4000]):
    T = alloc(f32[6, 4000])
    for i in parallel(6):
        for j in vectorize(4000):
            T[i, j] = A[i, j] + f32(1.0)
        for j in vectorize(4000):
            C[i, j] = T[i, 3999 - j]
""",
    "loop in lanes": """\
@func(outputs=1)
def f(A: f32[8, 30], C: f32[30]):
    for j in vectorize(30):
        C[j] = f32(0.0)
        for k in range(8):
            if k * 4 <= j:
                C[j] = C[j] + A[k, j]
""",
    "no iterations": """\
@func(outputs=1)
def f(N: s32[1], A: f32[8], C: f32[8]):
    for i in range(8):
        C[i] = f32(0.0)
        for k in range(clamp(0, cast(s64, N[0]), 8)):
            C[i] = C[i] + A[k]
""",
    "bf16 rounds": """\
@func(outputs=1)
def f(A: bf16[50], B: bf16[50], C: bf16[50]):
    for i in vectorize(50):
        C[i] = A[i] * B[i] + A[i]
""",
    "mixed widths": """\
@func(outputs=1)
def f(A: s8[70], B: f64[70], C: f32[70]):
    for i in vectorize(70):
        C[i] = cast(f32, cast(f64, A[i]) * B[i])
""",
}


def arguments(func: Func) -> list[Any]:
    rng = np.random.default_rng(1)

    def one(b: Buffer) -> Any:
        to = to_numpy(b.dtype)
        if b.dtype.kind == "pred":
            return rng.integers(0, 2, b.shape).astype(bool)
        if b.dtype.is_int:
            return rng.integers(-5, 10, b.shape).astype(to)
        return rng.standard_normal(b.shape).astype(to)

    return [one(b) for b in func.params[: len(func.params) - func.outputs]]


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    func = parse(PROGRAMS[name])
    args = arguments(func)
    want = run(func, args)
    got = compile_func(func, HOST)(*args)
    for x, y in zip(got if isinstance(got, tuple) else (got,), want, strict=True):
        assert x.shape == y.shape
        loose = 2e-2 if y.dtype.name == "bfloat16" else 1e-5
        np.testing.assert_allclose(x.astype(np.float64), y.astype(np.float64), rtol=loose)


@pytest.mark.parametrize(
    ("name", "target"),
    [(p, t) for n, p in enumerate(PROGRAMS) for t in (ARM, (AVX2, BASELINE)[n % 2])],
    ids=lambda x: x.spec if isinstance(x, Target) else str(x),
)
def test_program_compiles_for_another_machine(name: str, target: Target) -> None:
    text = emit(lower(parse(PROGRAMS[name]), target), target)
    assert cpu.compile(text, target)[:4] == b"\x7fELF"
    assert "avx512" not in text


MATMUL = """\
@func(outputs=1)
def mm(A: f32[64, 64], B: f32[64, 64], C: f32[64, 64]):
    T = alloc(f32[64, 64], scope="register")
    for i in range(8):
        for j in range(2):
            for ii in unroll(8):
                for jj in vectorize(32):
                    T[i * 8 + ii, j * 32 + jj] = f32(0.0)
            for k in range(64):
                for ii in unroll(8):
                    for jj in vectorize(32):
                        T[i * 8 + ii, j * 32 + jj] = (
                            T[i * 8 + ii, j * 32 + jj] + A[i * 8 + ii, k] * B[k, j * 32 + jj])
            for ii in unroll(8):
                for jj in vectorize(32):
                    C[i * 8 + ii, j * 32 + jj] = T[i * 8 + ii, j * 32 + jj]
"""


def test_accumulators_stay_in_registers() -> None:
    """In the innermost loop: one fma for each accumulator, loads only, and no stack."""
    target = Target.parse("llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512")
    text = cpu.assembly(emit(lower(parse(MATMUL), target), target), target)
    lines = text.splitlines()
    assert not any("%rsp)" in x and "zmm" in x for x in lines)
    first = next(n for n, x in enumerate(lines) if "vfmadd" in x)
    start = max(n for n, x in enumerate(lines[:first]) if x.startswith(".LBB"))
    end = next(n for n, x in enumerate(lines) if n > first and "\tj" in x)
    body = lines[start:end]
    assert sum("vfmadd" in x for x in body) == 16
    assert not any("vmov" in x and x.rstrip().endswith(")") for x in body)


def test_code_that_does_not_change_stands_before_the_loop() -> None:
    func = parse("""\
@func(outputs=1)
def f(A: f32[8], B: f32[8], C: f32[8]):
    for i in range(8):
        C[i] = A[3] * B[i]
""")
    text = emit(lower(func, HOST), HOST)
    load = next(x for x in text.splitlines() if "load float" in x)
    assert text.index(load) < text.index("loop1:")


def test_input_that_is_written_is_loaded_again() -> None:
    func = parse("""\
@func(outputs=1)
def f(A: f32[1], C: f32[2]):
    C[0] = A[0]
    C[1] = C[0] + f32(1.0)
    C[0] = C[1] + C[0]
""")
    np.testing.assert_array_equal(compile_func(func, HOST)(np.float32([2])), [5, 3])


def test_arguments_are_checked() -> None:
    kernel = compile_func(parse(PROGRAMS["reversed"]), HOST)
    x = np.arange(150, dtype=np.float32)
    np.testing.assert_array_equal(kernel(x[::2]), x[::2][::-1])
    with pytest.raises(ArgumentError, match="expected 1 argument, got 2"):
        kernel(x, x)
    with pytest.raises(ArgumentError, match=r"argument 0 \(A\): expected f32\[75\], got .*150"):
        kernel(x)
    with pytest.raises(ArgumentError, match=r"expected f32\[75\], got .*f64"):
        kernel(x[:75].astype(np.float64))
    with pytest.raises(ArgumentError, match="datetime64"):
        kernel(np.zeros(75, "datetime64[s]"))


def test_unaligned_arrays_are_legal() -> None:
    kernel = compile_func(parse(PROGRAMS["reversed"]), HOST)
    raw = np.zeros(75 * 4 + 4, np.uint8)
    x = raw[4:].view(np.float32)
    x[:] = np.arange(75)
    np.testing.assert_array_equal(kernel(x), x[::-1])


def test_other_machines_code_does_not_run_here() -> None:
    with pytest.raises(TargetError, match="cannot run on this machine"):
        compile_func(parse(PROGRAMS["reversed"]), ARM)


def test_refusals() -> None:
    func = parse(COPY.format(n=4) + '    for i in thread("threadIdx.x", 4):\n        C[i] = A[i]\n')
    with pytest.raises(UnsupportedError, match=r"threadIdx\.x"):
        compile_func(func, HOST)
    with pytest.raises(VerifyError, match="not well formed"):
        cpu.compile("define void @f() {\n ret i32 %x\n}", HOST)
    with pytest.raises(VerifyError, match="cannot be loaded"):
        jit.load([b"no object code"])
    with pytest.raises(TargetError, match="not a CPU"):
        cpu.compile("", Target.parse("cuda -arch=sm_90a"))


def test_loaded_code_knows_its_symbols() -> None:
    compiled = compile_object(parse(PROGRAMS["reversed"]), HOST)
    library = jit.load([compiled.code])
    assert library.address("f") > 0
    with pytest.raises(KeyError, match="absent"):
        library.address("absent")


def test_as_many_threads_as_the_target_says() -> None:
    func = parse(COPY.format(n=64) + "    for i in parallel(64):\n        C[i] = A[i]\n")
    count = ctypes.CFUNCTYPE(ctypes.c_int32)(runtime().addresses["nw_pool_threads"])
    for threads in (1, 2):
        kernel = compile_func(func, Target.parse(f"cpu -threads={threads}"))
        values = np.arange(64, dtype=np.float32)
        np.testing.assert_array_equal(kernel(values), values)
        assert count() == threads
