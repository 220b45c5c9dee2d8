"""Arguments that need more than a look: conversion where it is exact, and clear refusals.

Taken as they are or by a view or copy: arrays of the right element type and shape, whatever their
strides and byte order; anything with ``__dlpack__`` or ``__array__`` or the buffer protocol; Python
numbers for rank-0 parameters. Everything else is refused: another element type is never converted,
and a masked array would lose its mask.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn

import numpy as np

from ...ir.arrays import Array, refuse_masked
from ...ir.dtypes import DType, from_numpy, to_numpy
from ...ir.errors import ArgumentError
from ...ir.lazy import LazyModule
from ..plan.signature import ArraySpec, Tree
from .dlpack.elements import CPU

_CAPSULES = LazyModule(".dlpack.capsules", __package__)  # most calls have NumPy's arrays
_EXCHANGE = LazyModule(".dlpack.exchange", __package__)


def convert_all(
    args: Sequence[object], specs: Sequence[ArraySpec], tree: Tree, where: str
) -> list[Array]:
    """Convert all arguments as ``convert`` does, or raise ``ArgumentError``."""
    found = flatten(args, specs, tree, where)
    return [
        convert(x, spec, i, where) for i, (x, spec) in enumerate(zip(found, specs, strict=True))
    ]


def flatten(
    args: Sequence[object], specs: Sequence[ArraySpec], tree: Tree, where: str
) -> list[object]:
    """Return the value given for each parameter, in order; ``ArgumentError`` for a wrong number.

    ``tree`` has one element per argument: a parameter's number, or a tuple for a tuple argument.
    Arrays inside such tuples may also be given one by one, in order.
    """
    assert isinstance(tree, tuple)
    if len(args) == len(specs) and not any(isinstance(a, tuple | list) for a in args):
        return list(args)
    if len(args) != len(tree):
        wanted = ", ".join(f"{s.name}: {s}" for s in specs) or "none"
        raise ArgumentError(
            f"expected {len(tree)} argument{'s' * (len(tree) != 1)}, got {len(args)}",
            f"the parameters are {wanted}",
            where,
        )
    leaves: dict[int, object] = {}
    for number, (arg, branch) in enumerate(zip(args, tree, strict=True)):
        _flatten(arg, branch, leaves, f"argument {number}", where)
    return [leaves[i] for i in range(len(specs))]


def flatten_outputs(
    out: object, specs: Sequence[ArraySpec], tree: Tree, where: str
) -> list[object]:
    """Return the value given for each result in ``out=``, in order."""
    leaves: dict[int, object] = {}
    _flatten(out, tree, leaves, "out", where)
    return [leaves[i] for i in range(len(specs))]


def _flatten(arg: object, tree: Tree, leaves: dict[int, object], what: str, where: str) -> None:
    if isinstance(tree, int):
        leaves[tree] = arg
        return
    if not isinstance(arg, tuple | list) or len(arg) != len(tree):
        raise ArgumentError(what, f"expected a tuple of {len(tree)}, got {_describe(arg)}", where)
    for i, (item, branch) in enumerate(zip(arg, tree, strict=True)):
        _flatten(item, branch, leaves, f"{what}[{i}]", where)


def convert(arg: object, spec: ArraySpec, number: int, where: str) -> Array:
    """Return an argument as a C-contiguous native array of the right element type, in
    memory order.
    """
    what = f"argument {number} ({spec.name})"
    dtype = to_numpy(spec.dtype)
    if not spec.dims and type(arg) in (bool, int, float, complex):
        return _number(arg, spec, what, where)
    array = _as_array(arg, spec, what, where)
    if array.dtype.newbyteorder("=") != dtype:
        told = f"expected {spec}, got {_describe(array)}"
        raise ArgumentError(what, told, where, _dtype_hint(arg, array, spec.dtype))
    if not spec.takes(array.shape):
        raise ArgumentError(what, f"expected {spec}, got {_describe(array)}", where)
    native = as_stored(np.asarray(array, dtype), spec)
    return np.ascontiguousarray(native).reshape(native.shape)


def as_stored(array: Array, spec: ArraySpec) -> Array:
    """Return a view of an argument or result with its dimensions in memory order."""
    return array.transpose(spec.order) if spec.order else array


def as_seen(stored: Array, spec: ArraySpec) -> Array:
    """Return the view that ``as_stored`` was made from."""
    return stored.transpose(np.argsort(spec.order).tolist()) if spec.order else stored


def check_outputs(out: object, specs: Sequence[ArraySpec], tree: Tree, where: str) -> list[Array]:
    """Return the arrays of ``out=`` in memory order; they must be writable and of the
    right type.
    """
    arrays: list[Array] = []
    if any(any(s.dynamic) for s in specs):
        raise ArgumentError("out", "results of bounded size are allocated by the call", where)
    for array, spec in zip(flatten_outputs(out, specs, tree, where), specs, strict=True):
        if not isinstance(array, np.ndarray):
            raise ArgumentError("out", f"expected an array, got {_describe(array)}", where)
        refuse_masked(array, "out", where)
        if array.dtype != to_numpy(spec.dtype) or array.shape != spec.dims:
            told = f"expected {spec}, got {_describe(array)}"
            order = "results are written in this machine's byte order"
            raise ArgumentError("out", told, where, "" if array.dtype.isnative else order)
        if not array.flags.writeable:
            raise ArgumentError("out", "the array is read-only", where)
        arrays.append(as_stored(array, spec))
    return arrays


def answer(stored: Sequence[Array], specs: Sequence[ArraySpec], tree: Tree) -> Any:
    """Return the result of a call: the results in the caller's order, nested as the tree says."""
    pairs = zip(stored, specs, strict=True)
    return rebuild([as_seen(array, spec) for array, spec in pairs], tree)


def rebuild(leaves: Sequence[Any], tree: Tree) -> Any:
    """Nest leaves in tuples as the tree says."""
    if isinstance(tree, int):
        return leaves[tree]
    return tuple(rebuild(leaves, branch) for branch in tree)


def _number(arg: object, spec: ArraySpec, what: str, where: str) -> Array:
    """Return a Python number as a rank-0 array: bool for pred, int for integers, any real for
    floats.
    """
    kinds: Mapping[str, tuple[type, ...]] = {
        "pred": (bool,),
        "signed": (int,),
        "unsigned": (int,),
        "float": (int, float),
        "complex": (int, float, complex),
    }
    if type(arg) not in kinds[spec.dtype.kind]:
        raise ArgumentError(what, f"expected {spec}, got the Python {_describe(arg)}", where)
    try:
        return np.array(arg, to_numpy(spec.dtype))
    except (OverflowError, ValueError) as error:
        raise ArgumentError(what, f"{arg!r} does not fit {spec}", where) from error


def in_order(
    args: Sequence[object], named: Mapping[str, object], names: Sequence[str], where: str
) -> tuple[object, ...]:
    """Return the arguments of a call by place and by name, in the order of the names.

    ``ArgumentError`` for a name that is unknown, given twice, or not given.
    """
    rest = names[len(args) :]
    try:
        found = (*args, *[named[name] for name in rest])
        if len(found) == len(args) + len(named):
            return found
    except KeyError:
        pass
    for name in named:
        if name not in rest:
            why = "it is given by place, too" if name in names else f"the inputs are {_list(names)}"
            raise ArgumentError(f"unknown keyword {name!r}", f"{why}; out= takes results", where)
    missing = [name for name in rest if name not in named]
    raise ArgumentError(f"no value for {_list(missing)}", f"inputs: {_list(names)}", where)


def _list(names: Sequence[str]) -> str:
    return (", ".join(names[:8]) or "none") + (", .." if len(names) > 8 else "")


def refuse_keyword(unknown: Mapping[str, object]) -> NoReturn:
    """Raise ``ArgumentError`` for unknown keywords of a call."""
    raise ArgumentError(
        f"unknown keyword {next(iter(unknown))!r}",
        "arguments are positional; the only keyword is out=",
    )


def _as_array(arg: object, spec: ArraySpec, what: str, where: str) -> Array:
    if isinstance(arg, np.ndarray):
        refuse_masked(arg, what, where)
        return arg
    if isinstance(arg, list | tuple | str | bytes | bool | int | float | complex):
        if isinstance(arg, np.generic):
            return np.asarray(arg)
        raise ArgumentError(
            what,
            f"expected {spec}, got a Python {type(arg).__name__}",
            where,
            f"numpy.asarray(x, {to_numpy(spec.dtype).name!r}) makes an array",
        )
    try:
        if hasattr(arg, "__dlpack__"):
            return _from_dlpack(_EXCHANGE.settled(arg))
        array = np.asarray(arg)
    except Exception as error:  # ``__array__`` and ``__dlpack__`` are other people's code
        if _is_deleted(arg):
            why = f"this {_describe(arg)} was deleted, or donated to a call before"
            raise ArgumentError(what, why, where) from error
        why = f"{type(error).__name__}: {error}"
        raise ArgumentError(
            what, f"{_describe(arg)} does not convert to an array: {why}", where
        ) from error
    if array.dtype == np.dtype(object):
        raise ArgumentError(what, f"expected {spec}, got {_describe(arg)}", where)
    return array


def _is_deleted(arg: Any) -> bool:
    """True for an array of JAX that no longer has its memory."""
    asked = getattr(arg, "is_deleted", None)
    return callable(asked) and asked() is True


def _from_dlpack(arg: Any) -> Array:
    """Return NumPy's view of a DLPack array on this processor; bf16 and f8, which NumPy's reader
    lacks, are read here.
    """
    try:
        return np.from_dlpack(arg)
    except (TypeError, RuntimeError, BufferError):
        if arg.__dlpack_device__()[0] == CPU:
            with suppress(TypeError, ValueError, RuntimeError, BufferError):
                found: Array = _CAPSULES.as_array(_CAPSULES.read(arg.__dlpack__()))
                return found
        if not hasattr(arg, "__array__"):
            raise
        return np.asarray(arg)


def _dtype_hint(arg: object, array: Array, dtype: DType) -> str:
    name = to_numpy(dtype).name
    if array.dtype.kind not in "biufc":
        return ""
    if not hasattr(arg, "astype") and hasattr(arg, "to"):
        return f"x.to(torch.{name}) converts it"
    return f"x.astype({name!r}) converts it"


def _describe(value: object) -> str:
    if isinstance(value, np.ndarray):
        try:
            name = from_numpy(value.dtype).name
        except KeyError:
            name = str(value.dtype)
        order = "" if value.dtype.isnative else " of the other byte order"
        return f"{name}[{','.join(map(str, value.shape))}]{order}"
    return f"{type(value).__name__}"
