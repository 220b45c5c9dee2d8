"""The cache on disk: what is found again, what is not, and what a damaged file does."""

from __future__ import annotations

import errno
import gc
import os
import shutil
import subprocess
import sys
import threading
import warnings
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import nestwright as nw
from nestwright.codegen.driver import build_key, frozen_weights, store
from nestwright.ir.errors import ArtifactError, NestwrightWarning, ParseError

ROOT = Path(__file__).parents[3]
ADD = """HloModule plus
ENTRY main {
  x = f32[8] parameter(0)
  y = f32[8] parameter(1)
  ROOT z = f32[8] add(x, y)
}
"""


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache's folder, empty."""
    monkeypatch.setenv(store.VARIABLE, str(tmp_path / "kept"))
    return tmp_path / "kept"


@pytest.fixture
def plus(tmp_path: Path) -> Path:
    path = tmp_path / "plus.hlo"
    path.write_text(ADD)
    return path


def counted(model: object, **options: object) -> tuple[nw.Executable, int, int]:
    """The executable, and how many models were compiled and loaded for it."""
    before = nw.counters()
    exe = nw.build(model, **options)  # type: ignore[call-overload]
    after = nw.counters()
    return exe, after.built - before.built, after.loaded - before.loaded


def test_a_second_build_compiles_nothing(kept: Path, plus: Path) -> None:
    first, built, loaded = counted(plus)
    assert (built, loaded) == (1, 0)
    spent: dict[str, float] = {}
    second, built, loaded = counted(plus, timings=spent)
    assert (built, loaded) == (0, 1)
    assert set(spent) == {"cache", "link"}
    x = np.arange(8, dtype=np.float32)
    np.testing.assert_array_equal(second(x, x), first(x, x))
    assert second.as_text("plan") == first.as_text("plan")
    assert second.as_text("optimized") == first.as_text("optimized")
    assert nw.show(second.module) == nw.show(first.module)


@pytest.mark.parametrize("place", ["file", "file/under", "/proc/self/none"])
def test_a_folder_that_cannot_be_written_is_told_once(
    tmp_path: Path, plus: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(store.VARIABLE, str(tmp_path / place))
    with pytest.warns(NestwrightWarning) as told:
        assert counted(plus)[1:] == counted(nw.parse(ADD))[1:] == (1, 0)
    (one,) = (str(w.message) for w in told)
    assert one.startswith(f"cache folder {tmp_path / place} cannot be written: ")
    assert (tmp_path / "file").read_text() == "" and "\n" not in one


def test_a_disk_without_space_is_told_and_the_users_own_folder_is_not(
    kept: Path, plus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("nestwright.ir.files.cache_folder", lambda: tmp_path / "own")
    monkeypatch.setattr("nestwright.codegen.plan.saved.write.whole_file", full)
    with pytest.warns(NestwrightWarning, match="cannot be written: No space left on device"):
        nw.build(plus)
    monkeypatch.delenv(store.VARIABLE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nw.build(plus)


def test_a_module_is_found_by_its_content(kept: Path) -> None:
    assert counted(nw.parse(ADD))[1:] == (1, 0)
    assert counted(nw.parse(ADD))[1:] == (0, 1)
    assert counted(nw.parse(ADD.replace("add", "multiply")))[1:] == (1, 0)


@pytest.mark.parametrize("source", ["ir/hlo/ops/linear.py", "codegen/math/f32/without_f64.ll"])
def test_another_compiler_makes_other_models(
    kept: Path, plus: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    assert counted(plus)[1:] == (1, 0)
    files = dict(build_key._sources(ROOT))
    changed = os.stat_result((*files[source][:6], files[source].st_size + 1, *files[source][7:]))
    monkeypatch.setattr(build_key, "_sources", lambda root: (files | {source: changed}).items())
    build_key._compiler.cache_clear()
    assert counted(plus)[1:] == (1, 0)
    monkeypatch.undo()
    build_key._compiler.cache_clear()


def test_target_constants_and_threads_make_other_models(kept: Path, plus: Path) -> None:
    y = np.ones(8, np.float32)
    for options in (
        {},
        {"target": "cpu -threads=1"},
        {"constants": {1: y}},
        {"constants": {1: 2 * y}},
        {"constants": {0: y}},
    ):
        assert counted(plus, **options)[1:] == (1, 0)
        assert counted(plus, **options)[1:] == (0, 1)
    frozen = nw.build(plus, constants={1: 2 * y})
    np.testing.assert_array_equal(frozen(y), 3 * y)


def test_without_the_cache_all_is_compiled(
    kept: Path, plus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert counted(plus, cache=False)[1:] == (1, 0)
    assert not kept.exists()
    monkeypatch.setenv(store.VARIABLE, store.OFF)
    assert counted(plus)[1:] == (1, 0)
    assert counted(plus)[1:] == (1, 0)


def test_a_damaged_file_is_built_again(kept: Path, plus: Path) -> None:
    nw.build(plus)
    (file,) = kept.glob("*.nw")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 255
    file.write_bytes(data)
    assert counted(plus)[1:] == (1, 0)
    assert counted(plus)[1:] == (0, 1)


def test_a_missing_model_is_told_as_ever(kept: Path, tmp_path: Path) -> None:
    with pytest.raises(ParseError, match="cannot read the model"):
        nw.build(tmp_path / "none.hlo")


def test_a_log_without_a_record_warns_each_time(kept: Path, plus: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    for _ in range(2):
        with pytest.warns(NestwrightWarning, match="no record for plus"):
            nw.build(plus, log=tmp_path / "empty.jsonl")


def test_the_least_recently_used_go_first(
    kept: Path, plus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exe = nw.build(plus, cache=False)
    names = [f"{n:064x}" for n in range(4)]
    for age, name in enumerate(names[:3]):
        store.put(name, exe.bundle)
        os.utime(kept / f"{name}.nw", (age, age))
    size = (kept / f"{names[0]}.nw").stat().st_size
    assert store.get(names[0]) is not None  # now it is the youngest
    monkeypatch.setattr(store, "LARGEST", 3 * size)
    store.put(names[3], exe.bundle)
    assert {p.stem for p in kept.glob("*.nw")} == {names[0], names[2], names[3]}


# ---- what stands in the cache is not believed by its name -----------------------------------


X = np.arange(8, dtype=np.float32)


def refused(model: Path, why: str) -> None:
    """The entry is told of and not used; the next build finds one that is right."""
    with pytest.warns(NestwrightWarning, match=why):
        exe, built, loaded = counted(model)
    assert (built, loaded) == (1, 0)
    np.testing.assert_array_equal(exe(X, X), X + X)
    assert counted(model)[1:] == (0, 1)


def entry(kept: Path) -> Path:
    (file,) = kept.glob("*.nw")
    return file


def test_an_entry_of_another_model_is_not_used(kept: Path, plus: Path) -> None:
    nw.build(plus)
    mine = entry(kept)
    other = nw.parse(ADD.replace("add", "subtract"))
    nw.build(other)
    (theirs,) = set(kept.glob("*.nw")) - {mine}
    theirs.replace(mine)
    refused(plus, f"{mine.name} is not used: it was stored for another model")
    nw.build(other, cache=False).save(mine)
    mine.chmod(0o600)
    refused(plus, "it was stored for another model")


@pytest.mark.parametrize("mode", [0o666, 0o620, 0o602])
def test_an_entry_that_others_may_write_is_not_used(kept: Path, plus: Path, mode: int) -> None:
    nw.build(plus)
    entry(kept).chmod(mode)
    refused(plus, rf"others may write to it \(mode {mode:o}\)")
    assert entry(kept).stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_an_entry_of_another_user_is_not_used(kept: Path, plus: Path) -> None:
    nw.build(plus)
    os.chown(entry(kept), 12345, 12345)
    refused(plus, "it belongs to user 12345")
    assert entry(kept).stat().st_uid == 0


def test_an_entry_that_is_a_link_is_not_followed(kept: Path, plus: Path, tmp_path: Path) -> None:
    nw.build(plus)
    entry(kept).rename(tmp_path / "elsewhere")
    before = (tmp_path / "elsewhere").read_bytes()
    counted(plus)
    target = entry(kept)
    target.unlink()
    target.symlink_to(tmp_path / "elsewhere")
    refused(plus, "it is a symbolic link")
    assert not target.is_symlink() and (tmp_path / "elsewhere").read_bytes() == before


def test_an_entry_that_is_a_pipe_does_not_block(kept: Path, plus: Path) -> None:
    nw.build(plus)
    target = entry(kept)
    target.unlink()
    os.mkfifo(target, 0o600)
    refused(plus, "it is not a regular file")


def test_a_folder_that_others_may_write_is_not_used(kept: Path, plus: Path) -> None:
    kept.mkdir()
    kept.chmod(0o777)
    for _ in range(2):
        with pytest.warns(NestwrightWarning, match="cache folder .* others may write"):
            assert counted(plus)[1:] == (1, 0)
    assert list(kept.iterdir()) == []


def test_folder_and_entries_are_this_users_alone(kept: Path, plus: Path) -> None:
    before = os.umask(0)
    try:
        nw.build(plus)
    finally:
        os.umask(before)
    assert kept.stat().st_mode & 0o777 == 0o700
    assert entry(kept).stat().st_mode & 0o777 == 0o600


def test_what_killed_writers_left_is_swept(kept: Path, plus: Path) -> None:
    exe = nw.build(plus)
    old, new = kept / ".x.nw.abc", kept / ".y.nw.def"
    old.write_text("")
    new.write_text("")
    os.utime(old, (0, 0))
    store.put("0" * 64, exe.bundle)
    assert not old.exists() and new.exists()


STRESS = """
import os, random, sys, warnings
import numpy as np
import nestwright as nw
from pathlib import Path

seed, processes, rounds, folder = *map(int, sys.argv[1:4]), Path(os.environ["NESTWRIGHT_CACHE"])
warnings.simplefilter("ignore")
X = np.arange(8, dtype=np.float32)
OPS = {"add": X + 3, "subtract": X - 3, "multiply": X * 3, "maximum": np.maximum(X, 3)}

def model(op):
    return nw.parse("HloModule m\\nENTRY e {\\n x = f32[8] parameter(0)\\n"
                    " c = f32[] constant(3)\\n b = f32[8] broadcast(c), dimensions={}\\n"
                    f" ROOT y = f32[8] {op}(x, b)\\n}}")

def spoil(r):
    found = sorted(folder.glob("*.nw"))
    if len(found) < 2:
        return
    a, b = r.sample(found, 2)
    try:
        match r.randrange(6):
            case 0: os.replace(a, b)
            case 1: os.chmod(a, 0o666)
            case 2: b.write_bytes(a.read_bytes())
            case 3: os.truncate(a, a.stat().st_size // 2)
            case 4: a.unlink(); a.symlink_to(b)
            case 5: a.unlink()
    except OSError:
        pass  # another process was here

def work(number):
    r = random.Random(f"{seed} {number}")
    for _ in range(rounds):
        if r.random() < 0.3:
            spoil(r)
        op = r.choice(list(OPS))
        if not (nw.build(model(op))(X) == OPS[op]).all():
            return 9
    return 0

nw.build(model("add"), cache=False)  # what is loaded before the fork is loaded once
children = []
for number in range(processes):
    pid = os.fork()
    if pid == 0:
        status = 8
        try:
            status = work(number)
        except BaseException:
            import traceback; traceback.print_exc()
        finally:
            os._exit(status)
    children.append(pid)
print([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children])
"""


def test_many_processes_and_entries_that_are_swapped(kept: Path) -> None:
    """``NESTWRIGHT_STRESS`` says how many processes (8)."""
    processes = int(os.environ.get("NESTWRIGHT_STRESS", "8"))
    done = subprocess.run(
        [sys.executable, "-c", STRESS, "1", str(processes), "12"], capture_output=True, text=True
    )
    assert done.stdout.strip() == str([0] * processes), done.stderr


DOT = """HloModule dot
ENTRY main {
  x = f32[3,70] parameter(0)
  w = f32[70,61] parameter(1)
  ROOT d = f32[3,61] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


@pytest.fixture
def frozen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, dict[int | str, np.ndarray[Any, Any]]]:
    """A product and its weights, which are large to the cache."""
    monkeypatch.setattr(store, "LARGE", 1 << 10)
    monkeypatch.setattr(build_key, "LARGE", 1 << 10)
    monkeypatch.setattr(build_key, "CHUNK", 1 << 12)
    path = tmp_path / "dot.hlo"
    path.write_text(DOT)
    return path, {1: np.random.default_rng(0).standard_normal((70, 61), dtype=np.float32)}


@pytest.mark.skipif(sys.platform != "linux", reason="threads have no priorities of their own")
def test_large_weights_are_written_at_a_lower_priority(
    kept: Path,
    frozen: tuple[Path, dict[int | str, np.ndarray[Any, Any]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = []

    def write(*args: object) -> None:
        seen.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))

    monkeypatch.setattr(store, "_write", write)
    path, constants = frozen
    before = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    nw.build(path, constants=constants)
    for thread in store._writing.values():
        thread.join()
    store._writing.clear()
    assert seen == [store.NICE]
    assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == before


def test_large_weights_are_written_aside_and_mapped(
    kept: Path, frozen: tuple[Path, dict[int | str, np.ndarray[Any, Any]]]
) -> None:
    path, constants = frozen
    first, *compiled = counted(path, constants=constants)
    second, *loaded = counted(path, constants=constants)
    assert (compiled, loaded) == ([1, 0], [0, 1])
    memory = second.bundle.constants
    assert not memory.flags.writeable and memory.ctypes.data % 64 == 0
    np.testing.assert_array_equal(memory, first.bundle.constants)
    x = np.ones((3, 70), np.float32)
    np.testing.assert_array_equal(second(x), first(x))
    (file,) = kept.glob("*.nw")
    file.unlink()
    np.testing.assert_array_equal(second(x), first(x))


@pytest.mark.parametrize("short", ["disk", "folder"])
def test_weights_too_large_for_disk_or_folder_are_not_kept(
    kept: Path,
    frozen: tuple[Path, dict[int | str, np.ndarray[Any, Any]]],
    monkeypatch: pytest.MonkeyPatch,
    short: str,
) -> None:
    path, constants = frozen
    size = nw.build(path, constants=constants, cache=False).bundle.constants.nbytes
    free = store.FREE * size - (short == "disk")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    monkeypatch.setattr(store, "LARGEST", 4 * size - (short == "folder"))
    assert counted(path, constants=constants)[1:] == (1, 0)
    assert not list(kept.glob("*.nw"))
    free += 1
    monkeypatch.setattr(store, "LARGEST", 4 * size)
    assert counted(path, constants=constants)[1:] == (1, 0)
    assert counted(path, constants=constants)[1:] == (0, 1)


def test_one_bit_of_a_weight_makes_another_model(
    kept: Path, frozen: tuple[Path, dict[int | str, np.ndarray[Any, Any]]]
) -> None:
    path, constants = frozen
    nw.build(path, constants=constants)
    other = {1: constants[1].copy()}
    other[1].view(np.uint32)[69, 60] ^= 1 << 31
    exe, built, _ = counted(path, constants=other)
    assert built == 1
    x = np.ones((3, 70), np.float32)
    np.testing.assert_allclose(exe(x), x @ other[1], rtol=1e-4, atol=1e-4)
    transposed = {1: np.asfortranarray(constants[1])}
    assert counted(path, constants=transposed)[1:] == (0, 1)


@pytest.mark.parametrize("place", [0, 1234, -1])
def test_damaged_weights_are_built_again(
    kept: Path, frozen: tuple[Path, dict[int | str, np.ndarray[Any, Any]]], place: int
) -> None:
    path, constants = frozen
    exe = nw.build(path, constants=constants)
    assert counted(path, constants=constants)[1:] == (0, 1)
    (file,) = kept.glob("*.nw")
    data = bytearray(file.read_bytes())
    weights = bytes(exe.bundle.constants)
    data[data.index(weights) + range(len(weights))[place]] ^= 16
    file.write_bytes(data)
    assert counted(path, constants=constants)[1:] == (1, 0)
    assert counted(path, constants=constants)[1:] == (0, 1)


def test_an_executable_does_not_keep_the_arrays_it_was_built_from(
    frozen: tuple[Path, dict[int | str, np.ndarray[Any, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frozen_weights, "LARGE", 1 << 10)
    path, constants = frozen
    exe = nw.build(path, constants=constants, cache=False)
    assert "dot" in exe.as_text("optimized")
    array = weakref.ref(constants[1])
    constants.clear()
    gc.collect()
    assert array() is None
    with pytest.raises(ArtifactError, match="frozen as parameter 1 is gone"):
        exe.as_text("optimized")
    assert exe(np.zeros((3, 70), np.float32)).shape == (3, 61)
