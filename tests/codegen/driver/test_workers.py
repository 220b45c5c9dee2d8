"""How many processes compile at once, on machines large and small."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nestwright.codegen.driver import parallel
from nestwright.codegen.driver.compile_group import compile_text
from nestwright.codegen.targets import workers
from nestwright.codegen.targets.cuda import nvptx
from nestwright.ir.target import Target

GIB = 1 << 30


def machine(
    patch: pytest.MonkeyPatch,
    folder: Path,
    cores: int,
    free: str = "",
    group: tuple[str, str] = ("", ""),
) -> None:
    """A machine of so many cores, of which the system tells these facts."""
    (folder / "meminfo").write_text(f"MemTotal: 1 kB\n{free}")
    for name, text in zip(("max", "current"), group, strict=True):
        (folder / f"memory.{name}").write_text(text)
    (folder / "memory.stat").write_text(f"anon 5\ninactive_file {GIB}\n")
    patch.setattr(workers, "cores", lambda: cores)
    patch.setattr(workers, "_MEMINFO", folder / "meminfo")
    patch.setattr(workers, "_CGROUP", folder)


@pytest.mark.parametrize(
    ("free", "group", "wanted"),
    [
        ("", ("", ""), 16),
        ("MemAvailable: 67108864 kB", ("max", "1"), 16),
        ("MemAvailable: 3145728 kB", ("max", "1"), 4),
        ("MemAvailable: 67108864 kB", (str(6 * GIB), str(4 * GIB)), 4),
        ("MemAvailable: 1024 kB", ("max", "1"), 1),
        ("MemAvailable: 67108864 kB", (str(4 * GIB), str(8 * GIB)), 1),
    ],
)
def test_one_a_core_as_far_as_memory_goes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, free: str, group: tuple[str, str], wanted: int
) -> None:
    machine(monkeypatch, tmp_path, 16, free, group)
    assert workers.workers() == wanted


@pytest.mark.usefixtures("helpers")
@pytest.mark.parametrize(("spec", "count"), [("cpu", 9), ("cuda -arch=sm_90", 15)])
def test_a_model_for_a_gpu_takes_all_cores(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, spec: str, count: int
) -> None:
    machine(monkeypatch, tmp_path, 16)
    asked: list[int] = []

    class Helper:
        def __init__(self, shares: bool) -> None:
            asked.append(1)

        def feed(self, queue: parallel.Queue) -> None: ...

        def wait(self) -> None: ...

        def stop(self) -> None: ...

    monkeypatch.setattr(parallel, "Helper", Helper)
    monkeypatch.setattr(parallel, "compile_text", lambda *args: compile_text)
    jobs = {str(n): parallel.CompileJob("", f"k{n}", None) for n in range(56)}
    made: Any
    made, errors = parallel.compile_all(jobs, Target.parse(spec), {})
    assert len(asked) == count and set(made) == set(jobs) and not errors


def test_as_many_modules_as_cores_are_compiled_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    machine(monkeypatch, tmp_path, 5)
    pool = nvptx._Pool()
    taken = [pool.free.get_nowait() for _ in range(5)]
    assert pool.free.empty() and len(set(map(id, taken))) == 5
    assert all(child.process is None for child in taken), "none is started before it is asked"
