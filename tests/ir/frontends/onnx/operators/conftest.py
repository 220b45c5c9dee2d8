"""One operator at a time: what the interpreter makes of it, beside ONNX's reference or NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from nestwright.ir.arrays import Array


@pytest.fixture(autouse=True)
def same_numbers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test the numbers that it has alone, whatever ran before it in its worker."""
    if hasattr(request.module, "RNG"):
        monkeypatch.setattr(request.module, "RNG", np.random.default_rng(3))


@dataclass(frozen=True)
class OneNode:
    """A model of one node: its inputs are ``x0``, ``x1``, .. as far as they are given; arrays
    around it, which only graphs inside the node read, are numbered on."""

    model: Any
    given: dict[str, Array]

    def read(self, known: Sequence[int]) -> Any:
        """Return what the reader makes of it; inputs of these numbers are constants."""
        from nestwright.ir.frontends.onnx.nodes.model import model_of_proto
        from nestwright.ir.frontends.onnx.reader import imported

        names = {f"x{n}" for n in known}
        bindings = {n: x if n in names else x.shape for n, x in self.given.items()}
        return imported(model_of_proto(self.model, "test"), bindings)

    def computed(self, known: Sequence[int]) -> tuple[Array, ...]:
        """Return what the interpreter computes."""
        from nestwright.ir.hlo.interp.evaluate import evaluate

        found = self.read(known)
        arguments = iter([self.given[name] for name in found.inputs])
        count = len(found.module.entry.parameters)
        operands = [
            found.weights[n] if n in found.weights else next(arguments) for n in range(count)
        ]
        results = evaluate(found.module, operands)
        return results if isinstance(results, tuple) else (results,)

    def expected(self) -> tuple[Array, ...]:
        """Return what ONNX's reference implementation computes."""
        from onnx.reference import ReferenceEvaluator

        return tuple(ReferenceEvaluator(self.model).run(None, self.given))


def one_node(
    op: str,
    inputs: Sequence[Array | None],
    outputs: int,
    around: Sequence[Array],
    domain: tuple[str, int],
    **attributes: Any,
) -> OneNode:
    """Make a model of one node, in the newest operator set; skipped without the onnx package."""
    onnx = pytest.importorskip("onnx", reason="the onnx package reads ONNX models")
    helper = onnx.helper
    given = {f"x{n}": x for n, x in enumerate([*inputs, *around]) if x is not None}
    names = ["" if x is None else f"x{n}" for n, x in enumerate(inputs)]
    made = [f"y{n}" for n in range(outputs)]
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for n, x in given.items()
    ]
    node = helper.make_node(op, names, made, domain=domain[0], **attributes)
    results = [helper.make_tensor_value_info(n, 0, None) for n in made]
    opsets = {domain[0]: domain[1], "": onnx.defs.onnx_opset_version()}
    model = helper.make_model(
        helper.make_graph([node], "test", infos, results),
        opset_imports=[helper.make_opsetid(*o) for o in opsets.items()],
        ir_version=10,
    )
    return OneNode(model, given)


@pytest.fixture(scope="session")
def read() -> Callable[..., Any]:
    """Return what the reader makes of a node."""

    def done(op: str, inputs: Sequence[Array | None], **more: Any) -> Any:
        around, domain = more.pop("around", ()), (more.pop("domain_", ""), 1)
        outputs, known = more.pop("outputs", 1), more.pop("known", ())
        return one_node(op, inputs, outputs, around, domain, **more).read(known)

    return done


@pytest.fixture(scope="session")
def check() -> Callable[..., tuple[Array, ...]]:
    """Compute a node by the interpreter and compare the results with ONNX's reference.

    Inputs of numbers in ``known`` are constants of the model, ``wanted`` replaces the reference;
    ``domain_`` and ``version_`` are the operator's, ``rtol_`` and ``atol_`` are tolerances.
    """

    def checked(
        op: str,
        inputs: Sequence[Array | None],
        outputs: int = 1,
        known: Sequence[int] = (),
        wanted: Sequence[Array] | None = None,
        around: Sequence[Array] = (),
        domain_: str = "",
        version_: int = 1,
        rtol_: float = 1e-5,
        atol_: float = 1e-6,
        **attributes: Any,
    ) -> tuple[Array, ...]:
        model = one_node(op, inputs, outputs, around, (domain_, version_), **attributes)
        found = model.computed(known)
        right = model.expected() if wanted is None else wanted
        assert len(found) == len(right)
        for a, b in zip(found, right, strict=True):
            assert a.dtype == b.dtype and a.shape == b.shape
            x, y = a.astype(np.float64), np.asarray(b).astype(np.float64)
            np.testing.assert_allclose(x, y, rtol=rtol_, atol=atol_)
        return found

    return checked
