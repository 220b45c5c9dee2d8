"""A saved model is loaded and run without LLVM: calls, threads, interrupts, forks, unloading."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import nestwright as nw
from nestwright.codegen.driver.artifact import load

MODEL = """HloModule layers
ENTRY main { x = f32[64,256] parameter(0)  w = f32[256,256] parameter(1)
  d = f32[64,256] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT y = f32[64,256] tanh(d) }
"""
LOOP = """HloModule loop
body { s = (s32[], f32[64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0  x = f32[64] get-tuple-element(s), index=1
  one = s32[] constant(1)  j = s32[] add(i, one)  y = f32[64] sine(x)
  ROOT t = (s32[], f32[64]) tuple(j, y) }
cond { s = (s32[], f32[64]) parameter(0)  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(2000000000)  ROOT c = pred[] compare(i, n), direction=LT }
ENTRY main { x = f32[64] parameter(0)  zero = s32[] constant(0)
  t = (s32[], f32[64]) tuple(zero, x)
  w = (s32[], f32[64]) while(t), condition=cond, body=body
  ROOT y = f32[64] get-tuple-element(w), index=1 }
"""
W = np.random.default_rng(0).standard_normal((256, 256), np.float32)
X = np.random.default_rng(1).standard_normal((64, 256), np.float32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built models, a result, and a module that no import of LLVM survives."""
    place = tmp_path_factory.mktemp("models")
    exe = nw.build(nw.parse(MODEL), constants={1: W}, cache=False)
    exe.save(place / "layers.nw")
    nw.build(nw.parse(LOOP), cache=False).save(place / "loop.nw")
    np.savez(place / "data.npz", x=X, y=exe(X))
    (place / "llvmlite.py").write_text("raise AssertionError('LLVM was imported')")
    return place


HEAD = """
import os, signal, sys, threading, time
import numpy as np
import nestwright as nw
data = np.load("data.npz")
exe = nw.load("layers.nw")
def right(): assert (exe(data["x"]) == data["y"]).all()
right()
"""
FORK = """
child = os.fork()
if child == 0:
    right()
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
right()
"""
INTERRUPT = """
loop = nw.load("loop.nw")
threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
began = time.perf_counter()
try:
    loop(np.ones(64, np.float32))
    sys.exit("not interrupted")
except KeyboardInterrupt:
    assert time.perf_counter() - began < 20
right()
"""
MASKED = """
import numpy.ma
try:
    exe(numpy.ma.masked_array(data["x"], mask=data["x"] > 0))
    sys.exit("the mask was lost")
except nw.ir.errors.ArgumentError:
    pass
class Derived(np.ndarray): pass
assert (exe(data["x"].view(Derived)) == data["y"]).all()
"""


@pytest.mark.parametrize("rest", ["", FORK, INTERRUPT, MASKED], ids=["call", "fork", "int", "mask"])
def test_a_saved_model_runs_without_llvm(folder: Path, rest: str) -> None:
    if rest == FORK and not hasattr(os, "fork"):
        pytest.skip("this system does not fork")
    tail = '\nassert not {"llvmlite", "ml_dtypes", "jinja2", "scipy"} & set(sys.modules)'
    done = subprocess.run(
        [sys.executable, "-c", HEAD + rest + tail * (rest == "")],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


def test_several_models_are_loaded_and_unloaded(folder: Path) -> None:
    models = [load(folder / "layers.nw") for _ in range(8)]
    wanted = models[0](X)
    found = list(models)

    def call(n: int) -> None:
        for _ in range(20):
            assert (models[n](X) == wanted).all()
        found[n] = models[n]

    threads = [threading.Thread(target=call, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    del models[4:]
    models += [models[0]] * 4
    for thread in threads:
        thread.join()
    maps = Path("/proc/self/maps")
    if maps.exists():
        del found[1:], models[1:]
        gc.collect()
        before = maps.read_text().count("layers.nw")
        assert (found[0](X) == wanted).all()
        assert before == 1  # the weights of the one that is left, mapped


def test_weights_are_mapped_and_not_written(folder: Path) -> None:
    exe = load(folder / "layers.nw")
    assert not exe.bundle.constants.flags.writeable
    assert exe.bundle.constants.ctypes.data % 4096 == 0
