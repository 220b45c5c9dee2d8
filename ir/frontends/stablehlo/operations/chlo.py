"""CHLO: operations that broadcast as NumPy does, and functions that StableHLO does not have.

Inverse and hyperbolic functions and the error functions are operations of HLO; the other special
functions become formulas. Those are computed in f32 for narrower floats, and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf

from ....dtypes import BY_NAME, f32
from ....elementwise import dialect_names
from ....hlo.nodes import Instruction, Shape, TupleShape
from ....hlo.shape_text import show_shape
from ...lax import arithmetic, special
from ...lax.term import Term
from ..mlir.syntax import Dense
from .plain import (
    array_of,
    broadcast_to,
    compare,
    complex_,
    constant,
    elementwise,
    literal,
    operands,
    scalar,
    select,
)
from .to_hlo import Handler, OpSite, Results


def formula(function: Callable[..., Term], arity: int = 1) -> Handler:
    """The operation that a formula of floats means."""

    def handler(site: OpSite) -> Results:
        operands(site, arity)
        shape = array_of(site, 0)
        if not shape.dtype.is_float:
            site.fail(f"it takes floats, not {show_shape(shape)}")
        wide = Shape(f32) if shape.dtype.bits < 32 else shape
        terms = [Term(site, o).to(wide) for o in site.operands]
        return function(*terms).to(shape).value

    return handler


def square(site: OpSite) -> Results:
    """Of a complex number (x - y)(x + y) + 2xyi, whose real part is 0 on the diagonals."""
    value = operands(site, 1)[0]
    if array_of(site, 0).dtype.kind != "complex":
        return site.make("multiply", [value, value])
    x, y = (Term(site, site.infer(n, [value])) for n in ("real", "imag"))
    diagonal = x.do("is-finite") & x.do("abs").equals(y.do("abs"))
    real = diagonal.select(0, (x - y) * (x + y))
    return site.infer("complex", [real.value, (x * y * 2).value])


def conj(site: OpSite) -> Results:
    """Of a real array the array itself."""
    (value,) = operands(site, 1)
    array_of(site, 0)
    return arithmetic.conj(Term(site, value)).value


def is_inf(site: OpSite) -> Results:
    """Also with a sign: ``is_pos_inf``, ``is_neg_inf``."""
    x = Term(site, operands(site, 1)[0])
    if not array_of(site, 0).dtype.is_float:
        site.fail(f"it takes floats, not {show_shape(x.shape)}")
    match site.op.name:
        case "chlo.is_pos_inf":
            return x.equals(inf).value
        case "chlo.is_neg_inf":
            return x.equals(-inf).value
        case _:
            return x.do("abs").equals(inf).value


def next_after(site: OpSite) -> Results:
    """The neighbor of x toward y, by its bits: one up away from zero, one down toward it.

    From zero it is the smallest number of y's sign; equal numbers give y, NaN gives NaN.
    """
    x, y = (Term(site, o) for o in operands(site, 2))
    bits = x.shape.dtype.bits
    if not x.shape.dtype.is_float or f"s{bits}" not in BY_NAME:
        site.fail(f"it takes floats, not {show_shape(x.shape)}")
    kind = Shape(BY_NAME[f"s{bits}"])
    top = -(1 << (bits - 1))
    own, other = x.to(kind, "bitcast-convert"), y.to(kind, "bitcast-convert")
    size, other_size = own & ~top, other & ~top
    closer = (size > other_size) | (own & top).differs(other & top)
    moved = own + closer.select(own.number(-1), 1)
    moved = size.equals(0).select((other & top) | 1, moved)
    moved = x.equals(y).select(other, moved)
    value = moved.to(x.shape, "bitcast-convert")
    return (x.differs(x) | y.differs(y)).select(x + y, value).value


def top_k(site: OpSite) -> Results:
    """The largest of the last dimension and their places."""
    (array,) = operands(site, 1)
    return largest(site, array, site.integer("k"))


def largest(site: OpSite, array: Instruction, k: int) -> Results:
    """The ``k`` largest of an array's last dimension and their places."""
    if not array.array.dims or not 0 <= k <= array.array.dims[-1]:
        site.fail(f"k = {k} of {show_shape(array.shape)}")
    found = site.infer("topk", (array,), k=k, largest=site.flag("largest", True))
    values, places = site.builder.unpack(found, 2)
    kind = site.element(1)
    if kind.dtype != places.array.dtype:
        places = site.add("convert", Shape(kind.dtype, places.array.dims), [places])
    return [values, places]


def constant_like(site: OpSite) -> Results:
    """A number for every element of the operand."""
    like, value = array_of(site, 0), site.attr("value")
    if isinstance(value, Dense):
        return literal(site, value)
    if not isinstance(value, int | float | bool):
        site.fail("attribute `value` is not a number")
    return scalar(site, value, Shape(site.element().dtype, like.dims, None, like.dynamic))


def _together(site: OpSite, arrays: Sequence[Instruction]) -> list[Instruction]:
    """Arrays broadcast to one shape: as NumPy does, or along ``broadcast_dimensions``."""
    shapes = [a.array for a in arrays]
    rank = max(s.rank for s in shapes)
    given = site.op.attrs.get("broadcast_dimensions")
    places = []
    for s in shapes:
        own = tuple(range(rank - s.rank, rank))
        if given is not None and s.rank < rank and s.rank:
            own = site.ints("broadcast_dimensions")
            if len(own) != s.rank or any(not 0 <= d < rank for d in own):
                site.fail(f"broadcast_dimensions {list(own)} for {show_shape(s)}")
        places.append(own)
    dims = [1] * rank
    for s, own in zip(shapes, places, strict=True):
        for size, d in zip(s.dims, own, strict=True):
            if size != 1 and dims[d] not in (1, size):
                shown = ", ".join(map(show_shape, shapes))
                site.fail(f"operands of {shown} do not broadcast")
            dims[d] = dims[d] if size == 1 else size
    return [
        a if s.dims == tuple(dims) else broadcast_to(site, a, Shape(s.dtype, tuple(dims)), own)
        for a, s, own in zip(arrays, shapes, places, strict=True)
    ]


def broadcasting(inner: Handler) -> Handler:
    """The operation ``broadcast_x``: its operands get one shape, then ``x``."""

    def handler(site: OpSite) -> Results:
        for n in range(len(site.operands)):
            array_of(site, n)
        site.operands = _together(site, site.operands)
        return inner(site)

    return handler


def _binary(opcode: str) -> Handler:
    def handler(site: OpSite) -> Results:
        return site.infer(opcode, operands(site, 2))

    return handler


def scan(site: OpSite) -> Results:
    """Outputs for every step along one dimension, and what is carried to the end."""
    sizes, results = site.ints("operandSegmentSizes"), site.ints("resultSegmentSizes")
    if len(sizes) != 2 or sum(sizes) != len(site.operands) or len(results) != 2:
        site.fail("its operands do not divide into inputs and initial values")
    names = [n for n, _ in site.region(0).arguments]
    if len(names) != len(site.operands):
        site.fail(f"its region takes {len(names)} values, not {len(site.operands)}")
    body = site.scalars(site.region(0), "scan")
    shapes = tuple(site.settled(n) for n in range(len(site.op.result_types)))
    value = site.add(
        "scan",
        shapes[0] if len(shapes) == 1 else TupleShape(shapes),
        site.operands,
        dimensions=(site.integer("dimension"),),
        num_carries=sizes[1],
        is_reverse=site.flag("is_reverse"),
        to_apply=body,
    )
    return site.results(value)


_FORMULAS: dict[str, Handler] = {
    "lgamma": formula(special.lgamma),
    "digamma": formula(special.digamma),
    "erf_inv": formula(special.erf_inv),
    "bessel_i1e": formula(special.bessel_i1e),
    "zeta": formula(special.zeta, 2),
    "polygamma": formula(special.polygamma, 2),
}

_ARITHMETIC = [
    "add",
    "atan2",
    "divide",
    "maximum",
    "minimum",
    "multiply",
    "power",
    "remainder",
    "shift_left",
    "shift_right_arithmetic",
    "shift_right_logical",
    "subtract",
    "and",
    "or",
    "xor",
]

TABLE: Mapping[str, Handler] = {
    **dict.fromkeys(dialect_names("chlo"), elementwise),
    **_FORMULAS,
    "square": square,
    "conj": conj,
    "is_inf": is_inf,
    "is_pos_inf": is_inf,
    "is_neg_inf": is_inf,
    "next_after": next_after,
    "top_k": top_k,
    "constant": constant,
    "constant_like": constant_like,
    "scan": scan,
    **{f"broadcast_{n}": broadcasting(_binary(n.replace("_", "-"))) for n in _ARITHMETIC},
    "broadcast_compare": broadcasting(compare),
    "broadcast_complex": broadcasting(complex_),
    "broadcast_select": broadcasting(select),
    "broadcast_next_after": broadcasting(next_after),
    "broadcast_polygamma": broadcasting(_FORMULAS["polygamma"]),
    "broadcast_zeta": broadcasting(_FORMULAS["zeta"]),
}
"""By the operation's name in the dialect CHLO."""
