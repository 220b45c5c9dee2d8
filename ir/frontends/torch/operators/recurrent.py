"""Recurrent layers: LSTM, GRU and plain ones, each direction of a layer as one loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...lax.control import scan
from ...lax.linear import dot_general
from ...lax.shaping import concatenate, reverse, split, stack, swap_axes, unstack
from ...lax.term import Term
from .call import AtenCall, Operator, Rows

State = Sequence[Term]
Cell = Callable[[Term, Term, State], list[Term]]
"""The new state of the step's part, the state's part (both with their biases), and the state."""


def _lstm_cell(x: Term, h: Term, state: State) -> list[Term]:
    keep, forget, new, out = split(x + h, [state[0].dims[1]] * 4, 1)
    cell = forget.do("logistic") * state[1] + keep.do("logistic") * new.do("tanh")
    return [out.do("logistic") * cell.do("tanh"), cell]


def _gru_cell(x: Term, h: Term, state: State) -> list[Term]:
    size = state[0].dims[1]
    (reset, update, new), (old_reset, old_update, old) = (split(t, [size] * 3, 1) for t in (x, h))
    gate = (update + old_update).do("logistic")
    fresh = (new + (reset + old_reset).do("logistic") * old).do("tanh")
    return [fresh + gate * (state[0] - fresh)]


def _plain_cell(function: str) -> Cell:
    def cell(x: Term, h: Term, state: State) -> list[Term]:
        total = x + h
        return [total.do("tanh") if function == "tanh" else total.do("maximum", 0)]

    return cell


def _affine(x: Term, weight: Term, bias: Term | None) -> Term:
    found = dot_general(x, weight, ([x.rank - 1], [1]))
    return found if bias is None else found + bias


def _direction(cell: Cell, x: Term, start: State, weights: State, backward: bool) -> list[Term]:
    """All steps of one direction: results of ``[time, batch, ..]``, then the last state."""
    own, old = weights[:2]
    bias, old_bias = weights[2:] if len(weights) == 4 else (None, None)
    steps = _affine(reverse(x, [0]) if backward else x, own, bias)

    def step(*given: Term) -> list[Term]:
        state, part = given[:-1], given[-1]
        new = cell(part, _affine(state[0], old, old_bias), state)
        return [*new, new[0]]

    *last, rows = scan(step, start, [steps], x.dims[0])
    return [reverse(rows, [0]) if backward else rows, *last]


def _layers(cell: Cell) -> Operator:

    def write(
        c: AtenCall,
        x: Term,
        hx: Term | Sequence[Term],
        params: Sequence[Term],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> list[Term]:
        if dropout and train:
            c.refuse("its dropout comes from torch's generator", "model.eval(), or dropout=0")
        ways, each = 1 + bidirectional, 4 if has_biases else 2
        if len(params) != ways * num_layers * each:
            c.refuse("its cells project their state", "proj_size=0")
        starts = list(zip(*(unstack(h) for h in _listed(hx)), strict=True))
        rows = swap_axes(x, 0, 1) if batch_first else x
        ends: list[list[Term]] = []
        for layer in range(num_layers):
            found = []
            for way in range(ways):
                k = layer * ways + way
                weights = params[k * each : (k + 1) * each]
                made, *end = _direction(cell, rows, starts[k], weights, way == 1)
                found.append(made)
                ends.append(end)
            rows = concatenate(found, 2)
        out = swap_axes(rows, 0, 1) if batch_first else rows
        return [out, *(stack(parts) for parts in zip(*ends, strict=True))]

    return write


def _listed(hx: Term | Sequence[Term]) -> Sequence[Term]:
    return [hx] if isinstance(hx, Term) else hx


ROWS: Rows = {
    "aten.lstm.input": _layers(_lstm_cell),
    "aten.gru.input": _layers(_gru_cell),
    "aten.rnn_tanh.input": _layers(_plain_cell("tanh")),
    "aten.rnn_relu.input": _layers(_plain_cell("relu")),
}
