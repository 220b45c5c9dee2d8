"""The command's front door: exit statuses, suggestions, and one message per error."""

from __future__ import annotations

import errno
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from nestwright.codegen.driver.llvm_faults import MaskedStores

COMMANDS = ("tune", "build", "run", "bench", "show", "log", "calibrate", "targets", "doctor")
COMMAND = [sys.executable, "-m", "nestwright"]


def test_help_names_every_command(nestwright) -> None:
    said = nestwright("--help")
    assert said.status == 0
    assert all(f"\n  {name} " in said.out for name in COMMANDS)
    assert nestwright().status == 2, "without a command: the help, and no success"


@pytest.mark.parametrize("command", [*COMMANDS, "log show", "log best", "log merge", "log stats"])
def test_every_command_has_help(nestwright, command: str) -> None:
    said = nestwright(*command.split(), "--help")
    assert said.status == 0 and f"nestwright {command}" in said.out and not said.err


def test_version(nestwright) -> None:
    assert nestwright("--version").out.startswith("nestwright 0.")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("tuen m.hlo", "no such command 'tuen': did you mean 'tune'?"),
        ("xyzzy", "no such command 'xyzzy': commands: tune, build"),
        ("log sow l.jsonl", "no such command 'sow': did you mean 'show'?"),
        ("tune m.hlo --trails 3", "--trials"),
        ("tune", "missing argument 'MODEL'"),
        ("tune m.hlo --trials many", "'many' is not a valid integer"),
        ("run m.hlo --random -1", "-1 is not in the range"),
        ("bench", "missing argument"),
        ("show softmax.hlo --stage shedule", "did you mean 'scheduled'?"),
        ("show softmax.hlo --stage ptx", "its code is stage asm"),
        ("show softmax.hlo --stage te --group nope", "no group 'nope'"),
        ("show softmax.hlo --stage plan --group x", "stage plan has no groups of its own"),
        ("show softmax.hlo --passes --stage te", "exclude each other: give one"),
        ("show softmax.hlo --dump d --group x", "--group needs --stage"),
        ("show softmax.hlo --dump softmax.hlo", "cannot use 'softmax.hlo': File exists"),
        ("build softmax.hlo --target cpuu", "did you mean 'cpu'?"),
        ("build softmax.hlo --target cpu\t-mcpu=znver9", "did you mean 'znver"),
        ("tune softmax.hlo --trials 0", "at least one trial"),
        ("run softmax.hlo", "pass either --inputs X.npz or --random SEED"),
        ("run softmax.hlo --random 0 --inputs x.npz", "its arguments are given twice"),
        ("build nope.hlo", "nope.hlo: cannot read the model: No such file"),
        ("log show nope.jsonl", "`nestwright tune MODEL --log nope.jsonl` makes it"),
    ],
)
def test_misuse_is_told_in_one_message(nestwright, softmax: Path, args: str, message: str) -> None:
    said = nestwright(*(a.replace("\t", " ") for a in args.split(" ")))
    assert said.status == 2
    assert message in said.err and not said.out
    assert said.err.startswith("nestwright: ") and "Traceback" not in said.err
    assert said.err.count("nestwright: ") == 1


@pytest.mark.parametrize("module", ["click", "nestwright.cli.syntax"])
def test_an_interrupt_of_the_imports_is_quiet(tmp_path: Path, module: str) -> None:
    code = (
        "import sys, types\n"
        "class Interrupted:\n"
        "    def find_spec(name, path, target=None):\n"
        f"        if name == {module!r}: raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupted)\n"
        "from nestwright.__main__ import main\n"
        "sys.exit(main())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "nestwright: interrupted\n")
    scripts = Path(__file__).parents[2] / "pyproject.toml"
    assert 'nestwright = "nestwright.__main__:main"' in scripts.read_text()


@pytest.mark.parametrize("args", [("--debug", "build", "nope"), ("build", "nope", "--debug")])
def test_debug_shows_the_traceback_wherever_it_stands(nestwright, args) -> None:
    said = nestwright(*args)
    assert said.status == 2
    assert said.err.startswith("Traceback") and "nestwright: nope: cannot read" in said.err


def test_a_fault_of_ours_is_status_3_and_asks_for_a_report(nestwright, softmax, monkeypatch):
    def broken(*args: object, **more: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("nestwright.autotune.recipe.imported_model", broken)
    said = nestwright("show", softmax)
    assert said.status == 3
    assert "internal error: ZeroDivisionError: a bug" in said.err
    assert "--debug" in said.err and "Traceback" not in said.err


@pytest.mark.parametrize(("error", "status"), [(KeyboardInterrupt, 130), (MemoryError, 2)])
def test_other_ends_have_their_status(nestwright, softmax, monkeypatch, error, status) -> None:
    def end(*args: object, **more: object) -> None:
        raise error

    monkeypatch.setattr("nestwright.autotune.recipe.imported_model", end)
    said = nestwright("show", softmax)
    assert said.status == status and said.err.count("\n") == 1


def test_a_reader_that_has_seen_enough_is_no_error(softmax: Path) -> None:
    command = [*COMMAND, "show", str(softmax), "--stage", "llvm"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


@pytest.mark.parametrize("where", ["| true", ">/dev/full"])
def test_an_error_that_nobody_can_read_keeps_its_status(where: str) -> None:
    command = shlex.join([*COMMAND, "build", "nope"])
    line = f"{{ {command} 2>&1; echo $? >&3; }} 3>&2 {where}"
    done = subprocess.run(["sh", "-c", line], stderr=subprocess.PIPE, text=True)
    assert done.stderr == "2\n"


def test_a_broken_pipe_that_is_not_the_output_is_no_success(nestwright, softmax, monkeypatch):
    def broken(*args: object, **more: object) -> None:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr("nestwright.autotune.recipe.imported_model", broken)
    said = nestwright("show", softmax)
    assert said.status == 2 and said.err == "nestwright: cannot read or write: Broken pipe\n"


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_what_is_written_to_a_closed_output_is_dropped(softmax: Path, closed: str) -> None:
    command = shlex.join([*COMMAND, "build", str(softmax), "-o", "m.nw", "--no-cache"])
    done = subprocess.run(["sh", "-c", f"{command} {closed}"], cwd=softmax.parent)
    assert done.returncode == 0 and (softmax.parent / "m.nw").exists()


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="no /dev/full here")
def test_a_full_disk_under_the_output_is_told(softmax: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run([*COMMAND, "targets"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert done.stderr == "nestwright: cannot read or write: No space left on device\n"


def test_targets_and_doctor(nestwright) -> None:
    said = nestwright("targets")
    assert said.status == 0 and "-mcpu=NAME" in said.out
    facts = json.loads(nestwright("targets", "--json").out)
    assert facts["host"]["threads"] >= 1 and facts["host"]["key"] in said.out
    told = nestwright("doctor", "--json")
    checks = {c["name"]: c for c in json.loads(told.out)["checks"]}
    assert checks["compile and run"]["ok"], checks
    assert checks["LLVM"]["ok"] and "masked stores" in checks["LLVM"]["told"]
    assert told.status == (0 if json.loads(told.out)["ok"] else 1)


def test_doctor_finds_masked_stores_that_are_wrong(nestwright, monkeypatch) -> None:
    def wrong() -> MaskedStores:
        return MaskedStores(alone=False, ours=False)

    monkeypatch.setattr("nestwright.codegen.driver.llvm_faults.masked_stores", wrong)
    said = nestwright("doctor")
    assert said.status == 1
    assert re.search(r"^BAD LLVM .*write too much", said.out, re.MULTILINE)


def test_doctor_finds_packages_that_are_too_old(nestwright, monkeypatch) -> None:
    needed = ["numpy>=999.0", "click>=8.1", 'unheard-of>=1.16; extra == "onnx"']
    monkeypatch.setattr("importlib.metadata.requires", lambda name: needed)
    said = nestwright("doctor")
    assert said.status == 1 and "unheard-of" not in said.out
    assert re.search(r"^BAD numpy .*too old: pip install 'numpy>=999.0'", said.out, re.MULTILINE)
    assert re.search(r"^ok  click ", said.out, re.MULTILINE)


def test_doctor_finds_two_distributions_of_one_module(nestwright, monkeypatch) -> None:
    both = {"xgboost": ["xgboost", "xgboost-cpu"]}
    monkeypatch.setattr("importlib.metadata.packages_distributions", lambda: both)
    said = nestwright("doctor")
    assert said.status == 1
    assert "BAD xgboost" in said.out and "overwrite each other" in said.out


def test_a_build_without_the_cache_writes_nothing_there(
    nestwright, softmax: Path, monkeypatch
) -> None:
    cache = Path("cache").absolute()
    monkeypatch.setenv("NESTWRIGHT_CACHE", str(cache))
    assert nestwright("build", softmax, "--no-cache").status == 0
    assert not cache.exists()
    assert nestwright("build", softmax).status == 0
    assert any(cache.rglob("*"))
