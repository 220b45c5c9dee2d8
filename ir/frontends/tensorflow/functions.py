"""Functions of TensorFlow as imported models: TensorFlow lowers them to an HLO proto."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...arrays import Array
from ...dtypes import DType, from_numpy
from ...errors import ArgumentError, NestwrightError, UnsupportedError
from ...hlo.layouts import row_major
from ...hlo.nodes import TupleShape
from ..hlo_proto import reader as protos
from ..imported import Imported
from ..registry import Shapes
from .result_types import as_declared
from .trees import (
    described,
    flattening,
    input_names,
    leaves,
    nested,
    output_names,
    rebuilt,
)


def module(
    model: Any, example: Sequence[Any] | None = None, *, shapes: Shapes | None = None
) -> Imported:
    """Return what a ``tf.Module``, or an object of a loaded SavedModel, does when it is called."""
    import tensorflow as tf

    if not callable(model):
        raise UnsupportedError(
            f"an object of type {type(model).__name__}",
            "it cannot be called",
            hint="give one of its functions, or model.signatures['serving_default']",
        )
    own = model.__call__
    function = own if hasattr(own, "get_concrete_function") else tf.function(model)
    return traced(function, example, shapes=shapes)


def traced(
    function: Any, example: Sequence[Any] | None = None, *, shapes: Shapes | None = None
) -> Imported:
    """Return a ``tf.function`` as it is traced for example arguments, or by its input signature.

    Arguments may be trees, as ``tf.nest`` knows them; numbers have the types that TensorFlow gives
    them. ``ArgumentError`` for a function that has neither a signature nor an example.
    """
    if example is None:
        if function.input_signature is None:
            raise ArgumentError(
                "cannot build a tf.function",
                "no example arguments are given",
                hint="nw.lower(f, x), or f.get_concrete_function(...)",
            )
        return concrete(_compiled(function).get_concrete_function(), shapes=shapes)
    specs = described(example)
    found = concrete(_compiled(function).get_concrete_function(*specs), specs, shapes=shapes)
    return replace(found, flatten=flattening(specs)) if nested(specs) else found


def _compiled(function: Any) -> Any:
    """Return a function as if it were marked by ``jit_compile``.

    TensorFlow traces gradients of loops in another way for XLA, and lowers only those.
    """
    import tensorflow as tf

    known = hasattr(function, "_autograph") and hasattr(function, "python_function")
    if not known or getattr(function, "_jit_compile", None) or _is_restored(function):
        return function
    return tf.function(
        function.python_function,
        input_signature=function.input_signature,
        autograph=function._autograph,
        jit_compile=True,
    )


def _is_restored(function: Any) -> bool:
    """True for a function of a SavedModel, which holds graphs and no Python."""
    return hasattr(function, "concrete_functions")


def concrete(
    function: Any, example: Sequence[Any] | None = None, *, shapes: Shapes | None = None
) -> Imported:
    """Return a concrete function: its inputs, then the variables and constants that it captures.

    ``shapes``, or those of ``example``, settle the sizes that it leaves open. ``ArgumentError``
    where they stay open, ``UnsupportedError`` for a function that TensorFlow cannot lower and for
    one that changes variables.
    """
    from tensorflow.python.eager.polymorphic_function import compiler_ir

    name = function.name.decode() if isinstance(function.name, bytes) else function.name
    captured = list(function.captured_inputs)
    inputs = function.inputs[: len(function.inputs) - len(captured)]
    names = input_names(function, inputs)
    given: Shapes = shapes or {
        n: a.shape.as_list() for n, a in enumerate(leaves(described(example or ())))
    }
    specs = [
        _spec(t, own, given.get(own, given.get(n)))
        for n, (t, own) in enumerate(zip(inputs, names, strict=True))
    ]
    try:
        make = compiler_ir.from_concrete_function(function, specs)
        data = bytes(make(stage="hlo_serialized"))
    except NestwrightError:
        raise
    except Exception as e:  # whatever its lowering raises
        told = str(e).strip().split("\n")[0]
        raise UnsupportedError(f"TensorFlow cannot lower {name}", told) from e
    module = protos.parse(data, f"<{name}>")
    root = module.entry.root.shape
    results = len(root.elements) if isinstance(root, TupleShape) else 1
    if results != len(function.outputs):
        raise UnsupportedError(f"{name} changes variables", "its graph returns them")
    declared = [_declared(t.dtype) for t in function.outputs]
    weights = {len(inputs) + n: _value(function, c) for n, c in enumerate(captured)}
    structure = function.structured_outputs
    return Imported(
        module=row_major(as_declared(module, declared)),
        inputs=names,
        outputs=output_names(structure, results),
        weights=weights,
        rebuild=lambda flat: rebuilt(structure, flat),
    )


def _spec(tensor: Any, name: str, sizes: Sequence[int | None] | None) -> Any:
    import tensorflow as tf

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


def _declared(kind: Any) -> DType | None:
    """Return the type of a result; None for quantized ones, which NumPy does not have."""
    numeric = kind.is_bool or kind.is_integer or kind.is_floating or kind.is_complex
    return from_numpy(np.dtype(kind.as_numpy_dtype)) if numeric else None


def _value(function: Any, captured: Any) -> Array:
    """Return the array that a function captures: of a variable, or a constant."""
    if captured.dtype.name != "resource":
        return np.asarray(captured)
    for variable in function.graph.variables:
        if variable.handle is captured:
            return np.asarray(variable)
    raise UnsupportedError(f"{function.name} uses a resource that is no variable", captured.name)
