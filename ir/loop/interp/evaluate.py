"""The loop IR interpreter: the oracle that says what a function means at any stage.

A function is compiled to nested closures and run element by element, blocks, predicates and inits
included; large nests whose iterations turn out to be independent run on arrays (``lanes``). It is
strict where the program is undefined: reading what nothing wrote, an index or a block axis out of
range, and an output element left unwritten are errors. Of a selection only the chosen operand is
evaluated.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import numpy as np

from ...arrays import Array
from ...dtypes import to_numpy
from ...errors import ArgumentError
from ..nodes import Alloc, Buffer, Func, Seq, Stmt, Var
from .actions import Compiler
from .lanes import run_as_lanes
from .launches import Launch, run_launch
from .memory import Memory
from .races import UndefinedError, Watch

__all__ = ["UndefinedError", "run"]


def run(
    func: Func,
    args: Sequence[Array],
    *,
    symbols: Sequence[int] = (),
    seed: int | None = None,
    check_races: bool = False,
) -> list[Array]:
    """Return the outputs of ``func`` on ``args``: the inputs, in the order of ``func.params``.

    ``symbols`` are the values of ``func.symbols``. With ``seed``, parallel loops run in a random
    order. With ``check_races``, two iterations of a parallel, vector or thread-bound loop that meet
    in an element, one of them writing, are an ``UndefinedError``.

    A nest that is a launch of flat GPU code runs as its threads do (``launches``), in an order
    drawn from ``seed``. There, ``check_races`` finds threads that no barrier keeps apart.
    """
    _check(func, args, symbols)
    inputs = len(func.params) - func.outputs
    memory = {b: Memory(b, a) for b, a in zip(func.params, args, strict=False)}
    memory |= {b: Memory(b) for b in (*func.params[inputs:], *func.allocs)}
    watch = Watch(func) if check_races else None
    order = None if seed is None else random.Random(seed)
    values = dict(zip(func.symbols, symbols, strict=True))
    with np.errstate(all="ignore"):
        _run(func.body, memory, values, watch, order)
    return [_result(memory[b]) for b in func.params[inputs:]]


def _run(
    s: Stmt,
    memory: dict[Buffer, Memory],
    symbols: Mapping[Var, int],
    watch: Watch | None,
    order: random.Random | None,
) -> None:
    """Run the nests of a body one by one, each in the way that suits it."""
    match s:
        case Seq(stmts=stmts):
            for x in stmts:
                _run(x, memory, symbols, watch, order)
        case Alloc(buffer=buffer, body=body):
            memory[buffer] = Memory(buffer)
            _run(body, memory, symbols, watch, order)
            del memory[buffer]
        case _ if watch is None and order is None and run_as_lanes(s, memory, symbols):
            pass
        case _:
            launch = Launch.of(s)
            if launch is None:
                Compiler(memory, watch, order).run(s, symbols)
            else:
                run_launch(launch, memory, symbols, order or random.Random(0), watch is not None)


def _check(func: Func, args: Sequence[Array], symbols: Sequence[int]) -> None:
    inputs = func.params[: len(func.params) - func.outputs]
    what = f"cannot run {func.name}"
    if len(args) != len(inputs) or len(symbols) != len(func.symbols):
        wants = f"{len(inputs)} arrays and {len(func.symbols)} symbols"
        raise ArgumentError(what, f"it takes {wants}; got {len(args)} and {len(symbols)}")
    for n, (b, a) in enumerate(zip(inputs, args, strict=True)):
        if a.shape != b.shape or a.dtype != to_numpy(b.dtype):
            got = f"argument {n} is {a.dtype}{list(a.shape)}"
            raise ArgumentError(what, f"{got}, {b.name} is {b.dtype}{list(b.shape)}")


def _result(m: Memory) -> Array:
    m.to_array()
    if not m.known.all():
        place = np.unravel_index(int(np.argmin(m.known)), m.buffer.shape)
        why = f"{m.buffer.name}{[int(i) for i in place]} was never written"
        raise UndefinedError("an output has no value", why)
    return m.values.reshape(m.buffer.shape)
