"""Functions of the host by the name of the custom call that they answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, overload
from uuid import uuid4

from ..errors import ArgumentError, LibraryError
from .call import FAILED, LibraryCall
from .fourier import transform
from .lapack import FUNCTIONS as LAPACK
from .lapack import knows as lapack_knows
from .solvers import cholesky, triangular_solve

Function: TypeAlias = Callable[..., Any]
"""``function(call, *operands)`` gives the result, or a tuple of the results."""

HINT = "nestwright.register_custom_call(target, function) registers a function for it"

_registered: dict[str, Function] = {}
_callbacks: dict[str, Function] = {}
_PREFIX = f"python_callback_{uuid4().hex[:8]}"
"""Of names that no other process has: what is saved never meets another's functions."""
_OPERATIONS: dict[str, Function] = {
    "fft": transform,
    "cholesky": cholesky,
    "triangular-solve": triangular_solve,
}


@overload
def register_custom_call(target: str, function: Function) -> Function: ...
@overload
def register_custom_call(target: str) -> Callable[[Function], Function]: ...
def register_custom_call(target: str, function: Function | None = None) -> Any:
    """Let ``function`` compute the custom calls of a name, in the interpreter and in executables.

    It gets the ``LibraryCall`` and the operands, NumPy arrays of its own, and gives the result: an
    array of just the shape and element type that ``call.results`` asks for, or a tuple of them for
    a call with several results or none. It is looked up by name when the call runs, so that a
    function registered later takes its place. Without ``function`` this is a decorator. Returns
    the function.
    """
    if not isinstance(target, str) or not target:
        raise ArgumentError("a custom call's target", f"must be a name, not {target!r}")

    def register(given: Function) -> Function:
        if not callable(given):
            raise ArgumentError(f"custom call {target!r}", f"{given!r} is not a function")
        _registered[target] = given
        return given

    return register if function is None else register(function)


def register_callback(function: Function) -> str:
    """Register a function as ``register_custom_call`` does, under a name of this process.

    Returns the name, which no other function gets.
    """
    name = f"{_PREFIX}_{len(_callbacks)}"
    _callbacks[name] = function
    return name


def unregister_custom_call(target: str) -> None:
    """Forget the function that was registered for a name, if there is one."""
    _registered.pop(target, None)


def knows(target: str) -> bool:
    """Is there a function for custom calls of this name?"""
    return target in _registered or target in _callbacks or lapack_knows(target) or target == FAILED


def registered() -> tuple[str, ...]:
    """The names for which users have registered functions, sorted."""
    return tuple(sorted(_registered))


def is_registered(target: str) -> bool:
    """Has a user registered a function for this name?"""
    return target in _registered


def function(call: LibraryCall) -> tuple[Function, bool]:
    """The function that answers a call, and whether a user registered it.

    ``LibraryError`` where there is none.
    """
    if call.opcode == "custom-call":
        if (found := _registered.get(call.target, _callbacks.get(call.target))) is not None:
            return found, True
        if lapack_knows(call.target):
            return LAPACK[call.target], False
        if call.target == FAILED:
            from .checks import failed  # few models have checks

            return failed, False
    elif (found := _OPERATIONS.get(call.opcode)) is not None:
        return found, False
    raise LibraryError(
        f"{call.opcode} {call.target!r}", "no function of this process computes it", hint=HINT
    )
