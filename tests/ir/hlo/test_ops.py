"""One row per opcode: no other file names one, and a new operation takes its recipe's places."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nestwright.codegen.driver.build import build
from nestwright.ir.dtypes import f32
from nestwright.ir.errors import VerifyError
from nestwright.ir.hlo.analysis.verify import check_instruction, verify
from nestwright.ir.hlo.fuse.fusion import fuse
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.meaning.values import CallEvaluator, Value
from nestwright.ir.hlo.nodes import Instruction, Shape
from nestwright.ir.hlo.ops.definition import ComplexPolicy, NarrowPolicy, OpDef, Pattern, one
from nestwright.ir.hlo.ops.registry import OPS
from nestwright.ir.hlo.passes.complex.split import RULES as COMPLEX
from nestwright.ir.hlo.signatures import Attrs, Shapes, array, attr, plain
from nestwright.ir.hlo.text import parse, show
from nestwright.ir.loop.build import minimum, sub
from nestwright.ir.loop.nodes import Expr
from nestwright.te.from_hlo.emitter import ElementEmitter, Index
from nestwright.te.from_hlo.group import RULES

ROOT = Path(__file__).parents[3]
LAYERS = ("ir", "te", "schedule", "codegen", "autotune", "cli", "interop")

NAMES_OPCODES = {
    "ir/hlo/ops/": "the definitions",
    "ir/hlo/meaning/": "meanings in NumPy that definitions refer to",
    "ir/hlo/interp/expanded.py": "operations whose meaning is their expansion",
    "ir/hlo/bounds/": "error bounds, a rule beside each meaning",
    "ir/hlo/passes/": "rewrite patterns",
    "ir/hlo/patterns/": "what rewrite patterns match and build",
    "ir/hlo/fuse/attention.py": "the pattern of attention",
    "ir/hlo/fuse/excess_precision.py": "rewrites groups around conversions",
    "ir/hlo/fuse/masks.py": "rewrites the masks of groups",
    "ir/hlo/fuse/softmax.py": "the pattern of a softmax",
    "ir/hlo/analysis/asynchronous.py": "rewrites halves of an operation to the whole",
    "ir/frontends/": "tables of other languages' names",
    "te/from_hlo/": "lowering to loops",
    "codegen/plan/sequence.py": "lowering to thunks of what stands outside every group",
    "codegen/plan/trips.py": "the pattern of a loop that counts",
}
"""Where an opcode may decide what is done, by the beginning of the path, and why."""

STRUCTURE = frozenset(name for name, op in OPS.items() if op.structure)
"""The graph's grammar, which whoever walks a graph may name."""


WORDS = frozenset(OPS) - STRUCTURE
GRAPH = ("Instruction", "Computation", "make")
QUOTED = re.compile(rf"""["'}}](?:{"|".join(WORDS)})\b""")
"""The beginning of each text that names an opcode: most files need not be parsed."""


def speaks_hlo(tree: ast.Module, path: str) -> bool:
    """True if a file works with HLO instructions; loop IR and LLVM have words of their own."""
    imports = [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
    names = {a.name for n in imports for a in n.names}
    home = path.startswith("ir/hlo/") or any("hlo" in (n.module or "") for n in imports)
    return home and not names.isdisjoint(GRAPH)


def named(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The line and text of every string that is an opcode, where it is not another word.

    Not counted: documentation, the graph's grammar, an instruction that is built (the first
    argument of a call), attributes (subscripts), and kinds of element types.
    """
    other: set[int] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=value):
                other.add(id(value))
            case ast.Call(args=[value, *_]):
                other.add(id(value))
            case ast.Subscript(slice=value):
                other.add(id(value))
            case ast.Compare(left=ast.Attribute(attr="kind"), comparators=values):
                other.update(map(id, values))
            case ast.Match(subject=ast.Attribute(attr="kind"), cases=cases):
                other.update(id(n) for case in cases for n in ast.walk(case.pattern))
            case _:
                pass
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        words = node.value.split()
        bare = node.value == node.value.strip()
        if bare and words and id(node) not in other and WORDS.issuperset(words):
            yield node.lineno, node.value


HOMONYMS = {
    ("codegen/plan/facts.py", "log"): "a schedule that a log has",
    ("codegen/plan/sharing.py", "copy"): "a note of a block",
    ("ir/hlo/attributes.py", "pad"): "a field of a window",
    ("ir/hlo/attributes.py", "slice"): "an attribute",
    ("ir/hlo/fuse/views.py", "slice"): "an attribute",
    ("ir/hlo/text/parser.py", "slice"): "an attribute",
}
"""Words that are opcodes elsewhere."""


def test_no_other_file_names_an_opcode() -> None:
    found = []
    for path in (p for layer in LAYERS for p in sorted((ROOT / layer).rglob("*.py"))):
        name, text = path.relative_to(ROOT).as_posix(), path.read_text()
        if name.startswith(tuple(NAMES_OPCODES)) or not any(map(text.count, GRAPH)):
            continue
        if not QUOTED.search(text):
            continue
        tree = ast.parse(text)
        if not speaks_hlo(tree, name):
            continue
        found += [
            f"{name}:{line}: `{word}`: ask its definition in ir/hlo/ops"
            for line, word in named(tree)
            if (name, word) not in HOMONYMS
        ]
    assert not found, "\n".join(found)


TRIPLE = '''
import numpy as np
from nestwright.ir import elementwise

row = elementwise.ElementwiseOp("triple", 1, "f", lambda a: a * 3, flops=2.0)
elementwise.TABLE[row.name] = row  # the row

from nestwright.codegen.emit import ops as emitters

emitters.FLOAT = {  # the emitter
    **emitters.FLOAT, row.name: lambda b, x: b.binary("fadd", b.binary("fadd", x, x), x)
}

from nestwright.codegen.driver.build import build
from nestwright.ir.hlo.fuse.fusion import fuse
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.ops.registry import work
from nestwright.ir.hlo.text import parse, show

text = """HloModule m
ENTRY e {
  x = f32[5,7] parameter(0)
  t = triple(x)
  ROOT r = f32[5,7] subtract(t, x)
}
"""
module = parse(text)
assert show(parse(show(module))) == show(module)
assert [len(f.members) for f in fuse(module.entry).groups] == [2]
assert work(module.entry).weight == 35 * (2 + 1)
x = np.arange(35, dtype=np.float32).reshape(5, 7)
assert (evaluate(module, [x]) == 2 * x).all()
assert (build(module)(x) == 2 * x).all()
'''


def test_an_elementwise_operation_is_a_row_and_an_emitter() -> None:
    """In a process of its own: what is derived from the table is derived when it is imported."""
    done = subprocess.run([sys.executable, "-c", TRIPLE], capture_output=True, text=True)
    assert not done.returncode, done.stderr


def _mirror_shape(shapes: Shapes, attrs: Attrs) -> Shape:
    a, (dim,) = array(shapes, 0), attr(attrs, "dimensions")
    return replace(plain(a), dims=tuple(2 * n if d == dim else n for d, n in enumerate(a.dims)))


def _mirror_numpy(i: Instruction, args: list[Value], run: CallEvaluator) -> Value:
    (dim,) = i.attrs["dimensions"]
    return np.concatenate([args[0], np.flip(args[0], dim)], dim)


def _mirror_element(e: ElementEmitter, x: Instruction, at: Index) -> Expr:
    (dim,) = x.attrs["dimensions"]
    place = minimum(at[dim], sub(x.array.dims[dim] - 1, at[dim]))
    return e.element(x.operands[0], (*at[:dim], place, *at[dim + 1 :]))


def test_a_structured_operation_is_a_row_and_a_lowering(monkeypatch: pytest.MonkeyPatch) -> None:
    row = OpDef(
        "mirror",
        attributes="dimensions",
        shape=_mirror_shape,
        numpy=_mirror_numpy,
        in_place=one,
        pattern=Pattern.INJECTIVE,
    )
    monkeypatch.setitem(OPS, row.name, row)
    monkeypatch.setitem(RULES, row.name, _mirror_element)
    module = parse(
        """HloModule m
ENTRY e {
  x = f32[5,7] parameter(0)
  y = f32[5,14] parameter(1)
  t = negate(x)
  m = mirror(t), dimensions={1}
  ROOT r = f32[5,14] add(m, y)
}
"""
    )
    verify(module)
    assert show(parse(show(module))) == show(module)
    assert [len(g.members) for g in fuse(module.entry).groups] == [3]
    x = np.arange(35, dtype=np.float32).reshape(5, 7)
    y = np.arange(70, dtype=np.float32).reshape(5, 14)
    right = y - np.concatenate([x, x[:, ::-1]], 1)
    np.testing.assert_array_equal(evaluate(module, [x, y]), right)
    np.testing.assert_array_equal(build(module)(x, y), right)
    wrong = replace(module.entry.root.operands[0], shape=Shape(f32, (5, 13)))
    with pytest.raises(VerifyError, match=r"its operands give f32\[5,14\]"):
        check_instruction(wrong)


def test_every_operation_with_a_formula_on_complex_numbers_has_a_rule() -> None:
    wanted = {name for name, op in OPS.items() if op.complex is ComplexPolicy.FORMULA}
    assert wanted == COMPLEX.keys()


def test_policies_fit_what_else_is_defined() -> None:
    for name, op in OPS.items():
        if ComplexPolicy.COMBINED is op.complex or NarrowPolicy.COMBINED is op.narrow:
            assert op.calls, f"{name} calls no computation that could combine"
        if op.complex is ComplexPolicy.CONTROL:
            assert op.structure, f"{name} is not part of the graph's structure"
        if op.arithmetic and name != "select":
            assert op.narrow is NarrowPolicy.COMPUTED, name


@pytest.mark.parametrize(
    ("name", "count", "wanted"),
    [
        ("dynamic-slice", 3, [1, 2]),
        ("dynamic-update-slice", 4, [2, 3]),
        ("gather", 2, [1]),
        ("scatter", 3, [1]),
        ("scatter", 5, [2]),
        ("concatenate", 3, []),
    ],
)
def test_start_indices_are_known_by_number(name: str, count: int, wanted: list[int]) -> None:
    assert list(OPS[name].indices(count)) == wanted
