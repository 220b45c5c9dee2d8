"""Builds the stand-in as a shared library that the dynamic linker finds in place of a driver."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

NAME = "libcuda.so.1"
SOURCES = Path(__file__).parent / "driver"
WARNINGS = ("-Wall", "-Wextra", "-Werror")


def compiler() -> str | None:
    """Return a C compiler of this machine, None where there is none."""
    named = os.environ.get("CC", "").split()
    for name in (*named[:1], "cc", "gcc", "clang"):
        found = shutil.which(name)
        if found is not None:
            return found
    return None


def build(folder: Path, without: Sequence[str] = (), flags: Sequence[str] = ()) -> Path:
    """Build the library into a folder; it exports everything but what is named in ``without``.

    ``RuntimeError`` where there is no compiler, or where it refuses the sources.
    """
    found = compiler()
    if found is None:
        raise RuntimeError("no C compiler was found: cc, gcc or clang")
    made = folder / NAME
    script = folder / "exports"
    hidden = "".join(f" {symbol};" for symbol in without)
    script.write_text(f"{{ global: cu*; stub_*; local:{hidden} *; }};\n")
    command = [
        found,
        "-std=c11",
        "-O1",
        "-g",
        "-fPIC",
        "-shared",
        "-fvisibility=hidden",
        *WARNINGS,
        *flags,
        f"-Wl,-soname,{NAME}",
        f"-Wl,--version-script,{script}",
        "-o",
        str(made),
        *sorted(map(str, SOURCES.glob("*.c"))),
        "-lpthread",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"the stand-in does not compile:\n{done.stderr}")
    return made


def damaged(folder: Path) -> Path:
    """Return a file of the library's name that the dynamic linker cannot load."""
    made = folder / NAME
    made.write_bytes(b"\x7fELF, and nothing that a library has" + bytes(4096))
    return made


def environment(folder: Path, base: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a process in which the library of a folder is the driver."""
    made = dict(os.environ if base is None else base)
    paths = [str(folder), made.get("LD_LIBRARY_PATH", "")]
    made["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, paths))
    return made
