"""Tensor maps over the stand-in: made for the addresses of a call, handed over by value."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from gpu.stub.control import Launched, Stub

from nestwright.codegen.plan.code.device import DeviceCode, LaunchConfig, TensorMap
from nestwright.codegen.plan.code.form import code_pieces
from nestwright.codegen.plan.code.reader import DEVICE
from nestwright.codegen.runtime.cuda.device import device
from nestwright.codegen.runtime.cuda.driver import DriverError
from nestwright.codegen.runtime.cuda.kernels import load
from nestwright.codegen.runtime.cuda.recording import launch_op, submit
from nestwright.ir.errors import ArtifactError
from nestwright.ir.target import Target

PTX = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry boxes(
    .param .u64 .ptr .align 16 boxes_0,
    .param .align 64 .b8 boxes_1[128],
    .param .align 64 .b8 boxes_2[128]
)
.maxntid 128, 1, 1
{ ret; }
"""
MAP = TensorMap(0, 64, 2, 96, 40, 104, 64, 32, 128)
OTHER = TensorMap(0, 0, 4, 26, 10, 28, 8, 10, 32)
CODE = DeviceCode(PTX, (LaunchConfig("boxes", (1, 1, 1), (128, 1, 1), 0, (MAP, OTHER)),))


def test_maps_go_with_the_launch(stub: Stub) -> None:
    seen: list[bytes] = []

    def run(launch: Launched) -> None:
        seen.append(np.asarray(launch.words, np.uint64).tobytes())

    stub.kernel("boxes", run)
    gpu = device()
    memory = gpu.allocate(64 + 40 * 208)
    with gpu:
        (kernel,) = load(CODE, 90, gpu)
        op = launch_op(kernel, [memory.address], "")
        assert op.maps is not None and op.maps.ctypes.data % 64 == 0
        submit(gpu, op, gpu.stream)
        gpu.synchronize("boxes", "boxes")
        with pytest.raises(DriverError, match="cuTensorMapEncodeTiled"):
            launch_op(kernel, [memory.address + 8], "")
    assert len(seen) == 1
    found = [struct.unpack("QQQQIIii", bytes(op.maps[at : at + 48])) for at in (0, 128)]
    assert found == [
        (memory.address + 64, 96, 40, 208, 64, 32, 1, 3),
        (memory.address, 26, 10, 112, 8, 10, 2, 1),
    ]


def test_maps_are_kept_in_a_file() -> None:
    target = Target.parse("cuda -arch=sm_90a")
    pieces = code_pieces(CODE)
    assert DEVICE.join(pieces, target) == CODE
    right = b"[0, 64, 2, 96, 40, 104,"
    assert right in pieces["json"]
    for wrong in (
        b"[0, 8, 2, 96, 40, 104,",
        b"[0, 64, 3, 96, 40, 104,",
        b"[0, 64, 2, 96, 40, 100,",
    ):
        broken = pieces["json"].replace(right, wrong)
        with pytest.raises(ArtifactError):
            DEVICE.join({**pieces, "json": broken}, target)
