"""RNN, GRU and LSTM: one product for the inputs of all steps, then a loop over the steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ....dtypes import s32
from ...lax import control, functions, indexing, linear, shaping
from ...lax.term import Term
from ..nodes.node import Node
from ..nodes.table import operator

Function = Callable[[Term], Term]
Step = Callable[[Term, Sequence[Term]], Sequence[Term]]
"""Takes the input's part of all gates and the state (h first); returns the next state."""


def _hard_sigmoid(x: Term, alpha: float, beta: float) -> Term:
    return (x * alpha + beta).do("maximum", 0).do("minimum", 1)


def _thresholded(x: Term, alpha: float, beta: float) -> Term:
    return (x > alpha).select(x, 0)


ACTIVATIONS: dict[str, tuple[float, float, Callable[[Term, float, float], Term]]] = {
    "relu": (0, 0, lambda x, a, b: x.do("maximum", 0)),
    "tanh": (0, 0, lambda x, a, b: x.do("tanh")),
    "sigmoid": (0, 0, lambda x, a, b: x.do("logistic")),
    "affine": (1, 0, lambda x, a, b: x * a + b),
    "leakyrelu": (0.01, 0, lambda x, a, b: (x >= 0).select(x, x * a)),
    "thresholdedrelu": (1, 0, _thresholded),
    "scaledtanh": (1, 1, lambda x, a, b: (x * b).do("tanh") * a),
    "hardsigmoid": (0.2, 0.5, _hard_sigmoid),
    "elu": (1, 0, lambda x, a, b: (x >= 0).select(x, x.do("exponential-minus-one") * a)),
    "softsign": (0, 0, lambda x, a, b: x / (x.do("abs") + 1)),
    "softplus": (0, 0, lambda x, a, b: functions.softplus(x)),
}
"""By lower-case name: the defaults of alpha and beta, and the function."""

SCALED = ("affine", "leakyrelu", "thresholdedrelu", "scaledtanh", "hardsigmoid", "elu")
"""Activations that take the next value of ``activation_alpha``."""

SHIFTED = ("affine", "scaledtanh", "hardsigmoid")
"""Activations that take the next value of ``activation_beta``."""


def _activations(node: Node, default: Sequence[str], directions: int) -> list[Function]:
    """The functions of all directions, in order, with their parameters."""
    names = node.strings("activations") or []
    if len(names) != len(default) * directions:  # the definition's default may be of one direction
        names = list(default) * directions
    alphas = iter(node.floats("activation_alpha") or [])
    betas = iter(node.floats("activation_beta") or [])
    found: list[Function] = []
    for name in map(str.lower, names):
        if name not in ACTIVATIONS:
            node.unsupported(f"activation {name!r} is not known", ", ".join(ACTIVATIONS))
        alpha, beta, function = ACTIVATIONS[name]
        a = next(alphas, alpha) if name in SCALED else alpha
        b = next(betas, beta) if name in SHIFTED else beta
        found.append(lambda x, f=function, a=a, b=b: f(x, a, b))  # type: ignore[misc]
    return found


@dataclass(frozen=True, slots=True)
class Direction:
    """The operands of one direction of a recurrent operator: matrices ``[n, gates * hidden]``,
    the biases of both products and the peepholes (None where there are none)."""

    w: Term
    r: Term
    wb: Term | None
    rb: Term | None
    peepholes: Term | None
    functions: Sequence[Function]
    clip: float | None


def _clipped(x: Term, clip: float | None) -> Term:
    return x if clip is None else x.do("maximum", -clip).do("minimum", clip)


def _plus(x: Term, bias: Term | None) -> Term:
    return x if bias is None else x + bias


def _times(x: Term, matrix: Term) -> Term:
    """``x matrix``, by its last dimension."""
    return linear.dot_general(x, matrix, ([x.rank - 1], [0]))


def _gates(x: Term, count: int) -> list[Term]:
    size = x.dims[-1] // count
    return shaping.split(x, [size] * count, -1)


def _rnn_step(d: Direction) -> Step:
    def step(given: Term, state: Sequence[Term]) -> Sequence[Term]:
        total = given + _plus(_times(state[0], d.r), d.rb)
        return [d.functions[0](_clipped(total, d.clip))]

    return step


def _gru_step(d: Direction, linear_before_reset: bool) -> Step:
    f, g = d.functions

    def step(given: Term, state: Sequence[Term]) -> Sequence[Term]:
        (h,) = state
        size = h.dims[-1]
        given_zr, given_h = shaping.split(given, [2 * size, size], -1)
        r_zr, r_h = shaping.split(d.r, [2 * size, size], 1)
        b_zr, b_h = shaping.split(d.rb, [2 * size, size], 0) if d.rb is not None else (None, None)
        both = f(_clipped(given_zr + _plus(_times(h, r_zr), b_zr), d.clip))
        z, r = _gates(both, 2)
        if linear_before_reset:
            inner = r * _plus(_times(h, r_h), b_h)
        else:
            inner = _plus(_times(r * h, r_h), b_h)
        new = g(_clipped(given_h + inner, d.clip))
        return [(1 - z) * new + z * h]

    return step


def _lstm_step(d: Direction, input_forget: bool) -> Step:
    f, g, h = d.functions

    def step(given: Term, state: Sequence[Term]) -> Sequence[Term]:
        before, cell = state
        i, o, forget, c = _gates(given + _plus(_times(before, d.r), d.rb), 4)
        p_i, p_o, p_f = _gates(d.peepholes, 3) if d.peepholes is not None else (None,) * 3
        i = f(_clipped(_peeped(i, p_i, cell), d.clip))
        forget = 1 - i if input_forget else f(_clipped(_peeped(forget, p_f, cell), d.clip))
        new = forget * cell + i * g(_clipped(c, d.clip))
        o = f(_clipped(_peeped(o, p_o, new), d.clip))
        return [o * h(new), new]

    return step


def _peeped(gate: Term, peephole: Term | None, cell: Term) -> Term:
    return gate if peephole is None else gate + peephole * cell


def _reversed(x: Term, lengths: Term | None) -> Term:
    """The steps of ``x[t, b, ..]`` backwards; of each row those before its length, if given."""
    if lengths is None:
        return shaping.reverse(x, [0])
    number = shaping.iota(x.site, s32, x.dims[:2], 0)
    place = lengths - 1 - number
    index = shaping.broadcast_to(
        shaping.expand_dims((place < 0).select(number, place), range(2, x.rank)), x.dims
    )
    return indexing.take_along_axis(x, index, 0)


def _run(
    x: Term, step: Step, d: Direction, start: Sequence[Term], lengths: Term | None
) -> list[Term]:
    """Return the states ``h`` of all steps, ``[t, b, hidden]``, and the last states."""
    given = _plus(_times(x, d.w), d.wb)

    def body(*values: Term) -> Sequence[Term]:
        number, *state = values[: 1 + len(start)]
        new = list(step(values[-1], state))
        if lengths is None:
            return [number + 1, *new, new[0]]
        live = shaping.expand_dims(number < lengths, [1])
        kept = [live.select(n, s) for n, s in zip(new, state, strict=True)]
        return [number + 1, *kept, live.select(new[0], 0)]

    zero = shaping.full(x.site, 0, s32)
    _, *last, states = control.scan(body, [zero, *start], [given], x.dims[0])
    return [states, *last]


@dataclass(frozen=True, slots=True)
class Recurrence:
    """A recurrent operator: its numbers of gates and states, its default activations, its step."""

    gates: int
    states: int
    activations: tuple[str, ...]
    step: Callable[[Node, Direction], Step]


KINDS = {
    "RNN": Recurrence(1, 1, ("Tanh",), lambda node, d: _rnn_step(d)),
    "GRU": Recurrence(
        3,
        1,
        ("Sigmoid", "Tanh"),
        lambda node, d: _gru_step(d, bool(node.int_("linear_before_reset", 0))),
    ),
    "LSTM": Recurrence(
        4,
        2,
        ("Sigmoid", "Tanh", "Tanh"),
        lambda node, d: _lstm_step(d, bool(node.int_("input_forget", 0))),
    ),
}


def _direction(node: Node, kind: Recurrence, k: int, functions: Sequence[Function]) -> Direction:
    """The operands of direction ``k``."""
    w, r, bias, peepholes = node.input(1), node.input(2), node.optional(3), node.optional(7)
    gates = kind.gates * r.dims[-1]
    wb, rb = (None, None) if bias is None else shaping.split(_at(bias, k), [gates, gates], 0)
    count = len(kind.activations)
    return Direction(
        shaping.transpose(_at(w, k), (1, 0)),
        shaping.transpose(_at(r, k), (1, 0)),
        wb,
        rb,
        None if peepholes is None else _at(peepholes, k),
        functions[k * count : (k + 1) * count],
        node.float_("clip") if node.gives("clip") else None,
    )


def _at(x: Term, k: int) -> Term:
    """The part of number ``k`` of the first dimension."""
    return shaping.squeeze(shaping.slice_in_dim(x, k, k + 1, 0), [0])


@operator("RNN", "GRU", "LSTM")
def recurrent(node: Node) -> tuple[Term, ...]:
    """``Y[t, direction, b, hidden]``, ``Y_h`` and, for LSTM, ``Y_c`` ``[direction, b, hidden]``."""
    kind = KINDS[node.op]
    first = bool(node.int_("layout", 0))
    x = shaping.swap_axes(node.input(0), 0, 1) if first else node.input(0)
    directions, hidden = node.input(2).dims[0], node.input(2).dims[-1]
    lengths = node.optional(4)
    lengths = None if lengths is None else lengths.to(s32)
    starts = [node.optional(5 + n) for n in range(kind.states)]
    functions_ = _activations(node, kind.activations, directions)
    every, lasts = [], []
    for k in range(directions):
        backwards = k == 1 or node.string("direction", "forward") == "reverse"
        d = _direction(node, kind, k, functions_)
        start = [
            _at(shaping.swap_axes(s, 0, 1) if first else s, k)
            if s is not None
            else shaping.full(x.site, 0, x.dtype, (x.dims[1], hidden))
            for s in starts
        ]
        rows = _reversed(x, lengths) if backwards else x
        states, *last = _run(rows, kind.step(node, d), d, start, lengths)
        every.append(_reversed(states, lengths) if backwards else states)
        lasts.append(last)
    y = shaping.stack(every, 1)
    ends = [shaping.stack(part) for part in zip(*lasts, strict=True)]
    if first:
        return (shaping.transpose(y, (2, 0, 1, 3)), *(shaping.swap_axes(e, 0, 1) for e in ends))
    return (y, *ends)
