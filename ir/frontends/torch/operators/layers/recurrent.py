"""Recurrent layers: LSTM, GRU and plain ones, each direction of a layer as one loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from ....lax.functions import relu
from ....lax.recurrent import Step, gru_step, lstm_step, rnn_step, run
from ....lax.shaping import concatenate, full, reshape, stack, swap_axes, unstack
from ....lax.term import Term
from ..call import AtenCall, Operator, Rows

ONEDNN_LSTM = 2  # of oneDNN's kinds of cells

Cell: TypeAlias = Callable[..., Step]
"""The step of a cell, from the state's weight and bias; an LSTM's may have a ``projection``."""


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
        ways, plain = 1 + bidirectional, 4 if has_biases else 2
        each = len(params) // (ways * num_layers)
        starts = list(zip(*(unstack(h) for h in _listed(hx)), strict=True))
        rows = swap_axes(x, 0, 1) if batch_first else x
        ends: list[list[Term]] = []
        for layer in range(num_layers):
            found = []
            for way in range(ways):
                k = layer * ways + way
                own, old, *rest = params[k * each : (k + 1) * each]
                bias, old_bias = rest[:2] if has_biases else (None, None)
                more = {"projection": rest[-1]} if each > plain else {}
                step = cell(old, old_bias, **more)
                made, *end = run(step, rows, own, bias, starts[k], backwards=way == 1)
                found.append(made)
                ends.append(end)
            rows = concatenate(found, 2)
        out = swap_axes(rows, 0, 1) if batch_first else rows
        return [out, *(stack(parts) for parts in zip(*ends, strict=True))]

    return write


def _listed(hx: Term | Sequence[Term]) -> Sequence[Term]:
    return [hx] if isinstance(hx, Term) else hx


def _onednn_layer(
    c: AtenCall,
    x: Term,
    own: Term,
    old: Term,
    bias: Term,
    old_bias: Term,
    hx: Term,
    cx: Term,
    reverse: bool,
    batch_sizes: Sequence[int],
    mode: int,
    hidden_size: int,
    num_layers: int,
    has_biases: bool,
    bidirectional: bool,
    batch_first: bool,
    train: bool,
) -> list[Term]:
    """One direction of a layer, as torch hands it to oneDNN; x is (time, batch, features)."""
    if mode != ONEDNN_LSTM or num_layers != 1 or bidirectional or batch_first or batch_sizes:
        c.refuse("only one direction of one layer of an LSTM is known by this name")
    step = lstm_step(old, old_bias if has_biases else None, order="ifgo")
    starts = [reshape(h, h.dims[-2:]) for h in (hx, cx)]
    made, *ends = run(step, x, own, bias if has_biases else None, starts, backwards=reverse)
    space = c.results[3]
    assert space is not None  # of the backward pass, and empty
    return [
        made,
        *(reshape(end, h.dims) for end, h in zip(ends, (hx, cx), strict=True)),
        full(c.graph, 0, space.dtype, space.dims),
    ]


ROWS: Rows = {
    "aten.mkldnn_rnn_layer.default": _onednn_layer,
    "aten.lstm.input": _layers(partial(lstm_step, order="ifgo")),
    "aten.gru.input": _layers(partial(gru_step, order="rz")),
    "aten.rnn_tanh.input": _layers(rnn_step),
    "aten.rnn_relu.input": _layers(partial(rnn_step, function=relu)),
}
