"""One operator at a time: what the interpreter makes of it, beside ONNX's reference or NumPy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import pytest

Array = np.ndarray[Any, Any]


class Check(Protocol):
    """Computes a node and compares it; see ``check``."""

    def __call__(
        self,
        op: str,
        inputs: Sequence[Array | None],
        outputs: int = 1,
        known: Sequence[int] = (),
        wanted: Sequence[Array] | None = None,
        **attributes: Any,
    ) -> tuple[Array, ...]: ...


@pytest.fixture(scope="session")
def check() -> Check:
    """Compute a node by the interpreter and compare the results with ONNX's reference.

    Inputs of numbers in ``known`` are constants of the model, ``wanted`` replaces the reference;
    ``domain_`` and ``version_`` are the operator's, ``rtol_`` and ``atol_`` tolerances.
    """
    onnx = pytest.importorskip("onnx", reason="the onnx package reads ONNX models")
    from onnx.reference import ReferenceEvaluator

    from nestwright.ir.frontends.onnx.nodes.model import model_of_proto
    from nestwright.ir.frontends.onnx.reader import imported
    from nestwright.ir.hlo.interp.evaluate import evaluate

    def run(model: Any, given: Mapping[str, Array], known: Sequence[str]) -> tuple[Array, ...]:
        bindings = {n: x if n in known else x.shape for n, x in given.items()}
        found = imported(model_of_proto(model, "test"), bindings)
        arguments = iter([given[name] for name in found.inputs])
        count = len(found.module.entry.parameters)
        results = evaluate(
            found.module,
            [found.weights[n] if n in found.weights else next(arguments) for n in range(count)],
        )
        return results if isinstance(results, tuple) else (results,)

    def checked(
        op: str,
        inputs: Sequence[Array | None],
        outputs: int = 1,
        known: Sequence[int] = (),
        wanted: Sequence[Array] | None = None,
        domain_: str = "",
        version_: int | None = None,
        rtol_: float = 1e-5,
        atol_: float = 1e-6,
        **attributes: Any,
    ) -> tuple[Array, ...]:
        helper = onnx.helper
        names = ["" if x is None else f"x{n}" for n, x in enumerate(inputs)]
        given = {f"x{n}": x for n, x in enumerate(inputs) if x is not None}
        made = [f"y{n}" for n in range(outputs)]
        node = helper.make_node(op, names, made, domain=domain_, **attributes)
        infos = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
            for n, x in given.items()
        ]
        graph = helper.make_graph(
            [node], "test", infos, [helper.make_tensor_value_info(n, 1, None) for n in made]
        )
        newest = onnx.defs.onnx_opset_version() if not domain_ else 1
        opsets = {"": onnx.defs.onnx_opset_version(), domain_: version_ or newest}
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid(*o) for o in opsets.items()], ir_version=10
        )
        found = run(model, given, [f"x{n}" for n in known])
        right = ReferenceEvaluator(model).run(None, given) if wanted is None else wanted
        assert len(found) == len(right)
        for a, b in zip(found, right, strict=True):
            assert a.dtype == b.dtype and a.shape == b.shape
            x, y = a.astype(np.float64), np.asarray(b).astype(np.float64)
            np.testing.assert_allclose(x, y, rtol=rtol_, atol=atol_)
        return found

    return checked
