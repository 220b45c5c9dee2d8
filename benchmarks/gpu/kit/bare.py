"""Tries the kit on a bare Python, as the machine with the GPU has it, from the tracked files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..places import NAME, ROOT
from .packing import PYTHON, Refused, run

PACKAGES = (
    "numpy",
    "ml-dtypes",
    "llvmlite",
    "cuda-bindings",
    "click",
    "rich",
    "jinja2",
    "pytest",
    "hypothesis",
    "pytest-xdist",
    "filelock",
    "scipy",
)
"""What that machine has of what nestwright uses: not platformdirs, xgboost, optuna."""
LIMIT = 300  # seconds of one check
ARCH = "cuda -arch=sm_90"
SOFTMAX = "examples/softmax.hlo"
BUILD = f"""
import nestwright as nw
x = nw.build({SOFTMAX!r}).random_arguments(0)
nw.build({SOFTMAX!r})(*x)
nw.build({SOFTMAX!r}, target={ARCH!r})
"""
BLEND = f"""
import tempfile, nestwright as nw
from nestwright.autotune.cost.model import make_regressor
print(make_regressor(0)[1] or "xgboost")
with tempfile.TemporaryDirectory() as folder:
    nw.tune({SOFTMAX!r}, trials=14, log=folder + "/log.jsonl")
"""
OPTUNA = f"""
import tempfile, nestwright as nw
from nestwright.ir.errors import NestwrightError
try:
    with tempfile.TemporaryDirectory() as folder:
        nw.tune({SOFTMAX!r}, trials=2, log=folder + "/log.jsonl", strategy="optuna:tpe")
except NestwrightError as error:
    print(error)
"""


@dataclass(frozen=True)
class Check:
    """A command, by Python's arguments, and words that it must print."""

    name: str
    arguments: tuple[str, ...]
    words: tuple[str, ...] = ()


def checks(cases: Sequence[str], wheels: bool) -> tuple[Check, ...]:
    """Return the commands that must work; the tests on a GPU must find the models ``cases``."""
    collect = ("-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider")
    tune = ("tune", SOFTMAX, "--target", ARCH, "--trials", "4", "--simulate-cost")
    return (
        Check("build", ("-c", BUILD)),
        Check("command line", ("-m", "nestwright", "build", SOFTMAX, "--target", ARCH, "-o", "x")),
        Check("tune by the cost model", ("-m", "nestwright", *tune)),
        Check("tune", ("-c", BLEND), ("xgboost" if wheels else "xgboost is not installed",)),
        Check("a strategy that is not there", ("-c", OPTUNA), ("optuna is not installed",)),
        Check("ladder", ("benchmarks/gpu/ladder/main.py", "--dry-run")),
        Check(
            "measure",
            ("benchmarks/gpu/measure/main.py", "--dry-run", "--out", "dry"),
            (" 0 wrong",),
        ),
        Check("cases", (*collect, "tests/codegen/runtime/cuda/test_device.py"), tuple(cases)),
    )


def check(kit: Path, python: str = "") -> int:
    """Run every check with the kit's wheels and without; 0 where all is right."""
    bad = 0
    with tempfile.TemporaryDirectory(prefix="nestwright-bare-") as name:
        folder = Path(name)
        try:
            python = python or environment(folder / "venv")
            copy_tracked(ROOT, folder / "checkout")
            shutil.copytree(kit, folder / "checkout" / NAME)
            wheels = [str(p) for p in sorted((kit / "wheels").glob("*.whl"))]
            run(
                [
                    python,
                    "-m",
                    "pip",
                    "install",
                    "-q",
                    "--no-index",
                    "--no-deps",
                    "--target",
                    str(folder / "site"),
                    *wheels,
                ]
            )
        except Refused as refusal:
            print(refusal, file=sys.stderr)
            return 1
        cases = [p.stem for p in sorted((kit / "corpus").glob("*.hlo"))]
        for site in (folder / "site", None):
            print("with the kit's wheels" if site else "without them")
            for one in checks(cases, site is not None):
                bad += not _passes(one, python, folder, site)
    print(f"{bad} failed" if bad else "all is right")
    return 1 if bad else 0


def _passes(one: Check, python: str, folder: Path, site: Path | None) -> bool:
    (folder / "path").mkdir(exist_ok=True)
    link = folder / "path" / "nestwright"
    if not link.is_symlink():
        link.symlink_to(folder / "checkout", target_is_directory=True)
    path = os.pathsep.join(str(p) for p in (site, folder / "path") if p)
    home = folder / ("with" if site else "without")
    home.mkdir(exist_ok=True)
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": path}
    return outcome(one, python, folder / "checkout", env, print)


def outcome(
    one: Check, python: str, place: Path, env: dict[str, str], tell: Callable[[str], object]
) -> bool:
    """Run a check; did it end well and print its words?"""
    begun, why = time.perf_counter(), ""
    try:
        done = subprocess.run(
            [python, *one.arguments],
            cwd=place,
            env=env,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        said = done.stdout + done.stderr
        missing = [w for w in one.words if w not in said]
        if done.returncode or missing:
            lacks = f"; it does not say {missing[0]!r}" if missing else ""
            why = f"status {done.returncode}{lacks}\n{said[-2000:]}"
    except subprocess.TimeoutExpired:
        why = f"not done after {LIMIT} s"
    took = time.perf_counter() - begun
    tell(f"  {'FAILED' if why else 'right':<7}{took:6.1f} s  {one.name}{': ' + why if why else ''}")
    return not why


def environment(folder: Path) -> str:
    """Return a new environment with that machine's packages; the path of its Python."""
    run([f"python{PYTHON}", "-m", "venv", str(folder)])
    python = str(folder / "bin" / "python")
    run([python, "-m", "pip", "install", "-q", *PACKAGES])
    return python


def copy_tracked(source: Path, target: Path) -> None:
    """Copy the tracked files of a checkout."""
    listed = run(["git", "-C", str(source), "ls-files", "-z"])
    for name in filter(None, listed.split("\0")):
        place = target / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source / name, place, follow_symlinks=False)
