"""Division of integers and its remainders, shifts, and complex conjugates, as in jax.numpy."""

from __future__ import annotations

from .term import Term


def trunc(x: Term) -> Term:
    """Rounded toward zero; integers as they are."""
    return (x < 0).select(x.do("ceil"), x.do("floor")) if x.dtype.is_float else x


def floor_divide(a: Term, b: Term) -> Term:
    """The quotient of integers or floats rounded down; of floats by the rule of Python's ``//``."""
    rest = a.do("remainder", b)
    off = rest.differs(0) & (rest < 0).differs(b < 0)
    if not a.dtype.is_float:
        quotient = a / b
        return off.select(quotient - 1, quotient)
    exact = (a - rest) / b
    exact = off.select(exact - 1, exact)
    near = exact.do("floor")
    near = (exact - near > 0.5).select(near + 1, near)
    zero = (a / b) * 0
    found = exact.equals(0).select(zero, near)
    return b.equals(0).select(a / b, found)


def remainder(a: Term, b: Term) -> Term:
    """The remainder of integers or floats, of the divisor's sign; ``remainder`` of HLO has the
    dividend's."""
    rest = a.do("remainder", b)
    if a.dtype.kind == "unsigned":
        return rest
    return (rest.differs(0) & (rest < 0).differs(b < 0)).select(rest + b, rest)


def right_shift(x: Term, amount: Term) -> Term:
    """Bits of integers moved down; copies of the sign come in, zeros where there is none."""
    signed = x.dtype.kind == "signed"
    return x.do("shift-right-arithmetic" if signed else "shift-right-logical", amount)


def magnitude(x: Term) -> Term:
    """The absolute value; numbers without a sign and truth values are their own."""
    return x if x.dtype.kind in ("pred", "unsigned") else x.do("abs")


def sign(x: Term) -> Term:
    """-1, 0 or 1; of numbers without a sign 0 or 1."""
    return x.differs(0).to(x.dtype) if x.dtype.kind == "unsigned" else x.do("sign")


def conj(x: Term) -> Term:
    """The complex conjugate; a real array is its own."""
    if x.dtype.kind != "complex":
        return x
    return x.do("real").do("complex", -x.do("imag"))
