"""The features of processors that LLVM knows, which it lists where nobody looks: on stderr.

So a child process asks it, and only about features that no table of ours has.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import cache

_SECONDS = 60
_ASK = """
import sys
import llvmlite.binding as llvm
llvm.initialize_all_targets()
llvm.Target.from_triple(sys.argv[1]).create_target_machine(features="+help")
"""
_ROW = re.compile(r"^  (\S+) +- ", re.MULTILINE)


@cache
def features_of(machine: str) -> frozenset[str]:
    """Return the names of all features of an architecture; none if LLVM cannot be asked here."""
    paths = os.pathsep.join(p for p in sys.path if p)
    if not sys.executable:  # embedded in another program
        return frozenset()
    try:
        done = subprocess.run(
            [sys.executable, "-c", _ASK, f"{machine}-linux-gnu"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            env={**os.environ, "PYTHONPATH": paths},
        )
    except (OSError, subprocess.SubprocessError):
        return frozenset()
    return frozenset(_ROW.findall(done.stderr.partition("Available features")[2]))
