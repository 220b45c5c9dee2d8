"""The CUDA driver behind one object: loaded when first needed, its failures raised as our errors.

``call("cuMemAlloc", 256)`` calls the function of that name in ``cuda.bindings.driver`` and returns
its values without the status. Statuses become errors in one place, here, and so do exceptions of
the bindings themselves: for a function or a status that they or the driver do not know.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

from ....ir.errors import NestwrightError, TargetError
from ....ir.gpus import bindings, error_text

NOT_READY = 600
OUT_OF_MEMORY = 2
STICKY: Mapping[int, str] = MappingProxyType(
    {
        4: "DEINITIALIZED",
        214: "ECC_UNCORRECTABLE",
        220: "NVLINK_UNCORRECTABLE",
        226: "CONTAINED",
        401: "ILLEGAL_STATE",
        700: "ILLEGAL_ADDRESS",
        702: "LAUNCH_TIMEOUT",
        709: "CONTEXT_IS_DESTROYED",
        710: "ASSERT",
        714: "HARDWARE_STACK_ERROR",
        715: "ILLEGAL_INSTRUCTION",
        716: "MISALIGNED_ADDRESS",
        717: "INVALID_ADDRESS_SPACE",
        718: "INVALID_PC",
        719: "LAUNCH_FAILED",
        721: "TENSOR_MEMORY_LEAK",
        911: "EXTERNAL_DEVICE",
        999: "UNKNOWN",
    }
)
"""After one of these, every call of the process on this device fails. By number, since the
bindings may be older than the driver and have no name for what it says."""


class DriverError(NestwrightError):
    """A failed call: the function's name, and its status.

    ``number`` is the status's own, -1 where the bindings failed without a status.
    """

    def __init__(self, function: str, status: str, number: int = -1, text: str = "") -> None:
        says = f"{status} ({text})" if text else status
        super().__init__("the CUDA driver refuses a call", f"{function}: {says}")
        self.function = function
        self.status = status
        self.number = number
        self.text = text

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.function, self.status, self.number, self.text)

    @property
    def sticky(self) -> bool:
        """True if the context is lost, for this call and every later one."""
        return self.number in STICKY

    @property
    def out_of_memory(self) -> bool:
        """True if the call would have succeeded with more memory."""
        return self.number == OUT_OF_MEMORY


class Driver:
    """The functions of the driver's module ``api``."""

    def __init__(self, api: Any) -> None:
        self.api = api

    def call(self, function: str, *args: object) -> Any:
        """Call a function and return its values without the status: None, one value, or a tuple."""
        status, number, values = self._answer(function, args)
        if number:
            raise DriverError(function, status.name, number, self._text(status))
        return tuple(values) if len(values) > 1 else values[0] if values else None

    def ready(self, function: str, handle: object) -> bool:
        """True if the work that ``cuStreamQuery`` or ``cuEventQuery`` asks about is done."""
        status, number, _ = self._answer(function, (handle,))
        if number and number != NOT_READY:
            raise DriverError(function, status.name, number, self._text(status))
        return not number

    def _answer(self, function: str, args: tuple[object, ...]) -> tuple[Any, int, list[Any]]:
        try:
            status, *values = getattr(self.api, function)(*args)
            return status, int(status), values
        except Exception as error:  # of the bindings, which may not know what the driver does
            raise _raised(function, error) from error

    def made(self, kind: str) -> Any:
        """Return a new structure of a kind."""
        try:
            return getattr(self.api, kind)()
        except AttributeError as error:
            raise _raised(kind, error) from error

    def constant(self, kind: str, name: str) -> Any:
        """Return a value of one of the driver's enumerations."""
        try:
            return getattr(getattr(self.api, kind), name)
        except AttributeError as error:
            raise _raised(name, error) from error

    def _text(self, status: Any) -> str:
        """Return the driver's description of a status; empty where it has none."""
        try:
            failed, text = self.api.cuGetErrorString(status)
            return "" if int(failed) or not text else text.decode(errors="replace")
        except Exception:
            return ""


def _raised(function: str, error: Exception) -> DriverError:
    """Return an exception of the bindings as an error of the call.

    For a status that they do not know they raise a ``ValueError`` that begins with its number, or a
    ``KeyError`` of it, depending on their version.
    """
    unknown = re.fullmatch(r"(\d+)(?: is not a valid \w+)?", str(error))
    if unknown is None or not isinstance(error, ValueError | KeyError):
        return DriverError(function, error_text(error))
    number = int(unknown[1])
    name = f"CUDA_ERROR_{STICKY[number]}" if number in STICKY else f"status {number}"
    return DriverError(function, name, number, error_text(error))


@cache
def driver() -> Driver:
    """Return the driver of this machine, initialized. ``TargetError`` where there is none."""
    try:
        made = Driver(bindings())
        made.call("cuInit", 0)
        devices = made.call("cuDeviceGetCount")
    except DriverError as error:
        raise TargetError("no NVIDIA GPU can be used here", error.why) from error
    except TargetError as error:
        raise TargetError("no NVIDIA GPU can be used here", error.why) from error
    if not devices:
        raise TargetError("no NVIDIA GPU can be used here", "the driver finds no device")
    return made
