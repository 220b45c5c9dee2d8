"""Selections whose condition keeps an index within a buffer: what is beyond it is not read."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]

CHILD = """
import itertools
from ctypes import c_float
import numpy as np
from guarded_memory import Buffer
from nestwright.codegen.driver.kernel import compile_object
from nestwright.codegen.runtime.function import NativeFunc
from nestwright.ir.loop.parser import parse
from nestwright.ir.target import Target

TEXT = '''
@func(outputs=1)
def padded(A: f32[5, 14], P: f32[5, 32]):
    for i in range(5):
        for j in {kind}(32):
            P[i, j] = select({cond}, A[i, {at}], f32(0.0))
'''
FORMS = [
    ("j < 14", "j", np.s_[:14], np.s_[:]),
    ("j >= 18", "j - 18", np.s_[18:], np.s_[:]),
    ("j >= 18", "31 - j", np.s_[18:], np.s_[::-1]),
    ("i < 5 and j < 14", "13 - j", np.s_[:14], np.s_[::-1]),
    ("j < 7", "j * 2", np.s_[:7], np.s_[::2]),
    ("j < 5", "j * 3 + 1", np.s_[:5], np.s_[1::3]),
]
TARGETS = [t for t in map(Target.parse, ("cpu", "cpu -mcpu=x86-64")) if t.is_host]
for kind, (cond, at, there, of), target, side in itertools.product(
    ("range", "vectorize"), FORMS, TARGETS, ("end", "start")
):
    func = parse(TEXT.format(kind=kind, cond=cond, at=at))
    kernel = NativeFunc.load(compile_object(func, target))
    held, out = Buffer(5 * 14 * 4, side), np.full((5, 32), 7, np.float32)
    x = np.ctypeslib.as_array((c_float * 70).from_address(held.address)).reshape(5, 14)
    x[:] = np.arange(70).reshape(5, 14)
    bound, packed = kernel.bind([held.address, out.ctypes.data])
    kernel.entry(*bound)
    want = np.zeros((5, 32), np.float32)
    want[:, there] = x[:, of]
    assert np.array_equal(out, want), (kind, cond, at, str(target))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="guard pages are made as Linux makes them")
def test_what_is_not_chosen_is_not_read_beyond_a_buffer() -> None:
    """On either side of it, forwards and backwards, in lanes and one by one."""
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", CHILD],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
