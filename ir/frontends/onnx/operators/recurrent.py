"""RNN, GRU and LSTM, with their activations, directions, rows of unequal length and peepholes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ....dtypes import s32
from ...lax import shaping
from ...lax.functions import (
    clamp,
    elu,
    hard_sigmoid,
    leaky_relu,
    relu,
    sigmoid,
    soft_sign,
    softplus,
    thresholded_relu,
)
from ...lax.recurrent import Function, Step, Weight, gru_step, lstm_step, rnn_step, run
from ...lax.term import Term
from ..nodes.node import Node
from ..nodes.table import operator

ACTIVATIONS: dict[str, tuple[float, float, Callable[[Term, float, float], Term]]] = {
    "relu": (0, 0, lambda x, a, b: relu(x)),
    "tanh": (0, 0, lambda x, a, b: x.do("tanh")),
    "sigmoid": (0, 0, lambda x, a, b: sigmoid(x)),
    "affine": (1, 0, lambda x, a, b: x * a + b),
    "leakyrelu": (0.01, 0, lambda x, a, b: leaky_relu(x, a)),
    "thresholdedrelu": (1, 0, lambda x, a, b: thresholded_relu(x, a)),
    "scaledtanh": (1, 1, lambda x, a, b: (x * b).do("tanh") * a),
    "hardsigmoid": (0.2, 0.5, hard_sigmoid),
    "elu": (1, 0, lambda x, a, b: elu(x, a)),
    "softsign": (0, 0, lambda x, a, b: soft_sign(x)),
    "softplus": (0, 0, lambda x, a, b: softplus(x)),
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
class Recurrence:
    """A recurrent operator: its numbers of gates and states, its default activations, its step.

    ``step`` takes the state's weight and bias, the functions, and the peepholes if there are any.
    """

    gates: int
    states: int
    activations: tuple[str, ...]
    step: Callable[[Node, Weight, Term | None, Sequence[Function], Term | None], Step]


def _rnn(
    node: Node, r: Weight, bias: Term | None, given: Sequence[Function], peepholes: Term | None
) -> Step:
    return rnn_step(r, bias, given[0])


def _gru(
    node: Node, r: Weight, bias: Term | None, given: Sequence[Function], peepholes: Term | None
) -> Step:
    assert isinstance(r, Term)
    return gru_step(r, bias, "zr", given, bool(node.int_("linear_before_reset", 0)))


def _lstm(
    node: Node, r: Weight, bias: Term | None, given: Sequence[Function], peepholes: Term | None
) -> Step:
    """Peepholes come in the order of input, output and forget gate."""
    peeps = None
    if peepholes is not None:
        of_input, of_output, of_forget = shaping.split(peepholes, [peepholes.dims[0] // 3] * 3, 0)
        peeps = (of_input, of_forget, of_output)
    return lstm_step(r, bias, "iofg", given, peeps, bool(node.int_("input_forget", 0)))


KINDS = {
    "RNN": Recurrence(1, 1, ("Tanh",), _rnn),
    "GRU": Recurrence(3, 1, ("Sigmoid", "Tanh"), _gru),
    "LSTM": Recurrence(4, 2, ("Sigmoid", "Tanh", "Tanh"), _lstm),
}


def _clipped(node: Node, functions: Sequence[Function]) -> list[Function]:
    """The functions of one direction; all but that of an LSTM's cell clip what they are given."""
    if not node.gives("clip"):
        return list(functions)
    clip = node.float_("clip")

    def clipping(function: Function) -> Function:
        return lambda x: function(clamp(x, -clip, clip))

    return [*map(clipping, functions[:2]), *functions[2:]]


def at(x: Term, k: int) -> Term:
    """The part of number ``k`` of the first dimension."""
    return shaping.squeeze(shaping.slice_in_dim(x, k, k + 1, 0), [0])


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights of a layer in each direction, by input (1 or 2) and number, and their sizes."""

    directions: int
    hidden: int
    of: Callable[[int, int], Weight]


def _direction(
    node: Node,
    kind: Recurrence,
    weights: Weights,
    x: Term,
    k: int,
    functions: Sequence[Function],
    lengths: Term | None,
) -> list[Term]:
    """The states of all steps of ``x[t, b, n]`` in direction ``k``, and the last states."""
    bias, peepholes, hidden = node.optional(3), node.optional(7), weights.hidden
    own, old = (
        (None, None) if bias is None else shaping.split(at(bias, k), [kind.gates * hidden] * 2, 0)
    )
    step = kind.step(
        node, weights.of(2, k), old, functions, None if peepholes is None else at(peepholes, k)
    )
    batch_first = bool(node.int_("layout", 0))
    start = []
    for n in range(kind.states):
        given = node.optional(5 + n)
        if given is None:
            start.append(shaping.full(x.site, 0, x.dtype, (x.dims[1], hidden)))
        else:
            start.append(at(shaping.swap_axes(given, 0, 1) if batch_first else given, k))
    backwards = k == 1 or node.string("direction", "forward") == "reverse"
    return run(step, x, weights.of(1, k), own, start, backwards=backwards, lengths=lengths)


@operator("RNN", "GRU", "LSTM")
def recurrent(node: Node) -> tuple[Term, ...]:
    """``Y[t, direction, b, hidden]``, ``Y_h`` and, for LSTM, ``Y_c`` ``[direction, b, hidden]``."""
    directions, _, hidden = node.input(2).dims
    weights = Weights(directions, hidden, lambda n, k: at(node.input(n), k))
    return layer(node, KINDS[node.op], weights)


def layer(node: Node, kind: Recurrence, weights: Weights) -> tuple[Term, ...]:
    """The results of a recurrent layer, all of whose inputs but the weights are those of LSTM."""
    if node.int_("hidden_size", weights.hidden) != weights.hidden:
        node.malformed(f"its weights are of {weights.hidden} hidden units")
    batch_first = bool(node.int_("layout", 0))
    x = shaping.swap_axes(node.input(0), 0, 1) if batch_first else node.input(0)
    lengths = node.optional(4)
    lengths = None if lengths is None else lengths.to(s32)
    functions = _activations(node, kind.activations, weights.directions)
    count = len(kind.activations)
    every, lasts = [], []
    for k in range(weights.directions):
        own = _clipped(node, functions[k * count : (k + 1) * count])
        states, *last = _direction(node, kind, weights, x, k, own, lengths)
        every.append(states)
        lasts.append(last)
    y = shaping.stack(every, 1)
    ends = [shaping.stack(part) for part in zip(*lasts, strict=True)]
    if batch_first:
        return (shaping.transpose(y, (2, 0, 1, 3)), *(shaping.swap_axes(e, 0, 1) for e in ends))
    return (y, *ends)
