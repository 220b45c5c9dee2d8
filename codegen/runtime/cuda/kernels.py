"""Kernels in a device: modules loaded from machine code or PTX, and what a launch of each takes."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from warnings import warn

from ....ir.errors import (
    NestwrightError,
    NestwrightWarning,
    TargetError,
    UnsupportedError,
    VerifyError,
)
from ....ir.target import Target
from ...plan.code.device import DeviceCode, LaunchConfig
from .device import Device
from .driver import DriverError

FREE_SHARED = 48 << 10  # bytes of shared memory, static and dynamic, that need not be asked for
LOG_BYTES = 1 << 14
INVALID_PTX = 218


@dataclass(frozen=True, slots=True)
class DeviceFunction:
    """A function on the device and its launch. It works as long as its ``module`` is held."""

    function: Any
    launch: LaunchConfig
    module: LoadedModule

    @property
    def grid(self) -> tuple[int, int, int]:
        """The blocks that this device gets, in x, y and z."""
        return self.launch.on(self.module.device.multiprocessors)


class LoadedModule:
    """A loaded module; unloaded with its last kernel."""

    def __init__(self, device: Device, handle: Any) -> None:
        self.device, self.handle = device, handle
        weakref.finalize(self, device.discard, "cuModuleUnload", handle).atexit = False


def load_all(
    codes: Mapping[str, DeviceCode], target: Target, device: Device, name: str
) -> dict[str, tuple[DeviceFunction, ...]]:
    """Load the kernels of each group of model ``name``, by symbol.

    ``TargetError`` if they cannot run on this device, ``VerifyError`` if the driver rejects them.
    """
    if not target.gpu.runs_on(device.capability):
        raise TargetError(
            f"{name} was built for {target.spec}",
            f"this machine's {device.name} is an sm_{device.capability}",
            hint='build it again for target "cuda"',
        )
    with device:
        return {symbol: load(code, target.gpu.sm, device) for symbol, code in codes.items()}


def load(code: DeviceCode, sm: int, device: Device) -> tuple[DeviceFunction, ...]:
    """Load the kernels of one module that was made for ``sm``; with the device held."""
    module = LoadedModule(device, _image(code, sm, device))
    return tuple(_kernel(launch, module, device) for launch in code.launches)


def _image(code: DeviceCode, sm: int, device: Device) -> Any:
    """Load machine code if it fits the device and the driver accepts it, else PTX, which the driver
    compiles.
    """
    if not code.cubin or device.capability // 10 != sm // 10:
        return _compiled(code, device)
    try:
        return device.call_with_retry("cuModuleLoadData", code.cubin)
    except DriverError as error:
        if error.sticky:
            raise device.failed(error, f"{_first(code)} cannot be loaded") from error
        image = _compiled(code, device, f"; its machine code was refused too: {error.why}")
        message = f"the driver refuses its machine code and compiles its PTX: {error.why}"
        warn(f"{_first(code)}: {message}", NestwrightWarning, stacklevel=2)
        return image


def _compiled(code: DeviceCode, device: Device, before: str = "") -> Any:
    """Load PTX, compiled by the driver; ``before`` is added to the error if that fails as well."""
    names = "", "_SIZE_BYTES"
    log, image = bytearray(LOG_BYTES), code.ptx.encode() + b"\0"
    try:
        options = [
            device.driver.constant("CUjit_option", f"CU_JIT_ERROR_LOG_BUFFER{n}") for n in names
        ]
        return device.call_with_retry(
            "cuModuleLoadDataEx", image, len(options), options, [log, len(log)]
        )
    except DriverError as error:
        raise _refused(error, code, device, bytes(log), before) from error


def _refused(
    error: DriverError, code: DeviceCode, device: Device, log: bytes, before: str
) -> NestwrightError:
    if error.sticky or error.out_of_memory:
        return device.failed(error, f"{_first(code)} cannot be loaded")
    message = log.split(b"\0")[0].decode(errors="replace").strip()
    why = f"{error.why}{': ' if message else ''}{message}{before}"
    made = VerifyError if error.number == INVALID_PTX else UnsupportedError
    return made(f"the driver does not take the PTX of {_first(code)}", why)


def _first(code: DeviceCode) -> str:
    return f"kernel {code.launches[0].symbol}"


def _kernel(launch: LaunchConfig, module: LoadedModule, device: Device) -> DeviceFunction:
    call, constant = device.driver.call, device.driver.constant
    try:
        function = call("cuModuleGetFunction", module.handle, launch.symbol.encode())
        kind = constant("CUfunction_attribute", "CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES")
        static = int(call("cuFuncGetAttribute", kind, function))
        _check_shared(launch, static, device)
        if static + launch.shared_bytes > FREE_SHARED:
            most = "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES"
            kind = constant("CUfunction_attribute", most)
            call("cuFuncSetAttribute", function, kind, launch.shared_bytes)
    except DriverError as error:
        raise device.failed(error, f"kernel {launch.symbol} cannot be loaded") from error
    return DeviceFunction(function, launch, module)


def _check_shared(launch: LaunchConfig, static: int, device: Device) -> None:
    """Raise ``UnsupportedError`` if a block does not fit, which a launch would report only as an
    invalid value.
    """
    if static + launch.shared_bytes > device.shared_per_block:
        raise UnsupportedError(
            f"kernel {launch.symbol} cannot be loaded",
            f"its blocks take {launch.shared_bytes} bytes of shared memory and {static} for "
            f"reductions; {device.name} gives a block {device.shared_per_block}",
            hint="smaller tiles, or fewer stages of a pipeline",
        )
