"""Products on other processors than this one: older x86 in the process, AArch64 under QEMU."""

from __future__ import annotations

import math
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from nestwright.codegen.driver.build import PreparedModule, build
from nestwright.codegen.driver.compile_group import workspace_bytes
from nestwright.codegen.targets.cpu import toolchain
from nestwright.codegen.targets.registry import backend, lower
from nestwright.ir.arrays import Array
from nestwright.ir.comparison import compare
from nestwright.ir.dtypes import bf16, to_numpy
from nestwright.ir.hlo import parse
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.loop.nodes import Func
from nestwright.ir.target import Target
from nestwright.schedule.sketches.generate import default_schedule
from nestwright.te.from_hlo import lower_group

X86 = (
    *("nehalem", "haswell", "alderlake", "skylake-avx512", "cooperlake", "znver5"),
    *("sapphirerapids", "sapphirerapids -mattr=-avx512f", "haswell -mattr=+amx-bf16"),
)
VECTORS = ("nehalem", "haswell", "skylake-avx512", "sapphirerapids")
"""One of each width of vectors, and the one with tile registers."""
ARM = "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-v1 -threads=1"
ASSEMBLER, LINKER, EMULATOR = "aarch64-linux-gnu-as", "aarch64-linux-gnu-ld", "qemu-aarch64"
DOT = """HloModule product
ENTRY main {
  x = A[7,52] parameter(0)
  w = B[52,37] parameter(1)
  ROOT y = C[7,37] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
CONV = """HloModule window
ENTRY main {
  x = A[1,5,9,8] parameter(0)
  w = B[3,3,8,21] parameter(1)
  ROOT y = C[1,5,9,21] convolution(x, w), window={size=3x3 pad=1_1x1_1},
      dim_labels=b01f_01io->b01f
}
"""
TYPES = {
    "f32": (np.float32, np.float32, "f32"),
    "bf16": (to_numpy(bf16), to_numpy(bf16), "f32"),
    "f16": (np.float16, np.float16, "f16"),
    "s8": (np.int8, np.int8, "s32"),
    "u8": (np.uint8, np.int8, "s32"),
}
REST = ("f16", "s8")
CASES = [(DOT, name) for name in TYPES] + [(CONV, name) for name in TYPES]


def case(text: str, name: str) -> tuple[str, Array, Array]:
    """Return a program and its operands."""
    first, second, result = TYPES[name]
    for word, value in (("A[", name), ("B[", "s8" if name == "u8" else name), ("C[", result)):
        text = text.replace(f" {word}", f" {value}[")
    rng = np.random.default_rng(0)
    shapes = [p.array.dims for p in parse(text).entry.parameters]
    made = []
    for shape, dtype in zip(shapes, (first, second), strict=True):
        if np.issubdtype(dtype, np.integer):
            info = np.iinfo(dtype)
            made.append(rng.integers(info.min, info.max + 1, shape).astype(dtype))
        else:
            made.append(rng.standard_normal(shape).astype(dtype))
    return text, made[0], made[1]


@pytest.mark.parametrize(
    ("processor", "text", "name"),
    [
        *((processor, DOT, name) for processor in X86 for name in ("f32", "bf16", "u8")),
        *((processor, DOT, name) for processor in (*VECTORS, "cooperlake") for name in REST),
        *((processor, CONV, name) for processor in VECTORS for name in ("bf16", "s8")),
        *((processor, CONV, "f32") for processor in ("nehalem", "skylake-avx512")),
    ],
)
def test_code_for_another_x86_computes_the_same(processor: str, text: str, name: str) -> None:
    target = Target.parse(f"cpu -mcpu={processor} -threads=2")
    if not target.is_host:
        pytest.skip(f"this machine cannot run code for {processor}")
    text, x, w = case(text, name)
    found = build(parse(text), target.spec, constants={1: w})(x)
    assert compare(0, found, evaluate(parse(text), [x, w])).ok


@pytest.mark.parametrize(("text", "name"), CASES)
def test_code_for_aarch64_computes_the_same(text: str, name: str, tmp_path: Path) -> None:
    for tool in (ASSEMBLER, LINKER, EMULATOR):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    text, x, w = case(text, name)
    target = Target.parse(ARM)
    made = PreparedModule(parse(text), target, {1: w})
    values = {False: x, True: w}
    want = evaluate(parse(text), [x, w])
    groups = list(made.groups.distinct.values())
    (group,) = [g for g in groups if "dot" in g.name or "convolution" in g.name]
    func = default_schedule(lower_group(group.computation, "kernel"), target).func
    params = func.params[:-1]  # of another type where a group before this one converts
    inputs = [values[math.prod(p.shape) == w.size].astype(to_numpy(p.dtype)) for p in params]
    found = emulated(lower(func, target), inputs, want, target, tmp_path)
    assert compare(0, found, want).ok


def emulated(flat: Func, inputs: list[Array], like: Array, target: Target, folder: Path) -> Array:
    """Run a kernel in a process of its own that writes the result to its standard output."""
    kernel, start, linked = folder / "kernel.o", folder / "start.o", folder / "program"
    kernel.write_bytes(toolchain.compile(backend(target).emit(flat, target), target))
    source = program(flat, inputs, like.nbytes)
    subprocess.run([ASSEMBLER, "-o", start, "-"], input=source.encode(), check=True)
    subprocess.run([LINKER, "-static", "-o", linked, start, kernel], check=True)
    ran = subprocess.run([EMULATOR, "-cpu", "max", linked], check=True, capture_output=True)
    return np.frombuffer(ran.stdout, like.dtype).reshape(like.shape)


def program(flat: Func, inputs: list[Array], size: int) -> str:
    """Return a start in assembly that calls a kernel on constants and writes its result."""
    work = workspace_bytes(flat)
    names = [*(f"in{n}" for n in range(len(inputs))), "out", *(["work"] if work else [])]
    code = [".globl _start", "_start:"]
    for n, name in enumerate(names):
        code += [f"adrp x{n}, {name}", f"add x{n}, x{n}, :lo12:{name}"]
    code += [f"bl {flat.name}", "mov x0, 1", "adrp x1, out", "add x1, x1, :lo12:out"]
    code += [f"ldr x2, ={size}", "mov x8, 64", "svc 0", "mov x0, 0", "mov x8, 94", "svc 0"]
    data = [".data"]
    for n, x in enumerate(inputs):
        listed = ",".join(map(str, x.tobytes()))
        data += [".balign 64", f"in{n}: .byte {listed}"]
    data += [".bss", ".balign 64", f"out: .zero {size}", ".balign 64", f"work: .zero {work + 64}"]
    return "\n".join([".text", *code, *data, ""])
