"""Why a cached build was not used: the field of the key that differs, never nothing."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nestwright as nw
from nestwright import te
from nestwright.autotune.compiled import key_of
from nestwright.codegen.driver import build_key, ledger, store
from nestwright.codegen.driver.build_key import BuildKey, FieldChange
from nestwright.codegen.driver.options import BuildOptions
from nestwright.codegen.driver.schedules import Schedules
from nestwright.ir.library import registry
from nestwright.ir.target import Target
from nestwright.schedule.language.trace import Trace

CPU = Target.parse("cpu -mcpu=znver4 -threads=2")
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
    (tmp_path / "kept").mkdir(mode=0o700)
    return tmp_path / "kept"


def key(model: bytes = b"m", target: Target = CPU, schedules: Any = (), **rest: Any) -> BuildKey:
    constants = rest.pop("constants", {})
    return build_key.build_key(model, BuildOptions(target, **rest), dict(schedules), constants)


def told(old: BuildKey, new: BuildKey) -> tuple[FieldChange, ...]:
    """What the ledger answers for a build after another one of the same model."""
    ledger.record(old, "net")
    answer = ledger.ask(new, "net")
    assert not answer.used and answer.reason and answer.when
    return answer.changes


def trace(factor: int) -> Trace:
    x = te.placeholder((64,), name="X")
    y = te.compute((64,), lambda i: x[i] + x[i], name="Y")
    schedule = nw.Schedule(te.create_func([x, y]))
    schedule.split(schedule.get_loops("Y")[0], [None, factor])
    return schedule.trace


X = np.zeros((2, 3), np.float32)
ASKED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "model": ({}, {"model": b"n"}),
    "excess precision": ({}, {"excess_precision": False}),
    "narrow weights": ({}, {"weights": "int8"}),
    "fallback": ({}, {"fallback": "interpreter"}),
    "constant 'w'": ({"constants": {"w": X}}, {"constants": {"w": X + 1}}),
    "constant 0": ({}, {"constants": {0: X}}),
    "constant 1": ({"constants": {1: X}}, {"constants": {1: X.reshape(3, 2)}}),
    "constant 2": ({"constants": {2: X}}, {"constants": {2: X.view(np.int32)}}),
    "schedule of abc": ({}, {"schedules": {"abc": trace(8)}}),
    "schedule of abd": ({"schedules": {"abd": trace(8)}}, {"schedules": {"abd": trace(4)}}),
}


@pytest.mark.parametrize("field", ASKED)
def test_what_is_asked_of_a_build_is_named(kept: Path, field: str) -> None:
    old, new = ASKED[field]
    (change,) = told(key(**old), key(**new))
    assert change.field == field and change.old != change.new
    assert change.old == build_key.NOTHING or old or field in key().fields


def other(value: Any) -> Any:
    """A value of the same type that differs."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str():
            return f"{value}x"
        case frozenset():
            return value | {"amx"}
        case tuple():
            return (*value, 1)
        case None:
            return 1
        case _:
            return value


@pytest.mark.parametrize("name", [f.name for f in fields(Target)])
def test_each_field_of_the_target_is_named(kept: Path, name: str) -> None:
    changed = "cuda" if name == "kind" else other(getattr(CPU, name))
    if changed == getattr(CPU, name):
        changed = getattr(Target.parse("cpu -mcpu=haswell"), name)
    if changed == getattr(CPU, name):
        changed = getattr(Target.parse("cuda -arch=sm_80"), name)
    old, new = key(), key(target=replace(CPU, **{name: changed}))
    assert f"target's {name}" in {c.field for c in told(old, new)}


def test_winners_of_whole_models_are_named(kept: Path) -> None:
    old = build_key.build_key(b"m", BuildOptions(CPU), Schedules({}), {})
    new = build_key.build_key(b"m", BuildOptions(CPU), Schedules({}, [{"k": None}]), {})
    assert [c.field for c in told(old, new)] == ["winners of models"]


def test_registered_functions_are_named(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = key()
    monkeypatch.setattr(build_key, "registered", lambda: ["blur"])
    (change,) = told(old, key())
    assert change.field == "registered functions" and "blur" in change.new
    assert registry.registered() != ["blur"]


def test_the_assembler_is_named(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = key()
    monkeypatch.setattr(build_key, "assembler", lambda target: "ptxas 12.9")
    (change,) = told(old, key())
    assert (change.field, change.new) == ("assembler", "ptxas 12.9")


@pytest.mark.parametrize("package", ["llvmlite", "numpy", "ml-dtypes"])
def test_each_package_is_named(kept: Path, monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    old = key()
    versions = build_key.version
    swapped: Callable[[str], str] = lambda p: "9.9" if p == package else versions(p)  # noqa: E731
    monkeypatch.setattr(build_key, "version", swapped)
    build_key._compiler.cache_clear()
    (change,) = told(old, key())
    monkeypatch.undo()
    build_key._compiler.cache_clear()
    assert (change.field, change.new) == (package, "9.9")


def test_the_source_is_named_with_its_newest_file(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = key()
    stat = os.stat_result((*[0] * 6, 5, 9, 9, 9))
    monkeypatch.setattr(build_key, "_sources", lambda root: [("ir/hlo/new.py", stat)])
    build_key._compiler.cache_clear()
    (change,) = told(old, key())
    monkeypatch.undo()
    build_key._compiler.cache_clear()
    assert change.field == "nestwright's source" and "newest: ir/hlo/new.py" in change.new


def test_the_nearest_build_is_compared_with(kept: Path) -> None:
    ledger.record(key(b"other"), "another model")
    ledger.record(key(weights="int8", fallback="interpreter"), "net")
    ledger.record(key(weights="int8"), "net")
    answer = ledger.ask(key(weights="bf16"), "net")
    assert [str(c) for c in answer.changes] == ["narrow weights: int8 -> bf16"]


def test_a_model_is_recognized_by_its_content_too(kept: Path) -> None:
    ledger.record(key(), "net")
    assert ledger.ask(key(weights="int8"), "renamed").changes
    unknown = ledger.ask(key(b"new"), "another")
    assert not unknown.changes and "no build of another is known" in unknown.reason


def test_equal_keys_have_equal_names() -> None:
    assert key() == key() and key().name == key(constants=None).name
    names = {key().name, *(key(**new).name for _, new in ASKED.values())}
    assert len(names) == 1 + len({str(new) for _, new in ASKED.values()})


# ---- the answers for a model that is built ---------------------------------------------------


def asked(path: Path, **options: Any) -> ledger.CacheAnswer:
    model = nw.lower(path, **options)
    found = key_of(model, Schedules({}))
    assert found is not None
    return ledger.ask(found, model.name)


@pytest.fixture
def plus(tmp_path: Path) -> Path:
    path = tmp_path / "plus.hlo"
    path.write_text(ADD)
    return path


def test_a_build_is_used_and_a_change_is_told(kept: Path, plus: Path) -> None:
    assert "no build of plus is known" in asked(plus).reason
    nw.build(plus)
    answer = asked(plus)
    assert answer.used and not answer.changes
    threads = asked(plus, target="cpu -threads=1" if os.cpu_count() != 1 else "cpu -threads=2")
    assert not threads.used and "target's threads" in {c.field for c in threads.changes}
    plus.write_text(ADD.replace("add(", "multiply("))
    assert [c.field for c in asked(plus).changes] == ["model"]
    nw.build(plus)
    again = asked(plus)
    assert again.used and [c.field for c in again.changes] == ["model"], "why it was built"


def test_an_entry_that_is_gone_damaged_or_foreign(kept: Path, plus: Path) -> None:
    nw.build(plus)
    (entry,) = kept.glob("*.nw")
    data = entry.read_bytes()
    entry.write_bytes(data[: len(data) // 2])
    assert "its entry is damaged" in asked(plus).reason
    entry.write_bytes(data)
    entry.chmod(0o666)
    assert "must not be used: others may write to it" in asked(plus).reason
    entry.unlink()
    assert "its entry is gone" in asked(plus).reason
    kept.chmod(0o777)
    assert "is not used: others may write to it" in asked(plus).reason


def test_a_cache_that_is_off(kept: Path, plus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(store.VARIABLE, store.OFF)
    assert asked(plus).reason == "the cache is off: NESTWRIGHT_CACHE=off"
    ledger.record(key(), "net")
    assert ledger.history() == ()


def test_a_damaged_ledger_is_read_as_far_as_it_goes(kept: Path) -> None:
    ledger.record(key(), "net")
    path = kept / ledger.FILE
    assert path.stat().st_mode & 0o777 == 0o600
    noise = [b"\xff\n", b"[" * 100_000 + b"\n", b"{}\n", b'{"v":1,"model":"m","when":1.0,']
    path.write_bytes(b"".join(noise) + b"\n" + path.read_bytes() + b'{"v":2}\n')
    assert [b.model for b in ledger.history()] == ["net"]
    path.chmod(0o666)
    assert ledger.history() == ()


def test_a_ledger_forgets_the_oldest(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "LONGEST", 20_000)
    for n in range(60):
        ledger.record(key(bytes([n])), f"m{n}")
    names = [b.model for b in ledger.history()]
    assert names == [f"m{n}" for n in range(60 - len(names), 60)] and 3 < len(names) < 60
