"""The tool as logs and workers name it: the versions that determine its code, and our sources."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("nestwright", "llvmlite")
LAYERS = ("ir", "te", "schedule", "codegen", "autotune")  # what takes part in a trial
ENDINGS = (".py", ".ll", ".j2")


def tool_versions() -> dict[str, str]:
    """Return the versions that determine the generated code, by package."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:  # a source tree that is not installed
            continue
    return found


@cache
def code_version() -> str:
    """Return the versions and a digest of our sources, which differ where results may differ."""
    digest, root = sha256(), Path(__file__).parents[2]
    for layer in LAYERS:
        for path in sorted((root / layer).rglob("*")):
            if path.suffix in ENDINGS:
                digest.update(f"{path.relative_to(root).as_posix()}\n".encode())
                digest.update(path.read_bytes())
    named = " ".join(f"{package} {number}" for package, number in tool_versions().items())
    return f"{named} ({digest.hexdigest()[:8]})"
