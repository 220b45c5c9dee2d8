"""Processor cores: issue rates, latencies, caches and bandwidths, one row per family.

Cost models ask these rows rather than hold constants of their own. The figures are those of the
manufacturers' optimization guides and of published measurements of instructions; bandwidths from
caches are what a loop over a working set reaches, not what the bus could carry. A calibration
(``autotune/calibrate``) replaces those that differ from machine to machine: clock, bandwidths, the
cost of a fork.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import NamedTuple

_KIB, _MIB = 1 << 10, 1 << 20
LEVELS = ("l1", "l2", "l3", "memory")
"""Where data are, the nearest first."""
LARGEST = 512 * _MIB  # bytes of all threads' working sets in memory
SHARE = 8  # a working set takes at most this part of the machine's memory


class Cache(NamedTuple):
    """One level of data cache as a core sees it; L3 is shared.

    ``rate`` is the bytes per cycle that one core reads from it, over a working set that fits here
    and not in the level before.
    """

    size: int
    ways: int
    rate: float
    line: int = 64

    @property
    def sets(self) -> int:
        """The number of sets, at least 1."""
        return max(1, self.size // (self.ways * self.line))

    @property
    def period(self) -> int:
        """The distance in bytes after which addresses map to the same set again."""
        return self.sets * self.line

    def held(self, count: int, stride: int) -> float:
        """Return the share of ``count`` lines ``stride`` bytes apart that fit at once, in [0, 1].

        Lines whose distance is a multiple of a large power of two share few sets, each of which
        holds as many lines as the cache has ways.
        """
        return _held(self.sets, self.ways, self.line, min(count, 4096), stride)


@cache
def _held(sets: int, ways: int, line: int, count: int, stride: int) -> float:
    lines = {n * stride // line for n in range(count)}
    crowds = Counter(n % sets for n in lines)
    return sum(min(ways, n) for n in crowds.values()) / max(1, len(lines))


class CpuCore(NamedTuple):
    """A core of a family of processors.

    ``vector_bits`` is the width of its execution units: an instruction on wider registers takes
    several turns. ``fmas``, ``loads`` and ``stores`` are instructions of that width per cycle,
    ``issue`` those of any kind. ``fma_latency`` is in cycles. ``decoded`` is the number of decoded
    instructions that a loop may have. ``clock`` is in Hz, sustained in vector code. ``read`` and
    ``copy`` are bytes per second of one thread from memory (a copy's count read and written),
    ``read_all`` and ``copy_all`` of all threads together. ``fork`` is the cycles that a parallel
    loop costs beyond its work, with hot threads, ``claim`` those for which a thread claims a piece.
    """

    family: str
    processors: tuple[str, ...]
    clock: float
    vector_bits: int
    fmas: float
    loads: float
    stores: float
    issue: int
    fma_latency: int
    decoded: int
    l1: Cache
    l2: Cache
    l3: Cache
    read: float
    read_all: float
    copy: float
    copy_all: float
    fork: float = 2000.0
    claim: float = 50.0

    def turns(self, bits: int) -> float:
        """Return the turns that an instruction on registers of ``bits`` takes in its unit."""
        return max(1.0, bits / self.vector_bits)

    def flops(self, bits: int) -> float:
        """Return the most f32 operations per second of one core, on vectors of ``bits``."""
        return 2 * bits / 32 * self.fmas / self.turns(bits) * self.clock

    def chains(self, bits: int) -> float:
        """Return the independent accumulators that hide the latency of an FMA."""
        return self.fma_latency * self.fmas / self.turns(bits)

    def bandwidth(self, threads: int, copying: bool = False) -> float:
        """Return the bytes per second that ``threads`` threads read from memory, or copy."""
        one, all_of = (self.copy, self.copy_all) if copying else (self.read, self.read_all)
        return min(one * threads, max(one, all_of))

    def stream(self, size: float, threads: int) -> float:
        """Return the bytes per second of ``threads`` threads that share ``size`` bytes evenly.

        They come from the nearest level that holds a thread's part, or all of it if it is L3.
        """
        for level in LEVELS[:2]:
            if size <= self.held(level, threads):
                return threads * self.caches[level].rate * self.clock
        if size <= self.held("l3", threads):
            return max(self.bandwidth(threads), threads * self.l3.rate * self.clock)
        return self.bandwidth(threads)

    @property
    def caches(self) -> Mapping[str, Cache]:
        """The caches by their levels."""
        return dict(zip(LEVELS, (self.l1, self.l2, self.l3), strict=False))

    def held(self, level: str, threads: int) -> int:
        """Return the bytes that a level's caches hold for so many threads: only L3 is shared."""
        return self.caches[level].size * (1 if level == "l3" else threads)

    def working_sets(self, threads: int, memory: int) -> Mapping[str, int]:
        """Return the bytes that each thread accesses to measure each level, of ``memory`` bytes.

        Half of a private cache, so that nothing else evicts it. A level that is not larger than the
        one before is left out. Of L3 some multiples of L2 suffice: the rest may be others'.
        """
        sizes = {"l1": self.l1.size // 2, "l2": self.l2.size // 2}
        shared = min(8 * self.l2.size, self.l3.size // (2 * threads))
        if shared >= 2 * self.l2.size:
            sizes["l3"] = shared
        all_of = min(LARGEST, max(4 * self.l3.size, 32 * self.l2.size), memory // SHARE)
        return {**sizes, "memory": max(all_of // threads, 4 * self.l2.size)}

    @property
    def sharing(self) -> float:
        """The cycles that a loop costs because threads share it, beyond claims of its pieces.

        That is a fork, and half as much again for data that are in the caches of another core.
        """
        return 1.5 * self.fork

    def seconds(self, cycles: float) -> float:
        """Return cycles as seconds."""
        return cycles / self.clock


_SSE = CpuCore(
    family="x86-64",
    processors=("x86-64", "x86-64-v2", "nehalem", "westmere", "silvermont"),
    clock=2.8e9,
    vector_bits=128,
    fmas=1,
    loads=1,
    stores=1,
    issue=4,
    fma_latency=7,  # a product, then a sum
    decoded=28,
    l1=Cache(32 * _KIB, 8, 16),
    l2=Cache(256 * _KIB, 8, 10),
    l3=Cache(8 * _MIB, 16, 6),
    read=8e9,
    read_all=16e9,
    copy=8e9,
    copy_all=16e9,
)
_SANDY_BRIDGE = _SSE._replace(
    family="Sandy Bridge",
    processors=("sandybridge", "ivybridge"),
    clock=3.2e9,
    vector_bits=256,
    fma_latency=8,
    decoded=1500,
    l1=Cache(32 * _KIB, 8, 32),
    l2=Cache(256 * _KIB, 8, 20),
    l3=Cache(8 * _MIB, 16, 10),
    read=10e9,
    read_all=18e9,
    copy=10e9,
    copy_all=18e9,
)
_HASWELL = _SANDY_BRIDGE._replace(
    family="Haswell",
    processors=("haswell", "broadwell", "x86-64-v3"),
    fmas=2,
    loads=2,
    fma_latency=5,
    l1=Cache(32 * _KIB, 8, 64),
    l2=Cache(256 * _KIB, 8, 24),
)
_SKYLAKE = _HASWELL._replace(
    family="Skylake",
    processors=("skylake",),
    clock=3.8e9,
    fma_latency=4,
    l2=Cache(256 * _KIB, 4, 28),
    read=14e9,
    read_all=28e9,
    copy=14e9,
    copy_all=28e9,
)
_SKYLAKE_SERVER = _SKYLAKE._replace(
    family="Skylake server",
    processors=("skylake-avx512", "cascadelake", "cooperlake", "x86-64-v4"),
    clock=2.7e9,
    vector_bits=512,
    l1=Cache(32 * _KIB, 8, 128),
    l2=Cache(1 * _MIB, 16, 28),
    l3=Cache(16 * _MIB, 11, 6),
    read=12e9,
    read_all=80e9,
    copy=12e9,
    copy_all=80e9,
)
_ICE_LAKE = _SKYLAKE._replace(
    family="Ice Lake",
    processors=("icelake-client", "tigerlake", "rocketlake"),
    vector_bits=512,
    fmas=1,
    issue=5,
    decoded=2250,
    l1=Cache(48 * _KIB, 12, 128),
    l2=Cache(512 * _KIB, 8, 32),
)
_ICE_LAKE_SERVER = _SKYLAKE_SERVER._replace(
    family="Ice Lake server",
    processors=("icelake-server",),
    clock=2.9e9,
    issue=5,
    decoded=2250,
    l1=Cache(48 * _KIB, 12, 128),
    l2=Cache(1280 * _KIB, 20, 32),
    l3=Cache(24 * _MIB, 12, 6),
    read_all=120e9,
    copy_all=120e9,
)
_GOLDEN_COVE = _SKYLAKE._replace(
    family="Golden Cove",
    processors=("alderlake", "raptorlake", "arrowlake"),
    clock=4.6e9,
    loads=3,
    stores=2,
    issue=6,
    decoded=4000,
    l1=Cache(48 * _KIB, 12, 96),
    l2=Cache(1280 * _KIB, 10, 40),
    l3=Cache(24 * _MIB, 12, 12),
    read=30e9,
    read_all=60e9,
    copy=30e9,
    copy_all=60e9,
)
_GOLDEN_COVE_SERVER = _ICE_LAKE_SERVER._replace(
    family="Golden Cove server",
    processors=("sapphirerapids", "emeraldrapids", "graniterapids"),
    clock=3.0e9,
    issue=6,
    decoded=4000,
    l2=Cache(2 * _MIB, 16, 46),
    l3=Cache(60 * _MIB, 15, 9),
    read=15e9,
    read_all=200e9,
    copy=13e9,
    copy_all=200e9,
)
_ZEN = _HASWELL._replace(
    family="Zen",
    processors=("znver1",),
    clock=3.4e9,
    vector_bits=128,
    issue=5,
    decoded=2048,
    l1=Cache(32 * _KIB, 8, 32),
    l2=Cache(512 * _KIB, 8, 20),
    l3=Cache(8 * _MIB, 16, 10),
    read=16e9,
    read_all=32e9,
    copy=16e9,
    copy_all=32e9,
)
_ZEN_2 = _ZEN._replace(
    family="Zen 2",
    processors=("znver2",),
    vector_bits=256,
    decoded=4096,
    l1=Cache(32 * _KIB, 8, 64),
    l2=Cache(512 * _KIB, 8, 26),
    l3=Cache(16 * _MIB, 16, 14),
)
_ZEN_3 = _ZEN_2._replace(
    family="Zen 3",
    processors=("znver3",),
    clock=3.6e9,
    issue=6,
    fma_latency=4,
    l3=Cache(32 * _MIB, 16, 14),
)
_ZEN_4 = _ZEN_3._replace(
    family="Zen 4",
    processors=("znver4",),
    clock=3.7e9,
    decoded=6750,
    l2=Cache(1 * _MIB, 8, 26),
    read=20e9,
    read_all=50e9,
    copy=22e9,
    copy_all=50e9,
)
_ZEN_5 = _ZEN_4._replace(
    family="Zen 5",
    processors=("znver5",),
    clock=4.2e9,
    vector_bits=512,
    issue=8,
    l1=Cache(48 * _KIB, 12, 128),
    l2=Cache(1 * _MIB, 16, 40),
    l3=Cache(32 * _MIB, 16, 20),
    read=30e9,
    read_all=60e9,
    copy=30e9,
    copy_all=60e9,
)
_CORTEX = CpuCore(
    family="Cortex",
    processors=("generic", "cortex-a53", "cortex-a57", "cortex-a72"),
    clock=1.8e9,
    vector_bits=128,
    fmas=1,
    loads=1,
    stores=1,
    issue=3,
    fma_latency=7,
    decoded=4096,  # fixed-length instructions: decoding is no limit
    l1=Cache(32 * _KIB, 4, 16),
    l2=Cache(1 * _MIB, 16, 8),
    l3=Cache(1 * _MIB, 16, 8),
    read=5e9,
    read_all=10e9,
    copy=5e9,
    copy_all=10e9,
)
_NEOVERSE_N1 = _CORTEX._replace(
    family="Neoverse N1",
    processors=("cortex-a76", "cortex-a78", "neoverse-n1", "neoverse-n2"),
    clock=2.6e9,
    fmas=2,
    loads=2,
    issue=4,
    fma_latency=4,
    l1=Cache(64 * _KIB, 4, 32),
    l2=Cache(1 * _MIB, 8, 20),
    l3=Cache(32 * _MIB, 16, 8),
    read=15e9,
    read_all=100e9,
    copy=15e9,
    copy_all=100e9,
)
_NEOVERSE_V1 = _NEOVERSE_N1._replace(
    family="Neoverse V1",
    processors=("cortex-x1", "cortex-x2", "neoverse-v1", "neoverse-v2"),
    fmas=4,
    loads=3,
    stores=2,
    issue=8,
    l1=Cache(64 * _KIB, 4, 48),
    l2=Cache(1 * _MIB, 8, 32),
    l3=Cache(32 * _MIB, 16, 12),
    read=25e9,
    read_all=200e9,
    copy=25e9,
    copy_all=200e9,
)
_APPLE = _NEOVERSE_V1._replace(
    family="Apple M",
    processors=("apple-m1", "apple-m2", "apple-m3", "apple-m4"),
    clock=3.2e9,
    l1=Cache(128 * _KIB, 8, 48, line=128),
    l2=Cache(12 * _MIB, 12, 32, line=128),
    l3=Cache(12 * _MIB, 12, 16, line=128),
    read=50e9,
    read_all=60e9,
    copy=50e9,
    copy_all=60e9,
)
_SIFIVE_U7 = _CORTEX._replace(
    family="SiFive U7",
    processors=("sifive-u54", "sifive-u74"),
    clock=1.2e9,
    vector_bits=64,
    issue=2,
    l1=Cache(32 * _KIB, 8, 8),
    l2=Cache(2 * _MIB, 16, 4),
    l3=Cache(2 * _MIB, 16, 4),
    read=2e9,
    read_all=4e9,
    copy=2e9,
    copy_all=4e9,
)

FAMILIES: tuple[CpuCore, ...] = (
    _SSE,
    _SANDY_BRIDGE,
    _HASWELL,
    _SKYLAKE,
    _SKYLAKE_SERVER,
    _ICE_LAKE,
    _ICE_LAKE_SERVER,
    _GOLDEN_COVE,
    _GOLDEN_COVE_SERVER,
    _ZEN,
    _ZEN_2,
    _ZEN_3,
    _ZEN_4,
    _ZEN_5,
    _CORTEX,
    _NEOVERSE_N1,
    _NEOVERSE_V1,
    _APPLE,
    _SIFIVE_U7,
)
UNKNOWN = _SSE
"""The row of a target that is no processor, whose cost models ask something else."""
_BY_PROCESSOR: Mapping[str, CpuCore] = MappingProxyType(
    {name: core for core in FAMILIES for name in core.processors}
)


def core_of(processor: str, vector_bits: int, x86: bool = True) -> CpuCore:
    """Return the row of a processor that LLVM names, or that of a plain one with such vectors.

    A processor newer than this table has a name that is not in it.
    """
    if (found := _BY_PROCESSOR.get(processor)) is not None:
        return found
    if not x86:
        return _NEOVERSE_N1
    return {512: _ICE_LAKE_SERVER, 256: _HASWELL}.get(vector_bits, _SSE)
