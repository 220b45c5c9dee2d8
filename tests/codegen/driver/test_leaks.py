"""Building and dropping models leaves no memory behind."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

BUILDS = 160
PER_BUILD = 2 << 10  # bytes: 20 KiB where every JIT library and pass manager stays

SCRIPT = """
import ctypes, gc, sys
import numpy as np
import nestwright as nw

class Mallinfo(ctypes.Structure):  # of glibc 2.33
    _fields_ = [(n, ctypes.c_size_t) for n in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks",
        "fordblks", "keepcost")]

mallinfo = ctypes.CDLL(None).mallinfo2
mallinfo.restype = Mallinfo

def used():
    gc.collect()
    info = mallinfo()
    return info.uordblks + info.hblkhd, sys.getallocatedblocks()

def build(n):
    module = nw.parse(f"HloModule m\\nENTRY e {{\\n x = f32[{64 + n % 2}] parameter(0)\\n"
                      f" ROOT y = f32[{64 + n % 2}] tanh(x)\\n}}")
    nw.build(module, cache=False)(np.ones(64 + n % 2, np.float32))

count = int(sys.argv[1])
for n in range(count // 2):  # what is kept on purpose, tables and memos, fills first
    build(n)
before = used()
for n in range(count):
    build(n)
after = used()
print(after[0] - before[0], after[1] - before[1])
"""


def has_mallinfo() -> bool:
    name, version = platform.libc_ver()
    return name == "glibc" and tuple(map(int, version.split("."))) >= (2, 33)


@pytest.mark.skipif(not has_mallinfo(), reason="needs glibc 2.33, which tells what is allocated")
def test_a_build_that_is_dropped_leaves_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(BUILDS)],
        env={**os.environ, "NESTWRIGHT_CACHE": "off"},
        capture_output=True,
        text=True,
        check=True,
    )
    grown, blocks = map(int, done.stdout.split())
    assert grown < BUILDS * PER_BUILD
    assert blocks < BUILDS * 3  # of CPython's own allocator; 4.5 with a method definition each
