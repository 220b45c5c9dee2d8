"""This machine's processor as the system tells it, without LLVM: its features, its threads.

Linux lists the features in ``/proc/cpuinfo``, under names of its own, where its kernel supports
them too. Other systems are asked through LLVM.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from types import MappingProxyType

from ..errors import TargetError

_CPUINFO = "/proc/cpuinfo"
_ENOUGH = 1 << 14  # bytes of it: the first processor's
_X86: Mapping[str, str] = MappingProxyType(
    {
        "avx512bf16": "avx512_bf16",
        "avx512bitalg": "avx512_bitalg",
        "avx512fp16": "avx512_fp16",
        "avx512vbmi2": "avx512_vbmi2",
        "avx512vnni": "avx512_vnni",
        "avx512vp2intersect": "avx512_vp2intersect",
        "avx512vpopcntdq": "avx512_vpopcntdq",
        "avxifma": "avx_ifma",
        "avxneconvert": "avx_ne_convert",
        "avxvnni": "avx_vnni",
        "avxvnniint16": "avx_vnni_int16",
        "avxvnniint8": "avx_vnni_int8",
        "bmi": "bmi1",
        "crc32": "sse4_2",
        "lzcnt": "abm",
        "pclmul": "pclmulqdq",
        "prfchw": "3dnowprefetch",
        "rdrnd": "rdrand",
        "sahf": "lahf_lm",
        "sha": "sha_ni",
        "sse3": "pni",
    }
)
_ARM: Mapping[str, str] = MappingProxyType(
    {
        "crc": "crc32",
        "dotprod": "asimddp",
        "fp-armv8": "fp",
        "fp16fml": "asimdfhm",
        "fullfp16": "asimdhp",
        "lse": "atomics",
        "neon": "asimd",
        "rcpc": "lrcpc",
        "rdm": "asimdrdm",
    }
)
"""LLVM's names of features, where the kernel has others than the same with underscores."""
_UNUSED = frozenset(
    [
        "64bit",
        "cldemote",
        "clflushopt",
        "clwb",
        "clzero",
        "cmpccxadd",
        "enqcmd",
        "fsgsbase",
        "hreset",
        "invpcid",
        "lwp",
        "movdir64b",
        "movdiri",
        "mwaitx",
        "pconfig",
        "pku",
        "prefetchi",
        "ptwrite",
        "rdpid",
        "rdpru",
        "rdrnd",
        "rdseed",
        "rtm",
        "serialize",
        "sgx",
        "shstk",
        "tsxldtrk",
        "uintr",
        "usermsr",
        "waitpkg",
        "wbnoinvd",
        "xsave",
        "xsavec",
        "xsaveopt",
        "xsaves",
    ]
)
"""Features whose instructions no compiler chooses by itself, so that code does not need them."""
SUMMARIES = frozenset(["evex512", "avx10.1", "avx10.1-256", "avx10.1-512"])
"""LLVM's names for what features of AVX-512, listed beside them, are together.

The kernel has none of them, and not every version of LLVM has each.
"""

TILE_REGISTERS = "amx-tile"
"""The feature whose registers Linux keeps for a process only after that has asked for them."""
TILES_REQUEST = 158, 0x1023, 18  # arch_prctl: Linux, Documentation/arch/x86/xstate.rst
REFUSED = f"{TILE_REGISTERS} (the system refuses its registers to this process)"
"""What code lacks where the processor has tile registers and the system does not grant them."""


def default_threads() -> int:
    """Return the threads to use where a target names none.

    They are those of ``NESTWRIGHT_NUM_THREADS``, or as many as this process has cores.
    """
    text = os.environ.get("NESTWRIGHT_NUM_THREADS", "")
    return threads_of(text, "NESTWRIGHT_NUM_THREADS") if text else cores()


def memory(unknown: int) -> int:
    """Return the bytes of this machine's memory, or ``unknown`` where the system does not tell."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return unknown


def threads_of(text: str, where: str) -> int:
    """Return a number of threads that was given; ``TargetError`` if it is none."""
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:6]) <= 1024):
        raise TargetError(f"{where}={text!r}", "it must be an integer from 1 to 1024")
    return int(text)


def cores() -> int:
    """Return the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def triple_here() -> str:
    """Return the triple of this process."""
    machine = os.uname().machine if hasattr(os, "uname") else ""
    if sys.platform == "linux" and machine in ("x86_64", "aarch64"):
        return f"{machine}-unknown-linux-gnu"
    import llvmlite.binding as llvm

    return str(llvm.get_process_triple())


def lacking(features: Iterable[str], machine: str) -> tuple[str, ...]:
    """Return the features, by LLVM's names, that code may use and this processor does not have.

    ``machine`` is its architecture. Asks the system for tile registers if the code needs them, and
    returns ``REFUSED`` for their feature where it does not grant them.
    """
    names, flags = (_ARM if machine == "aarch64" else _X86), features_here()
    needed = sorted(set(features) - _UNUSED - SUMMARIES)
    found = tuple(f for f in needed if _flag(f, names) not in flags)
    refused = TILE_REGISTERS in needed and tiles_refused()
    return (*found, REFUSED) if refused else found


def tiles_refused() -> bool:
    """True if this processor has tile registers that the system does not grant to this process."""
    return _flag(TILE_REGISTERS, _X86) in features_here() and not tiles_granted()


@cache
def tiles_granted() -> bool:
    """Ask Linux to keep tile registers for this process, and return whether it does.

    All of its threads and the children that it forks may use them from then on; a program that it
    executes asks anew. An older Linux refuses, as does one where a thread handles signals on a
    stack that is too small for these registers.
    """
    if not sys.platform.startswith("linux") or os.uname().machine != "x86_64":
        return False
    import ctypes

    return bool(ctypes.CDLL(None).syscall(*TILES_REQUEST) == 0)


def _flag(feature: str, names: Mapping[str, str]) -> str:
    return names.get(feature) or feature.replace("-", "_").replace(".", "_")


@cache
def features_here() -> frozenset[str]:
    """Return the features of this processor, by the kernel's names."""
    try:
        with open(_CPUINFO, "rb") as file:
            text = file.read(_ENOUGH).decode("ascii", "replace")
    except OSError:
        return _asked()
    for line in text.splitlines():
        name, _, words = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return frozenset(words.split())
    return _asked()


def _asked() -> frozenset[str]:
    """Return the features that LLVM finds, by the kernel's names."""
    import llvmlite.binding as llvm

    names = _ARM if os.uname().machine in ("aarch64", "arm64") else _X86
    return frozenset(_flag(f, names) for f, here in llvm.get_host_cpu_features().items() if here)
