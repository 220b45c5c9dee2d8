"""Random numbers: distributions, counter-based bits, and the state that they are drawn from."""

from __future__ import annotations

from ...dtypes import u64
from ..meaning import random as meaning_random
from ..nodes import Instruction, Shape, TupleShape
from ..shape_text import show_shape
from ..signatures import Attrs, Shapes, array, arrays, attr, plain, refuse, require_count
from .definition import OpDef, Pattern


def _next_state(shapes: Shapes, attrs: Attrs) -> Shape:
    require_count(shapes, 0)
    attr(attrs, "delta", int)
    return Shape(u64, (2,))


def _check_rng(i: Instruction, operands: Shapes) -> None:
    kinds = {"rng_uniform": ("float", "signed", "unsigned", "pred"), "rng_normal": ("float",)}
    word, dtype = attr(i.attrs, "distribution", str), i.array.dtype
    if dtype.kind not in kinds.get(word, ()):
        refuse(f"distribution={word} of {dtype}")
    given = [plain(s) for s in arrays(operands[:2])]  # some texts have the shape as a third operand
    if len(operands) not in (2, 3) or given != [Shape(dtype)] * 2:
        refuse(f"it takes two numbers of type {dtype}")


def _check_random_bits(i: Instruction, operands: Shapes) -> None:
    """Require a result of new state and numbers; ``_state_problem`` checks the state itself."""
    attr(i.attrs, "algorithm", str)
    state = plain(array(operands, 0))
    match i.shape:
        case TupleShape(elements=(Shape() as new, Shape(dtype=dtype))) if plain(new) == state:
            if dtype.bits < 8 or dtype.kind in ("pred", "complex"):
                refuse(f"random bits of type {dtype}")
        case other:
            refuse(f"it returns the new state and the bits, not {show_shape(other)}")


def _state_problem(i: Instruction) -> tuple[str, str]:
    """Refuse states that are not two (Philox: or three) 64-bit words."""
    word, state = str(i.attrs["algorithm"]), i.operands[0].array
    sizes = {"rng_three_fry": (2,), "rng_philox": (2, 3), "rng_default": (2, 3)}.get(word, ())
    if state.dtype == u64 and state.rank == 1 and state.size in sizes:
        return "", ""
    return f"{word} with the state {show_shape(state)} is not known", ""


DEFINITIONS = (
    OpDef("rng", attributes="distribution", check=_check_rng, one_array=True),
    OpDef(
        "rng-bit-generator",
        attributes="algorithm",
        check=_check_random_bits,
        numpy=meaning_random.rng_bit_generator,
        problem=_state_problem,
    ),
    OpDef(
        "rng-get-and-update-state",
        attributes="delta",
        shape=_next_state,
        pattern=Pattern.LIBRARY,
    ),
)
