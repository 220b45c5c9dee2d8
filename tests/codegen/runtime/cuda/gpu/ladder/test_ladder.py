"""`benchmarks/gpu/ladder`: its options, its dry run, rungs that see what breaks."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpu.ladder import hopper, main, probes, programs
from gpu.ladder.rung import Needs, Skipped, Wrong, expect_equal, expect_near
from gpu.ladder.site import Site
from gpu.ladder.table import BY_NAME, RUNGS
from gpu.stub.forks import Forks
from gpu.stub.library import build, compiler

from nestwright.codegen.targets.cuda import ptxas
from nestwright.ir.errors import SimulationError
from nestwright.ir.gpus import runs_here

HERE = Path(__file__).parent
SCRIPT = Path(main.__file__)
sys.path.insert(0, str(HERE))
try:
    from mutated import MUTATIONS
finally:
    sys.path.remove(str(HERE))

has_stub = compiler() is not None and importlib.util.find_spec("cuda") is not None
needs_stub = pytest.mark.skipif(not has_stub, reason="no C compiler or no cuda-python here")
needs_ptxas = pytest.mark.skipif(ptxas.find() is None, reason="no ptxas here")


def ladder(
    *arguments: str | Path, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """The script in a process of its own."""
    command = [sys.executable, SCRIPT, *arguments]
    made = {**os.environ, **(env or {})}
    return subprocess.run(command, capture_output=True, text=True, env=made)


def rows(folder: Path) -> dict[str, Any]:
    return {r["name"]: r for r in json.loads((folder / "ladder.json").read_text())["rungs"]}


# ---- options --------------------------------------------------------------------------------


def test_the_list_has_every_rung(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines] == [r.name for r in RUNGS]
    assert all(rung.about in line for rung, line in zip(RUNGS, lines, strict=True))


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["--only", "graph,cubin"], ["cubin", "graph"]),
        (["--from", "fault"], ["fault", "after-fault"]),
        (["--from", "jit", "--only", "cubin,while"], ["while"]),
    ],
)
def test_rungs_keep_their_order_and_numbers(
    arguments: list[str], names: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main([*arguments, "--list"]) == 0
    found = [line.split()[:2] for line in capsys.readouterr().out.splitlines()]
    order = list(BY_NAME)
    assert found == [[str(order.index(n) + 1), n] for n in names]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--only", "cubin,cubim"], "no rung 'cubim': there are driver, copies, cubin"),
        (["--from", "top"], "no rung 'top'"),
        (["--prebuilt", "no/such/folder"], "there is no folder no/such/folder"),
        (["--seconds", "0"], "above 0"),
        (["--ahead", "-1"], "above 0"),
    ],
)
def test_a_wrong_request_is_status_2(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main.main(arguments)
    assert caught.value.code == 2 and told in capsys.readouterr().err


@pytest.mark.skipif(runs_here("sm_90"), reason="there is a GPU here")
def test_without_a_gpu_it_says_so_and_stops(tmp_path: Path) -> None:
    done = ladder("--out", tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("gpu/ladder: there is no GPU to climb on: TargetError: ")
    data = json.loads((tmp_path / "ladder.json").read_text())
    assert data["status"] == 2 and [r["state"] for r in data["rungs"]] == ["absent"]


# ---- dry runs -------------------------------------------------------------------------------


@needs_ptxas
def test_some_rungs_in_children_of_their_own(tmp_path: Path) -> None:
    names = ["driver", "cubin", "fault", "after-fault"]
    done = ladder("--dry-run", "--out", tmp_path, "--only", ",".join(names))
    assert done.returncode == 0, done.stdout
    found = rows(tmp_path)
    assert list(found) == names
    for name, row in found.items():
        simulated = has_stub or BY_NAME[name].needs is Needs.KERNELS
        assert row["state"] == ("ok" if simulated else "skipped"), row
    if has_stub:
        assert found["driver"]["numbers"]["multiprocessors"] == 132
        assert "ILLEGAL_ADDRESS" in found["fault"]["fact"]


@needs_stub
@needs_ptxas
def test_all_rungs_in_one_process(tmp_path: Path) -> None:
    done = ladder("--dry-run", "--in-process", "--out", tmp_path)
    assert done.returncode == 0, done.stdout
    states = {name: row["state"] for name, row in rows(tmp_path).items()}
    assert states == {r.name: "skipped" if r.ends else "ok" for r in RUNGS}


LACKING = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("platformdirs", "xgboost", "optuna", "cuda", "scipy"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
"""


def test_a_machine_that_lacks_much_runs_the_kernels_at_least(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(LACKING)
    env = {"PYTHONPATH": str(tmp_path), "PATH": "/nowhere"}
    done = ladder("--dry-run", "--out", tmp_path, "--only", "driver,threads,while", env=env)
    assert done.returncode == 0, done.stdout
    found = rows(tmp_path)
    assert found["driver"]["state"] == "skipped"
    assert "cuda-python is not installed" in found["driver"]["cause"]
    assert found["threads"]["state"] == found["while"]["state"] == "ok"


def test_what_was_built_before_is_used(tmp_path: Path) -> None:
    folder = tmp_path / "built"
    done = ladder("--prebuild", folder, "--only", "while,jit")
    assert done.returncode == 0, done.stderr
    while_loop, jit = (BY_NAME[n].programs(dry=False) for n in ("while", "jit"))
    wanted = [*while_loop.values(), *jit.values()]
    assert {p.name for p in folder.iterdir()} == {f"{p.name}.nw" for p in wanted}
    program = wanted[0]
    assert programs.load(program, "cuda -arch=sm_90", folder) is not None
    assert programs.load(program, "cuda -arch=sm_80", folder) is None
    other = programs.Program(program.name, program.hlo.replace("LE", "LT"))
    assert programs.load(other, "cuda -arch=sm_90", folder) is None
    done = ladder("--dry-run", "--prebuilt", folder, "--out", tmp_path, "--only", "jit,while")
    assert done.returncode == 0, done.stdout
    found = rows(tmp_path)
    assert "not_prebuilt" not in found["jit"]["numbers"]  # its size is the same in a dry run
    dry = BY_NAME["while"].programs(dry=True)
    assert found["while"]["numbers"]["not_prebuilt"] == [p.name for p in dry.values()]


# ---- rungs see what they are meant to -------------------------------------------------------


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stand-in for the driver, built."""
    return build(tmp_path_factory.mktemp("stub"))


@pytest.fixture(scope="module")
def forks(library: Path) -> Iterator[Forks]:
    """A process that has built what rungs run."""
    made = Forks(library, SCRIPT.parents[2])
    yield made
    made.close()


def climbed(forks: Forks, library: Path, out: Path, mutation: str, rungs: str) -> tuple[int, Any]:
    """The status and the rows of a climb with something broken, in a fork."""
    params = {"mutation": mutation, "folder": str(out), "rungs": rungs, "file": str(library)}
    told = forks.run(HERE / "mutated.py", "climb", params)
    assert (out / "ladder.json").is_file(), told
    return json.loads((out / "ladder.json").read_text())["status"], rows(out)


@needs_stub
@needs_ptxas
def test_with_nothing_broken_the_same_rungs_are_right(
    forks: Forks, library: Path, tmp_path: Path
) -> None:
    for n, rungs in enumerate((",".join(r for r in MUTATIONS if r != "fault"), "fault")):
        status, found = climbed(forks, library, tmp_path / str(n), "nothing", rungs)
        assert status == 0 and {r["state"] for r in found.values()} == {"ok"}, found


@needs_stub
@needs_ptxas
@pytest.mark.parametrize(
    ("rung", "mutation"),
    [(rung, m.__name__) for rung, mutations in MUTATIONS.items() for m in mutations],
)
def test_what_breaks_fails_its_rung(
    rung: str, mutation: str, forks: Forks, library: Path, tmp_path: Path
) -> None:
    status, found = climbed(forks, library, tmp_path, mutation, rung)
    assert status == 1 and found[rung]["state"] == "FAILED"
    ours = ("ModuleNotFoundError", "ImportError", "AttributeError", "TypeError", "NameError")
    assert not found[rung]["cause"].startswith(ours), found[rung]["cause"]


@pytest.mark.parametrize(
    ("probe", "old", "new"),
    [
        (probes.MBARRIER, "args(32)", "args(31)"),
        (probes.TMA_LOAD, "args(4096)", "args(4095)"),
        (probes.TMA_LOAD, "s32(64)", "s32(56)"),
        (probes.TMA_STORE, 'intrinsic("fence_proxy_async")', 'intrinsic("warp_barrier")'),
        (probes.TMA_STORE, "(e % 64 // 8 ^ e // 64 % 8)", "(e % 64 // 8)"),
        (probes.STMATRIX, "stmatrix.x4", "stmatrix.x4.trans"),
        (probes.WGMMA, "(t ^ t // 8 % 2)", "t"),
        (probes.SETMAXNREG, "args(0))", "args(1))"),
    ],
)
def test_probes_see_what_is_wrong(probe: probes.Probe, old: str, new: str) -> None:
    assert old in probe.text
    broken = replace(probe, text=probe.text.replace(old, new, 1))
    with pytest.raises((Wrong, SimulationError)):
        hopper.probe(broken)(Site(BY_NAME["wgmma"], dry=True))


def test_probes_are_skipped_where_the_processor_lacks_something() -> None:
    site = Site(BY_NAME["wgmma"], dry=True, arch="sm_80")
    with pytest.raises(Skipped, match=r"sm_80 has no wgmma\.m64n64k16"):
        hopper.probe(probes.WGMMA)(site)
    with pytest.raises(Skipped, match="sm_80 has no tma_load, mbarrier_expect"):
        hopper.probe(probes.TMA_LOAD)(site)
    assert "on sm_80" in hopper.probe(probes.MBARRIER)(site)


def test_a_message_says_where_it_is_wrong() -> None:
    want = np.arange(12, dtype=np.float32).reshape(3, 4)
    got = want.copy()
    got[1, 2:] = np.nan, 9
    told = r"x: 2 of 12 wrong, within \[1:2\]\[2:4\]: \(1, 2\): nan for 6.0; \(1, 3\): 9.0 for 7.0"
    with pytest.raises(Wrong, match=told):
        expect_equal(got, want, "x")
    with pytest.raises(Wrong, match="2 of 12 wrong"):
        expect_near(got, want, 0.1, "x")
    with pytest.raises(Wrong, match=r"shape \(3,\) for \(3, 4\)"):
        expect_equal(got[:, 0], want, "x")
    assert expect_near(want + np.float32(0.01), want, 0.1, "x") < 0.01
