"""`tune`, `log`, `show` and `bench` as a user meets them: resumed, interrupted, killed, shown."""

from __future__ import annotations

import json
import os
import pty
import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import MethodType

import numpy as np
import pytest
from rich.console import Console

from nestwright.autotune.bench.data import read_report
from nestwright.autotune.log.journal import read
from nestwright.autotune.log.units import clock, span
from nestwright.autotune.lowered import Lowered
from nestwright.autotune.tuner.progress import Progress, TaskResult
from nestwright.autotune.tuner.session import Subject, TuningSession
from nestwright.cli.commands.tune import LEAST
from nestwright.cli.display.live import Display, line, picture, spark
from nestwright.cli.syntax.options import RecipeOptions
from nestwright.codegen.driver.options import BuildOptions
from nestwright.codegen.driver.stages import STAGES
from nestwright.ir.target import keeping

COMMAND = [sys.executable, "-m", "nestwright"]
ONE = ("--target", "cpu -threads=1")
PATIENCE = 600  # seconds for what comes at once unless others take the cores


def points(log: Path) -> list[tuple[str, str, str, str]]:
    return [t.point for t in read(log).trials]


def test_tuning_ends_with_times_and_what_to_do_next(nestwright, dense: Path) -> None:
    said = nestwright("tune", dense, "--trials", 3, "--log", "l.jsonl", *ONE)
    assert said.status == 0
    assert "3 trials measured" in said.out
    assert "times faster" in said.out or "the default schedules are kept" in said.out
    command = f"nestwright build {dense} --target '{ONE[1]}' --log l.jsonl -o model.nw"
    assert f"next: {command}" in said.out
    assert "0/3 trials" in said.err and "stopped: budget" in said.err, "plain lines in a pipe"
    again = nestwright("tune", dense, "--trials", 3, "--log", "l.jsonl", *ONE, "--json")
    facts = json.loads(again.out)
    assert (facts["measured"], facts["trials"], facts["stopped"]) == (0, 3, "budget")


def test_logs_stand_under_the_working_directory_by_default(nestwright, dense: Path) -> None:
    model = dense.rename("two words.hlo")
    np.savez("w of it.npz", w=np.ones((24, 16), np.float32))
    said = nestwright("tune", model, "--trials", 1, "--constants", "w of it.npz", *ONE)
    assert said.status == 0
    (log,) = Path("tuning_logs").glob("*/two words.jsonl")
    assert len(read(log).trials) == 1
    command = shlex.split(said.out.partition("next: nestwright ")[2])
    built = nestwright(*command)
    assert built.status == 0 and not built.err, "what is told to be next works as it is told"


def test_what_a_log_holds(nestwright, tuned: Path) -> None:
    shown = nestwright("log", "show", tuned)
    assert shown.status == 0 and len(shown.out.splitlines()) == 6 and "default" in shown.out
    trials = json.loads(nestwright("log", "show", tuned, "--json").out)["trials"]
    assert len({t["id"] for t in trials}) == 6 and trials[0]["source"] == "default"
    (best,) = json.loads(nestwright("log", "best", tuned, "--json").out)["best"]
    assert best["seconds"] > 0 and best["trace"]
    assert "sch." in nestwright("log", "best", tuned, "--as", "python").out
    assert nestwright("log", "best", tuned, "--target", "cpu -mcpu=nehalem").out == ""
    stats = json.loads(nestwright("log", "stats", tuned, "--json").out)
    assert stats["trials"] == 6 and stats["models"] == ["dense"]
    assert "trials: 6" in nestwright("log", "stats", tuned).out
    (model,) = json.loads(nestwright("log", "best", tuned, "--json").out)["models"]
    assert model["name"] == "dense" and model["kept"] <= model["groups"] == 1
    assert "model dense on cpu-" in nestwright("log", "best", tuned).out
    assert "0 problems in 1 file\n" in nestwright("log", "check", tuned).out
    assert nestwright("log", "check", tuned).status == 0


def test_merging_drops_what_stands_twice(nestwright, tuned: Path) -> None:
    said = nestwright("log", "merge", tuned, tuned, "-o", "both.jsonl")
    assert said.status == 0 and "repeated ones dropped" in said.out
    assert points(Path("both.jsonl")) == points(tuned)


def test_damaged_lines_are_told_and_survived(nestwright, dense: Path, tuned: Path) -> None:
    lines = tuned.read_bytes().splitlines(keepends=True)
    Path("cut.jsonl").write_bytes(b"".join(lines[:-1]) + lines[-1][:-20])
    said = nestwright("log", "show", "cut.jsonl")
    assert said.status == 0 and "unfinished last line ignored" in said.err
    assert nestwright("build", dense, "--log", "cut.jsonl", *ONE).status == 0
    Path("bad.jsonl").write_bytes(b"".join([*lines[:-1], b"{broken\n", lines[-1]]))
    checked = nestwright("log", "check", "bad.jsonl")
    assert checked.status == 1 and f"bad.jsonl:{len(lines)}: " in checked.out
    built = nestwright("build", dense, "--log", "bad.jsonl", *ONE)
    assert built.status == 0 and "skipped 1 line of bad.jsonl: not valid records" in built.err


def test_logs_of_others_are_told_in_one_line(nestwright, softmax: Path, tuned: Path) -> None:
    said = nestwright("build", softmax, "--log", tuned, *ONE)
    assert said.status == 0 and said.err.count("\n") == 1
    assert said.err.startswith("nestwright: warning: ") and "no record for small" in said.err
    assert "dense for cpu-" in said.err
    Path("new.jsonl").write_text('{"k":"header","v":99}\n')
    for command in ("build", "tune", "show"):
        said = nestwright(command, softmax, "--log", "new.jsonl")
        assert said.status == 2 and "new.jsonl:1: cannot use the log: log version 99" in said.err


@pytest.mark.parametrize("stage", [s for s in STAGES if s != "ptx"])
def test_every_stage_shows(nestwright, dense: Path, tuned: Path, stage: str) -> None:
    said = nestwright("show", dense, "--stage", stage, "--log", tuned, *ONE)
    assert said.status == 0 and said.out.strip() and not said.err
    facts = json.loads(nestwright("show", dense, "--stage", stage, "--json").out)
    assert facts["stage"] == stage and facts["text"].strip()


def test_one_group_shows_alone(nestwright) -> None:
    Path("two.hlo").write_text(
        "HloModule two\nENTRY e {\n  x = f32[8,8] parameter(0)\n"
        "  d = f32[8,8] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
        "  ROOT f = f32[8,8] dot(d, x), lhs_contracting_dims={0}, rhs_contracting_dims={0}\n}\n"
    )
    everything = nestwright("show", "two.hlo", "--stage", "loop").out
    one = nestwright("show", "two.hlo", "--stage", "loop", "--group", "dot_0").out
    assert one in everything and len(one) < len(everything)


def test_bench_writes_data_and_page(nestwright, dense: Path, tuned: Path) -> None:
    said = nestwright(
        "bench", dense, "nope.hlo", "--log", tuned, *ONE, "--json", "b.json", "--html", "b.html"
    )
    assert said.status == 1 and "nope.hlo: cannot read the model" in said.out
    assert "GFLOP/s" in said.out and "whole model" in said.out
    good, bad = read_report("b.json").cells
    tuned_way = good.way("tuned")
    assert tuned_way is not None and (tuned_way.error or 0) < 1e-4 and good.seconds("default")
    assert "nope.hlo" in bad.problem and good.key.log == Path(tuned).name
    assert "<svg" in Path("b.html").read_text()


def started(log: Path, dense: Path, **more: object) -> subprocess.Popen[str]:
    command = [*COMMAND, "tune", str(dense), "--trials", "500", "--log", str(log), *ONE]
    process = subprocess.Popen(command, text=True, stderr=subprocess.PIPE, **more)
    while not (log.exists() and log.read_bytes().count(b'"k":"trial"') >= 3):
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.05)
    return process


def children(pid: int) -> list[int]:
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def gone(pid: int) -> bool:
    """Wait for the end of a process that is not ours: minutes, where others take the cores."""
    try:
        end = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([end], [], [], PATIENCE)[0])
    finally:
        os.close(end)


@pytest.mark.parametrize(
    ("how", "status"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)],
    ids=["ctrl-c", "kill", "kill-9"],
)
def test_stopped_tuning_goes_on_where_it_was(
    nestwright, dense: Path, how: int, status: int
) -> None:
    log = Path("l.jsonl").absolute()
    process = started(log, dense)
    workers = children(process.pid)
    process.send_signal(how)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == status
    if how != signal.SIGKILL:
        assert "run the same command again" in err and str(log) in err and "Traceback" not in err
    assert workers and all(gone(p) for p in workers), "no child is left behind"
    kept = len(points(log))
    assert kept >= 3
    more = nestwright("tune", dense, "--trials", kept + 2, "--log", log, *ONE, "--json")
    assert json.loads(more.out)["measured"] == 2
    assert len(set(points(log))) == kept + 2, "nothing was measured twice"
    assert nestwright("log", "check", log).status == 0


def test_a_terminal_gets_a_table_that_redraws(dense: Path, tmp_path: Path) -> None:
    main, side = pty.openpty()
    command = [*COMMAND, "tune", str(dense), "--trials", "2", "--log", str(tmp_path / "l"), *ONE]
    env = os.environ | {"TERM": "xterm", "COLUMNS": "100", "LINES": "30"}
    with subprocess.Popen(command, stdout=side, stderr=side, env=env, close_fds=True) as process:
        os.close(side)
        seen = b""
        while data := _from_terminal(main):
            seen += data
    os.close(main)
    assert process.returncode == 0
    text = seen.decode()
    assert "best so far" in text and "2/2 trials" in text and "\x1b[2K" in text
    assert text.index("best so far") < text.rindex("trials measured")


def _from_terminal(fd: int) -> bytes:
    try:
        return os.read(fd, 65536)
    except OSError:  # Linux says EIO when the other side is closed
        return b""


def progress(tasks: tuple[TaskResult, ...], **more: object) -> Progress:
    facts = dict(
        event="trial",
        task="t",
        text="prior: 3 us",
        trials=40,
        budget=96,
        failures={"timeout": 2, "crash": 0, "invalid": 1},
        elapsed=65.0,
        left=(8.0, 31.0),
        default_seconds=2e-3,
        best_seconds=1e-3,
        tasks=tasks,
    )
    return Progress(**(facts | more))


def task(n: int, best: float | None = 1e-5) -> TaskResult:
    curve = ((1, 4e-5), (2, 2e-5), (3, 1e-5))
    return TaskResult("k", f"dot_{n}", "dot", 1.0, 0, 0, 3, 4e-5, best, curve=curve)


def test_a_line_says_where_tuning_stands() -> None:
    text = line(progress(()))
    assert text.startswith("[1:05, 0:08 to 0:31 left]  40/96 trials  gain 2.00x")
    assert "failed: 1 invalid, 2 timeout" in text and "crash" not in text
    assert "left" not in line(progress((), left=None))


def test_the_time_left_is_a_range_and_the_phase_is_named() -> None:
    text = line(progress((), phase="racing the whole model", left=(0.0, 4.4), budget=1, trials=1))
    assert text.startswith("[1:05, 0:00 to 0:04 left]  racing the whole model  1/1 trial  gain")
    assert "0:07 left" in line(progress((), left=(7.1, 7.4))) and "to" not in span((7.1, 7.4))
    assert clock(-113.0) == "0:00", "time is never negative"


def test_a_wait_shows_at_once_where_the_view_redraws() -> None:
    console = Console(force_terminal=True, width=120)
    with console.capture() as captured, Display(console) as display:
        display(progress((), event="trial", elapsed=0.3, text="first"))
        display(progress((), event="trial", elapsed=0.4, text="second"))
        display(progress((), event="wait", elapsed=0.5, text="waiting for process 7"))
    assert "waiting for process 7" in captured.get() and "second" not in captured.get()


def test_a_time_limit_counts_from_the_commands_start(nestwright, dense: Path, monkeypatch) -> None:
    asked: list[float | None] = []

    def run(session: TuningSession, _: object) -> None:
        asked.append(session.seconds)
        raise KeyboardInterrupt

    monkeypatch.setattr(TuningSession, "run", run)
    nestwright("tune", dense, "--seconds", 1000, *ONE)
    nestwright("tune", dense, *ONE)
    nestwright("tune", dense, "--seconds", 1e-9, *ONE)
    assert "a positive time is needed" in nestwright("tune", dense, "--seconds", -3, *ONE).err
    assert asked[0] is not None and 900 < asked[0] < 1000
    assert asked[1:] == [None, LEAST]


def test_every_option_reaches_the_tuner(nestwright, dense: Path, monkeypatch) -> None:
    began: list[tuple[TuningSession, Lowered]] = []

    def run(session: TuningSession, subject: Callable[[], Subject]) -> None:
        assert isinstance(subject, MethodType)
        began.append((session, subject.__self__))
        raise KeyboardInterrupt

    monkeypatch.setattr(TuningSession, "run", run)
    of_search = ("--trials", 7, "--log", "l.jsonl", "--strategy", "random", "--seed", 5)
    of_model = ("--weights", "int8", "--accuracy", 1e-4, "--denormals", "flush")
    rest = ("--no-excess-precision", "--simulate-cost", *ONE)
    nestwright("tune", dense, *of_search, *of_model, *rest)
    ((session, model),) = began
    assert (session.trials, session.log, session.strategy) == (7, "l.jsonl", "random")
    assert session.seed == 5 and session.simulate_cost and session.target == keeping(model.target)
    assert (model.target.threads, model.target.accuracy, model.target.flushes) == (1, 1e-4, True)
    assert model.options == BuildOptions(model.target, False, "int8")


def test_what_is_told_to_be_next_has_all_options_of_the_model() -> None:
    recipe = RecipeOptions(("x=1x2", "y=3"), "c.npz", "int8", False, 1e-5, "flush")
    named = {name.replace("--excess", "--no-excess") for name in recipe.given}
    words = shlex.split(recipe.asked)
    assert named == {word for word in words if word.startswith("--")}
    assert words.count("--shape") == 2 and {"x=1x2", "y=3", "c.npz", "1e-05"} <= {*words}


def test_a_process_knows_its_age() -> None:
    code = "import time; time.sleep(0.2)\nfrom nestwright.cli.main import process_age\n"
    command = [sys.executable, "-c", code + "print(process_age() >= 0.2)"]
    assert subprocess.check_output(command, text=True).strip() == "True"


def test_a_budget_that_was_too_small_says_so(nestwright) -> None:
    Path("two.hlo").write_text(
        "HloModule two\nENTRY e {\n  x = f32[8,24] parameter(0)\n  w = f32[24,16] parameter(1)\n"
        "  d = f32[8,16] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
        "  ROOT f = f32[16,16] dot(d, d), lhs_contracting_dims={0}, rhs_contracting_dims={0}\n}\n"
    )
    said = nestwright("tune", "two.hlo", "--trials", 1, "--log", "l.jsonl", *ONE)
    assert "1 trial measured" in said.out
    assert "note: the budget was too small: " in said.out
    assert "never measured (dot_" in said.out and "trials would do, about " in said.out


def test_the_picture_shows_the_heaviest_tasks_and_counts_the_rest() -> None:
    console = Console(width=100)
    with console.capture() as captured:
        console.print(picture(progress((task(0, None), *map(task, range(1, 20))))))
    text = captured.get()
    assert "40/96 trials" in text and "4.00x" in text and "▃▅█" in text
    assert "... and 8 more" in text and text.count("dot_") == 12


def test_a_curve_needs_two_points() -> None:
    assert spark(task(0)) == "▃▅█"
    assert spark(TaskResult("k", "t", "dot", 1.0, 0, 0, 1, 1e-5, 1e-5, curve=((1, 1e-5),))) == ""


def test_plain_lines_come_for_news_and_now_and_then(capsys) -> None:
    with Display(Console(force_terminal=False)) as display:
        for event, elapsed in [("start", 0), ("trial", 1), ("trial", 6), ("best", 7), ("done", 8)]:
            display(progress((), event=event, elapsed=float(elapsed), text=event))
    told = [text.split()[-1] for text in capsys.readouterr().err.splitlines()]
    assert told == ["start", "trial", "done"]
