"""ONNX's Backend interface: models are compiled for the shapes of the inputs that they are run on.

Where a shape depends on the value of an input (the new shape of ``Reshape`` may be one), a model
is compiled for that value; it is compiled again when the value changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper
from onnx.backend.base import Backend, BackendRep, namedtupledict
from onnx.defs import onnx_opset_version

from ...autotune.build import build
from ...codegen.runtime.executable import Executable
from ...ir.errors import ArgumentError, TargetError
from ...ir.frontends.imported import Imported
from ...ir.frontends.onnx.inputs import Binding
from ...ir.frontends.onnx.nodes.model import CheckedModel, model_of_proto
from ...ir.frontends.onnx.nodes.node import NeedsValueError
from ...ir.frontends.onnx.reader import imported
from ...ir.target import Target, with_arithmetic


@dataclass(frozen=True, slots=True)
class ForShapes:
    """A model compiled for some shapes; it takes the inputs that are not constants in it."""

    model: Imported
    run: Executable


class PreparedModel(BackendRep):  # type: ignore[misc]
    """A model that runs on inputs of any shapes it accepts; each new combination is compiled."""

    def __init__(self, model: CheckedModel, target: Target) -> None:
        self._model = model
        self._target = target
        self._settled: set[str] = set()
        self._compiled: dict[Any, ForShapes] = {}
        inputs = [i.name for i in model.graph.input]
        self.inputs = tuple(name for name in inputs if name not in model.weights)
        self.outputs = tuple(o.name for o in model.graph.output)

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Return the outputs for inputs in the model's order, or by name: one array each.

        A sequence is a list of arrays, an optional that is absent None.
        """
        given = self._by_name(inputs)
        compiled = self._for(given)
        flat = dict(pair for name, value in given.items() for pair in _flat(name, value))
        results = compiled.run(*(flat[name] for name in compiled.model.inputs))
        arrays = results if isinstance(results, tuple) else (results,)
        if compiled.model.rebuild is not None:
            made = compiled.model.rebuild(arrays)
            arrays = made if len(self.outputs) > 1 else (made,)
        kind = namedtupledict("Outputs", self.outputs)
        return tuple.__new__(kind, arrays)

    def _by_name(self, inputs: Any) -> dict[str, Any]:
        """Return the inputs by name, as arrays."""
        if isinstance(inputs, dict):
            return {name: _array(value) for name, value in inputs.items()}
        given = list(inputs) if isinstance(inputs, list | tuple) else [inputs]
        if len(given) > len(self.inputs):
            why = f"it takes {len(self.inputs)}: {', '.join(self.inputs)}"
            raise ArgumentError(f"{len(given)} inputs", why, self._model.source)
        return dict(zip(self.inputs, map(_array, given), strict=False))

    def _for(self, given: dict[str, Any]) -> ForShapes:
        """Return the model compiled for shapes of inputs, and for values that shapes depend on."""
        while True:
            settled = frozenset(self._settled)
            key = tuple((name, _key(v, name in settled)) for name, v in given.items())
            if key in self._compiled:
                return self._compiled[key]
            bindings = {name: _binding(v, name in settled) for name, v in given.items()}
            try:
                model = imported(self._model, bindings)
            except NeedsValueError as e:
                asked = set(e.inputs).intersection(given) - settled
                if not asked:
                    raise
                self._settled |= asked
                continue
            self._compiled[key] = ForShapes(
                model, build(model, target=self._target, excess_precision=False)
            )


class NestwrightBackend(Backend):  # type: ignore[misc]
    """ONNX's Backend: ``prepare``, ``run_model``, ``run_node``, ``supports_device``."""

    @classmethod
    def prepare(cls, model: ModelProto, device: str = "CPU", **kwargs: Any) -> PreparedModel:
        """Check a model, and return what runs it; errors are those of ``nw.build``.

        ``denormals=`` is an option of ``nw.build``.
        """
        target = with_arithmetic(_target(device), denormals=kwargs.get("denormals"))
        return PreparedModel(model_of_proto(model, f"<{model.graph.name}>"), target)

    @classmethod
    def run_node(
        cls,
        node: NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[Any, Any]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Run one operator on arrays; ``opset_version=`` says what it means, else the newest.

        Other options are those of ``prepare``.
        """
        given = [_array(x) for x in inputs]
        model = helper.make_model(
            helper.make_graph(
                [node],
                node.op_type,
                [
                    helper.make_tensor_value_info(name, _element(x), x.shape)
                    for name, x in zip(filter(None, node.input), given, strict=True)
                ],
                [
                    helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None)
                    for name in filter(None, node.output)
                ],
            ),
            opset_imports=[
                helper.make_opsetid("", kwargs.get("opset_version", onnx_opset_version()))
            ],
        )
        return cls.prepare(model, device, **kwargs).run(given)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """True for ``CPU``, and for ``CUDA`` where there is a GPU that is built for."""
        try:
            Target.parse(_target(device))
        except TargetError:
            return False
        return True


def _target(device: str) -> str:
    """Return the target of a device, such as ``CUDA:0``."""
    return device.partition(":")[0].lower()


def _element(array: Any) -> int:
    return int(helper.np_dtype_to_tensor_dtype(array.dtype))


def _array(value: Any) -> Any:
    """Return an input as an array, or as a list of them."""
    if value is None or isinstance(value, np.ndarray):
        return value
    return [_array(v) for v in value] if isinstance(value, list) else np.asarray(value)


def _key(value: Any, settled: bool) -> Any:
    """Return the part of an input that a compiled model depends on."""
    if isinstance(value, list):
        return tuple(_key(v, settled) for v in value)
    if value is None:
        return None
    return (value.dtype, value.shape, value.tobytes() if settled else b"")


def _binding(value: Any, settled: bool) -> Binding:
    if isinstance(value, list):
        return [_binding(v, settled) for v in value]
    return value if value is None or settled else tuple(value.shape)


def _flat(name: str, value: Any) -> list[tuple[str, Any]]:
    """Return the arrays of an input by the names of their parameters."""
    if isinstance(value, list):
        return [pair for n, v in enumerate(value) for pair in _flat(f"{name}.{n}", v)]
    return [] if value is None else [(name, value)]
