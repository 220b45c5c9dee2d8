"""Recurrent layers: steps of plain, LSTM and GRU cells, and the loop over a sequence's steps.

Weights are ``[gates * hidden, n]``, biases ``[gates * hidden]``; states are ``[b, hidden]``, ``h``
first. Functions are sigmoid and hyperbolic tangent unless given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from ...dtypes import s32
from .control import scan
from .functions import sigmoid
from .indexing import take_along_axis
from .linear import dot_general
from .shaping import broadcast_to, expand_dims, full, iota, reverse, slice_in_dim, split
from .term import Term

Function: TypeAlias = Callable[[Term], Term]
Weight: TypeAlias = Term | Function
"""A weight, or a function that multiplies by it."""

Step: TypeAlias = Callable[[Term, Sequence[Term]], list[Term]]
"""Takes the input's part of all gates ``[b, gates * hidden]`` and the state; returns the next."""


def tanh(x: Term) -> Term:
    """The hyperbolic tangent."""
    return x.do("tanh")


def affine(x: Term, weight: Weight, bias: Term | None) -> Term:
    """``x weightᵀ + bias``, by the last dimension of ``x``."""
    found = _times(x, weight)
    return found if bias is None else found + bias


def _times(x: Term, weight: Weight) -> Term:
    if isinstance(weight, Term):
        return dot_general(x, weight, ([x.rank - 1], [1]))
    return weight(x)


def rnn_step(weight: Weight, bias: Term | None, function: Function = tanh) -> Step:
    """Return the step of a plain cell: a function of both parts' sum."""
    return lambda given, state: [function(given + affine(state[0], weight, bias))]


def lstm_step(
    weight: Weight,
    bias: Term | None,
    order: str,
    functions: Sequence[Function] = (sigmoid, tanh, tanh),
    peepholes: Sequence[Term] | None = None,
    coupled: bool = False,
    projection: Term | None = None,
) -> Step:
    """Return the step of an LSTM cell (Hochreiter and Schmidhuber, 1997), of states h and c.

    ``order`` names the gates as they stand in the weights: input, forget, output, and g, the new
    content. ``functions`` are those of gates, content and cell. ``peepholes`` weigh the cell in the
    gates i, f and o; ``coupled`` forgets what the input gate does not replace. ``projection`` is a
    weight ``[n, hidden]`` that makes the next h of what a cell puts out (Sak, Senior and Beaufays,
    2014); then h is ``[b, n]``.
    """
    of_gates, of_content, of_cell = functions
    peep_i, peep_f, peep_o = peepholes or (None, None, None)

    def gate(x: Term, peephole: Term | None, cell: Term) -> Term:
        return of_gates(x if peephole is None else x + peephole * cell)

    def step(given: Term, state: Sequence[Term]) -> list[Term]:
        h, cell = state
        parts = split(given + affine(h, weight, bias), [cell.dims[-1]] * 4, -1)
        named = dict(zip(order, parts, strict=True))
        keep = gate(named["i"], peep_i, cell)
        forget = 1 - keep if coupled else gate(named["f"], peep_f, cell)
        new = forget * cell + keep * of_content(named["g"])
        out = gate(named["o"], peep_o, new) * of_cell(new)
        return [out if projection is None else affine(out, projection, None), new]

    return step


def gru_step(
    weight: Term,
    bias: Term | None,
    order: str,
    functions: Sequence[Function] = (sigmoid, tanh),
    linear_before_reset: bool = True,
) -> Step:
    """Return the step of a GRU cell (Cho et al., 2014).

    ``order`` names the first two gates as they stand in the weights, r(eset) and z (update); the
    new content comes last. The reset gate acts on the state's product, or on the state itself
    unless ``linear_before_reset``.
    """
    of_gates, of_content = functions

    def step(given: Term, state: Sequence[Term]) -> list[Term]:
        (h,) = state
        n = h.dims[-1]
        given_gates, given_new = split(given, [2 * n, n], -1)
        if linear_before_reset:
            old_gates, old_new = split(affine(h, weight, bias), [2 * n, n], -1)
        else:
            old_gates = affine(h, slice_in_dim(weight, 0, 2 * n, 0), _rows(bias, 0, 2 * n))
        gates = dict(zip(order, split(of_gates(given_gates + old_gates), [n, n], -1), strict=True))
        if linear_before_reset:
            inner = gates["r"] * old_new
        else:
            last = slice_in_dim(weight, 2 * n, 3 * n, 0)
            inner = affine(gates["r"] * h, last, _rows(bias, 2 * n, 3 * n))
        new = of_content(given_new + inner)
        update = gates["z"]
        return [(1 - update) * new + update * h]

    return step


def _rows(x: Term | None, start: int, end: int) -> Term | None:
    return None if x is None else slice_in_dim(x, start, end, 0)


def reversed_steps(x: Term, lengths: Term | None) -> Term:
    """The steps of ``x[t, b, ..]`` backwards; of each row those before its s32 length, if given."""
    if lengths is None:
        return reverse(x, [0])
    number = iota(x.site, s32, x.dims[:2], 0)
    place = lengths - 1 - number
    index = expand_dims((place < 0).select(number, place), range(2, x.rank))
    return take_along_axis(x, broadcast_to(index, x.dims), 0)


def run(
    step: Step,
    x: Term,
    weight: Weight,
    bias: Term | None,
    start: Sequence[Term],
    *,
    backwards: bool = False,
    lengths: Term | None = None,
) -> list[Term]:
    """Return the states ``h`` of all steps of ``x[t, b, n]``, ``[t, b, hidden]``; the last states.

    One product gives the input's part of all steps. ``backwards`` starts with the last step.
    Behind its s32 length a row keeps its state and gives zeros.
    """
    given = affine(reversed_steps(x, lengths) if backwards else x, weight, bias)

    def body(*values: Term) -> list[Term]:
        new = step(values[-1], values[:-1])
        return [*new, new[0]]

    def body_within(number: Term, *values: Term) -> list[Term]:
        assert lengths is not None
        live = expand_dims(number < lengths, [1])
        new = step(values[-1], values[:-1])
        kept = [live.select(n, s) for n, s in zip(new, values[:-1], strict=True)]
        return [number + 1, *kept, live.select(new[0], 0)]

    if lengths is None:
        *last, states = scan(body, start, [given], x.dims[0])
    else:
        zero = full(x.site, 0, s32)
        _, *last, states = scan(body_within, [zero, *start], [given], x.dims[0])
    return [reversed_steps(states, lengths) if backwards else states, *last]
