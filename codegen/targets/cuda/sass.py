"""The machine code of a GPU as text, by NVIDIA's disassembler where one is found."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from . import ptxas

SECONDS = 120.0


@cache
def find() -> str:
    """Return the path of an ``nvdisasm``: on PATH, or in a pip package; "" where there is none."""
    on_path = shutil.which("nvdisasm")
    if on_path:
        return on_path
    spec = importlib.util.find_spec("nvidia")
    places = (spec.submodule_search_locations or ()) if spec is not None else ()
    found = [p for place in places for p in sorted(Path(place).glob("*/bin/nvdisasm*"))]
    return str(found[-1]) if found else ""


def disassemble(ptx: str, arch: str) -> str:
    """Return the machine code that ptxas makes of a module; its PTX where a tool is missing."""
    if not find() or ptxas.find() is None:
        missing = "ptxas" if ptxas.find() is None else "nvdisasm"
        return f"// no {missing} on this machine: this is the PTX\n{ptx}"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(ptxas.assemble(ptx, arch).code)
        file.flush()
        done = subprocess.run(
            [find(), file.name], capture_output=True, text=True, timeout=SECONDS, check=False
        )
    error = done.stderr.strip() or f"status {done.returncode}"
    return done.stdout if not done.returncode else f"// nvdisasm failed: {error}\n{ptx}"
