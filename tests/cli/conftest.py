"""The command in this process, and the small models that these tests give it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from nestwright.autotune.api import tune
from nestwright.cli.main import main

SOFTMAX = """HloModule small

largest { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT m = f32[] maximum(a, b) }
total { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }

ENTRY main {
  x = f32[8,24] parameter(0)
  low = f32[] constant(-inf)
  top = f32[8] reduce(x, low), dimensions={1}, to_apply=largest
  tops = f32[8,24] broadcast(top), dimensions={0}
  shifted = f32[8,24] subtract(x, tops)
  e = f32[8,24] exponential(shifted)
  zero = f32[] constant(0)
  sum = f32[8] reduce(e, zero), dimensions={1}, to_apply=total
  sums = f32[8,24] broadcast(sum), dimensions={0}
  ROOT y = f32[8,24] divide(e, sums)
}
"""
DENSE = """HloModule dense

ENTRY main {
  x = f32[8,24] parameter(0)
  w = f32[24,16] parameter(1)
  d = f32[8,16] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT t = f32[8,16] tanh(d)
}
"""


@dataclass(frozen=True)
class Said:
    """What a command answered."""

    status: int
    out: str
    err: str


@pytest.fixture
def nestwright(capsys, tmp_path: Path, monkeypatch) -> Callable[..., Said]:
    """Runs a command line in this process, in a folder of its own."""
    monkeypatch.setenv("NESTWRIGHT_MEASURE_LOCK", str(tmp_path / "measure.lock"))
    monkeypatch.chdir(tmp_path)

    def run(*args: object) -> Said:
        capsys.readouterr()
        status = main([str(a) for a in args])
        captured = capsys.readouterr()
        return Said(status, captured.out, captured.err)

    return run


@pytest.fixture(scope="session")
def tuned(tmp_path_factory) -> Path:
    """A log of the dense model, six trials with one thread."""
    folder = tmp_path_factory.mktemp("tuned")
    (folder / "dense.hlo").write_text(DENSE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NESTWRIGHT_MEASURE_LOCK", str(folder / "lock"))
        tune(
            folder / "dense.hlo",
            target="cpu -threads=1",
            trials=6,
            log=folder / "l.jsonl",
            workers=1,
        )
    return folder / "l.jsonl"


@pytest.fixture
def softmax(tmp_path: Path) -> Path:
    path = tmp_path / "softmax.hlo"
    path.write_text(SOFTMAX)
    return path


@pytest.fixture
def dense(tmp_path: Path) -> Path:
    path = tmp_path / "dense.hlo"
    path.write_text(DENSE)
    return path
