"""Guards for convolutions that multiply the zeros of their padding: weights must be finite.

A kernel that copies its input between zeros is the fastest, and wrong where a weight that is
infinite or NaN meets a hole (``ir.hlo.holes``). Constant weights are checked when the model is
built. Others are checked at run time by a kernel of its own; a second form of the group, which
skips the holes, is called where they are not finite.

The product of such a weight and a hole is NaN, and most operations on a result keep it NaN. Where
they do, and the results are smaller than the weights, the results are checked for NaN instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from ....ir.dtypes import f32, f64, pred, to_numpy
from ....ir.hlo.analysis.nan import has_nan, outputs
from ....ir.hlo.attributes import SKIPS
from ....ir.hlo.fuse.fusion import Group
from ....ir.hlo.holes import multiplies_holes
from ....ir.hlo.interp.evaluate import evaluate_computation
from ....ir.hlo.nodes import Computation, Instruction, Raw, Shape
from ....ir.hlo.ops.definition import Role
from ....ir.hlo.ops.registry import definition
from ....ir.hlo.rewrite import (
    assemble,
    constant,
    make,
    parameter,
    post_order,
    rebuild,
    with_attrs,
    with_operands,
)

Combined: TypeAlias = Callable[[Instruction, Instruction], Instruction]

ALWAYS = 1 << 22
"""Bytes that computing weights out of constants may always make."""


@dataclass(frozen=True, slots=True, eq=False)
class KernelTest:
    """A predicate that is true if a group's own kernel is correct.

    It takes the group's inputs with numbers ``places``, or its outputs if ``after``.
    """

    holds: Computation
    places: tuple[int, ...]
    after: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Guard:
    """The fallback of a group and the tests that select it.

    ``skipping`` computes the same from the same inputs, its convolutions skipping their holes.
    Any of the ``tests`` will do, the first one is the cheapest; there are none where the group's
    own kernel is known not to be correct. The test of the whole program serves a ``covered`` group.
    """

    skipping: Computation
    tests: tuple[KernelTest, ...] = ()
    covered: bool = False

    @property
    def test(self) -> KernelTest | None:
        """The test that is made for this group alone."""
        return self.tests[0] if self.tests and not self.covered else None

    @property
    def computations(self) -> tuple[Computation, ...]:
        """The computations that must be compiled for it."""
        return (self.skipping,) if self.test is None else (self.skipping, self.test.holds)


def guard(group: Group) -> Guard | None:
    """Return the guard of a group; None where its own kernel is always correct."""
    computation = group.computation
    weights = [i.operands[1] for i in computation.instructions if multiplies_holes(i)]
    known = {w: _are_finite(w, group) for w in weights}
    unknown = [w for w, finite in known.items() if finite is None]
    if all(known.values()):
        return None
    skipping = rebuild(computation, _skipping)
    if not unknown or False in known.values():
        return Guard(skipping)
    risky = [i for i in computation.instructions if multiplies_holes(i)]
    seen = _nan_outputs([i for i in risky if i.operands[1] in unknown], computation)
    before, results = KernelTest(*_finite_test(unknown)), outputs(computation)
    if not seen or sum(results[n].array.size for n in seen) >= sum(w.array.size for w in unknown):
        return Guard(skipping, (before,))
    return Guard(
        skipping, (KernelTest(without_nan([results[n] for n in seen]), seen, True), before)
    )


def without_nan(arrays: Sequence[Instruction]) -> Computation:
    """Return the predicate "none of these arrays has a NaN", of the arrays."""
    given = [parameter(k, i.array, f"x{k}") for k, i in enumerate(arrays)]
    return assemble("without_nan", given, _all(_has_no_nan(x) for x in given))


def _nan_outputs(risky: Sequence[Instruction], computation: Computation) -> tuple[int, ...]:
    """Return outputs, by number, one of which is NaN wherever one of ``risky`` is; none if there
    are not any.
    """
    hidden, found = set(risky), []
    for n, out in enumerate(outputs(computation)):
        shown, waiting = set[Instruction](), [out]
        while waiting:
            i = waiting.pop()
            if i in shown or not has_nan(i):
                continue
            shown.add(i)
            if definition(i.opcode).keeps_nan:
                waiting += [o for o in i.operands if o.array.size <= i.array.size]
        if hidden & shown:
            found.append(n)
            hidden -= shown
    return () if hidden else tuple(found)


def _skipping(i: Instruction) -> Instruction | None:
    return with_attrs(i, **{SKIPS: True}) if multiplies_holes(i) else None


def _are_finite(weights: Instruction, group: Group) -> bool | None:
    """True if weights are finite; None where that is known only at run time.

    Data movement is looked through; other computations on constants are evaluated unless their
    results are much larger than their operands.
    """
    weights = _through_moves(weights)
    used = [i for i in post_order([weights]) if i.opcode == "parameter"]
    leaves = [group.inputs[p.attrs["number"]] for p in used]
    if any(i.opcode != "constant" or isinstance(i.attrs["literal"], Raw) for i in leaves):
        return None
    inner = [i for i in post_order([weights]) if i.opcode not in ("parameter", "constant")]
    if any(i.array.bytes > ALWAYS + sum(x.array.bytes for x in leaves) for i in inner):
        return None
    values = [np.asarray(i.attrs["literal"], to_numpy(i.array.dtype)) for i in leaves]
    found = evaluate_computation(_with_parameters("weights", weights, used), values)
    with np.errstate(all="ignore"):
        return bool(np.isfinite(np.asarray(found)).all())


def _through_moves(i: Instruction) -> Instruction:
    """Return the operand whose elements an instruction moves, looking through chains of moves."""
    while (op := definition(i.opcode)).role is Role.MOVES and not op.drops_elements:
        i = i.operands[0]
    return i


def _with_parameters(name: str, root: Instruction, used: Sequence[Instruction]) -> Computation:
    """Return a computation of ``root`` whose parameters are ``used``, in this order."""
    new: dict[Instruction, Instruction] = {
        p: replace(p, attrs=MappingProxyType({**p.attrs, "number": n})) for n, p in enumerate(used)
    }
    for i in post_order([root]):
        if i not in new:
            new[i] = with_operands(i, tuple(new[o] for o in i.operands))
    return assemble(name, [new[p] for p in used], new[root])


def _finite_test(weights: Sequence[Instruction]) -> tuple[Computation, tuple[int, ...]]:
    """Return the computation "all of these arrays are finite" and the numbers of its inputs."""
    used = [i for i in post_order(weights) if i.opcode == "parameter"]
    root = _all(_is_finite(w) for w in weights)
    return _with_parameters("finite", root, used), tuple(p.attrs["number"] for p in used)


def _all(answers: Iterable[Instruction]) -> Instruction:
    return reduce(lambda a, b: make("and", a.shape, (a, b)), answers)


def _is_finite(x: Instruction) -> Instruction:
    """Return the predicate ``sum(0 * x) == 0``: the sum is NaN unless all elements are finite."""
    wide = _wide(x)
    dtype, shape = wide.array.dtype, wide.array
    zero = constant(np.zeros((), to_numpy(dtype)))
    zeros = make("broadcast", shape, (zero,), dimensions=())
    terms = make("multiply", shape, (wide, zeros))
    total = _total(terms, zero, lambda a, b: make("add", a.shape, (a, b)))
    return make("compare", Shape(pred), (total, zero), direction="EQ")


def _has_no_nan(x: Instruction) -> Instruction:
    """Return the predicate ``max(x) == max(x)``: the largest element is NaN if one is."""
    wide = _wide(x)
    least = constant(np.array(-np.inf, to_numpy(wide.array.dtype)))
    total = _total(wide, least, lambda a, b: make("maximum", a.shape, (a, b)))
    return make("compare", Shape(pred), (total, total), direction="EQ")


def _wide(x: Instruction) -> Instruction:
    if x.array.dtype in (f32, f64):
        return x
    return make("convert", Shape(f32, x.array.dims), (x,))


def _total(x: Instruction, start: Instruction, combined: Combined) -> Instruction:
    """Return the reduction of all elements of an array."""
    scalar = Shape(x.array.dtype)
    a, b = parameter(0, scalar, "a"), parameter(1, scalar, "b")
    combine = assemble("combine", (a, b), combined(a, b))
    dims = tuple(range(x.array.rank))
    return make("reduce", scalar, (x, start), dimensions=dims, to_apply=combine)
