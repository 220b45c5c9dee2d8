"""Launches that may begin while the launch before them in a stream ends."""

from __future__ import annotations

from typing import Any

from .driver import Driver
from .kernels import DeviceFunction

_SERIAL = "CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION"


def submit_early(driver: Driver, kernel: DeviceFunction, stream: Any, params: int) -> None:
    """Submit such a launch; its kernel waits for what was launched before (``launch_wait``).

    ``params`` is the address of the addresses of the kernel's parameters.
    """
    config, attribute = driver.made("CUlaunchConfig"), driver.made("CUlaunchAttribute")
    attribute.id = driver.constant("CUlaunchAttributeID", _SERIAL)
    attribute.value.programmaticStreamSerializationAllowed = 1
    config.gridDimX, config.gridDimY, config.gridDimZ = kernel.grid
    config.blockDimX, config.blockDimY, config.blockDimZ = kernel.launch.block
    config.sharedMemBytes, config.hStream = kernel.launch.shared_bytes, stream
    config.attrs, config.numAttrs = [attribute], 1
    driver.call("cuLaunchKernelEx", config, kernel.function, params, 0)
