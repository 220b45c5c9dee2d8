"""Notes: each key is declared once, typed, written and read where its declaration says."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest

from nestwright.ir.errors import VerifyError
from nestwright.ir.loop import notes
from nestwright.ir.loop.nodes import NO_NOTES, Block, For, NoteValue
from nestwright.ir.loop.notes import BY_KEY, FROZEN, NOTES, OPAQUE, PIPELINE, Note, Noted
from nestwright.ir.loop.parser import parse
from nestwright.ir.loop.printer import show
from nestwright.ir.loop.verify import verify

ROOT = Path(__file__).parents[3]
LAYERS = ("ir/loop", "te", "schedule", "codegen")
NAMES = {name: note for name, note in vars(notes).items() if isinstance(note, Note)}

TEXT = """\
@func(outputs=1{on_func})
def f(A: f32[8], B: f32[8], C: f32[8]):
    for i in range(8{on_loop}):
        with block("C"{on_block}):
            vi = spatial(8, i)
            reads(A[vi], B[vi])
            writes(C[vi])
            C[vi] = A[vi] + B[vi]
"""


def text(on_func: str = "", on_loop: str = "", on_block: str = "") -> str:
    parts = {"on_func": on_func, "on_loop": on_loop, "on_block": on_block}
    return TEXT.format(**{k: v and f", {v}" for k, v in parts.items()})


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("frozen=(0, 1)", {"frozen": (0, 1)}),
        ("updates=((0, 1),)", {"updates": ((0, 1),)}),
        ("in_place=1, workspace_bytes=64", {"in_place": 1, "workspace_bytes": 64}),
        ('unplaced=("A_cache", "B_cache")', {"unplaced": ("A_cache", "B_cache")}),
        ("frozen=()", {"frozen": ()}),
    ],
)
def test_notes_of_a_function_are_typed_and_round_trip(
    written: str, value: dict[str, NoteValue]
) -> None:
    func = parse(text(written))
    verify(func)
    assert func.notes == value
    assert show(func) == text(written)


@pytest.mark.parametrize(
    ("before", "today"),
    [
        ('frozen="0,1"', {"frozen": (0, 1)}),
        ("alias0=1, in_place=1", {"in_place": 1, "updates": ((0, 1),)}),
        ('unplaced="S"', {"unplaced": ("S",)}),
        ('**{"async": "S,T"}', {"async_buffers": ("S", "T")}),
    ],
)
def test_texts_of_before_are_read(before: str, today: dict[str, NoteValue]) -> None:
    func = parse(text(before))
    verify(func)
    assert func.notes == today


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"on_func": "frosen=(0,)"}, "`frosen` is not a note of a function\n  hint: did you mean"),
        ({"on_func": "grain=4"}, "`grain` is not a note of a function\n  hint: its notes: frozen,"),
        ({"on_func": "pipeline=2"}, "`pipeline` is a note of a loop, not of a function"),
        ({"on_func": 'frozen="one"'}, "`frozen` takes a tuple of numbers, not 'one'"),
        ({"on_func": "frozen=(-1,)"}, "`frozen` takes a tuple of numbers"),
        ({"on_func": "frozen=(2,)"}, "a note names a parameter that is not there"),
        ({"on_func": "updates=((1, 0),)"}, "a note names a parameter that is not there"),
        ({"on_func": "updates=(0, 0)"}, "`updates` takes a tuple of pairs"),
        ({"on_func": "unplaced=(1,)"}, "`unplaced` takes a tuple of names"),
        ({"on_func": "in_place=0"}, "`in_place` takes 1, not 0"),
        ({"on_func": "workspace_bytes=0"}, "`workspace_bytes` takes an integer from 1 on"),
        ({"on_loop": "pipeline=9"}, "f > loop i: `pipeline` takes 2 to 8, not 9"),
        ({"on_loop": "pipelin=2"}, "did you mean `pipeline`?"),
        ({"on_loop": "opaque=1"}, "`opaque` is a note of a block, not of a loop"),
        ({"on_block": 'opaque="yes"'}, "block C: `opaque` takes 1, not 'yes'"),
        ({"on_block": "opaq=1"}, "did you mean `opaque`?"),
    ],
)
def test_what_is_not_declared_is_refused(parts: dict[str, str], message: str) -> None:
    with pytest.raises(VerifyError) as caught:
        verify(parse(text(**parts)))
    assert message in str(caught.value)


def test_a_users_own_notes_are_kept() -> None:
    own = {"on_loop": "grain=4", "on_block": 'reason="the last one", stage=1'}
    func = parse(text(**own))
    verify(func)
    assert show(func) == text(**own)


def test_access_is_typed() -> None:
    func = parse(text())
    loop = func.body
    assert isinstance(loop, For)
    assert isinstance(loop.body, Block)
    assert FROZEN.of(func) is None
    assert FROZEN.of(FROZEN.put(func, (1,))) == (1,)
    assert FROZEN.drop(func) is func
    assert PIPELINE.drop(PIPELINE.put(loop, 2)).notes is NO_NOTES
    assert PIPELINE.of(loop.body) is None
    with pytest.raises(AssertionError, match="opaque is not a note of a For"):
        OPAQUE.put(loop, 1)


@pytest.mark.parametrize("note", NOTES, ids=lambda n: n.key)
def test_every_note_is_refused_elsewhere(note: Note[NoteValue]) -> None:
    func = parse(text())
    assert isinstance(func.body, For)
    assert isinstance(func.body.body, Block)
    nodes: list[Noted] = [func, func.body, func.body.body]
    for node in nodes:
        if not isinstance(node, note.on):
            wrong = replace(node, notes=MappingProxyType({note.key: 1}))
            assert notes.misfit(wrong, note.key, 1)


def product(words: str) -> Iterator[tuple[str, ast.Module]]:
    """The files of the product in which a pattern is found, and their syntax."""
    for path in (p for layer in LAYERS for p in sorted((ROOT / layer).rglob("*.py"))):
        name, written = path.relative_to(ROOT).as_posix(), path.read_text()
        if name != "ir/loop/notes.py" and re.search(words, written):
            yield name, ast.parse(written)


def test_every_declaration_is_listed() -> None:
    assert tuple(NAMES.values()) == NOTES
    assert {name.lower() for name in NAMES} == set(BY_KEY)


def test_notes_are_written_and_read_in_the_layers_that_are_declared() -> None:
    found: dict[str, tuple[set[str], set[str]]] = {name: (set(), set()) for name in NAMES}
    for path, tree in product(rf"\b({'|'.join(NAMES)})\.(put|alone|of)\b"):
        layer = path.split("/")[0]
        for node in ast.walk(tree):
            match node:
                case ast.Attribute(value=ast.Name(id=name), attr="put" | "alone") if name in NAMES:
                    found[name][0].add(layer)
                case ast.Attribute(value=ast.Name(id=name), attr="of") if name in NAMES:
                    found[name][1].add(layer)
    for name, note in NAMES.items():
        writers, readers = found[name]
        assert writers <= {note.writer}, name
        assert writers or note.scheduled, name
        assert readers - {"ir"} == set(note.readers), name


HOMONYMS = {
    "async": "a prefix of opcodes",
    "copy": "an opcode, a kind of thunk, a column of the simulator's counters",
    "fetch": "a decision of a sketch",
    "frozen": "an attribute of a parameter in HLO",
    "in_place": "a field of a thunk and of a kernel's message",
    "updates": "a field of a kernel's message",
}
"""Keys that are other words too; they may not be read or written as notes."""


def test_no_other_file_spells_a_key() -> None:
    wrong = []
    keys = "|".join(BY_KEY.keys() - HOMONYMS.keys())
    for path, tree in product(rf"""["'}}]({keys})["'{{]|\.notes(\[|\.get\b)|\bin\s+\S*\.notes\b"""):
        for node in ast.walk(tree):
            match node:
                case ast.Constant(value=str(key)) if key in BY_KEY and key not in HOMONYMS:
                    wrong.append(f"{path}:{node.lineno}: {key}")
                case ast.Subscript(value=ast.Attribute(attr="notes"), slice=ast.Constant()):
                    wrong.append(f"{path}:{node.lineno}: notes[...]")
                case ast.Compare(comparators=[ast.Attribute(attr="notes")], left=ast.Constant()):
                    wrong.append(f"{path}:{node.lineno}: in notes")
                case ast.Call(
                    func=ast.Attribute(value=ast.Attribute(attr="notes"), attr="get"),
                    args=[ast.Constant(), *_],
                ):
                    wrong.append(f"{path}:{node.lineno}: notes.get")
    assert not wrong, "\n".join(["take the declaration in ir/loop/notes.py", *wrong])
