"""Results of the types that a function of TensorFlow declares, which its lowering may not have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...dtypes import DType
from ...hlo.layouts import HEADER
from ...hlo.nodes import AnyShape, HloModule, Instruction, Shape, TupleShape
from ...hlo.rewrite import assemble, make, with_entry


def as_declared(module: HloModule, declared: Sequence[DType | None]) -> HloModule:
    """Return a module whose results, one or a flat tuple, have these types; itself if they have.

    A result whose type is None keeps its own.
    TensorFlow's kernels for XLA give ``f32`` for gradients of resized images and for eigenvalues of
    complex matrices, where its graph promises the type of the argument.
    """
    root = module.entry.root
    if isinstance(root.shape, TupleShape):
        results = [_element(root, n) for n in range(len(root.shape.elements))]
    else:
        results = [root]
    shapes = [r.shape for r in results]
    if len(shapes) != len(declared) or all(
        _fits(s, d) for s, d in zip(shapes, declared, strict=True)
    ):
        return module
    turned = [_converted(r, d) for r, d in zip(results, declared, strict=True)]
    made = turned[0]
    if isinstance(root.shape, TupleShape):
        made = make("tuple", TupleShape(tuple(t.shape for t in turned)), turned)
    done = with_entry(module, assemble(module.entry.name, module.entry.parameters, made))
    return replace(done, attrs={k: v for k, v in done.attrs.items() if k != HEADER})


def _fits(shape: AnyShape, wanted: DType | None) -> bool:
    return wanted is None or not isinstance(shape, Shape) or shape.dtype == wanted


def _element(root: Instruction, number: int) -> Instruction:
    if root.opcode == "tuple":
        return root.operands[number]
    assert isinstance(root.shape, TupleShape)
    return make("get-tuple-element", root.shape.elements[number], (root,), index=number)


def _converted(result: Instruction, wanted: DType | None) -> Instruction:
    if wanted is None or not isinstance(result.shape, Shape) or result.shape.dtype == wanted:
        return result
    return make("convert", replace(result.shape, dtype=wanted), (result,))
