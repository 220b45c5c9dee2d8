"""Complex numbers natively: every formula, on processors and simulated GPUs, as vectors, tuned."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import nestwright as nw
from nestwright.autotune.tasks.programs import Program
from nestwright.codegen.driver.stages import stage_text
from nestwright.ir.arrays import Array
from nestwright.ir.elementwise import TABLE
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.nodes import HloModule
from nestwright.ir.hlo.passes.complex.elements import FORMULAS
from nestwright.ir.hlo.text import parse

TYPES = {"c64": np.complex64, "c128": np.complex128}
REAL = {"c64": "f32", "c128": "f64"}
SIZE = 75  # whole vectors and a rest
LIMIT = {"c64": 4e-6, "c128": 1e-13}  # of a result's magnitude

PRODUCT = """HloModule product
ENTRY main {
  x = c64[8,64] parameter(0)
  y = c64[8,64] parameter(1)
  z = c64[8,64] multiply(x, y)
  ROOT w = c64[8,64] add(z, y)
}
"""


def everything(dtype: str, names: list[str]) -> HloModule:
    """A module that applies each operation to the same two arrays."""
    rows = [f"p{n} = {dtype}[{SIZE}] parameter({n})" for n in range(2)]
    for k, name in enumerate(names):
        to = REAL[dtype] if name == "abs" else dtype
        given = "p0, p1" if TABLE[name].arity == 2 else "p0"
        rows.append(f"r{k} = {to}[{SIZE}] {name}({given})")
    shapes = ", ".join(row.split()[2] for row in rows[2:])
    results = ", ".join(f"r{k}" for k in range(len(names)))
    rows.append(f"ROOT t = ({shapes}) tuple({results})")
    return parse("HloModule m\nENTRY e {\n  " + "\n  ".join(rows) + "\n}\n")


def drawn(dtype: str, seed: int, *dims: int) -> Array:
    rng = np.random.default_rng(seed)
    parts = rng.standard_normal((2, *dims)) * 1.5
    return np.asarray(parts[0] + 1j * parts[1]).astype(TYPES[dtype])


def check(module: HloModule, target: str, names: list[str], dtype: str) -> None:
    args = [drawn(dtype, 0, SIZE), drawn(dtype, 1, SIZE)]
    wanted = evaluate(module, args)
    found = nw.build(module, target=target)(*args)
    for name, a, b in zip(names, found, wanted, strict=True):
        assert a.dtype == b.dtype
        assert (np.abs(a - b) / np.abs(b)).max() < LIMIT[dtype] * (8 if name == "power" else 1), (
            name
        )


@pytest.mark.parametrize("dtype", TYPES)
def test_formulas_agree_with_the_interpreter(dtype: str) -> None:
    names = sorted({*FORMULAS, "abs"})
    check(everything(dtype, names), "cpu", names, dtype)


def test_formulas_on_a_simulated_gpu() -> None:
    names = ["divide", "log", "sqrt", "abs", "tanh"]
    check(everything("c64", names), "cuda-sim -arch=sm_80", names, "c64")


def test_parts_are_read_and_written_as_neighbors() -> None:
    text = stage_text(parse(PRODUCT), "cpu -threads=1", "llvm")
    assert "shufflevector" in text
    assert "gather" not in text and "scatter" not in text


@pytest.mark.parametrize(("size", "start"), [(33, 0), (33, 1), (34, 0), (34, 1), (65, 0)])
def test_every_second_element_and_no_more(size: int, start: int) -> None:
    count = (size - start + 1) // 2
    text = f"""HloModule m
ENTRY e {{
  x = f32[{size}] parameter(0)
  s = f32[{count}] slice(x), slice={{[{start}:{size}:2]}}
  ROOT r = f32[{count}] add(s, s)
}}
"""
    x = np.arange(size, dtype=np.float32)
    np.testing.assert_array_equal(nw.build(parse(text))(x), 2 * x[start::2])


def test_an_executable_takes_and_gives_complex_arrays(tmp_path: Path) -> None:
    exe = nw.build(parse(PRODUCT))
    x, y = drawn("c64", 2, 8, 64), drawn("c64", 3, 8, 64)
    exe.save(tmp_path / "product.nw")
    for program in (exe, nw.load(tmp_path / "product.nw")):
        found = program(x, y)
        assert found.dtype == np.complex64 and found.shape == (8, 64)
        np.testing.assert_allclose(found, x * y + y, rtol=1e-5, atol=1e-5)


def test_a_tuned_group_has_arguments_as_its_buffers_hold_them() -> None:
    text = """HloModule g
ENTRY g {
  x = c64[4] parameter(0)
  a = f32[4] real(x)
  b = f32[4] imag(x)
  n = f32[4] negate(b)
  ROOT z = c64[4] complex(a, n)
}
"""
    program = Program("hlo", text)
    (given,) = program.arguments(0)
    assert given.shape == program.inputs[0].shape == (4, 2) and given.dtype == np.float32
    (wanted,) = program.expect([given])
    np.testing.assert_array_equal(wanted, given * np.array([1, -1], np.float32))
