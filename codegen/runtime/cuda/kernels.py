"""Kernels in a device: modules loaded from machine code or PTX, and what a launch of each takes."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ....ir.errors import TargetError, VerifyError
from ....ir.target import Target
from ...code import DeviceCode, Launch
from .device import Device
from .driver import DriverError

FREE_SHARED = 48 << 10  # bytes of dynamic shared memory that need not be asked for
LOG_BYTES = 1 << 14
_NO_CODE = ("CUDA_ERROR_NO_BINARY_FOR_GPU", "CUDA_ERROR_INVALID_IMAGE")


@dataclass(frozen=True, slots=True)
class Kernel:
    """A function on the device and its launch. It works as long as its ``module`` is held."""

    function: Any
    launch: Launch
    module: Module


class Module:
    """A loaded module; unloaded when no kernel of it is left."""

    def __init__(self, device: Device, handle: Any) -> None:
        self.handle = handle
        weakref.finalize(self, device.dispose, "cuModuleUnload", handle).atexit = False


def load_all(
    codes: Mapping[str, DeviceCode], target: Target, device: Device, name: str
) -> dict[str, tuple[Kernel, ...]]:
    """The kernels of each group of model ``name``, by symbol. ``TargetError`` if they cannot run
    on this device, ``VerifyError`` if the driver refuses them."""
    if not target.gpu.runs_on(device.capability):
        raise TargetError(
            f"{name} was built for {target.spec}",
            f"this machine's {device.name} is an sm_{device.capability}",
            hint='build it again for target "cuda"',
        )
    with device:
        return {symbol: load(code, target.gpu.sm, device) for symbol, code in codes.items()}


def load(code: DeviceCode, sm: int, device: Device) -> tuple[Kernel, ...]:
    """The kernels of one module that was made for ``sm``; with the device held."""
    module = Module(device, _image(code, sm, device))
    return tuple(_kernel(launch, module, device) for launch in code.launches)


def _image(code: DeviceCode, sm: int, device: Device) -> Any:
    """Machine code where it fits the device, else PTX, which the driver compiles."""
    same = device.capability // 10 == sm // 10
    if code.cubin and same:
        try:
            return device.driver.call("cuModuleLoadData", code.cubin)
        except DriverError as error:
            if error.status not in _NO_CODE:
                raise device.failed(error, f"{_first(code)} cannot be loaded") from error
    return _compiled(code, device)


def _compiled(code: DeviceCode, device: Device) -> Any:
    log = bytearray(LOG_BYTES)
    options = [
        device.driver.constant("CUjit_option", f"CU_JIT_ERROR_LOG_BUFFER{suffix}")
        for suffix in ("", "_SIZE_BYTES")
    ]
    image = code.ptx.encode() + b"\0"
    try:
        return device.driver.call(
            "cuModuleLoadDataEx", image, len(options), options, [log, len(log)]
        )
    except DriverError as error:
        told = bytes(log).split(b"\0")[0].decode(errors="replace").strip()
        raise VerifyError(
            f"the driver does not take the PTX of {_first(code)}", told or str(error)
        ) from error


def _first(code: DeviceCode) -> str:
    return f"kernel {code.launches[0].symbol}"


def _kernel(launch: Launch, module: Module, device: Device) -> Kernel:
    call = device.driver.call
    try:
        function = call("cuModuleGetFunction", module.handle, launch.symbol.encode())
        if launch.shared_bytes > FREE_SHARED:
            attribute = device.driver.constant(
                "CUfunction_attribute", "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES"
            )
            call("cuFuncSetAttribute", function, attribute, launch.shared_bytes)
    except DriverError as error:
        raise device.failed(error, f"kernel {launch.symbol} cannot be loaded") from error
    return Kernel(function, launch, module)
