"""Runs the tests over the stand-in with several releases of cuda-python.

::

    python benchmarks/gpu/stub/releases.py [--folder FOLDER] [RELEASE ...] [-- PYTEST ARGUMENTS]

Each release gets an environment of its own, which is made where it is not there yet: in a folder
that is given, else in a temporary one. The exit status is 1 where tests failed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import tomllib
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[3]
RELEASES = ("12.8", "12.9", "13.0", "newest")
TESTS = "tests/codegen/runtime/cuda/stub"


def environment(folder: Path, release: str) -> Path:
    """Return the Python of an environment with this package and a release of cuda-python."""
    place = folder / release
    python, stamp = place / "bin" / "python", place / "installed"
    if stamp.exists():
        return python
    venv.create(place, with_pip=True)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    tools = [t for t in project["optional-dependencies"]["dev"] if t.startswith(("pytest", "hyp"))]
    wanted = "cuda-python" if release == "newest" else f"cuda-python=={release}.*"
    pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, wanted, *project["dependencies"], *tools], check=True)
    subprocess.run([*pip, "--no-deps", "-e", str(ROOT)], check=True)
    stamp.touch()
    return python


def tested(python: Path, arguments: Sequence[str]) -> bool:
    """Run the tests with another Python; return True if they pass."""
    asked = "from importlib.metadata import version; print(version('cuda-bindings'))"
    shown = subprocess.run([str(python), "-c", asked], capture_output=True, text=True, check=True)
    print(f"cuda-bindings {shown.stdout.strip()}", flush=True)
    command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", TESTS, *arguments]
    return not subprocess.run(command, cwd=ROOT).returncode


def main() -> int:
    """0 where all passed."""
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("releases", nargs="*", default=RELEASES, metavar="RELEASE")
    p.add_argument("--folder", type=Path, help="where the environments are, or shall be")
    ours, theirs = sys.argv[1:], []
    if "--" in ours:
        cut = ours.index("--")
        ours, theirs = ours[:cut], ours[cut + 1 :]
    args = p.parse_args(ours)
    with tempfile.TemporaryDirectory() as name:
        folder = args.folder or Path(name)
        passed = [tested(environment(folder, r), theirs) for r in args.releases]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
