"""If, Loop and Scan: graphs inside nodes, which read values from around them."""

from __future__ import annotations

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="the onnx package reads ONNX models")
helper, FLOAT, INT64, BOOL = onnx.helper, 1, 7, 9

X = np.array([0.1, 0.2, 0.3], np.float32)


def value(name, kind=FLOAT):
    return helper.make_tensor_value_info(name, kind, None)


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def constant(name, number, dtype=np.int64):
    array = onnx.numpy_helper.from_array(np.array(number, dtype))
    return helper.make_node("Constant", [], [name], value=array)


def body(nodes, results, state=""):
    """The body of a loop: takes ``i``, ``on`` and the state, returns ``going`` and the results."""
    inputs = [value("i", INT64), value("on", BOOL), *map(value, state.split())]
    outputs = [value("going", BOOL), *map(value, results.split())]
    return helper.make_graph(nodes, "body", inputs, outputs)


def branch(nodes, results):
    return helper.make_graph(nodes, "branch", [], list(map(value, results.split())))


GOES_ON = node("Identity", "on", "going")


@pytest.mark.parametrize("choice", [True, False])
def test_branches_compute_with_values_from_around(check, choice):
    yes = branch([node("Exp", "x1", "e"), node("Add", "e x1", "o")], "o")
    no = branch([node("Log", "x1", "o")], "o")
    wanted = [np.exp(X) + X if choice else np.log(X)]
    given = [np.array(choice), X]
    for known in ([], [0]):
        check(
            "If",
            [given[0]],
            wanted=wanted,
            known=known,
            around=[X],
            then_branch=yes,
            else_branch=no,
        )


def test_only_the_branch_that_is_taken_computes(read):
    yes = branch([node("Exp", "x1", "o")], "o")
    no = branch([node("Log", "x1", "o")], "o")
    module = read("If", [np.array(True)], around=[X], then_branch=yes, else_branch=no).module
    assert {"exponential", "log"}.isdisjoint(i.opcode for i in module.entry.instructions)


def test_branches_of_unequal_shapes_need_the_condition(check):
    from nestwright.ir.frontends.onnx.nodes.node import NeedsValueError

    yes = branch([node("Identity", "x1", "o")], "o")
    no = branch([node("Concat", "x1 x1", "o", axis=0)], "o")
    attributes = {"then_branch": yes, "else_branch": no, "around": [X]}
    with pytest.raises(NeedsValueError) as caught:
        check("If", [np.array(False)], wanted=[np.tile(X, 2)], **attributes)
    assert caught.value.inputs == ("x0",)
    check("If", [np.array(False)], wanted=[np.tile(X, 2)], known=[0], **attributes)


def test_a_branch_that_does_not_fit_may_not_be_the_one_taken(check):
    from nestwright.ir.frontends.onnx.nodes.node import NeedsValueError

    yes = branch([node("Exp", "x1", "o")], "o")
    no = branch([node("MatMul", "x1 x2", "o")], "o")
    attributes = {"then_branch": yes, "else_branch": no, "around": [X, np.ones((4, 3), np.float32)]}
    with pytest.raises(NeedsValueError, match="its condition"):
        check("If", [np.array(True)], wanted=[np.exp(X)], **attributes)
    check("If", [np.array(True)], wanted=[np.exp(X)], known=[0], **attributes)


@pytest.mark.parametrize("count", [0, 3, 9])
@pytest.mark.parametrize("known", [[], [0]])
def test_a_loop_returns_its_state(check, count, known):
    graph = body([GOES_ON, node("Add", "v x3", "w")], "w", "v")
    inputs = [np.array(count), None, X]
    wanted = [X + count * np.ones(3, np.float32)]
    around = [np.ones(3, np.float32)]
    check("Loop", inputs, wanted=wanted, known=known, around=around, body=graph)


@pytest.mark.parametrize("count", [0, 2, 7])
def test_a_loop_stacks_results(check, count):
    graph = body(
        [GOES_ON, node("Cast", "i", "f", to=FLOAT), node("Mul", "v f", "r"), node("Neg", "v", "w")],
        "w r",
        "v",
    )
    rows = [X * (-1) ** k * k for k in range(count)]
    wanted = [X * (-1) ** count, np.array(rows, np.float32).reshape(count, 3)]
    inputs = [np.array(count), None, X]
    check("Loop", inputs, 2, wanted=wanted, known=[0], body=graph)


def test_a_condition_ends_a_loop_and_bounds_its_results(check):
    nodes = [
        node("Add", "v v", "w"),
        node("ReduceSum", "w", "t", keepdims=0),
        node("Less", "t x3", "going"),
        node("Identity", "w", "r"),
    ]
    rows = [X * np.float32(2**k) for k in range(1, 7)]
    inputs, around = [np.array(20), None, X], [np.array(30, np.float32)]
    wanted = [rows[-1], np.stack(rows)]
    check("Loop", inputs, 2, wanted=wanted, known=[0], around=around, body=body(nodes, "w r", "v"))


@pytest.mark.parametrize("count", [2, 6])
def test_a_loop_in_a_loop_reads_the_outer_one_s_values(check, count):
    inner = helper.make_graph(
        [node("Identity", "on2", "go2"), node("Cast", "j", "f", to=FLOAT), node("Mul", "v f", "r")],
        "inner",
        [value("j", INT64), value("on2", BOOL)],
        [value("go2", BOOL), value("r")],
    )
    nodes = [
        GOES_ON,
        constant("seven", 7),
        constant("zero", [0]),
        helper.make_node("Loop", ["seven", ""], ["rows"], body=inner),
        node("ReduceSum", "rows zero", "s", keepdims=0),
        node("Add", "s x3", "w"),
    ]
    wanted = X
    for _ in range(count):
        wanted = wanted * np.float32(21) + X
    inputs = [np.array(count), None, X]
    check("Loop", inputs, wanted=[wanted], known=[0], around=[X], body=body(nodes, "w", "v"))


@pytest.mark.parametrize("trips", [9, 2**63 - 1, None])
@pytest.mark.parametrize("end", [3, 6])
def test_a_condition_of_counters_is_counted_ahead(check, read, trips, end):
    nodes = [
        constant("end", end),
        constant("one", 1),
        node("Add", "t one", "u"),
        node("Less", "u end", "early"),
        node("Less", "i end", "soon"),
        node("And", "early soon", "going"),
        node("Add", "v v", "w"),
    ]
    limit = None if trips is None else np.array(trips)
    inputs, graph = [limit, None, np.array(0), X], body(nodes, "u w w", "t v")
    rows = np.stack([X * 2 ** (k + 1) for k in range(end)])
    wanted = [np.array(end), rows[-1], rows]
    known = [2] if trips is None else [0, 2]
    check("Loop", inputs, 3, wanted=wanted, known=known, body=graph)
    found = read("Loop", inputs, outputs=3, known=known, body=graph)
    assert not any(any(s.dynamic) for s in found.module.entry.root.shape.elements)


def test_a_growing_state_is_written_out(check):
    graph = body([GOES_ON, node("Concat", "v x3", "w", axis=0)], "w", "v")
    wanted = [np.tile(X, 6)]
    check("Loop", [np.array(5), None, X], wanted=wanted, known=[0], around=[X], body=graph)


def test_an_iteration_s_number_may_give_a_shape_where_the_loop_is_written_out(check):
    nodes = [
        GOES_ON,
        constant("zero", [0]),
        node("Unsqueeze", "i zero", "n"),
        node("Slice", "x3 zero n", "part"),
        node("ReduceSum", "part", "s", keepdims=0),
        node("Add", "v s", "w"),
    ]
    inputs, wanted = [np.array(4), None, np.array(0, np.float32)], [np.float32(0.1 + 0.3 + 0.6)]
    check("Loop", inputs, wanted=wanted, known=[0], around=[X], body=body(nodes, "w", "v"))


@pytest.mark.parametrize("backwards", [0, 1])
def test_scan_along_other_axes_and_backwards(check, backwards):
    rows = np.arange(12, dtype=np.float32).reshape(3, 4)
    inputs = [value("s"), value("r")]
    nodes = [node("Add", "s r", "t"), node("Mul", "t x2", "o")]
    graph = helper.make_graph(nodes, "body", inputs, [value("t"), value("o")])
    order = rows[:, ::-1] if backwards else rows
    total = np.cumsum(order, 1)
    out = (total * 2)[:, ::-1] if backwards else total * 2
    check(
        "Scan",
        [np.zeros(3, np.float32), rows],
        2,
        wanted=[total[:, -1], out],
        around=[np.array(2, np.float32)],
        body=graph,
        num_scan_inputs=1,
        scan_input_axes=[1],
        scan_output_axes=[1],
        scan_input_directions=[backwards],
        scan_output_directions=[backwards],
    )


def test_a_loop_without_an_end_is_not_written_out(check):
    from nestwright.ir.errors import NestwrightError

    graph = body([node("Identity", "on", "going"), node("Concat", "v v", "w", axis=0)], "w", "v")
    with pytest.raises(NestwrightError):
        check("Loop", [None, np.array(True), X], wanted=[X], known=[1], body=graph)
    still = helper.make_graph(
        [node("SequenceInsert", "v x3", "w")],
        "body",
        [value("i", INT64), value("on", BOOL), value("v")],
        [value("on", BOOL), value("w")],
    )
    with pytest.raises(NestwrightError):
        check("Loop", [np.array(2**62), None, X], wanted=[X], known=[0], around=[X], body=still)
