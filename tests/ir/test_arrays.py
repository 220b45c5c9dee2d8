"""Memory of executables: where it begins, and the pages that it is made of."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from nestwright.ir.arrays import HUGE, HUGE_PAGE, LARGE, Bytes, aligned_zeros, alignment_of


@pytest.mark.parametrize("nbytes", [1, LARGE - 1, LARGE, HUGE - 1, HUGE, HUGE + 1])
def test_memory_is_zeroed_and_begins_as_its_size_asks(nbytes: int) -> None:
    memory = aligned_zeros(nbytes)
    assert memory.size == nbytes
    assert not memory.any()
    assert memory.ctypes.data % alignment_of(nbytes) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="the pages of a process are read from /proc")
def test_weights_are_private_memory_that_may_have_huge_pages() -> None:
    memory = aligned_zeros(3 * HUGE_PAGE)
    assert memory.ctypes.data % HUGE_PAGE == 0
    access, flags = _mapping(memory)
    assert access == "rw-p"
    if not Path("/sys/kernel/mm/transparent_hugepage").exists():
        pytest.skip("this kernel has no transparent huge pages")
    assert "hg" in flags


def _mapping(memory: Bytes) -> tuple[str, list[str]]:
    """Return the access and the flags of the mapping that memory lies in."""
    address, access = int(memory.ctypes.data), ""
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if head := re.match(r"([0-9a-f]+)-([0-9a-f]+) (\S+)", line):
            first, end = (int(head[k], 16) for k in (1, 2))
            access = head[3] if first <= address < end else ""
        elif access and line.startswith("VmFlags:"):
            return access, line.split()[1:]
    raise AssertionError(f"{address:#x} is in no mapping")
