"""NVIDIA's assembler: PTX to a cubin, with what it says of registers, spills and shared memory.

It is looked for on ``PATH`` and in the pip package ``nvidia-cuda-nvcc``; the newest is taken. What
it made is kept by the hash of the PTX, in memory and in the user's cache folder.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any
from warnings import warn

from ....ir.errors import NestwrightWarning, TargetError, UnsupportedError
from ....ir.files import cache_folder, distrust_reason, open_own, whole_file
from ....ir.scratch import scratch

SECONDS = 300.0  # for one module
KEPT = 4096  # files in the cache folder, about
_LAYOUT = 2  # of a file in the cache


@dataclass(frozen=True, slots=True)
class Usage:
    """The resources of one kernel: registers per thread, bytes of stack, spills, shared memory.

    ``shared`` is static; what a launch asks for comes on top.
    """

    registers: int
    stack: int = 0
    spill_stores: int = 0
    spill_loads: int = 0
    shared: int = 0


@dataclass(frozen=True)
class Cubin:
    """Machine code of a module. ``warnings`` are the assembler's, with their numbers (C75xx)."""

    code: bytes
    kernels: Mapping[str, Usage]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ptxas:
    """An assembler on this machine."""

    path: str
    version: str

    @property
    def order(self) -> tuple[int, ...]:
        """The version as numbers, to compare by."""
        return tuple(map(int, self.version.split(".")))


@cache
def find() -> Ptxas | None:
    """Return the newest ptxas here, or None."""
    found = [p for path in dict.fromkeys(_candidates()) if (p := _asked(path)) is not None]
    return max(found, key=lambda p: p.order, default=None)


def version() -> str:
    """Return the version of the assembler that builds use, or "none"."""
    found = find()
    return found.version if found is not None else "none"


def _candidates() -> Iterator[str]:
    on_path = shutil.which("ptxas")
    if on_path:
        yield on_path
    spec = importlib.util.find_spec("nvidia")
    for place in (spec.submodule_search_locations or ()) if spec is not None else ():
        yield from map(str, sorted(Path(place).glob("*/bin/ptxas*")))


def _asked(path: str) -> Ptxas | None:
    try:
        output = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return None
    version = re.search(r"V(\d+(?:\.\d+)+)", output.stdout)
    return Ptxas(path, version[1]) if version and output.returncode == 0 else None


def assemble(ptx: str, arch: str) -> Cubin:
    """Return the machine code of a PTX module for an architecture such as ``sm_90a``.

    ``TargetError`` without a ptxas here, ``UnsupportedError`` if it refuses the code.
    """
    tool = find()
    if tool is None:
        raise TargetError(
            "no ptxas on this machine",
            "it is neither on PATH nor in a pip package",
            hint="pip install 'nestwright[ptx]'",
        )
    return _assembled(ptx, arch, tool)


@lru_cache(maxsize=256)
def _assembled(ptx: str, arch: str, tool: Ptxas) -> Cubin:
    name = hashlib.sha256(f"{_LAYOUT} {tool.version} {arch}\n{ptx}".encode()).hexdigest()
    folder = _folder()
    kept = _read(folder / name) if folder else None
    if kept is None:
        kept = _run(ptx, arch, tool)
        if folder:
            with suppress(OSError):  # a cache that cannot be written is none
                _write(folder / name, kept)
    return kept


def _folder() -> Path | None:
    """Return where cubins are kept; None where others own the folder or may write to it."""
    folder = cache_folder() / "cubin"
    with suppress(FileNotFoundError):
        if why := distrust_reason(os.stat(folder)):
            _refuse(folder, why)
            return None
    return folder


def _refuse(place: Path, why: str) -> None:
    output = f"cached machine code {place} is not used: {why}"
    warn(output, NestwrightWarning, stacklevel=3)


def _read(place: Path) -> Cubin | None:
    """Return the cubin that is kept under a name; None where there is none that may be used."""
    try:
        with os.fdopen(open_own(place), "rb") as file:
            header, _, code = file.read().partition(b"\n")
        data = json.loads(header)
        if data["key"] != place.name or data["sha256"] != hashlib.sha256(code).hexdigest():
            return None
        kernels = {name: Usage(**usage) for name, usage in data["kernels"].items()}
        return Cubin(code, kernels, tuple(data["warnings"]))
    except PermissionError as error:
        _refuse(place, error.strerror or str(error))
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _write(place: Path, cubin: Cubin) -> None:
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    header: dict[str, Any] = {
        "key": place.name,
        "sha256": hashlib.sha256(cubin.code).hexdigest(),
        "kernels": {name: asdict(usage) for name, usage in cubin.kernels.items()},
        "warnings": cubin.warnings,
    }
    with whole_file(place, private=True) as file:
        file.write(json.dumps(header).encode() + b"\n" + cubin.code)
    if place.name.startswith("00"):  # now and then
        _prune(place.parent)


def _prune(folder: Path) -> None:
    files = sorted(folder.iterdir(), key=lambda p: p.stat().st_mtime)
    for old in files[:-KEPT]:
        old.unlink(missing_ok=True)


def _run(ptx: str, arch: str, tool: Ptxas) -> Cubin:
    with scratch("ptxas") as folder:
        source, result = os.path.join(folder, "k.ptx"), os.path.join(folder, "k.cubin")
        Path(source).write_text(ptx)
        command = [tool.path, "-v", f"-arch={arch}", "-o", result, source]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            raise UnsupportedError(
                f"PTX of {_named(ptx)} for {arch}", f"ptxas took more than {SECONDS:.0f} s"
            ) from None
        except OSError as error:
            raise TargetError(f"{tool.path} does not run", str(error)) from None
        output = done.stdout + done.stderr
        if done.returncode:
            why = "; ".join(_lines(output, "error", "fatal")[:2]) or output.strip()[:500]
            raise UnsupportedError(
                f"PTX of {_named(ptx)} for {arch}", f"ptxas {tool.version} refuses it: {why}"
            )
        return Cubin(Path(result).read_bytes(), usages(output), tuple(warnings(output)))


def _named(ptx: str) -> str:
    names = re.findall(r"^\.visible \.entry ([\w$.]+)", ptx, re.MULTILINE)
    return f"kernel {', '.join(names[:3])}" if names else "a module without kernels"


def _lines(output: str, *kinds: str) -> list[str]:
    found = []
    for line in output.splitlines():
        kind = re.match(r"ptxas .*?\b(\w+)\s*: (.*)", line)
        if kind and kind[1] in kinds:
            found.append(kind[2].strip())
    return found


def warnings(output: str) -> list[str]:
    """Return the warnings of ptxas, and its notes that carry a number such as ``(C7510)``."""
    numbered = [x for x in _lines(output, "info") if re.match(r"\(C\d+\)", x)]
    return [*_lines(output, "warning"), *numbered]


def usages(output: str) -> dict[str, Usage]:
    """Return what ``ptxas -v`` says of each kernel."""
    found: dict[str, Usage] = {}
    for part in re.split(r"Compiling entry function '", output)[1:]:
        name = part.partition("'")[0]

        def number(pattern: str, part: str = part) -> int:
            match = re.search(pattern, part)
            return int(match[1]) if match else 0

        found[name] = Usage(
            registers=number(r"Used (\d+) registers"),
            stack=number(r"(\d+) bytes stack frame"),
            spill_stores=number(r"(\d+) bytes spill stores"),
            spill_loads=number(r"(\d+) bytes spill loads"),
            shared=number(r"(\d+) bytes smem"),
        )
    return found
