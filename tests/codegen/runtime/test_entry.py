"""The native entry of a call: element types by the formats of buffers, an arena for each call."""

from __future__ import annotations

import resource
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nestwright as nw
from nestwright.ir.dtypes import BY_NAME, to_numpy
from nestwright.ir.errors import ArgumentError

KINDS = [np.dtype(c) for c in "?bBhHiIlLqQefdFDSV" if np.dtype(c).itemsize]
NAMES = ("pred", "s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64", "f16", "f32", "f64", "c64")


@pytest.mark.parametrize("name", NAMES)
def test_no_other_element_type_is_read_as_this_one(name: str) -> None:
    exe = nw.build(
        nw.parse(f"""HloModule copy
ENTRY e {{
  x = {name}[4] parameter(0)
  ROOT y = {name}[4] reverse(x), dimensions={{0}}
}}"""),
        cache=False,
    )
    own = to_numpy(BY_NAME[name])
    for kind in (*KINDS, np.dtype([("a", "f4"), ("b", "f4")])):
        x: Any = (np.arange(4 * kind.itemsize, dtype=np.uint8) % 2).view(kind)
        if kind.kind == own.kind and kind.itemsize == own.itemsize:
            assert np.array_equal(exe(x).view(np.uint8), x[::-1].copy().view(np.uint8))
        else:
            with pytest.raises(ArgumentError, match="expected"):
                exe(x)


CHAIN = """HloModule chain
ENTRY e {
  x = f32[256,256] parameter(0)
  a = f32[256,256] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  b = f32[256,256] dot(a, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT c = f32[256,256] dot(b, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}"""
THREADS, CALLS = 6, 60
PAGE = resource.getpagesize()


@pytest.mark.skipif(sys.platform != "linux", reason="memory in use is read as Linux tells it")
def test_calls_at_once_have_arenas_that_are_freed() -> None:
    """One is kept for the next call, the others are given back."""
    exe = nw.build(nw.parse(CHAIN), target="cpu -threads=1", cache=False)
    x = np.eye(256, dtype=np.float32)
    wrong: list[int] = []

    def work(k: int) -> None:
        own, out = x * np.float32(k + 1), np.empty_like(x)
        for _ in range(CALLS):
            exe(own, out=out)
            if out[0, 0] != (k + 1) ** 5:
                wrong.append(k)

    def round_of_calls() -> int:
        threads = [threading.Thread(target=work, args=(k,)) for k in range(THREADS)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE

    before, *_, after = (round_of_calls() for _ in range(4))
    assert not wrong
    assert after - before < 20 * exe.plan.arena_bytes
