"""``OpDef``, the frozen definition of an HLO operation: everything that depends on the opcode.

The definitions of each family of operations are in a file beside this one; the rest of the compiler
looks them up by opcode in ``registry``. A new operation needs one definition (an element-wise one a
row of ``elementwise.TABLE``) and its lowering.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from ..attributes import COMMON
from ..meaning.values import Handler, Value
from ..nodes import AnyShape, Computation, Instruction, Shape, TupleShape
from ..signatures import Attrs, Likeness, Shapes

ShapeRule: TypeAlias = Callable[[Shapes, Attrs], AnyShape]
"""Returns the result's shape, without a layout; ``VerifyError`` if the operands do not fit."""

Check: TypeAlias = Callable[[Instruction, Shapes], None]
"""Raises ``VerifyError`` if an instruction breaks a rule that shape inference does not check."""

Fit: TypeAlias = Callable[[Instruction, list[Value]], tuple[Instruction, list[Value]]]
"""Returns an instruction and arguments of any live sizes, changed to fit each other."""


class Pattern(Enum):
    """Dependence of results on operands, from the easiest to fuse to the hardest."""

    ALIAS = "alias"  # no work: a name, a view or a part of a buffer
    CONTROL = "control flow"
    LIBRARY = "library call"  # computed by a host function
    BROADCAST = "broadcast"  # an element of the result needs one of the operand, or none
    ELEMENTWISE = "elementwise"
    INJECTIVE = "injective"
    REDUCTION = "reduction"
    OUT_FUSABLE = "out-fusable"  # fuses with element-wise users, but not with its operands
    IN_FUSABLE = "in-fusable"  # reads its first operand once, and fuses with what makes it
    WINDOW = "window"  # a reduction over overlapping windows
    OPAQUE = "opaque"


class Role(Enum):
    """An operation's treatment of elements, for rewrite rules and the planner of loops."""

    POINTWISE = "pointwise"  # computes each element from those at the same index
    PARTS = "parts"  # joins or splits complex numbers, element by element
    MOVES = "moves"  # only moves or repeats elements of its one operand
    MATERIAL = "material"  # a stage of its own, with a buffer
    PLUMBING = "plumbing"  # names, tuples and ordering; touches no elements
    OTHER = "other"


class Rounding(Enum):
    """Effect on a result if operands keep more precision than their type has."""

    ROUNDS = "rounds"  # results are rounded
    COMMUTES = "commutes"  # rounding the operands instead gives the same result
    EXACT = "exact"  # never rounds a result, although rounding an operand may change it
    PLACES = "places"  # moves elements and computes none


class NarrowPolicy(Enum):
    """Computation on floats of at most 8 bits and integers of 2 and 4 bits."""

    STORED = "stored"  # none: elements are only moved, converted or reinterpreted
    COMPUTED = "computed"  # each element in a wider type, then rounded or wrapped
    COMPARED = "compared"  # in a wider type; the result is a predicate
    COUNTED = "counted"  # by integers of 32 bits, then converted
    SUMMED = "summed"  # products in wider types, rounded once
    COMBINED = "combined"  # by called computations, which then take wider elements
    RANKED = "ranked"  # by integers in the same order


class ComplexPolicy(Enum):
    """Computation on complex arrays by real ones."""

    WHOLE = "whole"  # none: complex values are joined before it and split after it
    SEPARATE = "separate"  # the same operation on the real and on the imaginary parts
    FORMULA = "formula"  # a rule of its own in ``passes.complex``
    COMBINED = "combined"  # called computations take and return the parts
    PRODUCT = "product"  # sums of the products of parts
    CONTROL = "control"  # called computations take and return packed values
    PASSED = "passed"  # the value itself, its parts unchanged


@dataclass(frozen=True, slots=True)
class Work:
    """Counts of floating-point and integer arithmetic; moving data is free.

    ``flops`` counts operations as ``cost_analysis`` reports them: one per element, two per
    multiply-add. ``transcendentals`` counts the elements of exp and the like, which ``flops`` does
    not include. ``weight`` is the cost of both in additions, by ``elementwise.TABLE``.
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
        """Return the work of ``n`` repetitions."""
        return Work(self.flops * n, self.transcendentals * n, self.weight * n)


BEFORE = "give the text from before optimizations (XLA dumps it as *.before_optimizations.txt)"
ONE_DEVICE = "compile the program for one device: replica_count=1, num_partitions=1"
QUEUE = "make it a parameter or a result of the program"
NO_CODE = ("this version has no code for it", "")
"""Hints for operations and instructions that cannot be compiled."""

Count: TypeAlias = Callable[[Instruction, Callable[[Computation], Work]], Work]
"""Returns the work of an instruction; the function given counts a run of a called computation."""


def no_work(i: Instruction, of: Callable[[Computation], Work]) -> Work:
    """Return no work, for operations that compute nothing."""
    return Work()


def size_of(i: Instruction) -> float:
    """Return the number of elements of a result; of the first array, for a tuple."""
    shape = i.shape.elements[0] if isinstance(i.shape, TupleShape) and i.shape.elements else i.shape
    return float(shape.size) if isinstance(shape, Shape) else 0.0


def each(flops: float) -> Count:
    """Count one operation, ``flops`` additions heavy, for each element of the result."""

    def count(i: Instruction, of: Callable[[Computation], Work]) -> Work:
        return Work(1.0, 0.0, flops).times(size_of(i))

    return count


def products(terms: Callable[[Instruction], int]) -> Count:
    """Count a multiply-add for each term of each element of the result."""

    def count(i: Instruction, of: Callable[[Computation], Work]) -> Work:
        return Work(2.0, 0.0, 2.0).times(size_of(i) * terms(i))

    return count


def one_term(i: Instruction) -> int:
    """Return 1: an element of the result is not a sum."""
    return 1


def no_indices(count: int) -> range:
    """Return no operands: none is a start index."""
    return range(0)


def no_operands(i: Instruction) -> range:
    """Return no operands: a NaN of any may show as something else, or not at all."""
    return range(0)


def every_operand(i: Instruction) -> range:
    """Return all operands."""
    return range(len(i.operands))


def data_operand(i: Instruction) -> range:
    """Return the first operand: the others are indices."""
    return range(1)


def free(i: Instruction) -> float:
    """Return 0: an element costs no more than its load."""
    return 0.0


def one(i: Instruction) -> float:
    """Return 1: an element costs about an addition more than its load."""
    return 1.0


def two(i: Instruction) -> float:
    """Return 2: an element costs an index computation and a test more than its load."""
    return 2.0


def per_operand(i: Instruction) -> float:
    """Return the number of operands: an element costs a test for each one it may come from."""
    return float(len(i.operands))


@dataclass(frozen=True, slots=True)
class OpDef:
    """The definition of an HLO operation.

    Parsing and checking:
      ``attributes``    names other than ``calls``, in the order of XLA's text; optional ones with
                        ``?``
      ``calls``         names of the attributes that are called computations
      ``further``       names of other attributes that text may have: what protocol buffers write
                        in other ways, and what does not change the meaning
      ``omitted_if_empty``  an attribute that the text omits where it is empty
      ``shape``         infers the result's shape; None if it does not follow from the operands
      ``check``         further rules of well-formedness
      ``one_array``     the result is one array, although ``shape`` is None
      ``result_type``   true if an element type may be declared in place of the inferred one

    Meaning:
      ``numpy``         the interpreter's function; None if the interpreter itself has it
      ``lifted``        the same for a scalar instruction run on arrays of values; None if it cannot
      ``fit``           fits arguments of any live sizes to each other
      ``resizes``       the result may be smaller than its bounds although no operand is
      ``refused``       the reason why it is parsed and printed but not compiled, and a hint
      ``problem``       the reason why one instruction of it cannot be compiled, and a hint

    Cost:
      ``flops``         of one element, in additions; for reductions and contractions see ``work``
      ``work``          all the arithmetic of an instruction
      ``terms``         multiply-adds or combinations per element of the result
      ``in_place``      of one element computed where it is used, index arithmetic included

    Compiling:
      ``pattern``       for fusion
      ``reshaping_pattern``  for fusion, where operand and result differ in their dimensions
      ``arithmetic``    a row of ``elementwise.TABLE``
      ``role``          for rewrite rules and the planner of loops
      ``view``          inside a contraction's loops it is a plain load
      ``alias``         the result is its first operand's buffer
      ``rounding``      for excess precision
      ``narrow``        how elements of under 9 bits are computed
      ``complex``       how complex arrays are computed
      ``indices``       the range of operands, of so many, that are start indices
      ``takes_part``    reads as many elements of its first operand as the result has
      ``changes_part``  changes as many elements of its first operand as the second has
      ``recompute``     True: every user computes it itself; False: none does; None: if it is cheap
      ``gaps``          skips elements of an operand, or adds others to them
      ``permutes``      changes the order of its operand's dimensions
      ``keeps_nan``     a NaN operand gives a NaN result
      ``carries_nan``   the operands, by number, of which a NaN makes NaN every element of the
                        result that depends on it, if called computations do so as well
      ``needs_positive``, ``keeps_positive``  as in ``elementwise.TABLE``
      ``structure``     part of the graph's structure: any code that walks a graph may name it
      ``drops_elements``  may not use all elements of an operand, so that some are dead
      ``side_effect``   exchanges values with the world outside the program
      ``collective``    works across devices; ``ops.collectives`` says how
    """

    name: str
    attributes: str = ""
    calls: tuple[str, ...] = ()
    further: str = ""
    omitted_if_empty: str = ""
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
    reshaping_pattern: Pattern = Pattern.OPAQUE
    arithmetic: bool = False
    role: Role = Role.OTHER
    view: bool = False
    alias: bool = False
    rounding: Rounding = Rounding.ROUNDS
    narrow: NarrowPolicy = NarrowPolicy.STORED
    complex: ComplexPolicy = ComplexPolicy.WHOLE
    indices: Callable[[int], range] = no_indices
    takes_part: bool = False
    changes_part: bool = False
    recompute: bool | None = None
    gaps: bool = False
    permutes: bool = False
    keeps_nan: bool = False
    carries_nan: Callable[[Instruction], range] = no_operands
    needs_positive: bool = False
    keeps_positive: bool = False
    structure: bool = False
    drops_elements: bool = False
    side_effect: bool = False
    collective: bool = False

    @property
    def computed(self) -> bool:
        """True if it can be interpreted and compiled."""
        return self.refused is None

    def has_attribute(self, attribute: str) -> bool:
        """True if the operation has this attribute (called computations are not counted)."""
        return attribute in self.attributes.replace("?", "").split()

    def may_have(self, attribute: str) -> bool:
        """True if text may have this attribute; any, if the operation is not computed."""
        own = self.has_attribute(attribute) or attribute in (*self.calls, *self.further.split())
        return own or attribute in COMMON or not self.computed

    @property
    def pointwise(self) -> bool:
        """True if it computes each element from the operands' elements at the same index."""
        return self.role is Role.POINTWISE

    @property
    def is_library(self) -> bool:
        """True if a host function computes it, outside of all groups."""
        return self.pattern is Pattern.LIBRARY
