"""NVIDIA GPUs: ``cuda -arch=sm_90a`` names one, ``cuda`` alone means the one that is here.

With ``-tf32=1`` products of f32 may run on tensor cores, with operands rounded to ten bits of
mantissa. With ``-overlap=1`` a launch may begin while the one before it ends. With
``-denormals=flush`` denormals of f32 count as 0; f64 and f16 keep theirs on every GPU.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import TargetError
from ..gpus import GPUS, Gpu, best_arch, capability, runs_here
from ..target import FLUSH, HERE, KEEP, Target, TargetKind, did_you_mean, flushes

LOAD_BITS = 128  # of the widest load of one thread
GROUPS = frozenset({"attention", "scattered", "strided"})  # that sketches for GPUs take


def gpu_target(kind: str, options: Mapping[str, str], arch: str) -> Target:
    """Return the target of a kind with GPU ``arch``; ``TargetError`` for other options' values."""
    tf32, check = options.get("tf32", "0"), options.get("check", "1")
    overlap = options.get("overlap", "0")
    for name, value in (("tf32", tf32), ("overlap", overlap), ("check", check)):
        if value not in ("0", "1"):
            raise TargetError(f"-{name}={value}", "it is 0 or 1")
    spec = f"{kind} -arch={arch}" + (" -tf32=1" if tf32 == "1" else "")
    spec += " -overlap=1" if overlap == "1" else ""
    spec += " -check=0" if check == "0" else ""
    flush = flushes(options.get("denormals", KEEP), "-denormals=")
    spec += f" -denormals={FLUSH}" if flush else ""
    gpu = GPUS[arch]
    if overlap == "1" and not gpu.overlaps:
        raise TargetError("-overlap=1", f"launches of {arch} do not overlap; those of sm_90 do")
    return Target(
        spec=spec,
        kind=kind,
        triple="nvptx64-nvidia-cuda",
        cpu=arch,
        attributes="",
        features=frozenset(),
        vector_bits=LOAD_BITS,
        registers=gpu.registers_per_thread,
        cores=gpu.multiprocessors,
        threads=1,
        l1=gpu.shared_per_multiprocessor,
        l2=gpu.l2,
        l3=0,
        tf32=tf32 == "1",
        overlap=overlap == "1",
        check=check == "1",
        flushes=flush,
    )


def known_arch(name: str) -> str:
    """Return the name of a GPU architecture; ``TargetError`` for one that is not known."""
    if name in GPUS:
        return name
    number = name.removeprefix("sm_")
    if number.isascii() and number.isdigit() and int(number[:4]) < min(g.sm for g in GPUS.values()):
        raise TargetError(
            f"GPU architecture {name!r} is too old",
            "the assemblers of CUDA 13 (ptxas) take sm_75 and later",
        )
    hint = did_you_mean(name, tuple(GPUS)) or f"known: {', '.join(GPUS)}"
    raise TargetError(f"unknown GPU architecture {name!r}", hint=hint)


def _arch_here() -> str:
    number = capability()
    if arch := best_arch(number):
        return arch
    raise TargetError(
        "target 'cuda' does not fit this machine's GPU",
        f"its compute capability is {number // 10}.{number % 10}; CUDA 13 asks for 7.5 or later",
        hint='"cuda-sim" runs GPU code on the CPU',
    )


def _parse(spec: str, options: Mapping[str, str]) -> Target:
    arch = known_arch(options["arch"]) if "arch" in options else _arch_here()
    return gpu_target(KIND.name, options, arch)


def gpu_key(target: Target) -> str:
    """Return the key of the GPU and of the arithmetic that it may use."""
    return f"{target.kind}-{target.cpu}" + ("-tf32" if target.tf32 else "")


def gpu_of(target: Target) -> Gpu:
    """Return what the GPU that a target names holds and how fast it is."""
    return GPUS[target.cpu]


def caller(target: Target) -> Target:
    """Return this machine's processor, which launches the kernels."""
    return Target.parse(HERE)


KIND = TargetKind(
    name="cuda",
    options=("arch", "tf32", "overlap", "denormals"),
    specs={
        "cuda": "this machine's NVIDIA GPU",
        "cuda -arch=NAME": "an NVIDIA GPU, present or not (sm_80, sm_90, sm_90a, ...)",
        "cuda -denormals=flush": "denormals of f32 count as 0",
    },
    parse=_parse,
    key=gpu_key,
    missing=lambda target: () if runs_here(target.cpu) else (f"a GPU of {target.cpu}",),
    host=caller,
    gpu=gpu_of,
    work="launches",
    groups=GROUPS,
    place="device",
    rounds=False,
    flushes_f64=False,
    nicknames=("gpu", "nvidia", "nvptx", "nvptx64", "ptx"),
)
