"""Code with tile registers in fresh processes: each asks for them, and one is refused.

Linux refuses them to a process with a stack for signals that is too small for them; so a process
can have the refusal of an older system.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import nestwright as nw
from nestwright.ir.targets.processor import REFUSED, features_here, tiles_refused

pytestmark = pytest.mark.skipif(
    "amx_tile" not in features_here() or tiles_refused(), reason="this machine lacks AMX"
)
MODEL = """HloModule product
ENTRY main { x = bf16[40,96] parameter(0)
  w = bf16[96,72] parameter(1)
  ROOT y = f32[40,72] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0} }
"""
RAPIDS = "cpu -mcpu=sapphirerapids -threads=2"
SEVERAL = "cpu -mcpu=x86-64-v3,sapphirerapids -threads=2"
SMALL_STACK = """
import ctypes
class Stack(ctypes.Structure):
    _fields_ = [("at", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t)]
memory = ctypes.create_string_buffer(8192)
stack = Stack(ctypes.addressof(memory), 0, len(memory))
assert ctypes.CDLL(None).sigaltstack(ctypes.byref(stack), None) == 0
"""
RUN = """
import sys
import numpy as np, ml_dtypes
import nestwright as nw
def product(exe):
    x = np.load(sys.argv[1] + "/x.npy").view(ml_dtypes.bfloat16)
    got = exe(x)
    assert np.allclose(got, np.load(sys.argv[1] + "/y.npy"), rtol=1e-3, atol=1e-3)
    return exe.bundle.target
"""
LOADED = f"""{RUN}
target = product(nw.load(sys.argv[1] + "/m.nw"))
print(target.cpu, "amx-tile" in target.features)
"""


@pytest.fixture(scope="module")
def arrays() -> tuple[np.ndarray, np.ndarray]:
    """The operands."""
    r = np.random.default_rng(0)
    x, w = r.standard_normal((40, 96)), r.standard_normal((96, 72))
    return x.astype(ml_dtypes.bfloat16), w.astype(ml_dtypes.bfloat16)


@pytest.fixture
def folder(arrays: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> Path:
    """A folder with the input, and the product as NumPy has it."""
    x, w = arrays
    np.save(tmp_path / "x.npy", x.view(np.uint16))
    np.save(tmp_path / "w.npy", w.view(np.uint16))
    np.save(tmp_path / "y.npy", x.astype(np.float32) @ w.astype(np.float32))
    (tmp_path / "m.hlo").write_text(MODEL)
    return tmp_path


def saved(folder: Path, target: str, w: np.ndarray) -> Path:
    """Build the product for a target, and save it there."""
    nw.build(nw.parse(MODEL), target, constants={1: w}).save(folder / "m.nw")
    return folder


def ran(text: str, folder: Path, options: Sequence[str] = (), **variables: str) -> str:
    """Run a text in a process of its own; return what it printed."""
    command = [sys.executable, *options, "-c", text, str(folder)]
    environment = {**os.environ, **variables}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("target", ["cpu", RAPIDS, SEVERAL])
@pytest.mark.parametrize("options", [(), ("-X", "faulthandler")])
def test_a_process_that_loads_asks(target, options, arrays, folder) -> None:
    text = LOADED + "import faulthandler; faulthandler.enable()\n"
    told = ran(text, saved(folder, target, arrays[1]), options)
    assert told.endswith(" True")


def test_a_build_from_the_cache_asks(folder: Path) -> None:
    build = f"""{RUN}
w = np.load(sys.argv[1] + "/w.npy").view(ml_dtypes.bfloat16)
print(sorted(product(nw.build(sys.argv[1] + "/m.hlo", {RAPIDS!r}, constants={{1: w}})).features))
"""
    first, second = (ran(build, folder, NESTWRIGHT_CACHE=str(folder / "cache")) for _ in range(2))
    assert first == second and "amx-tile" in first


def test_a_forked_child_may_use_them(arrays, folder: Path) -> None:
    forked = f"""{RUN}
import os
exe = nw.load(sys.argv[1] + "/m.nw")
product(exe)
child = os.fork()
product(exe)
if child == 0:
    os._exit(0)
print(os.waitpid(child, 0)[1])
"""
    assert ran(forked, saved(folder, RAPIDS, arrays[1])) == "0"


def test_a_refusal_leaves_the_host_its_vectors(folder: Path) -> None:
    build = f"""{SMALL_STACK}{RUN}
w = np.load(sys.argv[1] + "/w.npy").view(ml_dtypes.bfloat16)
target = product(nw.build(sys.argv[1] + "/m.hlo", constants={{1: w}}))
print(sorted(f for f in target.features if f.startswith("amx")), "avx512f" in target.features)
"""
    assert ran(build, folder) == "[] True"


def test_several_processors_where_tiles_are_refused(arrays, folder: Path) -> None:
    saved(folder, SEVERAL, arrays[1])
    assert ran(LOADED, folder) == "sapphirerapids True"
    assert ran(SMALL_STACK + LOADED, folder) == "x86-64-v3 False"


@pytest.mark.parametrize("target", ["cpu", RAPIDS])
def test_the_error_says_what_is_refused_and_what_to_do(target, arrays, folder: Path) -> None:
    text = f"""{SMALL_STACK}{RUN}
from nestwright.ir.errors import TargetError
try:
    product(nw.load(sys.argv[1] + "/m.nw"))
except TargetError as error:
    print(error)
"""
    told = ran(text, saved(folder, target, arrays[1]))
    assert f"this machine cannot run its code: it lacks {REFUSED}" in told
    assert 'build it for this one: target "cpu"' in told


def test_commands_tell_of_a_refusal(arrays, folder: Path) -> None:
    text = f"""{SMALL_STACK}
import sys
from nestwright.cli.main import main
main(["doctor"])
main(["targets"])
main(["run", sys.argv[1] + "/m.nw", "--random", "0"])
"""
    told = ran(text, saved(folder, SEVERAL, arrays[1]))
    assert told.count("refused by the system to this process") == 2
    assert f"variant cpu -mcpu=sapphirerapids -threads=2: this machine lacks {REFUSED}" in told
    assert "amx-bf16" not in told
