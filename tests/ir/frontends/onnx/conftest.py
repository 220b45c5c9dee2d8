"""ONNX models in a line each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import pytest


class Make(Protocol):
    """Makes a model; see ``make``."""

    def __call__(
        self,
        nodes: Sequence[Any],
        inputs: dict[str, tuple[Any, Sequence[Any]]],
        outputs: Sequence[str],
        weights: dict[str, Any] | None = None,
        opset: int = 21,
        functions: Sequence[Any] = (),
    ) -> Any: ...


@pytest.fixture(scope="session")
def onnx() -> Any:
    """The package."""
    return pytest.importorskip("onnx", reason="the onnx package reads ONNX models")


@pytest.fixture(scope="session")
def make(onnx: Any) -> Make:
    """A ModelProto of nodes ``(op, inputs, outputs, attributes)``, names apart by spaces.

    ``inputs`` gives types and sizes, ``weights`` arrays.
    """
    helper = onnx.helper

    def made(
        nodes: Sequence[Any],
        inputs: dict[str, tuple[Any, Sequence[Any]]],
        outputs: Sequence[str],
        weights: dict[str, Any] | None = None,
        opset: int = 21,
        functions: Sequence[Any] = (),
    ) -> Any:
        protos = [
            helper.make_node(op, taken.split(), given.split(), name=f"{op}_{n}", **attributes)
            for n, (op, taken, given, attributes) in enumerate(nodes)
        ]
        number = helper.np_dtype_to_tensor_dtype
        graph = helper.make_graph(
            protos,
            "made",
            [
                helper.make_tensor_value_info(name, number(np.dtype(dtype)), sizes)
                for name, (dtype, sizes) in inputs.items()
            ],
            [helper.make_tensor_value_info(name, 0, None) for name in outputs],
            [onnx.numpy_helper.from_array(w, name) for name, w in (weights or {}).items()],
        )
        opsets = {"": opset, **{f.domain: 1 for f in functions}}
        return helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid(*o) for o in opsets.items()],
            ir_version=10,
            functions=list(functions),
        )

    return made
