"""Operators on arrays whose sizes values decide: no padding counts, or the operator is refused."""

from __future__ import annotations

import numpy as np
import pytest

from nestwright.ir.errors import UnsupportedError

onnx = pytest.importorskip("onnx", reason="the onnx package reads ONNX models")
helper, FLOAT, INT64, BOOL = onnx.helper, 1, 7, 9

X = np.random.default_rng(3).standard_normal((6, 4)).astype(np.float32)


def result(nodes, chosen, kind=FLOAT, **constants):
    """Return what the last node makes of ``y``, the rows of X that are chosen, as the interpreter
    computes it."""
    from nestwright.ir.frontends.onnx.nodes.model import model_of_proto
    from nestwright.ir.frontends.onnx.reader import imported
    from nestwright.ir.hlo.interp.evaluate import evaluate

    given = {"x": (FLOAT, X.shape), "chosen": (BOOL, chosen.shape)}
    inputs = [helper.make_tensor_value_info(n, *v) for n, v in given.items()]
    outputs = [helper.make_tensor_value_info(nodes[-1].output[0], kind, None)]
    arrays = [onnx.numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()]
    first = helper.make_node("Compress", ["x", "chosen"], ["y"], axis=0)
    graph = helper.make_graph([first, *nodes], "sizes", inputs, outputs, initializer=arrays)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    found = imported(model_of_proto(model, "test"), {"x": X.shape, "chosen": chosen.shape})
    weights = [found.weights.get(n) for n in range(len(found.module.entry.parameters))]
    arguments = iter([X, chosen])
    return evaluate(found.module, [next(arguments) if w is None else w for w in weights])


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def normal(y, axes):
    apart = y - y.mean(axes, keepdims=True)
    return apart / np.sqrt((apart**2).mean(axes, keepdims=True) + 1e-5)


TWICE = np.array([2, 1], np.float32)
FIRST, LAST, ONE = np.array([0]), np.array([-1]), np.array([1])
CASES = {
    "mean": ([node("ReduceMean", "y a", "o", keepdims=0)], {"a": FIRST}, lambda y: y.mean(0)),
    "layer_norm": (
        [node("LayerNormalization", "y s", "o", axis=0)],
        {"s": np.float32(2)},
        lambda y: 2 * normal(y, (0, 1)),
    ),
    "global_pool": (
        [
            node("Unsqueeze", "y a", "u"),
            node("Transpose", "u", "t", perm=[0, 2, 1]),
            node("GlobalAveragePool", "t", "o"),
        ],
        {"a": FIRST},
        lambda y: y.mean(0)[None, :, None],
    ),
    "last": ([node("Gather", "y i", "o", axis=0)], {"i": LAST}, lambda y: y[-1:]),
    "last_of_each": (
        [node("GatherElements", "y i", "o", axis=0)],
        {"i": np.full((1, 4), -1)},
        lambda y: y[-1:],
    ),
    "slice_to_the_last": (
        [node("Slice", "y b e a", "o")],
        {"b": FIRST, "e": LAST, "a": FIRST},
        lambda y: y[:-1],
    ),
    "slice_from_the_last": (
        [node("Slice", "y b e a", "o")],
        {"b": np.array([-2]), "e": np.array([99]), "a": FIRST},
        lambda y: y[-2:],
    ),
    "hardmax": (
        [node("Hardmax", "y", "o", axis=0)],
        {},
        lambda y: (np.arange(len(y))[:, None] == y.argmax(0)).astype(np.float32),
    ),
    "resize": (
        [node("Resize", "y n s", "o")],
        {"n": np.zeros(0, np.float32), "s": TWICE[::-1]},
        lambda y: y.repeat(2, 1),
    ),
    "reshape": (
        [node("Reshape", "y r", "o")],
        {"r": np.array([-1, 2])},
        lambda y: y.reshape(-1, 2),
    ),
}


ROWS = [node("Shape", "y", "sizes"), node("Slice", "sizes a b a", "rows")]  # for a 0, b 1
COMPUTED = {
    "filled": (
        [node("Shape", "y", "sizes"), node("ConstantOfShape", "sizes", "o")],
        {},
        lambda y: np.zeros_like(y),
    ),
    "filled_flat": (
        [node("Size", "y", "n"), node("Unsqueeze", "n a", "u"), node("ConstantOfShape", "u", "o")],
        {"a": FIRST},
        lambda y: np.zeros(y.size, np.float32),
    ),
    "numbers": (
        [
            *ROWS,
            node("Squeeze", "rows a", "n"),
            node("Sub", "n one", "m"),
            node("Range", "zero m two", "r"),
            node("Cast", "r", "o", to=FLOAT),
        ],
        {"a": FIRST, "b": ONE, "zero": np.int64(0), "one": np.int64(1), "two": np.int64(2)},
        lambda y: np.arange(0, len(y) - 1, 2, dtype=np.float32),
    ),
    "expanded": (  # as torch writes it: where a size is -1, that of the array
        [
            node("Shape", "y", "sizes"),
            node("Equal", "sizes never", "q"),
            node("Where", "q ones sizes", "s"),
            node("Expand", "line s", "o"),
        ],
        {"never": np.array([-1, -1]), "ones": np.array([1, 1]), "line": X[:1]},
        lambda y: np.broadcast_to(X[:1], y.shape),
    ),
    "reshaped": (
        [*ROWS, node("Concat", "rows two two", "r", axis=0), node("Reshape", "y r", "o")],
        {"a": FIRST, "b": ONE, "two": np.array([2])},
        lambda y: y.reshape(-1, 2, 2),
    ),
    "reshaped_by_the_rest": (
        [*ROWS, node("Concat", "rows rest", "r", axis=0), node("Reshape", "y r", "o")],
        {"a": FIRST, "b": ONE, "rest": LAST},
        lambda y: y,
    ),
    "as_many_of_others": (
        [*ROWS, node("Slice", "x a rows a", "o")],
        {"a": FIRST, "b": ONE},
        lambda y: X[: len(y)],
    ),
    "after_as_many": (
        [*ROWS, node("Slice", "x rows end a", "o")],
        {"a": FIRST, "b": ONE, "end": np.array([99])},
        lambda y: X[len(y) :],
    ),
    "best": (
        [
            *ROWS,
            node("Min", "rows two", "k"),
            node("Slice", "y a b b", "z"),
            node("TopK", "z k", "o places", axis=0),
        ],
        {"a": FIRST, "b": ONE, "two": np.array([2])},
        lambda y: -np.sort(-y[:, :1], 0)[:2],
    ),
}


@pytest.mark.parametrize("count", [6, 3, 1])
@pytest.mark.parametrize("name", COMPUTED)
def test_shapes_are_made_of_sizes_that_values_decide(name, count):
    nodes, constants, of = COMPUTED[name]
    chosen = np.isin(np.arange(6), [4, 1, 2, 0, 5, 3][:count])
    found = result(nodes, chosen, **constants)
    np.testing.assert_allclose(found, of(X[chosen]), rtol=1e-6)


def test_a_size_that_no_bound_is_known_of_is_asked_for():
    from nestwright.ir.frontends.onnx.nodes.node import NeedsValueError

    nodes = [node("Cast", "y", "n", to=INT64), node("ReduceMax", "n", "m", keepdims=0)]
    nodes += [node("Unsqueeze", "m a", "u"), node("ConstantOfShape", "u", "o")]
    with pytest.raises(NeedsValueError, match="`x`"):
        result(nodes, np.ones(6, bool), a=FIRST)


@pytest.mark.parametrize("count", [6, 3, 1])
@pytest.mark.parametrize("name", CASES)
def test_padding_does_not_count(name, count):
    nodes, constants, of = CASES[name]
    chosen = np.isin(np.arange(6), [4, 1, 2, 0, 5, 3][:count])
    found = result(nodes, chosen, **constants)
    np.testing.assert_allclose(found, of(X[chosen]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("count", [4, 0])
def test_the_size_of_a_part_is_that_of_the_rows(count):
    chosen = np.arange(6) < count
    column = node("Slice", "y b e a", "z")
    places = {"b": FIRST, "e": ONE, "a": ONE}
    found = result([column, node("Shape", "z", "o")], chosen, INT64, **places)
    np.testing.assert_array_equal(found, [count, 1])
    row = node("Slice", "y b e a", "o")
    found = result([row], chosen, b=FIRST, e=ONE, a=FIRST)
    np.testing.assert_array_equal(found, X[:count][:1])
    assert len(result([node("Unique", "y", "o")], chosen)) == 4 * count


def test_what_works_along_such_a_size_is_refused():
    chosen = np.ones(6, bool)
    pads = np.array([1, 0, 0, 0])
    refused = [
        ([node("Pad", "y p", "o", mode="edge")], {"p": pads}),
        ([node("Split", "y", "o p", axis=0, num_outputs=2)], {}),
        ([node("EyeLike", "y", "o")], {}),
        ([node("Resize", "y n s", "o")], {"n": np.zeros(0, np.float32), "s": TWICE}),
    ]
    for nodes, constants in refused:
        with pytest.raises(UnsupportedError, match="depends on values"):
            result(nodes, chosen, **constants)
    assert result([node("Pad", "y p", "o")], chosen, p=pads).shape == (7, 4)


def branch(nodes, name):
    output = helper.make_tensor_value_info(name, FLOAT, None)
    return helper.make_graph(nodes, "branch", [], [output])


@pytest.mark.parametrize("count", [5, 1, 0])
def test_branches_may_differ_in_sizes_that_values_decide(count):
    """As where torch returns nothing if there are no boxes, else those that are left."""
    none = helper.make_node(
        "Constant", [], ["n"], value=onnx.numpy_helper.from_array(np.zeros((0, 4), np.float32))
    )
    yes, no = branch([none], "n"), branch([node("Exp", "y", "e")], "e")
    nodes = [
        node("Size", "y", "size"),
        node("Equal", "size zero", "empty"),
        helper.make_node("If", ["empty"], ["o"], then_branch=yes, else_branch=no),
    ]
    chosen = np.arange(6) < count
    found = result(nodes, chosen, zero=np.int64(0))
    np.testing.assert_allclose(found, np.exp(X[:count]), rtol=1e-5)
