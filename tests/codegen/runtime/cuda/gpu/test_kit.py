"""The kit for a first run on a GPU: what is packed, what is refused, the commands, the page."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from gpu import places
from gpu.kit import bare, contents, main, packing, right, session
from gpu.ladder import main as ladder
from gpu.measure import main as measure
from gpu.measure import prebuilt, workloads
from gpu.measure.part import Part

ROOT = places.ROOT
PAGE = ROOT / "docs" / "decisions" / "gpu-first-run.md"


def put(folder: Path, *names: str, size: int = 10) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"x" * size)


@pytest.fixture
def makers(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Makers that write a file for each of their rows."""

    def maker(name: str) -> Any:
        patterns = [i.pattern.removeprefix(f"{name}/") for i in contents.ITEMS if i.maker == name]
        return lambda folder: put(folder, *(p.replace("*", "some") for p in patterns))

    made = {name: maker(name) for name in packing.MAKERS}
    monkeypatch.setattr(packing, "MAKERS", made)
    return made


def test_every_row_has_a_maker_and_is_in_its_folder() -> None:
    assert {i.maker for i in contents.ITEMS} == set(packing.MAKERS)
    assert all(i.pattern.startswith(f"{i.maker}/") for i in contents.ITEMS)
    assert f"/{places.NAME}*/" in (ROOT / ".gitignore").read_text().split()


def test_what_is_packed_is_what_the_rows_say(makers: Any, tmp_path: Path) -> None:
    kit = tmp_path / "kit"
    listing = packing.pack(kit, list(makers))
    assert len(contents.files(kit)) == len(contents.ITEMS)
    assert all(item.pattern in listing for item in contents.ITEMS)
    makers["wheels"] = lambda folder: put(folder, "platformdirs-9.whl", "xgboost_cpu-9.whl")
    packing.pack(kit, ["wheels"])
    assert "wheels/platformdirs-9.whl" in contents.files(kit), "packed anew"
    assert "ladder/some" in contents.files(kit), "the others are kept"
    assert [p.name for p in tmp_path.iterdir()] == ["kit"], "nothing half-made is left"


def test_a_kit_that_is_too_large_or_not_as_told_is_refused(makers: Any, tmp_path: Path) -> None:
    kit = tmp_path / "kit"
    packing.pack(kit, list(makers))
    before = contents.files(kit)
    makers["ladder"] = lambda folder: put(folder, "big", size=contents.LIMIT)
    with pytest.raises(packing.Refused, match="too large: nothing was packed") as told:
        packing.pack(kit, ["ladder"])
    assert f"{contents.LIMIT:,}" in str(told.value), "the packing list with sizes"
    makers["wheels"] = lambda folder: put(folder, "platformdirs-1.whl", "surprise.txt")
    with pytest.raises(packing.Refused) as told:
        packing.pack(kit, ["wheels"])
    assert "wheels/xgboost_cpu-*.whl: missing" in str(told.value)
    assert "wheels/surprise.txt: no row" in str(told.value)
    assert contents.files(kit) == before


def test_the_command_packs_and_says_why_not(makers: Any, tmp_path: Path, capsys: Any) -> None:
    kit = tmp_path / "kit"
    assert main.main(["--kit", str(kit)]) == 0 and "bytes" in capsys.readouterr().out
    makers["ladder"] = lambda folder: packing.run([sys.executable, "-c", "exit('no ladder')"])
    assert main.main(["--kit", str(kit), "--only", "ladder"]) == 1
    assert "no ladder" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main.main(["--only", "wheel"])


def test_small_models_come_with_right_results(tmp_path: Path) -> None:
    source, made = tmp_path / "source", tmp_path / "made"
    source.mkdir(), made.mkdir()
    for name in ("softmax", "attention"):
        found = ROOT / "examples" / f"{name}.hlo"
        if found.exists():
            (source / f"{name}.hlo").write_text(found.read_text())
    (source / "large.hlo").write_text("HloModule large\n" + " " * packing.SMALL)
    packing.corpus(made, source)
    assert not (made / "large.hlo").exists()
    (wanted,) = right.read(made / "softmax.right.npz")
    assert wanted.dtype == np.float32 and np.allclose(wanted.sum(-1), 1, atol=1e-5)


def test_results_of_every_type_come_back(tmp_path: Path) -> None:
    results = [
        np.arange(4, dtype=np.float32).astype(ml_dtypes.bfloat16),
        np.float32(2),
        np.array([True, False]),
        np.arange(12)[::-1].astype(np.int8),
        np.zeros((0, 3)),
    ] * 3
    right.write(tmp_path / "a.right.npz", results)
    found = right.read(tmp_path / "a.right.npz")
    for got, want in zip(found, results, strict=True):
        assert got.dtype == np.asarray(want).dtype and np.array_equal(got, want)


def test_a_whole_model_is_packed_and_right(tmp_path: Path) -> None:
    pytest.importorskip("jax", exc_type=ImportError)
    pytest.importorskip("flatbuffers", exc_type=ImportError)
    from gpu.measure import models

    def dense(p: Any, x: Any) -> Any:
        return x @ p("w", 16, 8, scale=0.25) + p("b", 8)

    model = models.Model(dense, (prebuilt.Recipe("x", (4, 16)),))
    made = packing.whole_model("dense", model)
    prebuilt.write(tmp_path / "dense", made)
    read = prebuilt.read(tmp_path / "dense")
    assert [r.name for r in read.recipes] == ["w", "b", "x"] and read.predicted and read.exported
    w, b, x = read.arguments()
    assert read.error([x @ w + b]) < 1e-5 < read.error([x @ w])
    assert (tmp_path / "dense" / prebuilt.CODE).stat().st_size < 100_000


def test_workloads_come_out_of_the_kit_unless_a_log_has_schedules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    works = workloads.products(True)
    monkeypatch.setattr(workloads, "every", lambda small: works[2:])
    (tmp_path / "kernels").mkdir()
    packing.kernels(tmp_path / "kernels", small=True)
    (work,) = works[2:]
    monkeypatch.setattr(Part, "build", lambda part, text, options="": ("built", 0.0))
    target = "--target", "cuda -arch=sm_90a", "--kit", str(tmp_path)

    def ready(*options: str) -> Any:
        part = Part("matmul", measure._options([*target, *options]))
        return part.ready(work.name, work.hlo, work.options)[0]

    assert ready().bundle.target.tf32
    assert ready("--log", "some.jsonl") == ready("--target", "cuda -arch=sm_90") == "built"
    assert ready("--target", "cpu") == ready("--kit", str(tmp_path / "none")) == "built"


def test_cases_are_the_kits_else_the_corpuss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(places.VARIABLE, str(tmp_path))
    assert places.case_folders() == (ROOT / "examples", places.corpus())
    (tmp_path / "corpus").mkdir()
    assert places.case_folders() == (ROOT / "examples", tmp_path / "corpus")
    monkeypatch.delenv(places.VARIABLE)
    assert places.kit() == ROOT / places.NAME


@pytest.mark.parametrize("step", session.STEPS, ids=lambda s: s.name)
def test_a_command_is_short_and_names_what_there_is(step: session.Step, tmp_path: Path) -> None:
    assert len(step.command) < session.LONGEST and step.seconds < session.LIMIT
    subprocess.run(["bash", "-n", "-c", step.command], check=True)
    assert longest(step.body) <= step.seconds
    for name in re.findall(r"(?:benchmarks|tests)/[\w/]+\.py", step.command):
        assert (ROOT / name).exists()
    flat = step.body.replace("\\\n", " ")
    for script, given in re.findall(r"/(measure|ladder)/main\.py([^\n>|;]*)", flat):
        for name, value in {
            "PARTS": "passes",
            "RUNG": "driver",
            "B": f"--prebuilt {tmp_path}",
        }.items():
            given = given.replace(f"${name}", value)
        parser = {"measure": measure._options, "ladder": ladder._options}[script]
        options = parser([w for w in shlex.split(given) if w != "2"])
        if script == "measure" and not options.once:
            assert options.seconds < step.seconds


def longest(body: str) -> int:
    """Seconds that the limits within a command allow."""
    total = 0
    for loop in re.finditer(r"for \w+ in ([^;]*); do\n(.*?)\ndone", body, re.DOTALL):
        total += len(loop[1].split()) * longest(loop[2])
    outside = re.sub(r"for \w+ in [^;]*; do\n.*?\ndone", "", body, flags=re.DOTALL)
    return total + sum(int(s) for s in re.findall(r"timeout (\d+)", outside))


def test_the_commands_fit_the_sessions() -> None:
    """With time for one repair, or for the command that looks closer."""
    assert all(session.planned(n) <= session.WHOLE - session.START for n in session.SESSIONS)
    first = [s.name for s in session.STEPS if s.session == 1]
    assert first == ["ladder", "measure"]
    shown = session.shown()
    assert all(step.command in shown for step in session.STEPS)
    (counters,) = (s for s in session.STEPS if s.name == "counters")
    named = re.search(r"for w in ([^;]*);", counters.body)
    assert named and set(named[1].split()) <= {w.name for w in workloads.every(False)}


def test_what_the_kit_lacks_does_not_stop_a_command(tmp_path: Path) -> None:
    """Without wheels and prebuilt kernels a command goes on."""
    head = session.HEAD.replace("/tmp/nw", str(tmp_path / "nw"))
    env = {**os.environ, "OUT": str(tmp_path / "out")}
    told = 'echo "built: $B; out: $(ls -d $O)"'
    done = subprocess.run(
        ["bash", "-c", head + told], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == f"built: ; out: {tmp_path / 'out'}"
    (tmp_path / places.NAME / "ladder").mkdir(parents=True)
    done = subprocess.run(
        ["bash", "-c", head + told], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert f"built: --prebuilt {places.NAME}/ladder;" in done.stdout


def test_the_page_has_the_contents_and_the_commands_as_they_are() -> None:
    page = PAGE.read_text()
    assert contents.rows() in page
    assert session.rows() in page


def test_a_bare_check_looks_at_status_and_words(tmp_path: Path) -> None:
    said: list[str] = []

    def passes(code: str, *words: str) -> bool:
        one = bare.Check("one", ("-c", code), words)
        return bare.outcome(one, sys.executable, tmp_path, {"PATH": ""}, said.append)

    assert passes("print('here')", "here")
    assert not passes("print('here')", "there") and "does not say 'there'" in said[-1]
    assert not passes("raise SystemExit('broken')") and "broken" in said[-1]
    with_wheels, without = bare.checks(["a_model"], True), bare.checks(["a_model"], False)
    assert [c.name for c in with_wheels] == [c.name for c in without]
    assert any("a_model" in c.words for c in without)


def test_only_tracked_files_travel(tmp_path: Path) -> None:
    source = tmp_path / "source"
    put(source, "kept.py", "left.log")
    (source / "link").symlink_to("kept.py")
    for command in (["init", "-q"], ["add", "kept.py", "link"]):
        subprocess.run(["git", *command], cwd=source, check=True)
    bare.copy_tracked(source, tmp_path / "made")
    assert sorted(p.name for p in (tmp_path / "made").iterdir()) == ["kept.py", "link"]
    assert (tmp_path / "made" / "link").is_symlink()
