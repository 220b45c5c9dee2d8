"""GPU architectures: their sizes and rates, and the one of this machine's GPU.

The figures are from NVIDIA's data sheets and the CUDA programming guide, for one common board of
each architecture; a tuner that measures does not depend on them. Tensor-core rates are for dense
matrices, accumulated in f32 (s32 for integers).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType
from typing import Any

from .errors import TargetError

_KIB, _MIB, _TERA = 1 << 10, 1 << 20, 1e12
FEW_ROWS = 32
"""Rows from which blocks of threads have whole rows each, whatever their length."""

LONG_ROW = 1 << 14
"""Elements of a row above which a few rows, each with a block of threads, do not fill a GPU."""

REGISTERS = 8
"""Registers of a thread are allocated in multiples of this number."""

_CUT = 14  # bits of sums of f8, as others measured them on H100 and GeForce 40 boards


@dataclass(frozen=True, slots=True)
class Gpu:
    """One architecture. Sizes are in bytes, rates per second of the whole board.

    ``sm`` is its number (90 for ``sm_90a``). With ``exact`` its code runs on that number only, and
    may use operations that only that number has.
    """

    arch: str
    board: str
    sm: int
    exact: bool
    multiprocessors: int
    threads_per_multiprocessor: int
    blocks_per_multiprocessor: int
    shared_per_block: int
    shared_per_multiprocessor: int
    clock: float
    bandwidth: float
    l2: int
    f32_flops: float
    tensor_flops: Mapping[str, float]
    """Rates by the name of the operands' type, including ``tf32``; types not listed have none."""
    warp_share: float = 1.0  # of these that products of single warps reach
    warp: int = 32
    threads_per_block: int = 1024
    block_extents: tuple[int, int, int] = (1024, 1024, 64)  # of threadIdx.x, .y, .z
    grid_extents: tuple[int, int, int] = (2**31 - 1, 65535, 65535)  # of blockIdx.x, .y, .z
    registers_per_multiprocessor: int = 64 * _KIB
    registers_per_thread: int = 255
    banks: int = 32  # of shared memory, four bytes wide each
    f8_sums: int = 24  # bits of the significands of sums of products of f8
    clusters: int = 0  # most blocks of a cluster, which reach each other's shared memory
    packed_f32: bool = False  # there are sums and products of pairs of f32 (FFMA2)
    tensor_columns: int = 0  # of 128 words of tensor memory, on a multiprocessor (tcgen05)
    tensor_operands: frozenset[str] = frozenset()  # types of products whose sums are there

    @property
    def overlaps(self) -> bool:
        """True if a launch may begin before the one that it waits for has ended."""
        return self.sm >= 90

    @property
    def warps_per_multiprocessor(self) -> int:
        """Most warps that are resident on a multiprocessor."""
        return self.threads_per_multiprocessor // self.warp

    @property
    def f8(self) -> bool:
        """True if there are products of f8e4m3fn and f8e5m2, and conversions of pairs of them."""
        return {"f8e4m3fn", "f8e5m2"} <= self.tensor_flops.keys()

    def blocks_at_once(self, threads: int, registers: int, shared: int) -> int:
        """Return the most blocks of a launch that run on a multiprocessor at once; 0 if none fits.

        ``threads`` and the bytes of ``shared`` memory are those of a block, ``registers`` those of
        a thread.
        """
        if threads > self.threads_per_block or shared > self.shared_per_block:
            return 0
        warps = max(1, -(-threads // self.warp))
        held = warps * self.warp * max(1, -(-registers // REGISTERS) * REGISTERS)
        reserved = self.shared_per_multiprocessor - self.shared_per_block  # in each block
        return min(
            self.blocks_per_multiprocessor,
            self.warps_per_multiprocessor // warps,
            self.registers_per_multiprocessor // held,
            self.shared_per_multiprocessor // max(1, shared + reserved),
        )

    def runs_on(self, capability: int) -> bool:
        """True if code for this architecture runs on a device of this compute capability."""
        return capability == self.sm if self.exact else capability >= self.sm


def _rates(**tera: float) -> Mapping[str, float]:
    return MappingProxyType({name: rate * _TERA for name, rate in tera.items()})


_T4 = Gpu(
    arch="sm_75",
    board="T4",
    sm=75,
    exact=False,
    multiprocessors=40,
    threads_per_multiprocessor=1024,
    blocks_per_multiprocessor=16,
    shared_per_block=64 * _KIB,
    shared_per_multiprocessor=64 * _KIB,
    clock=1.59e9,
    bandwidth=320e9,
    l2=4 * _MIB,
    f32_flops=8.1e12,
    tensor_flops=_rates(f16=65, s8=130),
)
_A100 = Gpu(
    arch="sm_80",
    board="A100 SXM 80 GB",
    sm=80,
    exact=False,
    multiprocessors=108,
    threads_per_multiprocessor=2048,
    blocks_per_multiprocessor=32,
    shared_per_block=163 * _KIB,
    shared_per_multiprocessor=164 * _KIB,
    clock=1.41e9,
    bandwidth=2039e9,
    l2=40 * _MIB,
    f32_flops=19.5e12,
    tensor_flops=_rates(tf32=156, f16=312, bf16=312, s8=624),
)
_A10 = Gpu(
    arch="sm_86",
    board="A10",
    sm=86,
    exact=False,
    multiprocessors=72,
    threads_per_multiprocessor=1536,
    blocks_per_multiprocessor=16,
    shared_per_block=99 * _KIB,
    shared_per_multiprocessor=100 * _KIB,
    clock=1.695e9,
    bandwidth=600e9,
    l2=6 * _MIB,
    f32_flops=31.2e12,
    tensor_flops=_rates(tf32=62.5, f16=125, bf16=125, s8=250),
)
_L40 = Gpu(
    arch="sm_89",
    board="L40",
    sm=89,
    exact=False,
    multiprocessors=142,
    threads_per_multiprocessor=1536,
    blocks_per_multiprocessor=24,
    shared_per_block=99 * _KIB,
    shared_per_multiprocessor=100 * _KIB,
    clock=2.49e9,
    bandwidth=864e9,
    l2=96 * _MIB,
    f32_flops=90.5e12,
    tensor_flops=_rates(tf32=90.5, f16=181, bf16=181, s8=362, f8e4m3fn=362, f8e5m2=362),
    f8_sums=_CUT,
)
_H100 = Gpu(
    arch="sm_90",
    board="H100 SXM",
    sm=90,
    exact=False,
    multiprocessors=132,
    threads_per_multiprocessor=2048,
    blocks_per_multiprocessor=32,
    shared_per_block=227 * _KIB,
    shared_per_multiprocessor=228 * _KIB,
    clock=1.98e9,
    bandwidth=3352e9,
    l2=50 * _MIB,
    f32_flops=66.9e12,
    tensor_flops=_rates(tf32=494.7, f16=989.4, bf16=989.4, s8=1979, f8e4m3fn=1979, f8e5m2=1979),
    f8_sums=_CUT,
    clusters=8,
    warp_share=0.63,  # Luo et al. 2024, "Benchmarking and Dissecting the Nvidia Hopper GPU"
)
_B200 = Gpu(
    arch="sm_100",
    board="B200",
    sm=100,
    exact=False,
    multiprocessors=148,
    threads_per_multiprocessor=2048,
    blocks_per_multiprocessor=32,
    shared_per_block=227 * _KIB,
    shared_per_multiprocessor=228 * _KIB,
    clock=1.965e9,
    bandwidth=8000e9,
    l2=126 * _MIB,
    f32_flops=75e12,
    clusters=8,
    packed_f32=True,
    tensor_flops=_rates(tf32=1125, f16=2250, bf16=2250, s8=4500, f8e4m3fn=4500, f8e5m2=4500),
)
_RTX_5090 = Gpu(
    arch="sm_120",
    board="GeForce RTX 5090",
    sm=120,
    exact=False,
    multiprocessors=170,
    threads_per_multiprocessor=1536,
    blocks_per_multiprocessor=24,
    shared_per_block=99 * _KIB,
    shared_per_multiprocessor=100 * _KIB,
    clock=2.407e9,
    bandwidth=1792e9,
    l2=96 * _MIB,
    f32_flops=104.8e12,
    clusters=8,
    packed_f32=True,
    tensor_flops=_rates(tf32=104.8, f16=209.5, bf16=209.5, s8=838, f8e4m3fn=419, f8e5m2=419),
    f8_sums=_CUT,
)

_FLOATS = frozenset({"f16", "bf16", "f32", "f8e4m3fn", "f8e5m2"})  # f32 as tf32
_B300 = replace(
    _B200,
    arch="sm_103a",
    board="B300",
    sm=103,
    exact=True,
    tensor_columns=512,
    tensor_operands=_FLOATS,
)
_B200A = replace(_B300, arch="sm_100a", board="B200", sm=100, tensor_operands=_FLOATS | {"s8"})

GPUS: Mapping[str, Gpu] = MappingProxyType(
    {gpu.arch: gpu for gpu in (_T4, _A100, _A10, _L40, _H100, _B200, _RTX_5090)}
    | {f"{gpu.arch}a": replace(gpu, arch=f"{gpu.arch}a", exact=True) for gpu in (_H100, _RTX_5090)}
    | {gpu.arch: gpu for gpu in (_B200A, _B300)}
)
"""Every architecture that a target may name."""


def best_arch(capability: int) -> str:
    """Return the best architecture for a device of this compute capability; '' if none fits."""
    fit = [gpu for gpu in GPUS.values() if gpu.runs_on(capability)]
    return max(fit, key=lambda gpu: (gpu.sm, gpu.exact)).arch if fit else ""


def bindings() -> Any:
    """Return cuda-python's module of driver functions; ``TargetError`` if it cannot be imported.

    The driver library itself is loaded by the first call.
    """
    try:
        from cuda.bindings import driver
    except Exception as error:  # a package may break in its own ways
        missing = isinstance(error, ModuleNotFoundError) and (error.name or "").startswith("cuda")
        why = "cuda-python is not installed, or older than 12.8 (pip install 'nestwright[cuda]')"
        raise _none_here(why if missing else f"cuda-python: {error_text(error)}") from error
    return driver


def error_text(error: Exception) -> str:
    """Return the type and text of a foreign error on one line."""
    name = type(error).__name__
    return " ".join(f"{name}: {error}".split()) if str(error) else name


@cache
def capability() -> int:
    """Return the compute capability of this machine's first GPU, 90 for 9.0.

    ``TargetError`` if there is no driver or no GPU.
    """
    driver = bindings()
    _ask(driver, "cuInit", 0)
    device = _ask(driver, "cuDeviceGet", 0)
    kinds = driver.CUdevice_attribute
    numbers = (
        kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
        (kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
    )
    major, minor = (_ask(driver, "cuDeviceGetAttribute", x, device) for x in numbers)
    return 10 * int(major) + int(minor)


@cache
def runs_here(arch: str) -> bool:
    """True if this machine has a driver and a GPU that run code for ``arch``."""
    try:
        return GPUS[arch].runs_on(capability())
    except TargetError:
        return False


def _ask(driver: Any, function: str, *args: object) -> Any:
    """Call the driver and return the value, None if it has none; ``TargetError`` on failure."""
    try:
        status, *values = getattr(driver, function)(*args)
        failed = status.name if status.value else ""
    except Exception as error:  # the bindings raise if the library or a function is missing
        raise _none_here(f"{function}: {error_text(error)}") from error
    if failed:
        raise _none_here(f"{function}: {failed}")
    return values[0] if values else None


def _none_here(why: str) -> TargetError:
    hint = 'name the one to build for: "cuda -arch=sm_90"; or "cuda-sim" runs GPU code on the CPU'
    return TargetError("no NVIDIA GPU here", why, hint=hint)
