"""Facts of loops: how often a ``while`` runs, and what its body only hands on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from ..nodes import Computation, Instruction, Shape, TupleShape
from ..rewrite import rebuild, users

HOLDS: Mapping[str, Callable[[int, int], bool]] = {
    "LT": lambda a, b: a < b,
    "LE": lambda a, b: a <= b,
    "GT": lambda a, b: a > b,
    "GE": lambda a, b: a >= b,
    "NE": lambda a, b: a != b,
}
MIRRORED = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE", "NE": "NE"}


def trip_count(loop: Instruction) -> int | None:
    """Return the trip count of a ``while``; None where it depends on computed values.

    ``while (i < 10) i = i + 1``, from 3  ->  7

    A counter runs from a constant to a constant. A host that knows the count need not query the
    device after every iteration.
    """
    test = _test(loop.attrs["condition"].root)
    if test is None:
        return None
    number, direction, limit = test
    start = _constant(_element(loop.operands[0], number))
    step = _step(loop.attrs["body"].root, number)
    if start is None or not step:
        return None
    count = _count(start, step, direction, limit)
    if count is None:
        return None
    shape = loop.attrs["condition"].root.operands[0].shape
    assert isinstance(shape, Shape)
    return count if _fits(start + count * step, shape) else None


def _test(root: Instruction) -> tuple[int, str, int] | None:
    """Return (the counter's number in the state, direction, limit) of ``counter <direction>
    limit``.
    """
    if root.opcode != "compare" or root.attrs["direction"] not in HOLDS:
        return None
    left, right = root.operands
    for counter, bound, direction in (
        (left, right, root.attrs["direction"]),
        (right, left, MIRRORED[root.attrs["direction"]]),
    ):
        number, limit = _number(counter), _constant(bound)
        if number is not None and limit is not None:
            return number, direction, limit
    return None


def _step(root: Instruction, number: int) -> int | None:
    """Return the constant that one iteration adds to a counter of the state."""
    after = _element(root, number)
    if after is None or after.opcode not in ("add", "subtract"):
        return None
    left, right = after.operands
    if _number(left) == number and (step := _constant(right)) is not None:
        return step if after.opcode == "add" else -step
    if after.opcode == "add" and _number(right) == number:
        return _constant(left)
    return None


def _count(start: int, step: int, direction: str, limit: int) -> int | None:
    """Return the number of iterations until the test fails; None if it never does."""
    if not HOLDS[direction](start, limit):
        return 0
    if direction == "NE":
        trips, rest = divmod(limit - start, step)
        return trips if trips > 0 and not rest else None
    if (step > 0) != (direction in ("LT", "LE")):
        return None  # away from the limit
    last = direction in ("LE", "GE")  # the limit itself has an iteration
    return (abs(limit - start) + last + abs(step) - 1) // abs(step)


def _fits(value: int, shape: Shape) -> bool:
    """True if the counter can hold its last value; else it wraps around and the loop goes on."""
    low = -(1 << shape.dtype.bits - 1) if shape.dtype.kind == "signed" else 0
    high = (1 << shape.dtype.bits - (shape.dtype.kind == "signed")) - 1
    return low <= value <= high


def _number(x: Instruction) -> int | None:
    """Return the number of the element of the computation's parameter that ``x`` is, or None."""
    if x.opcode == "get-tuple-element" and x.operands[0].opcode == "parameter":
        return int(x.attrs["index"])
    return None


def _element(state: Instruction, number: int) -> Instruction | None:
    return state.operands[number] if state.opcode == "tuple" else None


def _constant(x: Instruction | None) -> int | None:
    if x is None or x.opcode != "constant" or not isinstance(x.shape, Shape):
        return None
    if x.shape.dims or not x.shape.dtype.is_int:
        return None
    return int(np.asarray(x.attrs["literal"]).item())


def by_element(c: Computation) -> bool:
    """True if a computation takes one tuple and uses nothing but elements of it."""
    if len(c.parameters) != 1 or c.root in c.parameters:
        return False
    return all(u.opcode == "get-tuple-element" for u in users(c)[c.parameters[0]])


def parts_of_loop(i: Instruction) -> tuple[Computation, Computation, Instruction] | None:
    """Return the condition, the body and the start of a loop whose state is a tuple.

    None for others, and where the state is used but by its elements.
    """
    if i.opcode != "while" or i.operands[0].opcode != "tuple":
        return None
    condition, body = i.attrs["condition"], i.attrs["body"]
    if body.root.opcode != "tuple" or not (by_element(condition) and by_element(body)):
        return None
    return condition, body, i.operands[0]


def with_more_state(c: Computation, shape: TupleShape) -> Computation:
    """Return a loop's condition or body whose parameter has further elements."""
    (old,) = c.parameters
    new = replace(old, shape=shape)
    return rebuild(c, lambda i: new if i is old else None)


def hands_on(body: Computation, k: int) -> bool:
    """True if a loop's body returns element ``k`` of its state as it is."""
    element = _element(body.root, k)
    return element is not None and _number(element) == k
