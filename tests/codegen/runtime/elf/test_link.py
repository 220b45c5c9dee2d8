"""Objects are linked and run on both processors; damaged ones are refused, whatever the damage.

``NESTWRIGHT_MUTANTS`` says how many (2000), ``NESTWRIGHT_SEED`` which ones.
"""

from __future__ import annotations

import ctypes
import gc
import math
import os
import platform
import shutil
import struct
import subprocess
from pathlib import Path
from random import Random

import pytest

from nestwright.codegen.runtime import jit
from nestwright.codegen.runtime.elf.link import PAGE, Image, link
from nestwright.codegen.targets.cpu import toolchain as cpu
from nestwright.ir.errors import VerifyError
from nestwright.ir.target import HERE, Target

MUTANTS = int(os.environ.get("NESTWRIGHT_MUTANTS", "2000"))
SEED = int(os.environ.get("NESTWRIGHT_SEED", "0"))
ARM = "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72"
CALLER = """
declare i64 @add(i64, i64)
declare double @cos(double)
declare i64 @given(i64)
@counter = global i64 40, align 64
@zeros = internal global [1000 x i64] zeroinitializer, align 4096
@table = constant [2 x ptr] [ptr @one, ptr @two]
@floats = internal constant [4 x double] [double 1.5, double 2.5, double 3.5, double 4.5]

define i64 @one(i64 %x) { ret i64 1 }
define i64 @two(i64 %x) { ret i64 2 }

define i64 @count(i64 %n) {
  %old = load i64, ptr @counter
  %new = call i64 @add(i64 %old, i64 %n)
  store i64 %new, ptr @counter
  %place = getelementptr [1000 x i64], ptr @zeros, i64 0, i64 999
  %zero = load i64, ptr %place
  %sum = add i64 %new, %zero
  ret i64 %sum
}

define i64 @choose(i64 %n) {
  %place = getelementptr [2 x ptr], ptr @table, i64 0, i64 %n
  %function = load ptr, ptr %place
  %got = call i64 %function(i64 %n)
  ret i64 %got
}

define double @float(i64 %n) {
  %place = getelementptr [4 x double], ptr @floats, i64 0, i64 %n
  %value = load double, ptr %place
  ret double %value
}

define double @cosine(double %x) {
  %y = call double @cos(double %x)
  ret double %y
}

define i64 @ask(i64 %n) {
  %y = call i64 @given(i64 %n)
  ret i64 %y
}

define ptr @which() { ret ptr @given }
"""
ADDER = """
define i64 @add(i64 %a, i64 %b) {
  %c = add i64 %a, %b
  ret i64 %c
}
"""
INTEGER = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)


@INTEGER
def given(n: int) -> int:
    return 7 * n


ADDRESS = ctypes.cast(given, ctypes.c_void_p).value or 0


def objects(spec: str = HERE) -> list[bytes]:
    return [cpu.compile(text, Target.parse(spec)) for text in (CALLER, ADDER)]


def loaded() -> jit.JitLibrary:
    return jit.load(objects(), {"given": ADDRESS})


def test_code_data_and_calls_are_linked() -> None:
    library = loaded()
    count, choose, ask = (INTEGER(library.address(name)) for name in ("count", "choose", "ask"))
    assert [count(2), count(5)] == [42, 47]
    assert [choose(0), choose(1)] == [1, 2]
    assert ask(6) == 42
    number = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_int64)(library.address("float"))
    assert [number(n) for n in range(4)] == [1.5, 2.5, 3.5, 4.5]
    cosine = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(library.address("cosine"))
    assert cosine(1.0) == math.cos(1.0)
    assert ctypes.CFUNCTYPE(ctypes.c_uint64)(library.address("which"))() == ADDRESS
    with pytest.raises(KeyError, match="nothing"):
        library.address("nothing")


def test_each_copy_has_its_own_data() -> None:
    first, second = loaded(), loaded()
    assert INTEGER(first.address("count"))(2) == 42
    assert INTEGER(second.address("count"))(1) == 41


def rights(address: int) -> str:
    """What may be done with a page of this process; "" if there is none."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, found = line.split()[:2]
        begin, end = (int(x, 16) for x in span.split("-"))
        if begin <= address < end:
            return found
    return ""


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")
def test_no_page_is_writable_and_executable_and_memory_is_given_back() -> None:
    library = loaded()
    code, data = library.address("count"), library.address("counter")
    assert (rights(code), rights(data)) == ("r-xp", "rw-p")
    del library
    gc.collect()
    assert "x" not in rights(code)


@pytest.mark.parametrize(
    ("codes", "symbols", "why"),
    [
        ((0, 1, 1), {"given": 1}, "add is defined twice"),
        ((0, 1), {}, "it calls given, which neither"),
    ],
)
def test_what_does_not_fit_is_refused(
    codes: tuple[int, ...], symbols: dict[str, int], why: str
) -> None:
    made = objects()
    with pytest.raises(VerifyError, match=why):
        jit.load([made[n] for n in codes], symbols)


def test_other_processors_are_refused() -> None:
    other = ARM if platform.machine() == "x86_64" else "llvm -mtriple=x86_64-linux-gnu"
    with pytest.raises(VerifyError, match="it is code for"):
        jit.load(objects(other))
    with pytest.raises(VerifyError, match="objects for aarch64, x86_64"):
        jit.load([objects(ARM)[0], objects("llvm -mtriple=x86_64-linux-gnu")[1]])


@pytest.mark.parametrize("spec", [ARM, "llvm -mtriple=x86_64-linux-gnu"])
def test_damaged_objects_are_refused(spec: str) -> None:
    """Or linked, where the damage is in bytes that mean nothing to the linker."""
    r, (good, adder) = Random(SEED), objects(spec)
    refused = 0
    for _ in range(MUTANTS // 2):
        data = bytearray(good)
        for _ in range(r.choice((1, 1, 2, 5))):
            at = r.randrange(len(data))
            match r.randrange(4):
                case 0:
                    data[at] ^= 1 << r.randrange(8)
                case 1:
                    word = r.choice((0, 1, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 40, (1 << 64) - 1))
                    data[at : at + 8] = word.to_bytes(8, "little")
                case 2:
                    del data[at : at + r.choice((1, 8, 64))]
                case _:
                    del data[max(64, at) :]
        try:
            made = link([bytes(data), adder])
            assert len(made.data) <= made.size <= 1 << 28
        except VerifyError:
            refused += 1
    assert refused > MUTANTS // 20


START = """
declare i64 @count(i64)
declare i64 @choose(i64)
declare i64 @ask(i64)
declare double @float(i64)

@leave = constant [2 x i32] [i32 3531606952, i32 3556769793], section ".text", align 4
; mov x8, 93 (exit); svc 0

define void @_start() {
  %a = call i64 @count(i64 2)
  %b = call i64 @choose(i64 1)
  %c = call i64 @ask(i64 3)
  %d = call double @float(i64 3)
  %e = fptosi double %d to i64
  %ab = add i64 %a, %b
  %cd = add i64 %c, %e
  %all = add i64 %ab, %cd
  call void @leave(i64 %all)
  ret void
}
define i64 @triple(i64 %x) {
  %y = mul i64 %x, 3
  ret i64 %y
}
"""
BASE = 0x400000


def program(image: Image) -> bytes:
    """An executable file of an image at ``BASE``: two segments, without libraries."""
    data = bytearray(image.data)
    for at in image.relative:
        (offset,) = struct.unpack_from("<q", data, at)
        struct.pack_into("<q", data, at, BASE + offset)
    for name, at in image.imports.items():
        struct.pack_into("<q", data, at, BASE + image.symbols["triple"] if name == "given" else 0)
    start, split = BASE + image.symbols["_start"], image.writable
    head = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 2, 183, 1, start, 64, 0, 0, 64, 56, 2, 0, 0, 0
    )
    rest = len(data) - split
    head += struct.pack("<IIQQQQQQ", 1, 5, PAGE, BASE, BASE, split, split, PAGE)
    head += struct.pack(
        "<IIQQQQQQ", 1, 6, PAGE + split, BASE + split, 0, rest, image.size - split, PAGE
    )
    return head.ljust(PAGE, b"\0") + bytes(data)


@pytest.mark.skipif(not shutil.which("qemu-aarch64"), reason="needs qemu-user")
def test_aarch64_code_runs(tmp_path: Path) -> None:
    started = cpu.compile(START, Target.parse(ARM))
    file = tmp_path / "program"
    file.write_bytes(program(link([*objects(ARM), started])))
    file.chmod(0o755)
    done = subprocess.run(["qemu-aarch64", str(file)], capture_output=True, timeout=60)
    assert done.returncode == 42 + 2 + 9 + 4, done.stderr
