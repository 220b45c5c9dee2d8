"""What an HLO module computes, in NumPy: the oracle that every other floor is checked against.

Values are arrays or tuples of them. An array with a bounded dimension (``<=``) is held at its
live size, so nothing ever computes on padding. Called computations of scalars (reducers,
comparators) are evaluated on whole arrays at once. Sums of narrow floats are kept in f32, of f32
in f64; integers wrap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from ...arrays import as_array
from ...dtypes import to_numpy
from ...errors import ArgumentError, UnsupportedError
from ...library.session import Session
from ..analysis import asynchronous
from ..analysis.effects import unneeded
from ..analysis.support import findings, refusal, require_supported
from ..meaning.values import Handler, Run, Value, first
from ..nodes import AnyShape, Computation, HloModule, Instruction, Shape, TupleShape
from ..ops.registry import definition
from ..rewrite import needs, post_order, reachable
from ..shape_text import show_shape
from . import expanded as interp_expanded
from . import library as interp_library
from .lift import Runner

Step: TypeAlias = tuple[
    Instruction, "Handler | None", tuple[Instruction, ...], tuple[Instruction, ...]
]
Observer: TypeAlias = Callable[[Instruction, Value], None]


def evaluate(module: HloModule, args: Sequence[Any]) -> Value:
    """The result of the entry computation: an array, or a (nested) tuple of arrays.

    ``args`` are arrays of the parameters' shapes and element types, in order; a parameter that is
    a tuple takes a tuple, or all arguments are given flat. ``ArgumentError``
    for arguments that do not fit, ``UnsupportedError`` that lists what cannot be computed.
    """
    require_supported(module)
    return _evaluate(module.entry, args, None)


def evaluate_computation(
    computation: Computation, args: Sequence[Any], observe: Observer | None = None
) -> Value:
    """The result of one computation on these arguments; errors as for ``evaluate``.

    ``observe`` is told the value of every instruction as soon as it is known, those of called
    computations included, once per call.
    """
    if found := list(findings(computation)):
        raise refusal(found, computation.name)
    return _evaluate(computation, args, observe)


def _evaluate(computation: Computation, args: Sequence[Any], observe: Observer | None) -> Value:
    values = _arguments(computation, args)
    plans: dict[Computation, tuple[Step, ...]] = {}
    live = _has_live_sizes(computation)
    library = interp_library.handler(Session())
    effects = unneeded(computation)

    def run(c: Computation, operands: Sequence[Value]) -> Value:
        if (plan := plans.get(c)) is None:
            plan = plans[c] = _plan(c, effects.get(c, ()), live, library)
        return _run(c, plan, operands, runner, observe)

    runner = Runner(run)

    with np.errstate(all="ignore"):
        try:
            return run(computation, values)
        except MemoryError as error:
            what = "a value does not fit into memory"
            raise UnsupportedError(what, str(error), computation.name) from error


def _plan(
    c: Computation, effects: Sequence[Instruction], live: bool, library: Handler
) -> tuple[Step, ...]:
    """What to run and, after each step, which values nobody needs any more.

    ``effects`` run though no value needs them. With ``live``, arrays may be smaller than their
    shapes say. ``library`` computes library calls, and remembers from one to the next.
    """
    needed = dict.fromkeys([*c.parameters, *post_order([c.root, *effects], needs)])
    steps = [i for i in c.instructions if i in needed]
    last: dict[Instruction, Instruction] = {}
    for i in steps:
        last[i] = i
        for operand in needs(i):
            last[operand] = i
    done: dict[Instruction, list[Instruction]] = {}
    for value, user in last.items():
        if value is not c.root:
            done.setdefault(user, []).append(value)
    handlers = {i: _handler(i, library) for i in steps}
    if live:
        handlers = {i: h and _fitting(h) for i, h in handlers.items()}
    return tuple((i, handlers[i], needs(i), tuple(done.get(i, ()))) for i in steps)


def _handler(i: Instruction, library: Handler) -> Handler | None:
    """What computes an instruction; None for a parameter."""
    if needs(i) != i.operands:
        return first
    match asynchronous.stage(i.opcode):
        case (_, "start"):
            return _tuple
        case (_, "update"):
            return first
        case (_, "done"):
            return partial(_done, library)
        case _:
            op = definition(i.opcode)
            own = op.numpy or interp_expanded.HANDLERS.get(i.opcode)
            return library if own is None and op.is_library else own


def _run(
    c: Computation,
    plan: Iterable[Step],
    args: Sequence[Value],
    run: Run,
    observe: Observer | None,
) -> Value:
    values: dict[Instruction, Value] = {}
    for i, handler, read, dead in plan:
        if i.opcode == "parameter":
            values[i] = args[i.attrs["number"]]
        elif handler is not None:
            values[i] = handler(i, [values[o] for o in read], run)
        if observe is not None:
            observe(i, values[i])
        for d in dead:
            del values[d]
    return values[c.root]


def _arguments(c: Computation, args: Sequence[Any]) -> list[Value]:
    leaves = [_leaves(p.shape) for p in c.parameters]
    if leaves != [1] * len(leaves) and len(args) == sum(leaves) != len(leaves):
        flat = iter(args)
        args = [_grouped(p.shape, flat) for p in c.parameters]
    if len(args) != len(c.parameters):
        what = f"{c.name} takes {len(c.parameters)} arguments and got {len(args)}"
        raise ArgumentError(what, where=c.name)
    return [
        _argument(p.shape, a, f"argument {n} ({p.name})")
        for n, (p, a) in enumerate(zip(c.parameters, args, strict=True))
    ]


def _leaves(shape: AnyShape) -> int:
    return sum(map(_leaves, shape.elements)) if isinstance(shape, TupleShape) else 1


def _grouped(shape: AnyShape, flat: Iterator[Any]) -> Any:
    """The next arguments of a flat list, as the tuple that a parameter takes."""
    if isinstance(shape, TupleShape):
        return tuple(_grouped(e, flat) for e in shape.elements)
    return next(flat)


def _argument(shape: AnyShape, value: Any, what: str) -> Value:
    match shape:
        case TupleShape(elements=elements):
            if len(elements) == 1 and isinstance(value, np.ndarray):
                value = (value,)
            if not isinstance(value, (tuple, list)) or len(value) != len(elements):
                raise ArgumentError(what, f"must be a tuple of {len(elements)} values")
            pairs = enumerate(zip(elements, value, strict=True))
            return tuple(_argument(e, v, f"element {n} of {what}") for n, (e, v) in pairs)
        case Shape():
            array = as_array(value, what)
            wanted = to_numpy(shape.dtype)
            if array.dtype != wanted:
                raise ArgumentError(what, f"must have dtype {wanted}, not {array.dtype}")
            marks = shape.dynamic or (False,) * shape.rank
            fits = array.ndim == shape.rank and all(
                (have <= bound) if dynamic else (have == bound)
                for have, bound, dynamic in zip(array.shape, shape.dims, marks, strict=True)
            )
            if not fits:
                raise ArgumentError(what, f"must be {show_shape(shape)}, not {array.shape}")
            return array
        case _:
            return ()


def _tuple(i: Instruction, args: list[Value], run: Run) -> Value:
    return tuple(args)


def _done(library: Handler, i: Instruction, args: list[Value], run: Run) -> Value:
    """What start and done are together, on the operands that the start took."""
    start = asynchronous.start_of(i)
    assert start is not None
    one = asynchronous.whole(i, start)
    handler = _handler(one, library)
    assert handler is not None
    return handler(one, list(args[0]), run)


def _has_live_sizes(computation: Computation) -> bool:
    """Whether an array may be smaller than its shape says."""
    every = (i for c in reachable(computation) for i in c.instructions)
    return any(definition(i.opcode).resizes or _bounded(i.shape) for i in every)


def _bounded(shape: object) -> bool:
    if isinstance(shape, TupleShape):
        return any(map(_bounded, shape.elements))
    return isinstance(shape, Shape) and any(shape.dynamic)


def _fitting(handler: Handler) -> Handler:
    """A handler that takes arguments of any live sizes."""

    def run(i: Instruction, args: list[Value], run: Run) -> Value:
        op = definition(i.opcode)
        if op.fit is not None and (op.resizes or not _full(i, args)):
            i, args = op.fit(i, args)
        return handler(i, args, run)

    return run


def _full(i: Instruction, args: Sequence[Value]) -> bool:
    pairs = zip(i.operands, args, strict=True)
    return all(not isinstance(o.shape, Shape) or o.shape.dims == np.shape(a) for o, a in pairs)
