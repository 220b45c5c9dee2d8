"""Runs a Python script over the stand-in: ``python benchmarks/gpu/stub/run.py SCRIPT [ARGS]``.

The library is built into a temporary folder. What a correct program never does is told on stderr
when a process ends (``CUDA_STUB_REPORT``). The environment can ask for more:

    CUDA_STUB_FAIL="cuMemAlloc:2=2 cuGraphLaunch:1=999"  these calls give these statuses
    CUDA_STUB_MISSING="cuGraphLaunch"                    these functions are not found
    CUDA_STUB_MEMORY=BYTES                               of the device
    CUDA_STUB_PATIENCE=N                                 questions until work is done
    CUDA_STUB_CAPABILITY=80  CUDA_STUB_DRIVER=12080  CUDA_STUB_PTX=87
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])  # names begin at benchmarks/

from gpu.stub.library import build, environment

FOLDER = Path(__file__).resolve().parents[2]


def main(arguments: list[str]) -> int:
    """Return the script's exit status; 2 where the stand-in cannot be built."""
    if not arguments:
        print(__doc__, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as name:
        try:
            build(Path(name))
        except RuntimeError as error:
            print(error, file=sys.stderr)
            return 2
        made = environment(Path(name), {"CUDA_STUB_REPORT": "1", **os.environ})
        made["PYTHONPATH"] = os.pathsep.join(filter(None, [str(FOLDER), made.get("PYTHONPATH")]))
        return subprocess.run([sys.executable, *arguments], env=made).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
