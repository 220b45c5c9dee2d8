"""C libraries of small models, and programs that C and C++ compilers make of them."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nestwright as nw
from nestwright.codegen.runtime.executable import Executable

WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")
NET = """HloModule net
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
ENTRY main {
  x = f32[33,70] parameter(0)
  w = f32[70,130] parameter(1)
  z = f32[33,130] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  y = f32[33,130] tanh(z)
  zero = f32[] constant(0)
  s = f32[33] reduce(y, zero), dimensions={1}, to_apply=add
  ROOT t = (f32[33,130], f32[33]) tuple(y, s)
}
"""
X = np.linspace(-1, 1, 33 * 70, dtype=np.float32).reshape(33, 70)
W = np.sin(np.arange(70 * 130, dtype=np.float32)).reshape(70, 130)


def need(*programs: str) -> None:
    """Skip the test where a program is not installed."""
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"there is no {program} here")


def run(*command: object, cwd: Path | None = None, status: int = 0) -> str:
    """Run a command; return what it printed. It must end with a status."""
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, cwd=cwd)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


@dataclass(frozen=True)
class Library:
    """A C library in a folder, and the executable that it was made of."""

    folder: Path
    name: str
    exe: Executable

    @property
    def weights(self) -> Path:
        """The file of weights."""
        return self.folder / "share" / self.name / f"{self.name}.weights"

    def program(
        self,
        source: Path,
        *others: Library,
        flags: Sequence[str] = (),
        compiler: str = "gcc",
        threads: bool = True,
    ) -> Path:
        """Compile a source with all warnings, link it with the library and others."""
        need(compiler)
        made = self.folder / f"program{len(list(self.folder.glob('program*')))}"
        all_ = (self, *others)
        standard = "-std=c++17" if source.suffix == ".cpp" else "-std=c99"
        run(
            compiler,
            *("-O1", "-g", standard, *WARNINGS, *flags, source, "-o", made),
            *(f"-I{one.folder / 'include'}" for one in all_),
            *(one.folder / "lib" / f"lib{one.name}.a" for one in all_),
            "-lm",
            *(["-pthread"] if threads else []),
        )
        return made


def built(
    name: str, target: str = "cpu -threads=2", values: np.ndarray[Any, Any] = W
) -> Executable:
    """A model of a product, with weights in it."""
    module = nw.parse(NET.replace("HloModule net", f"HloModule {name}"))
    return nw.build(module, target=target, constants={1: values})


def library(
    folder: Path, name: str = "net", target: str = "cpu -threads=2", **options: Any
) -> Library:
    """The model as a C library."""
    exe = built(name, target)
    exe.export_c(folder / name, name=name, **options)
    return Library(folder / name, name, exe)


def wanted(one: Library) -> list[np.ndarray[Any, Any]]:
    """What the executable gives in Python for the test's input."""
    found = one.exe(X)
    return list(found)


def ran(one: Library, program: Path, *options: object, before: Sequence[str] = ()) -> list[Any]:
    """Run an example program on the test's input; return its outputs."""
    out = one.folder / "out"
    out.mkdir(exist_ok=True)
    np.save(one.folder / "x.npy", X)
    run(*before, program, *options, "-o", out, one.folder / "x.npy")
    header = (one.folder / "include" / f"{one.name}.h").read_text()
    names = re.findall(r"_OUTPUT_(\w+)_BYTES", header)
    return [np.load(out / f"{n.lower()}.npy") for n in names]


def same(found: Sequence[Any], expected: Sequence[Any]) -> bool:
    """True if arrays are equal bit for bit."""
    pairs = zip(found, expected, strict=True)
    return all(a.shape == b.shape and a.tobytes() == b.tobytes() for a, b in pairs)
