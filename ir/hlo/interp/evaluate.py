"""The HLO interpreter in NumPy: the oracle that compiled code and graph passes are checked against.

Values are arrays or tuples of them. An array with a bounded dimension (``<=``) has its live size,
so nothing computes on padding. Called computations of scalars (reducers, comparators) are
evaluated on whole arrays at once. Narrow floats are accumulated in f32 and f32 in f64; integers
wrap.
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
from ..device_groups import Devices
from ..meaning.values import CallEvaluator, Handler, Value, first
from ..nodes import AnyShape, Computation, HloModule, Instruction, Shape, TupleShape
from ..ops import collectives
from ..ops.registry import definition
from ..rewrite import needs, post_order, reachable
from ..shape_text import show_shape
from . import expanded
from .flushing import as_asked, keeps, kept
from .library import handler as library_handler
from .lift import Runner

Step: TypeAlias = tuple[
    Instruction, "Handler | None", tuple[Instruction, ...], tuple[Instruction, ...]
]
Observer: TypeAlias = Callable[[Instruction, Value], None]
Outside: TypeAlias = tuple[Handler, Handler]
"""Handlers of library calls, and of collectives."""


def evaluate(module: HloModule, args: Sequence[Any]) -> Value:
    """Return the result of the entry computation: an array, or a (nested) tuple of arrays.

    ``args`` are arrays of the parameters' shapes and element types, in order. A tuple parameter
    takes a tuple, unless the arrays of all parameters are passed as one flat list.
    ``ArgumentError`` if the arguments do not fit, ``UnsupportedError`` if there are instructions
    that cannot be evaluated (it lists them all), a value does not fit into memory, or the module is
    written for several devices that exchange values (see ``interp.devices``).
    """
    require_supported(module)
    return _evaluate(module.entry, args, None, _alone(collectives.devices(module), module.name))


def evaluate_device(module: HloModule, args: Sequence[Any], collective: Handler) -> Value:
    """Return the result of one device of a supported module.

    ``collective`` computes its exchanges with the others; arguments and errors as for ``evaluate``.
    """
    return _evaluate(module.entry, args, None, collective)


def evaluate_computation(
    computation: Computation, args: Sequence[Any], observe: Observer | None = None
) -> Value:
    """Return the result of one computation on these arguments; errors as for ``evaluate``.

    ``observe`` is called with each instruction and its value as soon as it is known, in called
    computations too, once per call.
    """
    if found := list(findings(computation)):
        raise refusal(found, computation.name)
    return _evaluate(computation, args, observe, _alone(Devices(), computation.name))


def _evaluate(
    computation: Computation, args: Sequence[Any], observe: Observer | None, collective: Handler
) -> Value:
    values = _arguments(computation, args)
    plans: dict[Computation, tuple[Step, ...]] = {}
    live = _has_live_sizes(computation)
    outside = (kept(library_handler(Session())), collective)
    effects = unneeded(computation)

    def run(c: Computation, operands: Sequence[Value]) -> Value:
        if (plan := plans.get(c)) is None:
            plan = plans[c] = _plan(c, effects.get(c, ()), live, outside)
        return _run(c, plan, operands, runner, observe)

    runner = Runner(run)

    with np.errstate(all="ignore"), as_asked():
        try:
            return run(computation, values)
        except MemoryError as error:
            what = "a value does not fit into memory"
            raise UnsupportedError(what, str(error), computation.name) from error


def _plan(
    c: Computation, effects: Sequence[Instruction], live: bool, outside: Outside
) -> tuple[Step, ...]:
    """Return the steps to run, each with the values that are dead after it.

    ``effects`` run although nothing uses their values. With ``live``, arrays may be smaller than
    their shapes. ``outside`` computes library calls, whose state it keeps from call to call.
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
    handlers = {i: _handler(i, outside) for i in steps}
    handlers = {i: kept(h) if h and keeps(i) else h for i, h in handlers.items()}
    if live:
        handlers = {i: h and _fitting(h) for i, h in handlers.items()}
    return tuple((i, handlers[i], needs(i), tuple(done.get(i, ()))) for i in steps)


def _handler(i: Instruction, outside: Outside) -> Handler | None:
    """Return the function that computes an instruction; None for a parameter."""
    library, collective = outside
    if needs(i) != i.operands:
        return first
    match asynchronous.stage(i.opcode):
        case (_, "start"):
            return _tuple
        case (_, "update"):
            return first
        case (_, "done"):
            return partial(_done, outside)
        case _:
            op = definition(i.opcode)
            if op.collective:
                return collective
            found = op.numpy or expanded.HANDLERS.get(i.opcode)
            return library if found is None and op.is_library else found


def _run(
    c: Computation,
    plan: Iterable[Step],
    args: Sequence[Value],
    run: CallEvaluator,
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
    """Take the next arguments of a flat list and nest them as the parameter's shape."""
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
            fits = array.ndim == shape.rank and all(
                (have <= bound) if dynamic else (have == bound)
                for have, bound, dynamic in zip(array.shape, shape.dims, shape.marks, strict=True)
            )
            if not fits:
                raise ArgumentError(what, f"must be {show_shape(shape)}, not {array.shape}")
            return array
        case _:
            return ()


def _tuple(i: Instruction, args: list[Value], run: CallEvaluator) -> Value:
    return tuple(args)


def _done(outside: Outside, i: Instruction, args: list[Value], run: CallEvaluator) -> Value:
    """Run the whole operation on the operands of its start, when its done is reached."""
    start = asynchronous.start_of(i)
    assert start is not None
    one = asynchronous.whole(i, start)
    handler = _handler(one, outside)
    assert handler is not None
    return handler(one, list(args[0]), run)


def _alone(known: Devices, where: str) -> Handler:
    """Return the handler of the collectives of a program that runs on one device."""

    def compute(i: Instruction, args: list[Value], run: CallEvaluator) -> Value:
        if collectives.exchanges(i, known):
            raise UnsupportedError(
                f"{i.opcode} `{i.name}` exchanges values between {known.count} devices",
                "one is evaluated here",
                where,
                "evaluate_devices of nestwright.ir.hlo.interp.devices takes the arguments of all",
            )
        return collectives.alone(i, args)

    return compute


def _has_live_sizes(computation: Computation) -> bool:
    """True if any array in a computation or its callees may be smaller than its shape."""
    every = (i for c in reachable(computation) for i in c.instructions)
    return any(definition(i.opcode).resizes or _bounded(i.shape) for i in every)


def _bounded(shape: object) -> bool:
    if isinstance(shape, TupleShape):
        return any(map(_bounded, shape.elements))
    return isinstance(shape, Shape) and any(shape.dynamic)


def _fitting(handler: Handler) -> Handler:
    """Wrap a handler so that arguments of any live sizes are fitted to each other first."""

    def run(i: Instruction, args: list[Value], run: CallEvaluator) -> Value:
        op = definition(i.opcode)
        if op.fit is not None and (op.resizes or not _full(i, args)):
            i, args = op.fit(i, args)
        return handler(i, args, run)

    return run


def _full(i: Instruction, args: Sequence[Value]) -> bool:
    pairs = zip(i.operands, args, strict=True)
    return all(not isinstance(o.shape, Shape) or o.shape.dims == np.shape(a) for o, a in pairs)
