"""What an HLO module computes, in NumPy: the oracle that every other floor is checked against.

Values are arrays or tuples of them. An array with a bounded dimension (``<=``) is held at its
live size, so nothing ever computes on padding. Called computations of scalars (reducers,
comparators) are evaluated on whole arrays at once. Sums of narrow floats are kept in f32, of f32
in f64; integers wrap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from ..arrays import as_array
from ..dtypes import to_numpy
from ..elementwise import TABLE
from ..errors import ArgumentError, UnsupportedError
from ..library.session import Session
from . import (
    asynchronous,
    collectives,
    interp_conv,
    interp_expanded,
    interp_indexing,
    interp_library,
    interp_linear,
    interp_live,
    interp_pointwise,
    interp_random,
    interp_reduce,
    interp_shaping,
    interp_sort,
    interp_window,
)
from .effects import unneeded
from .interp_values import Handler, Run, Value
from .nodes import AnyShape, Computation, HloModule, Instruction, Shape, TupleShape
from .opcodes import ELEMENTWISE
from .rewrite import needs, post_order
from .shape_text import show_shape
from .support import findings, refusal, require_supported

Step: TypeAlias = tuple[
    Instruction, "Handler | None", tuple[Instruction, ...], tuple[Instruction, ...]
]
Handlers: TypeAlias = "Mapping[str, Handler | None]"
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
    live = interp_live.has_live_sizes(computation)
    known = {**HANDLERS, **dict.fromkeys(CALLS, interp_library.handler(Session()))}
    effects = unneeded(computation)

    def run(c: Computation, operands: Sequence[Value]) -> Value:
        if (plan := plans.get(c)) is None:
            plan = plans[c] = _plan(c, effects.get(c, ()), live, known)
        return _run(c, plan, operands, run, observe)

    with np.errstate(all="ignore"):
        try:
            return run(computation, values)
        except MemoryError as error:
            what = "a value does not fit into memory"
            raise UnsupportedError(what, str(error), computation.name) from error


def _plan(
    c: Computation, effects: Sequence[Instruction], live: bool, known: Handlers
) -> tuple[Step, ...]:
    """What to run and, after each step, which values nobody needs any more.

    ``effects`` run though no value needs them. With ``live``, arrays may be smaller than their
    shapes say.
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
    handlers = {i: _handler(i, known) for i in steps}
    if live:
        handlers = {i: h and interp_live.fitting(h) for i, h in handlers.items()}
    return tuple((i, handlers[i], needs(i), tuple(done.get(i, ()))) for i in steps)


def _handler(i: Instruction, known: Handlers) -> Handler | None:
    if needs(i) != i.operands:
        return _first
    match asynchronous.stage(i.opcode):
        case (_, "start"):
            return _tuple
        case (_, "update"):
            return _first
        case (_, "done"):
            return partial(_done, known)
        case _:
            return known[i.opcode]


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


def _elementwise(i: Instruction, args: list[Value], run: Run) -> Value:
    return np.asarray(TABLE[i.opcode].numpy(*args))


def _constant(i: Instruction, args: list[Value], run: Run) -> Value:
    value: Value = i.attrs["literal"]
    return value


def _tuple(i: Instruction, args: list[Value], run: Run) -> Value:
    return tuple(args)


def _get_tuple_element(i: Instruction, args: list[Value], run: Run) -> Value:
    value: Value = args[0][i.attrs["index"]]
    return value


def _first(i: Instruction, args: list[Value], run: Run) -> Value:
    return args[0]


def _call(i: Instruction, args: list[Value], run: Run) -> Value:
    return run(i.attrs["calls"] if "calls" in i.attrs else i.attrs["to_apply"], args)


def _while(i: Instruction, args: list[Value], run: Run) -> Value:
    state = args[0]
    while run(i.attrs["condition"], [state]):
        state = run(i.attrs["body"], [state])
    return state


def _conditional(i: Instruction, args: list[Value], run: Run) -> Value:
    """A pred takes ``true_computation`` or the other, an index the branch, the last if out."""
    if "true_computation" in i.attrs:
        taken = bool(args[0])
        branch = i.attrs["true_computation" if taken else "false_computation"]
        return run(branch, [args[1 if taken else 2]])
    branches = i.attrs["branch_computations"]
    choice = args[0]
    if isinstance(choice, np.ndarray) and choice.dtype == np.bool_:
        number = 0 if choice else 1
    else:
        number = int(choice)
    number = number if 0 <= number < len(branches) else len(branches) - 1
    return run(branches[number], [args[1 + number]])


def _exchange(i: Instruction, args: list[Value], run: Run) -> Value:
    """One device has its own values to exchange, and nothing else."""
    if i.opcode == collectives.PERMUTE and not collectives.pairs(i):
        args = [np.zeros_like(a) for a in args]
    bundled = isinstance(i.shape, TupleShape) and not isinstance(args[0], tuple)
    return tuple(args) if bundled else args[0]


def _done(known: Handlers, i: Instruction, args: list[Value], run: Run) -> Value:
    """What start and done are together, on the operands that the start took."""
    start = asynchronous.start_of(i)
    assert start is not None
    one = asynchronous.whole(i, start)
    handler = known[one.opcode]
    assert handler is not None
    return handler(one, list(args[0]), run)


def _zero(i: Instruction, args: list[Value], run: Run) -> Value:
    return np.zeros((), to_numpy(i.array.dtype))


def _token(i: Instruction, args: list[Value], run: Run) -> Value:
    return ()


CALLS = ("custom-call", "rng-get-and-update-state")
"""Operations whose handler is made for each evaluation: it remembers something."""

HANDLERS: Mapping[str, Handler | None] = {
    **dict.fromkeys(ELEMENTWISE, _elementwise),
    **interp_pointwise.HANDLERS,
    **interp_shaping.HANDLERS,
    **interp_sort.HANDLERS,
    **interp_indexing.HANDLERS,
    **interp_window.HANDLERS,
    **interp_reduce.HANDLERS,
    **interp_linear.HANDLERS,
    **interp_conv.HANDLERS,
    **interp_random.HANDLERS,
    **interp_expanded.HANDLERS,
    **interp_live.HANDLERS,
    "parameter": None,
    "constant": _constant,
    "tuple": _tuple,
    "get-tuple-element": _get_tuple_element,
    "call": _call,
    "fusion": _call,
    "while": _while,
    "conditional": _conditional,
    "copy": _first,
    "opt-barrier": _first,
    "add-dependency": _first,
    "domain": _first,
    **dict.fromkeys((*collectives.EXCHANGES, collectives.PERMUTE), _exchange),
    "replica-id": _zero,
    "partition-id": _zero,
    "after-all": _token,
}
