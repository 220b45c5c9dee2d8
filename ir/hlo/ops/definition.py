"""What one HLO operation is: a frozen definition with everything that depends on the opcode.

Each family of operations has a file beside this one with its definitions; ``registry`` holds them
by opcode and is what the rest of the compiler asks. A new operation is one definition (an
element-wise one is a row of ``elementwise.TABLE``) and its lowering.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from ..meaning.values import Handler, Value
from ..nodes import AnyShape, Computation, Instruction, Shape, TupleShape
from ..signatures import Attrs, Likeness, Shapes

ShapeRule: TypeAlias = Callable[[Shapes, Attrs], AnyShape]
"""The result's shape, without a layout, from the operands' shapes; ``VerifyError`` if none fits."""

Check: TypeAlias = Callable[[Instruction, Shapes], None]
"""``VerifyError`` if an instruction breaks a rule that shape inference does not see."""

Fit: TypeAlias = Callable[[Instruction, list[Value]], tuple[Instruction, list[Value]]]
"""An instruction and arguments of any live sizes  ->  the same, fitted to each other."""


class Pattern(Enum):
    """How results depend on operands, from the easiest to fuse to the hardest."""

    ALIAS = "alias"  # no work: a name, a view or a part of a buffer
    CONTROL = "control flow"
    LIBRARY = "library call"  # a function of the host computes it
    BROADCAST = "broadcast"  # an element of the result needs one of the operand, or none
    ELEMENTWISE = "elementwise"
    INJECTIVE = "injective"
    REDUCTION = "reduction"
    OUT_FUSABLE = "out-fusable"  # takes element-wise work on its result, none on its operands
    WINDOW = "window"  # a reduction over overlapping windows
    OPAQUE = "opaque"


class Role(Enum):
    """What an operation does with elements, as rewrite rules and the planner of loops see it."""

    POINTWISE = "pointwise"  # computes each from those at the same place
    PARTS = "parts"  # puts complex numbers together or takes them apart, place by place
    MOVES = "moves"  # places the elements of its one operand, and nothing else
    MATERIAL = "material"  # a stage of its own with a buffer
    PLUMBING = "plumbing"  # names, tuples and order: no elements
    OTHER = "other"


class Rounding(Enum):
    """What becomes of a result when operands keep more precision than their type holds."""

    ROUNDS = "rounds"  # a result is rounded
    COMMUTES = "commutes"  # the same result whether it or the operands are rounded
    EXACT = "exact"  # never rounds a result, though rounding an operand may change it
    PLACES = "places"  # places elements and computes none


@dataclass(frozen=True, slots=True)
class Work:
    """Arithmetic in floating-point and integer operations; moving data is free.

    ``flops`` counts operations as ``cost_analysis`` gives them, one an element and two for a
    multiply-add; ``transcendentals`` counts the elements of exp and its kin, which ``flops`` leaves
    out. ``weight`` is all of it in additions, an operation as heavy as ``elementwise.TABLE`` says.
    """

    flops: float = 0.0
    transcendentals: float = 0.0
    weight: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(
            self.flops + other.flops,
            self.transcendentals + other.transcendentals,
            self.weight + other.weight,
        )

    def times(self, n: float) -> Work:
        """The work of ``n`` repetitions."""
        return Work(self.flops * n, self.transcendentals * n, self.weight * n)


BEFORE = "give the text from before optimizations (XLA dumps it as *.before_optimizations.txt)"
ONE_DEVICE = "compile the program for one device: replica_count=1, num_partitions=1"
QUEUE = "make it a parameter or a result of the program"
NO_CODE = ("this version has no code for it", "")
"""What to do about an operation, or an instruction of it, that cannot be computed."""

Count: TypeAlias = Callable[[Instruction, Callable[[Computation], Work]], Work]
"""The work of an instruction; the function given counts one run of a called computation."""


def no_work(i: Instruction, of: Callable[[Computation], Work]) -> Work:
    """Nothing is computed."""
    return Work()


def size_of(i: Instruction) -> float:
    """Elements of an array; of the first one, for a tuple of arrays."""
    shape = i.shape.elements[0] if isinstance(i.shape, TupleShape) and i.shape.elements else i.shape
    return float(shape.size) if isinstance(shape, Shape) else 0.0


def each(flops: float) -> Count:
    """So many operations for each element of the result."""

    def count(i: Instruction, of: Callable[[Computation], Work]) -> Work:
        return Work(1.0, 0.0, flops).times(size_of(i))

    return count


def products(terms: Callable[[Instruction], int]) -> Count:
    """A multiply-add for each term of each element of the result."""

    def count(i: Instruction, of: Callable[[Computation], Work]) -> Work:
        return Work(2.0, 0.0, 2.0).times(size_of(i) * terms(i))

    return count


def one_term(i: Instruction) -> int:
    """An element of the result is not a sum."""
    return 1


def free(i: Instruction) -> float:
    """An element costs no more than its load."""
    return 0.0


def one(i: Instruction) -> float:
    """An element costs about an addition more than its load."""
    return 1.0


def two(i: Instruction) -> float:
    """Two additions: a place to compute, a condition to test."""
    return 2.0


def per_operand(i: Instruction) -> float:
    """One addition for each operand that the element may come from."""
    return float(len(i.operands))


@dataclass(frozen=True, slots=True)
class OpDef:
    """An operation of HLO.

    Reading and checking:
      ``attributes``    what it takes beside computations, in the order of XLA's text, with ``?``
                        where it may be left out; ``calls``: those that name its computations
      ``left_out``      an attribute that text leaves out where it is empty
      ``shape``         inference of the result's shape; None where the text gives it
      ``check``         further rules of well-formedness
      ``one_array``     the result is an array, though its shape does not follow from the operands
      ``result_type``   which element types may be declared for the inferred ones

    Meaning:
      ``numpy``         the interpreter's function; None where the interpreter itself does it
      ``lifted``        the same for a scalar instruction run on whole arrays of values, if any
      ``fit``           arguments of any live sizes fitted to each other
      ``resizes``       its result may be smaller than its bounds though no operand is
      ``refused``       why it is read and printed but not computed, and what to do instead
      ``problem``       why one instruction of it cannot be computed, and what to do instead

    Cost:
      ``flops``         of one element, in additions; for what reduces or contracts, see ``work``
      ``work``          all the arithmetic of an instruction
      ``terms``         multiply-adds or combinations that one element of the result is made of
      ``in_place``      of one element computed where it is used, index arithmetic included

    Compiling:
      ``pattern``       for fusion; ``elsewhere``: if the operands' dimensions are not the result's
      ``arithmetic``    a row of ``elementwise.TABLE``
      ``role``          for rewrite rules and the loops' planner
      ``view``          computed inside a contraction's loops, it leaves plain loads
      ``alias``         its result is its first operand's buffer
      ``rounding``      for excess precision
      ``again``         every user computes it for itself, or none does; None: where that is cheap
      ``gaps``          uses not every element of an operand, or makes others beside them
      ``permutes``      puts the dimensions of its operand into another order
      ``keeps_nan``     NaN in an operand is NaN in the result
      ``needs_positive``, ``keeps_positive``  as in ``elementwise.TABLE``
      ``structure``     part of the graph's own grammar: any code that walks a graph may name it
      ``cuts``          may leave out elements of an operand, so that they need not be computed
      ``acts``          exchanges values with the world outside the program
      ``one_device``    a collective, which means something here for a single device only
    """

    name: str
    attributes: str = ""
    calls: tuple[str, ...] = ()
    left_out: str = ""
    shape: ShapeRule | None = None
    check: Check | None = None
    one_array: bool = False
    result_type: Likeness = operator.eq
    numpy: Handler | None = None
    lifted: Handler | None = None
    fit: Fit | None = None
    resizes: bool = False
    refused: tuple[str, str] | None = None
    problem: Callable[[Instruction], tuple[str, str]] | None = None
    flops: float = 0.0
    work: Count = no_work
    terms: Callable[[Instruction], int] = one_term
    in_place: Callable[[Instruction], float] = one
    pattern: Pattern = Pattern.OPAQUE
    elsewhere: Pattern = Pattern.OPAQUE
    arithmetic: bool = False
    role: Role = Role.OTHER
    view: bool = False
    alias: bool = False
    rounding: Rounding = Rounding.ROUNDS
    again: bool | None = None
    gaps: bool = False
    permutes: bool = False
    keeps_nan: bool = False
    needs_positive: bool = False
    keeps_positive: bool = False
    structure: bool = False
    cuts: bool = False
    acts: bool = False
    one_device: bool = False

    @property
    def computed(self) -> bool:
        """True if the interpreter and the compiler know how to compute it."""
        return self.refused is None

    def takes(self, attribute: str) -> bool:
        """True if an attribute is one of the operation's own."""
        return attribute in self.attributes.replace("?", "").split()

    @property
    def pointwise(self) -> bool:
        """True if it computes each element from those at the same place."""
        return self.role is Role.POINTWISE

    @property
    def is_library(self) -> bool:
        """True if a function of the host computes it, outside every group."""
        return self.pattern is Pattern.LIBRARY
