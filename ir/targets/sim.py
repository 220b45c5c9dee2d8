"""Simulated GPUs: ``cuda-sim -arch=sm_80`` is an NVIDIA GPU played by this machine's processor."""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import TargetError
from ..target import Target, TargetKind
from .cuda import GROUPS, caller, gpu_key, gpu_of, gpu_target, known_arch

ARCH = "sm_80"  # where none is named: the least with asynchronous copies


def _parse(spec: str, options: Mapping[str, str]) -> Target:
    found = gpu_target(KIND.name, options, known_arch(options.get("arch", ARCH)))
    if found.flushes:  # a processor's mode would flush f64 as well
        raise TargetError("-denormals=flush", "a simulated GPU keeps denormals")
    return found


def _key(target: Target) -> str:
    """The GPU, and the processor that plays it."""
    return f"{gpu_key(target)}-{target.host.key.rpartition('-')[2]}"


KIND = TargetKind(
    name="cuda-sim",
    options=("arch", "tf32", "overlap", "check", "denormals"),
    specs={
        "cuda-sim -arch=NAME": "a GPU's code, simulated on this processor: slow, finds races",
    },
    parse=_parse,
    key=_key,
    missing=lambda target: (),
    host=caller,
    gpu=gpu_of,
    work="launches",
    groups=GROUPS,
    simulated=True,
)
