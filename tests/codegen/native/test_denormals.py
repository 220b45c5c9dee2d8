"""Denormals that count as 0: what is computed, in whose mode, and what keeps the choice."""

from __future__ import annotations

import ctypes
import platform
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nestwright as nw
from nestwright.codegen.driver import build as driver
from nestwright.codegen.driver.build_key import build_key
from nestwright.codegen.driver.options import BuildOptions
from nestwright.codegen.driver.oracle import Oracle, reference
from nestwright.codegen.runtime.executable import Executable
from nestwright.codegen.targets.cpu.toolchain import compile as object_code
from nestwright.ir.arrays import Array
from nestwright.ir.errors import TargetError, UnsupportedError
from nestwright.ir.library.call import LibraryCall
from nestwright.ir.library.registry import register_custom_call, unregister_custom_call
from nestwright.ir.loop.parser import parse as parse_loops
from nestwright.ir.target import Target, keeping, with_arithmetic

pytestmark = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "aarch64") or platform.system() != "Linux",
    reason="reads the processor's mode as Linux has it on x86-64 and AArch64",
)
TYPES = {"f32": np.float32, "f64": np.float64, "bf16": ml_dtypes.bfloat16}
LEAST = {name: float(ml_dtypes.finfo(t).smallest_normal) for name, t in TYPES.items()}
HALF = """HloModule half
ENTRY main {{
  x = {t}[{n}] parameter(0)
  h = {t}[] constant(0.5)
  b = {t}[{n}] broadcast(h), dimensions={{}}
  ROOT y = {t}[{n}] multiply(x, b)
}}
"""


def mode() -> tuple[int, bool]:
    """The mode of this thread's arithmetic, without the marks of what has happened in it; and
    whether it flushes.
    """
    environment = (ctypes.c_char * 64)()
    ctypes.CDLL(None).fegetenv(environment)
    at = 28 if platform.machine() == "x86_64" else 0
    bits = int.from_bytes(environment[at : at + 4], "little") & ~0x3F
    return bits, not any((np.float32(1e-40) * np.float32(1)).tobytes())


@contextmanager
def flushing_caller() -> Iterator[None]:
    """A caller that flushes denormals itself."""
    fenv, before = ctypes.CDLL(None), (ctypes.c_char * 64)()
    fenv.fegetenv(before)
    inside = (ctypes.c_char * 64).from_buffer_copy(before)
    at, bits = (28, 0x8040) if platform.machine() == "x86_64" else (0, 1 << 24)
    now = int.from_bytes(before[at : at + 4], "little")
    inside[at : at + 4] = (now | bits).to_bytes(4, "little")
    fenv.fesetenv(inside)
    yield
    fenv.fesetenv(before)


def half(dtype: str = "f32", n: int = 37, **options: Any) -> Executable:
    return nw.build(nw.parse(HALF.format(t=dtype, n=n)), **options)


def numbers(dtype: str, n: int) -> Array:
    """Denormals, least normal numbers and others, of both signs, at all places of a vector."""
    least = LEAST[dtype]
    some = [least / 4, -least / 2, least, -1.5 * least, 2 * least, 1.0, -3.0, 0.0, -0.0]
    return np.resize(np.array(some), n).astype(TYPES[dtype])


def flushed(x: Array, dtype: str) -> Array:
    wide = x.astype(np.float64)
    return np.where(np.abs(wide) < LEAST[dtype], np.copysign(0.0, wide), wide).astype(x.dtype)


def same(a: Any, b: Any) -> bool:
    """The same bits: zeros have signs."""
    a, b = np.asarray(a), np.asarray(b)
    return a.dtype == b.dtype and a.tobytes() == b.tobytes()


@pytest.fixture(autouse=True)
def kept() -> Iterator[None]:
    """No test leaves this thread in another mode."""
    before = mode()
    yield
    assert mode() == before
    unregister_custom_call("see")


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("n", "threads"), [(1, 1), (37, 1), (1 << 18, 1), (1 << 20, 2)])
def test_operands_and_results_count_as_zero(dtype: str, n: int, threads: int) -> None:
    target, x = f"cpu -threads={threads}", numbers(dtype, n)
    both = {d: half(dtype, n, target=target, denormals=d)(x) for d in ("keep", "flush")}
    halves = (x.astype(np.float64) / 2).astype(x.dtype)
    assert same(both["keep"], halves)
    assert same(both["flush"], flushed(halves, dtype)) and not same(halves, both["flush"])


def test_denormals_of_f16_are_kept() -> None:
    """They are normal numbers of f32, in which they are computed."""
    x = np.arange(1 << 11, dtype=np.uint16).view(np.float16)
    assert same(half("f16", x.size, denormals="flush")(x), x / np.float16(2))


def test_the_default_is_the_code_that_it_was() -> None:
    plain = nw.lower(nw.parse(HALF.format(t="f32", n=1 << 20)), target="cpu -threads=2")
    text = plain.as_text("llvm")
    assert not any(word in text for word in ("denormal", "csr", "flush", "caller"))
    kernels = [half(n=9, **o).bundle.kernels for o in ({}, {"denormals": "keep"})]
    assert kernels[0] == kernels[1] != half(n=9, denormals="flush").bundle.kernels


MOVES = """HloModule moves
ENTRY main {
  x = f32[37] parameter(0)
  zero = f32[] constant(0)
  z = f32[37] broadcast(zero), dimensions={}
  copied = f32[37] reverse(x), dimensions={0}
  negated = f32[37] negate(x)
  size = f32[37] abs(x)
  bits = s32[37] bitcast-convert(x)
  equal = pred[37] compare(x, z), direction=EQ
  below = pred[37] compare(x, z), direction=LT
  chosen = f32[37] select(below, z, x)
  most = f32[37] maximum(x, z)
  whole = f32[37] floor(x)
  wide = f64[37] convert(x)
  ROOT t = (f32[37], f32[37], f32[37], s32[37], pred[37], pred[37], f32[37], f32[37], f32[37],
    f64[37]) tuple(copied, negated, size, bits, equal, below, chosen, most, whole, wide)
}
"""


def test_what_moves_bits_keeps_them_and_what_computes_does_not() -> None:
    """As docs/decisions/denormals.md promises."""
    x = numbers("f32", 37)
    zeros = flushed(x, "f32")
    exe = nw.build(nw.parse(MOVES), denormals="flush")
    copied, negated, size, bits, equal, below, chosen, most, whole, wide = exe(x)
    assert same(copied, x[::-1]) and same(negated, -x) and same(size, np.abs(x))
    assert same(bits, x.view(np.int32))
    assert same(equal, zeros == 0) and same(below, zeros < 0)
    assert same(chosen, np.where(zeros < 0, np.float32(0), x))
    assert np.array_equal(flushed(most, "f32"), np.maximum(zeros, 0))
    assert same(whole, np.floor(zeros)) and same(wide, zeros.astype(np.float64))


CHAIN = """HloModule chain
ENTRY main {
  a = f32[4] constant({1e-30, 2e-30, 3e-30, 4e-30})
  s = f32[] constant(1e-10)
  b = f32[4] broadcast(s), dimensions={}
  c = f32[4] multiply(a, b)
  g = f32[] constant(1e10)
  h = f32[4] broadcast(g), dimensions={}
  d = f32[4] multiply(c, h)
  t = f32[] constant(1e-30)
  u = f32[] multiply(t, s)
  v = f32[] multiply(u, g)
  w = f32[4] broadcast(v), dimensions={}
  x = f32[4] parameter(0)
  y = f32[4] add(x, d)
  ROOT z = f32[4] add(y, w)
}
"""


def test_constants_are_folded_in_the_same_arithmetic() -> None:
    x, module = np.zeros(4, np.float32), nw.parse(CHAIN)
    found = {d: nw.build(module, denormals=d)(x) for d in ("keep", "flush")}
    np.testing.assert_allclose(found["keep"], [2e-30, 3e-30, 4e-30, 5e-30], rtol=1e-5)
    assert same(found["flush"], x)
    target = Target.parse("cpu -denormals=flush")
    assert same(reference(module, [x], target), found["flush"])
    assert all(r.ok for r in Oracle.of(module, [x], target).judge(found["flush"]))
    assert not all(r.ok for r in Oracle.of(module, [x]).judge(found["flush"]))


SEEN = """HloModule seen
ENTRY main {
  x = f32[37] parameter(0)
  y = f32[37] add(x, x)
  z = f32[37] custom-call(y), custom_call_target="see"
  ROOT r = f32[37] add(z, z)
}
"""


def test_functions_of_the_host_run_in_the_callers_mode() -> None:
    modes: list[tuple[int, bool]] = []

    def see(call: LibraryCall, y: Array) -> Array:
        modes.append(mode())
        return y + np.float32(1e-40)

    register_custom_call("see", see)
    exe = nw.build(nw.parse(SEEN), denormals="flush")
    x = np.full(37, 1e-40, np.float32)
    assert same(exe(x), np.zeros(37, np.float32))
    with flushing_caller():
        inside = mode()
        exe(x)
        assert mode() == inside
    assert modes == [mode(), inside] and modes[0] != inside


def test_an_exception_on_the_way_leaves_the_mode_alone() -> None:
    def see(call: LibraryCall, y: Array) -> Array:
        raise ZeroDivisionError("as it was raised")

    register_custom_call("see", see)
    exe = nw.build(nw.parse(SEEN), denormals="flush")
    before = mode()
    with pytest.raises(ZeroDivisionError, match="as it was raised"):
        exe(np.ones(37, np.float32))
    assert mode() == before


LONG = """HloModule long
ENTRY main {
  x = f32[2048,2048] parameter(0)
  ROOT y = f32[2048,2048] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_a_signals_handler_inside_a_kernel_has_the_callers_mode(threads: int) -> None:
    """It ends the call, or else would have run after it."""
    modes: list[tuple[int, bool]] = []

    def left(number: int, frame: object) -> None:
        modes.append(mode())
        raise InterruptedError("the handler was here")

    exe = nw.build(nw.parse(LONG), f"cpu -threads={threads}", denormals="flush")
    x = np.ones((2048, 2048), np.float32)
    before, former = mode(), signal.signal(signal.SIGALRM, left)
    try:
        with pytest.raises(InterruptedError):
            signal.setitimer(signal.ITIMER_REAL, 0.01)
            for _ in range(1000):
                exe(x)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)
    assert modes == [before] == [mode()]


def test_executables_of_both_kinds_share_threads() -> None:
    n = 1 << 18
    x = numbers("f32", n)
    wanted = {"keep": x / 2, "flush": flushed(x / 2, "f32")}
    made = {d: half(n=n, target="cpu -threads=2", denormals=d) for d in wanted}
    for _ in range(5):
        assert all(same(exe(x), wanted[d]) for d, exe in made.items())
    wrong: list[str] = []

    def repeat(d: str) -> None:
        wrong.extend(d for _ in range(40) if not same(made[d](x), wanted[d]))

    threads = [threading.Thread(target=repeat, args=(d,)) for d in ("keep", "flush") * 2]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []


BORN = """
import numpy as np
import nestwright as nw
module = nw.parse(HALF)
x = np.full(1 << 20, 1e-40, np.float32)
for denormals, kept in (("flush", False), ("keep", True)) * 2:
    y = nw.build(module, "cpu -threads=2", denormals=denormals)(x).view(np.uint32)
    assert (y != 0).all() if kept else (y == 0).all(), denormals
"""


def test_threads_that_begin_in_such_a_call_are_like_others() -> None:
    """A thread begins in the mode of the one that creates it."""
    script = BORN.replace("HALF", repr(HALF.format(t="f32", n=1 << 20)))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_saved_executable_keeps_the_choice(tmp_path: Path) -> None:
    x = numbers("f32", 37)
    half(denormals="flush").save(tmp_path / "half.nw")
    loaded = nw.load(tmp_path / "half.nw")
    assert loaded.bundle.target.flushes and same(loaded(x), flushed(x / 2, "f32"))


def test_it_is_a_part_of_the_key_of_a_build() -> None:
    keys = [
        build_key(b"", BuildOptions.given("cpu", denormals=d), {}, None) for d in (None, "flush")
    ]
    assert [c.field for c in keys[1].changes_from(keys[0])] == ["target's spec", "target's flushes"]


def test_groups_that_the_interpreter_runs_flush_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(jobs: Any, *args: Any) -> Any:
        return {}, dict.fromkeys(jobs, UnsupportedError("nothing today"))

    monkeypatch.setattr(driver, "compile_all", refusing)
    monkeypatch.setenv("NESTWRIGHT_CACHE", "off")
    x = numbers("f32", 37)
    exe = half(denormals="flush", fallback="interpreter")
    assert exe.fallbacks() and same(exe(x), flushed(x / 2, "f32"))


HALVE = """@func(outputs=1)
def halve(X: f32[37], Y: f32[37]):
    for i in range(37):
        with block("Y"):
            vi = spatial(37, i)
            reads(X[vi])
            writes(Y[vi])
            Y[vi] = X[vi] * f32(0.5)
"""


def test_a_function_of_the_dsl_flushes_as_well() -> None:
    x = numbers("f32", 37)
    assert same(nw.build(parse_loops(HALVE), denormals="flush")(x), flushed(x / 2, "f32"))
    assert same(nw.build(parse_loops(HALVE))(x), x / 2)


def test_aarch64_has_a_mode_of_its_own() -> None:
    spec = "llvm -mtriple=aarch64-linux-gnu -denormals=flush"
    lowered = nw.lower(nw.parse(HALF.format(t="f32", n=1 << 20)), target=spec + " -threads=2")
    text = lowered.as_text("llvm")
    assert "@llvm.aarch64.set.fpcr" in text and "csr" not in text
    assert object_code(text[text.index("target triple") :], lowered.target)


def test_gpus_flush_f32_and_keep_f64() -> None:
    for dtype, product in (("f32", "mul.ftz.f32"), ("f64", "mul.f64")):
        module = nw.parse(HALF.format(t=dtype, n=999))
        text = nw.lower(module, target="cuda -arch=sm_90", denormals="flush").as_text("ptx")
        assert product in text.replace(".rn", "")
        assert "ftz" not in nw.lower(module, target="cuda -arch=sm_90").as_text("ptx")


@pytest.mark.parametrize(
    ("target", "denormals", "told"),
    [
        ("cpu", "flash", "denormals=flash: it is keep or flush"),
        ("cpu", "", "denormals=: it is keep or flush"),
        ("cpu", True, "denormals=True: it is keep or flush"),
        ("cpu -denormals=0", None, "-denormals=0: it is keep or flush"),
        ("llvm -mtriple=riscv64-linux-gnu", "flush", "riscv64 processors always keep denormals"),
        ("cuda-sim -arch=sm_80", "flush", "a simulated GPU keeps denormals"),
    ],
)
def test_what_cannot_be_is_refused(target: str, denormals: Any, told: str) -> None:
    with pytest.raises(TargetError, match=told) as caught:
        half(target=target, denormals=denormals)
    assert "\n" not in str(caught.value)


def test_the_argument_and_the_targets_option_are_one() -> None:
    plain = Target.parse("cpu -threads=2")
    asked = with_arithmetic(plain, denormals="flush")
    assert asked == Target.parse("cpu -threads=2 -denormals=flush") and asked.key == plain.key
    assert with_arithmetic(asked, denormals="flush") is asked
    assert with_arithmetic(plain, denormals="keep") is plain and keeping(asked) == plain
