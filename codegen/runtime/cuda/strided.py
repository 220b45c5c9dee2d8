"""Copies of strided arrays on a device: other libraries' views become row-major and aligned.

The kernel is PTX written here, since it serves every element type and shape: one thread per element
derives the element's index by dividing its number by the extents, the last one first.
"""

from __future__ import annotations

import math
from functools import cache

from ....ir.errors import ArgumentError
from ...plan.code.device import DeviceCode, LaunchConfig
from .device import Device
from .driver import DriverError
from .kernels import DeviceFunction, load
from .recording import launch_op

RANK = (
    8  # extents that the kernel takes; its parameters are target, source, count, extents, strides
)
THREADS = 256
_SM = 75
_WIDTHS = {1: "b8", 2: "b16", 4: "b32", 8: "b64"}
_REGISTERS = {1: "%h", 2: "%h", 4: "%r0", 8: "%d7"}


def gather(
    device: Device,
    target: int,
    source: int,
    width: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
) -> None:
    """Copy elements of ``width`` bytes into row-major order. Strides are in elements."""
    if source % width:  # misaligned elements are copied byte by byte
        shape, strides = (*shape, width), (*(s * width for s in strides), 1)
        width = 1
    if width == 16:
        shape, strides, width = (*shape, 2), (*(2 * s for s in strides), 1), 8
    shape, strides = merged(shape, strides)
    count = math.prod(shape)
    if len(shape) > RANK:
        raise ArgumentError(
            f"an array of {len(shape)} dimensions, none of which can be merged",
            f"at most {RANK} are copied on the device",
            hint="make it row-major first",
        )
    if not count:
        return
    pad = RANK - len(shape)
    words = [target, source, count, *[1] * pad, *shape, *[0] * pad, *(s % 2**64 for s in strides)]
    kernel = _kernels(device)[width]
    device.in_progress["the copy of a strided array"] = None
    op = launch_op(kernel, words, "")
    grid = (-(-count // THREADS), 1, 1)
    try:
        device.driver.call(
            "cuLaunchKernel",
            kernel.function,
            *grid,
            THREADS,
            1,
            1,
            0,
            device.stream,
            int(op.pointers.ctypes.data),
            0,
        )
    except DriverError as error:
        raise device.failed(error, "a strided array cannot be copied") from error


def merged(
    shape: tuple[int, ...], strides: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Merge dimensions where the strides allow it; the elements and their order stay the same."""
    found: list[tuple[int, int]] = []
    for extent, stride in zip(shape, strides, strict=True):
        if extent == 1:
            continue
        if found and found[-1][1] == extent * stride:
            found[-1] = found[-1][0] * extent, stride
        else:
            found.append((extent, stride))
    return tuple(e for e, _ in found), tuple(s for _, s in found)


@cache
def _kernels(device: Device) -> dict[int, DeviceFunction]:
    launches = tuple(LaunchConfig(f"nw_gather_{w}", (1, 1, 1), (THREADS, 1, 1), 0) for w in _WIDTHS)
    with device:
        loaded = load(DeviceCode(module(), launches), _SM, device)
    return dict(zip(_WIDTHS, loaded, strict=True))


def module() -> str:
    """Return the PTX of the kernels, one for each width of an element."""
    head = f".version 7.0\n.target sm_{_SM}\n.address_size 64\n"
    return head + "".join(map(_kernel, _WIDTHS))


def _kernel(width: int) -> str:
    params = ", ".join(f".param .u64 p{i}" for i in range(3 + 2 * RANK))
    kind, register = _WIDTHS[width], _REGISTERS[width]
    steps = "".join(_index_step(d) for d in reversed(range(RANK)))
    return f"""
.visible .entry nw_gather_{width}({params})
{{
  .reg .pred %p; .reg .b16 %h; .reg .b32 %r0, %r1, %r2; .reg .b64 %d<9>;
  mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x; mov.u32 %r2, %tid.x;
  mul.wide.u32 %d0, %r0, %r1; cvt.u64.u32 %d1, %r2; add.u64 %d0, %d0, %d1;
  ld.param.u64 %d1, [p2]; setp.ge.u64 %p, %d0, %d1; @%p bra DONE;
  mov.u64 %d1, %d0; mov.u64 %d2, 0;
{steps}  ld.param.u64 %d3, [p1]; mad.lo.s64 %d3, %d2, {width}, %d3;
  ld.param.u64 %d4, [p0]; mad.lo.s64 %d4, %d0, {width}, %d4;
  ld.{kind} {register}, [%d3]; st.{kind} [%d4], {register};
DONE:
  ret;
}}
"""


def _index_step(d: int) -> str:
    """Return the code that adds one dimension's index, a remainder, times its stride."""
    return (
        f"  ld.param.u64 %d3, [p{3 + d}]; ld.param.u64 %d4, [p{3 + RANK + d}];\n"
        "  div.u64 %d5, %d1, %d3; mul.lo.u64 %d6, %d5, %d3; sub.u64 %d6, %d1, %d6;\n"
        "  mad.lo.s64 %d2, %d6, %d4, %d2; mov.u64 %d1, %d5;\n"
    )
