"""What ``tests/guarded_memory.py`` finds: faults planted in the emitter, and no others.

A child process forks for each fault; the fork ends by a signal where an access is outside.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
OUTSIDE, WRITTEN, WELL = -signal.SIGSEGV, -signal.SIGABRT, 0
FAULTS = {
    ("nothing", "end"): WELL,
    ("nothing", "start"): WELL,
    ("a lane too many", "end"): OUTSIDE,
    ("a lane too many", "start"): WRITTEN,
    ("reads one behind", "end"): OUTSIDE,
    ("reads one before", "start"): OUTSIDE,
    ("writes one before", "end"): WRITTEN,
    ("writes one before", "start"): OUTSIDE,
    ("writes its input", "end"): OUTSIDE,
}
"""Fault and side of the guard pages, and how the process ends."""

CHILD = '''
import json, os, resource, sys
from dataclasses import replace

import ml_dtypes
import numpy as np

import guarded_memory
import nestwright as nw
from nestwright.codegen.emit import access as access
from nestwright.codegen.emit.llvm.builder import IRBuilder
from nestwright.codegen.emit.llvm.core import Function
from nestwright.codegen.emit.index import Indices
from nestwright.codegen.plan.nodes import KernelThunk, walk

TEXT = """
HloModule guarded

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

ENTRY main {
  x = f32[5,7] parameter(0)
  w = f32[5] constant({1, 2, 3, 4, 5})
  zero = f32[] constant(0)
  e = f32[5,7] exponential(x)
  s = f32[5] reduce(e, zero), dimensions={1}, to_apply=add
  t = f32[5] multiply(s, w)
  u = f32[5,7] broadcast(t), dimensions={0}
  v = f32[5,7] divide(e, u)
  ROOT r = bf16[5,7] convert(v)
}
"""
pointer, first_lanes = Indices.pointer, IRBuilder.first_lanes
store_element, load_element = access.store_element, access.load_element


def shift(by, storing):
    """Let loads, or stores, be of the element beside the right one."""
    inside = []

    def shifted(em, buffer, form):
        off = by if bool(inside) == storing else 0
        return pointer(em, buffer, replace(form, constant=form.constant + off))

    def store(em, buffer, at, value):
        inside.append(at)
        store_element(em, buffer, at, value)
        inside.pop()

    from nestwright.codegen.emit.statements import stmt, vector

    stmt.store_element = vector.store_element = store
    Indices.pointer = shifted


def plant(fault):
    if fault == "a lane too many":
        IRBuilder.first_lanes = lambda b, active, lanes: first_lanes(b, active + 1, lanes)
    elif fault == "reads one behind":
        shift(1, False)
    elif fault == "reads one before":
        shift(-1, False)
    elif fault == "writes one before":
        shift(-1, True)
    elif fault == "writes its input":
        text = Function.text

        def storing(function, attributes, linkage=""):
            function.prologue.append("  store volatile i8 0, ptr %p0")
            return text(function, attributes, linkage)

        Function.text = storing


def run(fault, side):
    guarded_memory.install(side)
    plant(fault)
    x = np.linspace(-1, 1, 35, dtype=np.float32).reshape(5, 7)
    exe = nw.build(nw.parse(TEXT), cache=False)
    got = exe(x)
    if fault == "nothing":
        e = np.exp(x)
        right = e / (e.sum(1, keepdims=True) * np.arange(1, 6, dtype=np.float32)[:, None])
        assert np.allclose(got.astype(np.float32), right, rtol=0.01)


resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
ends = []
for fault, side in json.loads(sys.argv[1]):
    sys.stderr.flush()
    child = os.fork()
    if not child:
        try:
            run(fault, side)
        except BaseException as e:
            print(fault, side, repr(e), file=sys.stderr)
            sys.stderr.flush()
            os._exit(3)
        os._exit(0)
    ends.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(json.dumps(ends))
'''


@pytest.mark.skipif(sys.platform != "linux", reason="guard pages are made as Linux makes them")
def test_an_access_one_element_outside_is_found_and_there_is_none() -> None:
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", CHILD, json.dumps(list(FAULTS))],
        env={**os.environ, "PYTHONPATH": path, "NESTWRIGHT_GUARD": ""},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    ends = dict(zip(FAULTS, json.loads(done.stdout), strict=True))
    assert ends == FAULTS, done.stderr
    assert "wrote outside of its buffer" in done.stderr
