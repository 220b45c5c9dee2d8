"""The border between torch and compiled code: addresses go in, tensors over new memory come out.

Nothing is copied: compiled code reads the tensors' own memory, unless a tensor is a view with gaps
or lies in another order than when it was compiled, and writes into the memory of the results.
torch tells where that is through DLPack's C functions, or one by one where it lacks them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from ctypes import c_bool
from functools import partial
from math import prod
from operator import itemgetter
from typing import Any, TypeAlias
from weakref import ref

import numpy as np
import torch

from ...codegen.runtime.dlpack.exchange import SETTLED, Exchange, has_exchange
from ...codegen.runtime.entry import Maker
from ...codegen.runtime.executable import Executable
from ...codegen.runtime.outputs import aligned_empty
from ...ir.arrays import LARGE
from .layouts import Order, Strides, strides_of

Call: TypeAlias = Callable[..., Any]
"""A function of tensors that returns a sequence of tensors."""


def border(exe: Executable, inputs: Sequence[Order], results: Sequence[Any], lazy: bool) -> Call:
    """Return the function that runs an executable of this processor on tensors.

    ``results`` are tensors, fake ones too, of the results' shapes, layouts and element types; the
    parameters have their dimensions in the orders ``inputs``. The tensors of a call must have the
    parameters' element types and sizes, on this processor, which torch's guards see to. With
    ``lazy`` they may be conjugated or negated views.
    """
    loaded: Any = exe.loaded()
    makers = [_maker(tuple(map(int, r.shape)), strides_of(r), r.dtype) for r in results]
    address = torch.Tensor.data_ptr
    settle = _materialized if lazy else _row_major

    def slow(*args: Any) -> list[Any]:
        given = settle(args)
        made = [make(dims, strides) for make, dims, strides in makers]
        loaded.run_at(map(address, given), map(address, made))
        return made

    call: Call = slow
    if has_exchange(torch.Tensor):
        exchange = Exchange(torch.Tensor, derived=True, methods=tuple(SETTLED) if lazy else ())
        call = loaded.tensor_call(exchange, makers, slow)
    moved = [(i, o) for i, o in enumerate(inputs) if o != tuple(sorted(o))]
    return (lambda *args: call(*_permuted(args, moved))) if moved else call


def _permuted(args: Sequence[Any], moved: Sequence[tuple[int, Order]]) -> list[Any]:
    given = list(args)
    for i, order in moved:
        given[i] = given[i].permute(order)
    return given


def _row_major(args: Sequence[Any]) -> list[Any]:
    return [t if t.is_contiguous() else t.contiguous() for t in args]


def _materialized(args: Sequence[Any]) -> list[Any]:
    return [t.resolve_conj().resolve_neg().contiguous() for t in args]


def _maker(dims: tuple[int, ...], strides: Strides, dtype: Any) -> Maker:
    """Return what allocates a result: large ones in memory that is used again."""
    nbytes = prod(dims) * dtype.itemsize
    if nbytes < LARGE:
        return partial(torch.empty_strided, dtype=dtype, device="cpu"), dims, strides
    raw = np.dtype(np.uint8)

    def large(dims: tuple[int, ...], strides: Strides) -> Any:
        memory = torch.from_numpy(aligned_empty((nbytes,), raw))
        return memory.view(dtype).as_strided(dims, strides)

    return large, dims, strides


def or_eager(call: Call, eager: Call) -> Call:
    """Return ``call`` without its last result, a truth value; ``eager`` takes calls without it.

    It is false where torch would raise an error that depends on values, which ``eager`` then does.
    """

    def checked(*args: Any) -> Any:
        *results, holds = call(*args)
        return results if c_bool.from_address(holds.data_ptr()).value else eager(*args)

    return checked


def without(frozen: Collection[int], call: Call, count: int) -> Call:
    """Return the function of ``count`` arguments that calls with those that are not frozen."""
    pick = _picker([i for i in range(count) if i not in frozen])
    return lambda *args: call(*pick(args))


def guarded(call: Call, frozen: Mapping[int, Any], changed: Call) -> Call:
    """Return ``call``; ``changed`` takes the calls in which a frozen argument differs.

    ``frozen`` are the weights that were compiled in, by their places among the arguments. A
    weight differs if it is another tensor, has other memory, or was written since: torch counts
    writes, all but those through ``.data``.
    """
    known = [(i, ref(t), t._version, t.data_ptr()) for i, t in frozen.items()]

    def checked(*args: Any) -> Any:
        for i, weight, version, address in known:
            t = args[i]
            if t._version != version or t.data_ptr() != address or weight() is not t:
                return changed(*args)
        return call(*args)

    return checked


def _picker(places: Sequence[int]) -> Callable[[Any], Any]:
    """Return a function that picks these places of a tuple, as a tuple."""
    match places:
        case []:
            return lambda args: ()
        case [one]:
            return itemgetter(slice(one, one + 1))
        case _:
            return itemgetter(*places)
