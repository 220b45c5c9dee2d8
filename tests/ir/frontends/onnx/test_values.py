"""Values of inputs that shapes and branches depend on, given as constants."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import nestwright as nw
from nestwright.cli.main import main
from nestwright.ir.errors import ArgumentError, UnsupportedError

X = np.arange(12, dtype=np.float32)


@pytest.fixture
def reshaping(make):
    """``y = reshape(x, sizes)``: the result's shape is the value of an input."""
    node = ("Reshape", "x sizes", "y", {})
    return make([node], {"x": (np.float32, [12]), "sizes": (np.int64, [2])}, ["y"])


@pytest.mark.parametrize("which", ["sizes", 1, "1"])
def test_a_shape_may_be_a_constant(reshaping, which) -> None:
    for sizes in (np.array([3, 4]), np.array([-1, 6])):
        exe = nw.build(reshaping, constants={which: sizes})
        assert exe.input_names == ("x",)
        np.testing.assert_array_equal(exe(x=X), X.reshape(sizes))


def test_values_that_no_shape_needs_are_plain_constants(make) -> None:
    model = make(
        [("Add", "x b", "y", {})], {"x": (np.float32, [12]), "b": (np.float32, [12])}, ["y"]
    )
    np.testing.assert_array_equal(nw.build(model, constants={"b": X})(X), X + X)


def test_what_a_shape_needs_is_asked_for(reshaping) -> None:
    with pytest.raises(UnsupportedError, match=r"depends on `sizes`(.|\n)*constants="):
        nw.build(reshaping)
    with pytest.raises(
        ArgumentError, match=r"`sizes`: cannot be int64\[3\]: the model has s64\[2\]"
    ):
        nw.build(reshaping, constants={"sizes": np.array([1, 2, 6])})
    with pytest.raises(ArgumentError, match="cannot be float64"):
        nw.build(reshaping, constants={"sizes": np.array([3.0, 4.0])})


def test_on_the_command_line(onnx, reshaping, tmp_path: Path) -> None:
    model, values, inputs = (tmp_path / n for n in ("m.onnx", "values.npz", "inputs.npz"))
    onnx.save(reshaping, model)
    np.savez(values, sizes=np.array([2, 6]))
    np.savez(inputs, x=X)
    out = tmp_path / "out.npz"
    run = ["run", str(model), "--constants", str(values), "--inputs", str(inputs)]
    assert main([*run, "--outputs", str(out), "--check"]) == 0
    with np.load(out) as found:
        np.testing.assert_array_equal(found[found.files[0]], X.reshape(2, 6))
