"""Everything there is to know of target cuda on a machine with a GPU, in one call of eight minutes.

    python benchmarks/gpu.py --out FOLDER [--only matmul,models] [--log LOG] [--dry-run]

Needs NumPy, llvmlite and cuda-python; compares with torch and jax where they are; no network, no
installing. Every part runs in a child process of its own, under a time limit, and writes each
result as it gets it: a fault or a hang loses what was under way and nothing else. Results are
checked before they are timed; contenders take turns in one process, and ratios are of medians from
the same turns. FOLDER gets gpu.json and gpu.txt, with the notes of what was skipped and why.

Exit status: 0 all is right, 1 something is wrong or failed, 2 there is no GPU here.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from checkout import importable

PARTS = {  # seconds that each may take, all together less than TOTAL
    "machine": 30,
    "small": 50,
    "passes": 100,
    "matmul": 90,
    "models": 120,
    "convolutions": 75,
}
TOTAL = 470


def main(argv: Sequence[str]) -> int:
    """The parts in turn, then the table."""
    options = _options(argv)
    with importable():
        if options.child:
            from gpu_parts import run_part

            run_part(options.child, options)
            return 0
        why = "" if options.dry_run else _missing()
        if why:
            print(f"gpu.py: there is no GPU to measure: {why}", file=sys.stderr)
            return 2
        return _parent(options)


def _options(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("report/gpu"), help="folder for results")
    parser.add_argument("--only", default=",".join(PARTS), help="parts, by name")
    parser.add_argument("--target", default="", help="default: cuda; for a dry run cpu")
    parser.add_argument("--log", type=Path, help="tuning log whose schedules are used")
    parser.add_argument("--corpus", type=Path, help="folder of .hlo files with .expected.npz")
    parser.add_argument("--seconds", type=float, default=TOTAL, help="for all parts together")
    parser.add_argument("--dry-run", action="store_true", help="small sizes, on this processor")
    parser.add_argument("--child", choices=list(PARTS), help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    wrong = [p for p in options.only.split(",") if p not in PARTS]
    if wrong:
        parser.error(f"no part {wrong[0]!r}: there are {', '.join(PARTS)}")
    options.target = options.target or ("cpu" if options.dry_run else "cuda")
    return options


def _missing() -> str:
    """Why nothing can be measured here; '' if it can."""
    from nestwright.ir.errors import TargetError
    from nestwright.ir.gpus import capability

    try:
        capability()
    except TargetError as error:
        return error.why
    return ""


def _parent(options: argparse.Namespace) -> int:
    from gpu_table import table

    options.out.mkdir(parents=True, exist_ok=True)
    begun = time.perf_counter()
    rows: list[dict[str, Any]] = []
    for part in options.only.split(","):
        left = options.seconds - (time.perf_counter() - begun)
        rows += _child(part, min(PARTS[part], left), options)
        whole = {"target": options.target, "seconds": time.perf_counter() - begun, "rows": rows}
        (options.out / "gpu.json").write_text(json.dumps(whole, indent=1))
    text = table(rows)
    (options.out / "gpu.txt").write_text(text)
    print(text)
    bad = [r for r in rows if r["kind"] == "failed" or r.get("ok") is False]
    return 1 if bad else 0


def _child(part: str, seconds: float, options: argparse.Namespace) -> list[dict[str, Any]]:
    """The rows of one part; a row that says so where it did not come to its end."""
    if seconds < 5:
        return [_failed(part, "not begun: the time is up")]
    place = options.out / f"{part}.jsonl"
    place.unlink(missing_ok=True)
    command = [sys.executable, __file__, "--child", part, "--out", str(options.out)]
    command += ["--target", options.target, "--seconds", str(seconds * 0.9)]
    command += ["--log", str(options.log)] if options.log else []
    command += ["--corpus", str(options.corpus)] if options.corpus else []
    command += ["--dry-run"] if options.dry_run else []
    env = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false", "PYTHONUNBUFFERED": "1"}
    print(f"gpu.py: {part}, at most {seconds:.0f} s", file=sys.stderr, flush=True)
    why = ""
    with (options.out / f"{part}.log").open("wb") as log:
        try:
            done = subprocess.run(
                command, stdout=log, stderr=subprocess.STDOUT, timeout=seconds, env=env, check=False
            )
            if done.returncode:
                why = f"its process ended with status {done.returncode}"
        except subprocess.TimeoutExpired:
            why = f"stopped after {seconds:.0f} s"
    rows = _rows(place)
    if why:
        words = (options.out / f"{part}.log").read_text(errors="replace").split("\n")
        last = next((w for w in reversed(words) if w.strip()), "")
        rows.append(_failed(part, f"{why}: {last[:200]}" if last else why))
    return rows


def _rows(place: Path) -> list[dict[str, Any]]:
    """The lines that were written whole."""
    rows = []
    for line in place.read_text().split("\n") if place.exists() else ():
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return rows


def _failed(part: str, why: str) -> dict[str, Any]:
    return {"kind": "failed", "part": part, "name": part, "why": why}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
