"""``pad_dynamic``: arrays of bounded size become arrays of their bound, plus live sizes as scalars.

Afterwards bounded dimensions (``<=``) exist in two places only. The entry's parameters have them:
``get-dimension-size`` reads a live size, and ``set-dimension-size`` to the bound, with a static
result, gives the padded array. The entry's results are made by ``set-dimension-size`` of a padded
array and a size. Everything in between is static; loops and branches carry sizes in their tuples.

The dimensions that vary follow from the values, as in the interpreter, not from the marks on
results in the text. Where live sizes must agree but differ, the smallest is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from ....dtypes import s32
from ....errors import UnsupportedError
from ....findings import Finding
from ...analysis.support import refusal
from ...nodes import AnyShape, Computation, HloModule, Instruction, Shape, TupleShape
from ...patterns import build
from ...patterns.match import is_local
from ...rewrite import assemble, make, parameter, reachable, with_attrs, with_entry, with_operands
from ...sources import Sources
from . import indexed, moves, reduce, reshape
from .values import Padded, Tree, scalar, static

MOST = (1 << 31) - 1  # elements of an array with live sizes, which are s32

RULES: Mapping[str, Callable[[Instruction, list[Padded]], Tree]] = {
    **dict.fromkeys(["copy", "map"], moves.elementwise),
    **moves.RULES,
    **reshape.RULES,
    **reduce.RULES,
    **indexed.RULES,
}
ALWAYS = frozenset({"get-dimension-size", "set-dimension-size", "dynamic-reshape"})


@dataclass(frozen=True, slots=True)
class Leaf:
    """The encoding of an array in control flow: the array, in a tuple with its ``sized`` sizes."""

    shape: AnyShape
    sized: frozenset[int] = frozenset()


Form: TypeAlias = Leaf | tuple["Form", ...]


def pad_dynamic(module: HloModule) -> HloModule:
    """``f32[<=8]`` inside the module  ->  ``f32[8]`` and an ``s32[]``.

    ``UnsupportedError`` lists the instructions that cannot be padded.
    """
    if not any(map(_is_dynamic, reachable(module.entry))):
        return module
    tracer = _Tracer(Sources(module))
    entry = module.entry
    arguments = [_argument(p) for p in entry.parameters]
    root = _result(tracer.trace(entry, arguments))
    if tracer.findings:
        raise refusal(tracer.findings, module.name)
    return with_entry(module, assemble(entry.name, entry.parameters, root))


def _is_dynamic(c: Computation) -> bool:
    return any(i.opcode in ALWAYS or _has_marks(i.shape) for i in c.instructions)


def _has_marks(shape: AnyShape) -> bool:
    if isinstance(shape, TupleShape):
        return any(map(_has_marks, shape.elements))
    return isinstance(shape, Shape) and any(shape.dynamic)


def _argument(p: Instruction) -> Tree:
    """Pad the arrays of an entry parameter and read their live sizes."""
    if isinstance(p.shape, TupleShape):
        parts = enumerate(p.shape.elements)
        return tuple(
            _argument(make("get-tuple-element", e, (p,), name=p.name, index=n)) for n, e in parts
        )
    if not _has_marks(p.shape):
        return Padded(p)
    sizes = {
        d: make("get-dimension-size", Shape(s32), (p,), dimensions=(d,))
        for d, marked in enumerate(p.array.marks)
        if marked
    }
    value = p
    for d in sizes:
        value = _resized(value, d, build.scalar(p.array.dims[d], s32), False)
    return Padded(value, sizes)


def _resized(x: Instruction, d: int, size: Instruction, bounded: bool) -> Instruction:
    dynamic = tuple(bounded if k == d else m for k, m in enumerate(x.array.marks))
    shape = replace(x.array, dynamic=dynamic if any(dynamic) else ())
    return make("set-dimension-size", shape, (x, size), name=x.name, dimensions=(d,))


def _result(tree: Tree) -> Instruction:
    """Return the entry's root: every array at its live sizes."""
    if isinstance(tree, tuple):
        parts = [_result(t) for t in tree]
        return build.tuple_of(parts)
    value = tree.value
    for d, size in sorted(tree.sizes.items()):
        value = _resized(value, d, size, True)
    return value


def form_of(tree: Tree) -> Form:
    """Return the encoding of a value."""
    if isinstance(tree, tuple):
        return tuple(map(form_of, tree))
    return Leaf(tree.value.shape, frozenset(tree.sizes))


def join(a: Form, b: Form) -> Form:
    """Return the encoding that has the sizes of both."""
    if isinstance(a, tuple):
        assert isinstance(b, tuple)
        return tuple(map(join, a, b))
    assert isinstance(b, Leaf)
    return a if b.sized <= a.sized else Leaf(a.shape, a.sized | b.sized)


def shape_of(form: Form) -> AnyShape:
    """Return the shape of a value in this encoding."""
    if isinstance(form, tuple):
        return TupleShape(tuple(map(shape_of, form)))
    if not form.sized:
        return form.shape
    return TupleShape((form.shape, *[Shape(s32)] * len(form.sized)))


def encode(tree: Tree, form: Form) -> Instruction:
    """Encode a value as one instruction."""
    if isinstance(tree, tuple):
        assert isinstance(form, tuple)
        parts = [encode(t, f) for t, f in zip(tree, form, strict=True)]
        return build.tuple_of(parts)
    assert isinstance(form, Leaf)
    if not form.sized:
        return tree.value
    sizes = [scalar(tree.size(d)) for d in sorted(form.sized)]
    return make("tuple", shape_of(form), (tree.value, *sizes))


def decode(value: Instruction, form: Form) -> Tree:
    """Decode an instruction into the value that it encodes."""

    def element(n: int) -> Instruction:
        assert isinstance(value.shape, TupleShape)
        shape = value.shape.elements[n]
        return make("get-tuple-element", shape, (value,), name=value.name, index=n)

    if isinstance(form, tuple):
        return tuple(decode(element(n), f) for n, f in enumerate(form))
    if not form.sized:
        return Padded(value)
    sizes = {d: element(1 + n) for n, d in enumerate(sorted(form.sized))}
    return Padded(element(0), sizes)


def _plain_form(shape: AnyShape) -> Form:
    if isinstance(shape, TupleShape):
        return tuple(map(_plain_form, shape.elements))
    return Leaf(static(shape))


@dataclass
class _Tracer:
    """Rewrites computations by running them on padded values in place of their parameters."""

    sources: Sources
    findings: list[Finding] = field(default_factory=list)
    dynamic: dict[Computation, bool] = field(default_factory=dict)
    traced: dict[tuple[Computation, Form], tuple[Instruction, Tree]] = field(default_factory=dict)

    def trace(self, c: Computation, arguments: Sequence[Tree]) -> Tree:
        """Return the result of a computation on these arguments; failures become findings."""
        values: dict[Instruction, Tree] = dict(zip(c.parameters, arguments, strict=True))
        for i in c.instructions:
            if i not in values:
                operands = [values[o] for o in i.operands]
                try:
                    values[i] = self.instruction(i, operands)
                except UnsupportedError as error:
                    self.note(i, c, error)
                    values[i] = self.plain(i, operands)
        return values[c.root]

    def note(self, i: Instruction, c: Computation, error: UnsupportedError) -> None:
        """Add an instruction that cannot be padded to the findings, once."""
        found = Finding(i.opcode, i.name, c.name, error.why, error.hint, self.sources.of(i))
        if found not in self.findings:
            self.findings.append(found)

    def instruction(self, i: Instruction, operands: list[Tree]) -> Tree:
        """Return the result of one instruction; ``UnsupportedError`` if there is no rule for it."""
        match i.opcode:
            case "tuple":
                return tuple(operands)
            case "get-tuple-element":
                (x,) = operands
                assert isinstance(x, tuple)
                return x[int(i.attrs["index"])]
            case "while":
                return self.loop(i, operands[0])
            case "conditional":
                return self.branch(i, operands)
            case "call" | "fusion":
                callee: Computation = i.attrs["calls" if "calls" in i.attrs else "to_apply"]
                return self.trace(callee, operands)
            case _:
                pass
        arrays = [o for o in operands if isinstance(o, Padded)]
        if i.opcode not in ALWAYS and not any(map(_is_sized, operands)):
            return self.plain(i, operands)
        rule = RULES.get(i.opcode, moves.elementwise if is_local(i) else None)
        if rule is None or len(arrays) < len(operands):
            what = f"cannot compile {i.opcode} `{i.name}`"
            raise UnsupportedError(what, "it is not supported for bounded sizes")
        if any(a.value.array.size > MOST for a in arrays):
            what = f"cannot compile {i.opcode} `{i.name}`"
            raise UnsupportedError(what, f"an array of bounded size has more than {MOST} elements")
        return rule(i, arrays)

    def plain(self, i: Instruction, operands: Sequence[Tree]) -> Tree:
        """Return the result of an instruction on arrays without live sizes."""
        given = tuple(
            encode(o, _plain_form(p.shape)) for o, p in zip(operands, i.operands, strict=True)
        )
        same = with_operands(i, given)
        shape = static(i.shape)
        value = same if shape is i.shape else replace(same, shape=shape)
        return decode(value, _plain_form(shape))

    def is_dynamic(self, c: Computation) -> bool:
        """True if bounded sizes occur in a computation or in one that it calls."""
        if c not in self.dynamic:
            self.dynamic[c] = any(map(_is_dynamic, reachable(c)))
        return self.dynamic[c]

    def callee(self, c: Computation, form: Form) -> tuple[Instruction, Tree]:
        """Trace a computation of one argument in this encoding; return parameter and result."""
        if (c, form) not in self.traced:
            p = parameter(0, shape_of(form), c.parameters[0].name)
            self.traced[c, form] = p, self.trace(c, [decode(p, form)])
        return self.traced[c, form]

    def loop(self, i: Instruction, start: Tree) -> Tree:
        """Rewrite a loop; its state carries the sizes that the start or any iteration gives it."""
        condition, body = i.attrs["condition"], i.attrs["body"]
        form = form_of(start)
        if form == _plain_form(i.shape) and not self.is_dynamic(body) | self.is_dynamic(condition):
            return self.plain(i, [start])
        while True:
            p, after = self.callee(body, form)
            if (wider := join(form, form_of(after))) == form:
                break
            form = wider
        new_body = assemble(body.name, (p,), encode(after, form))
        q, test = self.callee(condition, form)
        assert isinstance(test, Padded)
        new = replace(i, operands=(encode(start, form),), shape=shape_of(form))
        new_condition = assemble(condition.name, (q,), test.value)
        return decode(with_attrs(new, condition=new_condition, body=new_body), form)

    def branch(self, i: Instruction, operands: Sequence[Tree]) -> Tree:
        """Rewrite a conditional; all branches return the sizes that any of them returns."""
        index, *arguments = operands
        assert isinstance(index, Padded)
        named = ("true_computation", "false_computation")
        listed = "branch_computations" in i.attrs
        branches = i.attrs["branch_computations"] if listed else [i.attrs[n] for n in named]
        if not any(map(_is_sized, arguments)) and not any(map(self.is_dynamic, branches)):
            return self.plain(i, operands)
        forms = [form_of(a) for a in arguments]
        done = [self.callee(b, f) for b, f in zip(branches, forms, strict=True)]
        form = form_of(done[0][1])
        for _, result in done[1:]:
            form = join(form, form_of(result))
        new = tuple(
            assemble(b.name, (p,), encode(result, form))
            for b, (p, result) in zip(branches, done, strict=True)
        )
        attrs = {"branch_computations": new} if listed else dict(zip(named, new, strict=True))
        given = (encode(a, f) for a, f in zip(arguments, forms, strict=True))
        value = replace(i, operands=(index.value, *given), shape=shape_of(form))
        return decode(with_attrs(value, **attrs), form)


def _is_sized(tree: Tree) -> bool:
    """True if any array has a live size."""
    return any(map(_is_sized, tree)) if isinstance(tree, tuple) else bool(tree.sizes)
