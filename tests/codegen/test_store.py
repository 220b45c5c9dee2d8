"""The cache on disk: what is found again, what is not, and what a damaged file does."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import nestwright as nw
from nestwright.codegen import store
from nestwright.ir.errors import NestwrightWarning, ParseError
from nestwright.ir.target import Target

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


def test_a_module_is_found_by_its_content(kept: Path) -> None:
    assert counted(nw.parse(ADD))[1:] == (1, 0)
    assert counted(nw.parse(ADD))[1:] == (0, 1)
    assert counted(nw.parse(ADD.replace("add", "multiply")))[1:] == (1, 0)


def test_target_constants_and_threads_make_other_models(kept: Path, plus: Path) -> None:
    y = np.ones(8, np.float32)
    for options in ({}, {"target": "cpu -threads=1"}, {"constants": {1: y}},
                    {"constants": {1: 2 * y}}, {"constants": {0: y}}):  # fmt: skip
        assert counted(plus, **options)[1:] == (1, 0)
        assert counted(plus, **options)[1:] == (0, 1)
    frozen = nw.build(plus, constants={1: 2 * y})
    np.testing.assert_array_equal(frozen(y), 3 * y)


def test_without_the_cache_all_is_compiled(kept: Path, plus: Path,
                                           monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
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


def test_a_folder_that_cannot_be_written_is_no_error(
    plus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv(store.VARIABLE, str(tmp_path / "file" / "kept"))
    assert counted(plus)[1:] == (1, 0)
    assert counted(plus)[1:] == (1, 0)


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


def test_the_key_names_all_that_decides() -> None:
    cpu = Target.parse("cpu")
    same = store.key(b"m", cpu, {}, None)
    assert same == store.key(b"m", cpu, {}, {})
    x = np.zeros((2, 3), np.float32)
    others = {
        store.key(b"n", cpu, {}, None),
        store.key(b"m", Target.parse("cpu -mcpu=znver4"), {}, None),
        store.key(b"m", cpu, {}, {0: x}),
        store.key(b"m", cpu, {}, {1: x}),
        store.key(b"m", cpu, {}, {"0": x}),
        store.key(b"m", cpu, {}, {0: x.reshape(3, 2)}),
        store.key(b"m", cpu, {}, {0: x.view(np.int32)}),
    }
    assert len(others | {same}) == 8
