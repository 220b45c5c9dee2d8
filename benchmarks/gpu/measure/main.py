"""Everything there is to know of target cuda on a machine with a GPU, in one call of nine minutes.

    python benchmarks/gpu/measure/main.py --out FOLDER [--only matmul,models] [--log LOG]
    python benchmarks/gpu/measure/main.py --out FOLDER --dry-run       # small, on this processor
    python benchmarks/gpu/measure/main.py --table FOLDER [FOLDER ...]  # of what was measured before
    python benchmarks/gpu/measure/main.py --once softmax_256MiB        # three calls, as for ncu

Needs NumPy, llvmlite and cuda-python; compares with torch and jax where they are; no network, no
installing. Every part runs in a child process of its own, under a time limit, and writes each
result as it gets it: a fault or a hang loses what was under way and nothing else. Results are
checked before they are timed; contenders take turns in one process, and ratios are of medians from
the same turns, by the same clock. FOLDER gets rows.jsonl, log.txt, gpu.txt and the logs of tuning.

Exit status: 0 all is right, 1 something is wrong or failed, 2 there is no GPU here.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])  # names begin at benchmarks/

from checkout import importable

from gpu import places
from gpu.measure.part import ROWS, Part, rows_of
from gpu.measure.table import table

LIMITS = {  # seconds that each part may take: all together less than one command of ten minutes
    "machine": 75,
    "small": 45,
    "matmul": 75,
    "passes": 70,
    "convolutions": 60,
    "models": 75,
    "tuning": 150,
}
TOTAL = 570
LOG = "log.txt"


def main(argv: Sequence[str]) -> int:
    """Run the parts in turn and print the table; return the exit status."""
    options = _options(argv)
    if options.table:
        print(table([row for folder in options.table for row in rows_of(folder / ROWS)]))
        return 0
    with importable():
        if options.once:
            from gpu.measure.parts import once

            once(Part("machine", options))
            return 0
        if options.child:
            from gpu.measure.parts import run_part

            run_part(options.child, options)
            return 0
        why = "" if options.dry_run else _missing()
        if why:
            print(f"gpu/measure: there is no GPU to measure: {why}", file=sys.stderr)
            return 2
        return _parent(options)


def _options(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("report/gpu"), help="folder for results")
    parser.add_argument("--only", default=",".join(LIMITS), help="parts, by name")
    parser.add_argument("--target", default="", help="default: cuda; for a dry run cpu")
    parser.add_argument("--log", type=Path, help="tuning log whose schedules are used")
    parser.add_argument("--kit", type=Path, default=places.kit(), help="what gpu/kit packed")
    parser.add_argument("--seconds", type=float, default=TOTAL, help="for all parts together")
    parser.add_argument("--dry-run", action="store_true", help="small sizes, on this processor")
    parser.add_argument("--table", type=Path, nargs="+", help="only print the table of these")
    parser.add_argument("--once", default="", help="only call this workload, and time nothing")
    parser.add_argument("--child", choices=list(LIMITS), help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    wrong = [p for p in options.only.split(",") if p not in LIMITS]
    if wrong:
        parser.error(f"no part {wrong[0]!r}: there are {', '.join(LIMITS)}")
    options.target = options.target or ("cpu" if options.dry_run else "cuda")
    return options


def _missing() -> str:
    """Return the reason why nothing can be measured here; empty if there is none."""
    from nestwright.ir.errors import TargetError
    from nestwright.ir.gpus import capability

    try:
        capability()
    except TargetError as error:
        return error.why
    return ""


def _parent(options: argparse.Namespace) -> int:
    options.out.mkdir(parents=True, exist_ok=True)
    for name in (ROWS, LOG):
        (options.out / name).unlink(missing_ok=True)
    begun = time.perf_counter()
    for part in options.only.split(","):
        left = options.seconds - (time.perf_counter() - begun)
        _child(part, min(LIMITS[part], left), options)
        (options.out / "gpu.txt").write_text(table(rows_of(options.out / ROWS)))
    rows = rows_of(options.out / ROWS)
    print(table(rows))
    bad = [r for r in rows if r["kind"] == "failed" or r.get("ok") is False]
    return 1 if bad else 0


def _child(part: str, seconds: float, options: argparse.Namespace) -> None:
    """Run one part; a row says so where it did not come to its end."""
    note = Part(part, options)
    if seconds < 5:
        note.write("failed", part, why="not begun: the time is up")
        return
    print(f"gpu/measure: {part}, at most {seconds:.0f} s", file=sys.stderr, flush=True)
    place, why = options.out / LOG, ""
    before = place.stat().st_size if place.exists() else 0
    with place.open("ab") as log:
        try:
            done = subprocess.run(
                _command(part, seconds, options),
                stdout=log,
                stderr=subprocess.STDOUT,
                timeout=seconds,
                env=_environment(),
                check=False,
            )
            if done.returncode:
                why = f"its process ended with status {done.returncode}"
        except subprocess.TimeoutExpired:
            why = f"stopped after {seconds:.0f} s"
    _end_line(options.out / ROWS)
    if why:
        words = place.read_bytes()[before:].decode(errors="replace").split("\n")
        last = next((w for w in reversed(words) if w.strip()), "")
        note.write("failed", part, why=f"{why}: {last[:200]}" if last else why)


def _command(part: str, seconds: float, options: argparse.Namespace) -> list[str]:
    command = [sys.executable, __file__, "--child", part, "--out", str(options.out)]
    command += ["--target", options.target, "--seconds", str(seconds * 0.9)]
    command += ["--kit", str(options.kit)]
    command += ["--log", str(options.log)] if options.log else []
    return [*command, *(["--dry-run"] if options.dry_run else [])]


def _environment() -> dict[str, Any]:
    """jax leaves memory to the others."""
    return {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false", "PYTHONUNBUFFERED": "1"}


def _end_line(place: Path) -> None:
    """End a half-written last line of a killed child, so that the next row is not lost with it."""
    if place.exists() and not place.read_bytes().endswith(b"\n"):
        with place.open("a") as file:
            file.write("\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
