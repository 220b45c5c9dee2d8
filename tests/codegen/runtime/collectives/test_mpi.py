"""Models on several processes, by MPI: the command, Python, and ranks that die or are missing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.text import parse

pytest.importorskip("mpi4py", reason="mpi4py is not installed (the extra `mpi`)")

MPIEXEC = Path(sys.executable).with_name("mpiexec")
if not MPIEXEC.exists():
    pytest.skip("there is no mpiexec beside this Python", allow_module_level=True)

DATA = Path(__file__).parent / "data"
ROOT = Path(__file__).parents[4]
LIMIT = 240  # seconds; a busy machine may be slow


def mpi(count: int, *command: str, options: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    """Run a Python command on ``count`` processes."""
    words = [str(MPIEXEC), *options, "-n", str(count), sys.executable, *command]
    return subprocess.run(words, capture_output=True, text=True, timeout=LIMIT, env=environment())


def environment() -> dict[str, str]:
    """The environment with one thread a process."""
    return {**os.environ, "NESTWRIGHT_NUM_THREADS": "1"}


def nestwright(count: int, *args: str) -> subprocess.CompletedProcess[str]:
    """Run the command on ``count`` processes."""
    return mpi(count, "-m", "nestwright", *args)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The arguments of the training step, whole."""
    path = tmp_path_factory.mktemp("inputs") / "x.npz"
    draw = np.random.default_rng(0)
    one = parse((DATA / "step_1.hlo").read_text())
    arrays = [draw.normal(size=p.array.dims).astype("f4") for p in one.entry.parameters]
    np.savez(path, **{f"arg{n}": a for n, a in enumerate(arrays)})
    return path


@pytest.mark.parametrize("count", [2, 4])
def test_a_training_step_is_that_of_one_process(count: int, inputs: Path, tmp_path: Path) -> None:
    outputs = tmp_path / "y.{rank}.npz"
    model = str(DATA / f"step_{count}.hlo")
    done = nestwright(
        count, "run", model, "--inputs", str(inputs), "--outputs", str(outputs), "--check"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("check: all outputs match") == 1  # rank 0 alone talks
    assert f"on rank 0 of {count}" in done.stdout and not done.stderr
    with np.load(inputs) as given:
        wanted = evaluate(parse((DATA / "step_1.hlo").read_text()), [given[k] for k in given])
    found = [dict(np.load(str(outputs).replace("{rank}", str(n)))) for n in range(count)]
    for n, value in enumerate(wanted):
        np.testing.assert_allclose(found[0][f"out{n}"], value, rtol=1e-5, atol=1e-6)
        for other in found[1:]:
            np.testing.assert_array_equal(other[f"out{n}"], found[0][f"out{n}"])


@pytest.mark.parametrize(
    ("count", "args", "why"),
    [
        (3, ("--inputs", "WHOLE"), "is written for 2 devices"),
        (2, ("--random", "1", "--outputs", "y.npz"), "2 ranks have results of their own"),
        (2, ("--inputs", "nowhere.{rank}.npz"), "cannot read nowhere."),
    ],
    ids=["count", "outputs", "inputs"],
)
def test_each_rank_says_once_what_does_not_fit(
    count: int, args: tuple[str, ...], why: str, inputs: Path
) -> None:
    given = (str(inputs) if a == "WHOLE" else a for a in args)  # a third rank has no part of it
    done = nestwright(count, "run", str(DATA / "step_2.hlo"), *given)
    assert done.returncode == 2
    assert done.stderr.count(why) == count and "Traceback" not in done.stderr
    assert all(f"nestwright: rank {n}: " in done.stderr for n in range(count))
    assert not done.stdout


def test_what_one_rank_lacks_is_told_by_all(inputs: Path, tmp_path: Path) -> None:
    (tmp_path / "x.0.npz").write_bytes(inputs.read_bytes())
    files = str(tmp_path / "x.{rank}.npz")
    done = nestwright(2, "run", str(DATA / "step_2.hlo"), "--inputs", files)
    assert done.returncode == 2
    assert "rank 0: rank 1 cannot run the model" in done.stderr
    assert "rank 1: cannot read" in done.stderr


SCRIPT = """
import os, pathlib, signal, sys, time
sys.path.insert(0, {tests!r})
import numpy as np
from mpi4py import MPI
import nestwright as nw

world = MPI.COMM_WORLD
exe = nw.build({model!r})

def stop(error, status):  # MPICH's launcher may lose what was printed just before
    pathlib.Path({told!r}).write_text(str(error))
    world.Abort(status)
"""
CALL = """
exe = exe.on(world, seconds=240)
part = np.full((4, 8), world.rank, "f4")
for _ in range(3):
    found = exe(part)
assert (found[0] == 1).all() and found[7][0, 0] == 2 * world.rank, found
print("right", flush=True)
"""
STOPS = """
part = np.zeros((4, 8), "f4")
exe.on(world, seconds=240)(part)
world.Barrier()
exe = exe.on(world, seconds=4)
if world.rank == 1:
    os.kill(os.getpid(), signal.SIGNAL)
try:
    exe(part)
except nw.ir.errors.CommunicationError as error:
    stop(error, 7)
"""
MISSING = """
if world.rank == 0:
    try:
        exe.on(world, seconds=1)
    except nw.ir.errors.CommunicationError as error:
        stop(error, 6)
time.sleep(200)
"""


def script(tmp_path: Path, body: str) -> str:
    path = tmp_path / "program.py"
    told, model = str(tmp_path / "told"), str(DATA / "every_2.hlo")
    head = SCRIPT.format(tests=str(ROOT), model=model, told=told)
    path.write_text(head + "import nestwright.ir.errors\n" + body)
    return str(path)


def test_from_python(tmp_path: Path) -> None:
    done = mpi(2, script(tmp_path, CALL))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("right") == 2


def test_a_killed_rank_ends_the_program(tmp_path: Path) -> None:
    """MPICH's launcher ends the others at once."""
    done = mpi(2, script(tmp_path, STOPS.replace("SIGNAL", "SIGKILL").replace("=4)", "=200)")))
    assert done.returncode != 0 and "Killed" in done.stdout


def test_a_rank_that_hangs_gives_an_error_within_the_limit(tmp_path: Path) -> None:
    done = mpi(2, script(tmp_path, STOPS.replace("SIGNAL", "SIGSTOP")))
    assert done.returncode == 7
    told = (tmp_path / "told").read_text()
    assert told.startswith("rank 0 waits for rank 1 in") and "4 seconds" in told


def test_a_missing_rank_gives_an_error_within_the_limit(tmp_path: Path) -> None:
    done = mpi(2, script(tmp_path, MISSING))
    assert done.returncode != 0
    told = (tmp_path / "told").read_text()
    assert told.startswith("rank 0 waits for rank") and "in the start" in told
