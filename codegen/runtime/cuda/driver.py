"""The CUDA driver behind one object: loaded when first needed, its failures told as our errors.

``call("cuMemAlloc", 256)`` calls the function of that name in ``cuda.bindings.driver`` and gives
its values without the status. Statuses become errors in one place, here.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from ....ir.errors import TargetError

NOT_READY = "CUDA_ERROR_NOT_READY"
OUT_OF_MEMORY = "CUDA_ERROR_OUT_OF_MEMORY"
STICKY = frozenset(
    f"CUDA_ERROR_{name}"
    for name in (
        "ECC_UNCORRECTABLE", "ILLEGAL_ADDRESS", "LAUNCH_TIMEOUT", "ASSERT", "HARDWARE_STACK_ERROR",
        "ILLEGAL_INSTRUCTION", "MISALIGNED_ADDRESS", "INVALID_ADDRESS_SPACE", "INVALID_PC",
        "LAUNCH_FAILED", "CONTEXT_IS_DESTROYED", "NVLINK_UNCORRECTABLE", "TENSOR_MEMORY_LEAK",
    )
)  # fmt: skip
"""After one of these, every call of the process on this device fails with it again."""


class DriverError(Exception):
    """A call that failed: the function's name, and the status that it gave."""

    def __init__(self, function: str, status: str, told: str = "") -> None:
        super().__init__(function, status, told)
        self.function = function
        self.status = status
        self.told = told

    def __str__(self) -> str:
        return f"{self.status} ({self.told})" if self.told else self.status


class Driver:
    """The functions of the driver's module ``api``."""

    def __init__(self, api: Any) -> None:
        self.api = api

    def call(self, function: str, *args: object) -> Any:
        """Call; what it gives beside its status: nothing, one value, or a tuple."""
        status, *values = getattr(self.api, function)(*args)
        if int(status):
            raise DriverError(function, status.name, self._told(status))
        return tuple(values) if len(values) > 1 else values[0] if values else None

    def ready(self, function: str, handle: object) -> bool:
        """Whether the work that ``cuStreamQuery`` or ``cuEventQuery`` asks for is done."""
        status, *_ = getattr(self.api, function)(handle)
        if int(status) and status.name != NOT_READY:
            raise DriverError(function, status.name, self._told(status))
        return not int(status)

    def constant(self, kind: str, name: str) -> Any:
        """A value of one of the driver's enumerations."""
        return getattr(getattr(self.api, kind), name)

    def _told(self, status: Any) -> str:
        failed, text = self.api.cuGetErrorString(status)
        return "" if int(failed) or not text else text.decode(errors="replace")


@cache
def driver() -> Driver:
    """The driver of this machine, initialized. ``TargetError`` where there is none."""
    try:
        from cuda.bindings import driver as api
    except ImportError as error:
        why = "cuda-python is not installed (pip install 'nestwright[cuda]')"
        raise TargetError("no NVIDIA GPU can be used here", why) from error
    made = Driver(api)
    try:
        made.call("cuInit", 0)
        devices = made.call("cuDeviceGetCount")
    except DriverError as error:
        raise TargetError("no NVIDIA GPU can be used here", f"the driver says {error}") from error
    except RuntimeError as error:  # the library is not there
        why = "this machine has no NVIDIA driver"
        raise TargetError("no NVIDIA GPU can be used here", why) from error
    if not devices:
        raise TargetError("no NVIDIA GPU can be used here", "the driver finds no device")
    return made
