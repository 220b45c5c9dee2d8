"""Functions of TensorFlow as imported models: TensorFlow lowers them to an HLO proto."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import ArgumentError, NestwrightError, UnsupportedError
from ...hlo.nodes import TupleShape
from ..hlo_proto import reader as protos
from ..imported import Array, Imported
from ..registry import Shapes


def traced(
    function: Any, example: Sequence[Any] | None = None, *, shapes: Shapes | None = None
) -> Imported:
    """Return a ``tf.function`` as it is traced for example arguments."""
    if example is None:
        raise ArgumentError(
            "cannot build a tf.function",
            "no example arguments are given",
            hint="nw.lower(f, x), or f.get_concrete_function(...)",
        )
    import tensorflow as tf

    specs = [tf.TensorSpec(a.shape, a.dtype) for a in map(np.asarray, example)]
    return concrete(function.get_concrete_function(*specs), shapes=shapes)


def concrete(
    function: Any, example: Sequence[Any] | None = None, *, shapes: Shapes | None = None
) -> Imported:
    """Return a concrete function: its inputs, then the variables and constants that it captures.

    ``shapes``, or those of ``example``, settle the sizes that it leaves open. ``ArgumentError``
    where they stay open, ``UnsupportedError`` for a function that TensorFlow cannot lower and for
    one that changes variables.
    """
    from tensorflow.python.eager.polymorphic_function import compiler_ir

    captured = list(function.captured_inputs)
    inputs = function.inputs[: len(function.inputs) - len(captured)]
    names = tuple(t.name.split(":")[0] for t in inputs)
    given: Shapes = shapes or {n: np.shape(a) for n, a in enumerate(example or ())}
    specs = [
        _spec(t, given.get(name, given.get(n)))
        for n, (t, name) in enumerate(zip(inputs, names, strict=True))
    ]
    try:
        make = compiler_ir.from_concrete_function(function, specs)
        data = bytes(make(stage="hlo_serialized"))
    except NestwrightError:
        raise
    except Exception as e:  # whatever its lowering raises
        told = str(e).strip().split("\n")[0]
        raise UnsupportedError(f"TensorFlow cannot lower {function.name}", told) from e
    module = protos.parse(data, f"<{function.name}>")
    root = module.entry.root.shape
    results = len(root.elements) if isinstance(root, TupleShape) else 1
    if results != len(function.outputs):
        raise UnsupportedError(f"{function.name} changes variables", "its graph returns them")
    weights = {len(inputs) + n: _value(function, c) for n, c in enumerate(captured)}
    structure = function.structured_outputs
    outputs = tuple(sorted(structure)) if isinstance(structure, dict) else ()

    def rebuild(flat: tuple[Array, ...]) -> Any:
        import tensorflow as tf

        return tf.nest.pack_sequence_as(structure, list(flat))

    return Imported(module=module, inputs=names, outputs=outputs, weights=weights, rebuild=rebuild)


def _spec(tensor: Any, sizes: Sequence[int | None] | None) -> Any:
    import tensorflow as tf

    name = tensor.name.split(":")[0]
    declared = tensor.shape.as_list() if tensor.shape.rank is not None else None
    wanted = declared if sizes is None else list(sizes)
    if wanted is None or (declared is not None and len(wanted) != len(declared)):
        raise ArgumentError(
            f"input {name!r}", f"it is declared as {tensor.shape}, {wanted} is given"
        )
    known = [w if w is not None or declared is None else declared[n] for n, w in enumerate(wanted)]
    if None in known:
        raise ArgumentError(
            f"the sizes of input {name!r} are left open",
            f"it is declared as {tensor.shape}",
            hint=f"shapes={{{name!r}: (1, 224)}}, --shape {name}=1x224, or example arguments",
        )
    if not tensor.shape.is_compatible_with(known):
        raise ArgumentError(f"input {name!r}", f"it is declared as {tensor.shape}, not {known}")
    return tf.TensorSpec(known, tensor.dtype, name=name)


def _value(function: Any, captured: Any) -> Array:
    """Return the array that a function captures: of a variable, or a constant."""
    if captured.dtype.name != "resource":
        return np.asarray(captured)
    for variable in function.graph.variables:
        if variable.handle is captured:
            return np.asarray(variable)
    raise UnsupportedError(f"{function.name} uses a resource that is no variable", captured.name)
