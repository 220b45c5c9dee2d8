"""Calls of the real bindings by hand, as tests of the stand-in make them."""

from __future__ import annotations

from typing import Any


def good(answer: tuple[Any, ...]) -> Any:
    """Return the value of a call, whose status must be success; None if it has none."""
    status, *values = answer
    assert not int(status), status
    return values[0] if values else None


def failed(answer: tuple[Any, ...]) -> str:
    """Return the name of a status that is not success."""
    assert int(answer[0]), "it has not failed"
    return str(answer[0].name).removeprefix("CUDA_ERROR_")


def started(*flags: int) -> list[Any]:
    """Streams with these flags, in the device's context, which is current from now on."""
    from cuda.bindings import driver

    good(driver.cuInit(0))
    good(driver.cuCtxPushCurrent(good(driver.cuDevicePrimaryCtxRetain(0))))
    return [good(driver.cuStreamCreate(f)) for f in flags]


def ended() -> None:
    """No context is current any more."""
    from cuda.bindings import driver

    good(driver.cuCtxPopCurrent())
