"""The notes of functions, loops and blocks: one declaration per key, and typed access.

A note tells a later layer what the nodes themselves do not say; no note changes what is computed.
In text it is a keyword argument, ``range(8, pipeline=2)``: an integer, a string, or a tuple of
these; a flag is ``1``. On blocks and loops users may put notes of their own, which mean nothing
here; a function has no others than these. ``verify`` refuses a key that is not declared for the
node or looks like a misspelt one, and a value of another form.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Generic, TypeAlias, TypeVar, cast

from .nodes import NO_NOTES, Block, For, Func, Notes, NoteValue

Noted: TypeAlias = Func | For | Block
V = TypeVar("V", bound=NoteValue)
N = TypeVar("N", Func, For, Block)

ALIKE = 0.8  # of two keys, of which one is then taken to be misspelt


@dataclass(frozen=True, slots=True)
class NoteForm(Generic[V]):
    """The values that a note may have: those that ``fits``, in ``words``.

    ``old`` turns what earlier versions printed into the value.
    """

    words: str
    fits: Callable[[object], bool]
    old: Callable[[NoteValue], NoteValue] = lambda value: value


@dataclass(frozen=True, slots=True)
class Note(Generic[V]):
    """The note of a key on one sort of node: the layer that writes it, and those that read it.

    A ``fixed`` one stays where a primitive puts it.
    """

    key: str
    on: type[Noted]
    form: NoteForm[V]
    writer: str
    readers: tuple[str, ...]
    says: str
    fixed: bool = False

    @property
    def scheduled(self) -> bool:
        """True if a schedule may put it, and take it away."""
        return self.writer == "schedule" and not self.fixed

    def of(self, node: Noted) -> V | None:
        """Return the value on a node, or None if it does not have the note."""
        return cast("V | None", node.notes.get(self.key)) if isinstance(node, self.on) else None

    def put(self, node: N, value: V) -> N:
        """Return the node with the note."""
        assert isinstance(node, self.on), f"{self.key} is not a note of a {type(node).__name__}"
        return replace(node, notes=MappingProxyType({**node.notes, **self.alone(value)}))

    def drop(self, node: N) -> N:
        """Return the node without the note."""
        if self.key not in node.notes:
            return node
        left = {k: v for k, v in node.notes.items() if k != self.key}
        return replace(node, notes=MappingProxyType(left) if left else NO_NOTES)

    def alone(self, value: V) -> Notes:
        """Return the notes of a node that has this one only."""
        return MappingProxyType({self.key: value})


def _between(low: int, high: int | None = None) -> NoteForm[int]:
    words = f"an integer from {low} on" if high is None else f"{low} to {high}"
    return NoteForm(words, lambda v: type(v) is int and low <= v and (high is None or v <= high))


def _is_number(value: object) -> bool:
    return type(value) is int and value >= 0


def _split(value: NoteValue) -> tuple[str, ...]:
    return tuple(filter(None, value.split(","))) if isinstance(value, str) else ()


def _numbers(value: NoteValue) -> NoteValue:
    """``"0,2"``  ->  ``(0, 2)``"""
    known = _split(value)
    return tuple(map(int, known)) if known and all(k.isdecimal() for k in known) else value


_FLAG: NoteForm[int] = NoteForm("1", lambda v: type(v) is int and v == 1)
_NUMBERS: NoteForm[tuple[int, ...]] = NoteForm(
    "a tuple of numbers",
    lambda v: isinstance(v, tuple) and all(map(_is_number, v)),
    _numbers,
)
_PAIRS: NoteForm[tuple[tuple[int, int], ...]] = NoteForm(
    "a tuple of pairs of numbers",
    lambda v: (
        isinstance(v, tuple)
        and all(isinstance(p, tuple) and len(p) == 2 and all(map(_is_number, p)) for p in v)
    ),
)
_NAMES: NoteForm[tuple[str, ...]] = NoteForm(
    "a tuple of names",
    lambda v: isinstance(v, tuple) and all(isinstance(x, str) for x in v),
    lambda v: _split(v) or v,
)

FROZEN = Note(
    "frozen",
    Func,
    _NUMBERS,
    "te",
    ("schedule",),
    "the inputs, by number, that are constants of the module",
)
UPDATES = Note(
    "updates",
    Func,
    _PAIRS,
    "te",
    ("codegen",),
    "(output, input): the output begins as a copy of the input, which nothing else reads",
)
IN_PLACE = Note(
    "in_place", Func, _FLAG, "codegen", ("codegen",), "an output may be the same memory as an input"
)
WORKSPACE_BYTES = Note(
    "workspace_bytes",
    Func,
    _between(1),
    "codegen",
    ("codegen",),
    "bytes of memory that the last argument points to",
)
STREAMED = Note(
    "streamed",
    Func,
    _NUMBERS,
    "codegen",
    ("codegen",),
    "the parameters, by number, that nothing reads soon: stores to them may pass the caches by",
)
UNPLACED = Note(
    "unplaced",
    Func,
    _NAMES,
    "codegen",
    ("codegen",),
    "the buffers in shared memory that no schedule has put there",
)
BESIDE = Note(
    "beside",
    Func,
    _NUMBERS,
    "codegen",
    ("codegen",),
    "by launch, the first of those up to it that need nothing of each other",
)
ASYNC_BUFFERS = Note(
    "async_buffers",
    Func,
    _NAMES,
    "codegen",
    ("codegen",),
    "the buffers that asynchronous copies fill",
)
OPAQUE = Note(
    "opaque",
    Block,
    _FLAG,
    "te",
    ("schedule", "codegen"),
    "order or place of the writes depends on data: no primitive may rewrite it",
)
STAGE_OF = Note(
    "stage_of",
    Block,
    _between(1),
    "te",
    ("schedule",),
    "blocks of one number are stages of one launch, which pass rows on to each other",
)
COPY = Note(
    "copy",
    Block,
    _FLAG,
    "te",
    ("te", "codegen"),
    "moves an input to the output that may take its place",
)
EXCESS_ERROR = Note(
    "excess_error",
    Block,
    _between(1),
    "schedule",
    ("schedule",),
    "the error of a rewrite that is exact but for rounding, in billionths of the result's rms",
    fixed=True,
)
ASYNC = Note(
    "async",
    Block,
    _FLAG,
    "schedule",
    ("schedule", "codegen"),
    "this copy from global to shared memory may be asynchronous",
)
BULK_COPIES = Note(
    "bulk_copies",
    For,
    _FLAG,
    "schedule",
    ("codegen",),
    "copies of this pipelined loop are bulk copies, where they are boxes of matrices",
)
PIPELINE = Note(
    "pipeline",
    For,
    _between(2, 8),
    "schedule",
    ("schedule", "codegen"),
    "places for the shared buffers of an iteration; copies into them run ahead",
)
PRODUCERS = Note(
    "producers",
    For,
    _between(1, 8),
    "schedule",
    ("schedule", "codegen"),
    "warps of a block beside the others that make the copies of this pipelined loop",
    fixed=True,
)
MIN_BLOCKS = Note(
    "min_blocks",
    For,
    _between(1, 32),
    "schedule",
    ("codegen",),
    "blocks that fit a multiprocessor at once: registers are rationed for it",
)
RESIDENT = Note(
    "resident",
    For,
    _between(1, 32),
    "schedule",
    ("codegen",),
    "at most so many blocks a multiprocessor of the device go through this loop over blockIdx.x",
)
IN_TURN = Note(
    "in_turn",
    For,
    _between(1, 64),
    "schedule",
    ("codegen",),
    "each block goes through so many iterations of this loop over blockIdx.x, in turn",
)
CLUSTER = Note(
    "cluster",
    For,
    _FLAG,
    "schedule",
    ("codegen",),
    "the blocks of this loop over an index of blocks run at the same time, as a cluster",
)
FETCH = Note(
    "fetch",
    For,
    _between(64, 1 << 16),
    "schedule",
    ("codegen",),
    "bytes from what an iteration reads, in order, to what is prefetched in it",
)
FETCH_AHEAD = Note(
    "fetch_ahead",
    For,
    _FLAG,
    "schedule",
    ("codegen",),
    "what the next iteration reads behind what this one does is fetched into cache meanwhile",
)
IN_TILES = Note(
    "in_tiles",
    For,
    _FLAG,
    "schedule",
    ("schedule", "codegen"),
    "sums of products over this loop may be made in tile registers, all of its nest at once",
)

NOTES = (
    FROZEN,
    UPDATES,
    IN_PLACE,
    WORKSPACE_BYTES,
    STREAMED,
    UNPLACED,
    BESIDE,
    ASYNC_BUFFERS,
    OPAQUE,
    STAGE_OF,
    COPY,
    EXCESS_ERROR,
    ASYNC,
    BULK_COPIES,
    PIPELINE,
    PRODUCERS,
    MIN_BLOCKS,
    RESIDENT,
    IN_TURN,
    CLUSTER,
    FETCH,
    FETCH_AHEAD,
    IN_TILES,
)
BY_KEY: Mapping[str, Note[Any]] = MappingProxyType({n.key: n for n in NOTES})


def misfit(node: Noted, key: str, value: object) -> tuple[str, str] | None:
    """Return why a node cannot have a note, and what would work; None if it can."""
    note, sort = BY_KEY.get(key), _word(type(node))
    if note is None:
        return _undeclared(type(node), key)
    if not isinstance(node, note.on):
        return f"`{key}` is a note of a {_word(note.on)}, not of a {sort}", f"it says: {note.says}"
    if not note.form.fits(value):
        return f"`{key}` takes {note.form.words}, not {value!r}", f"it says: {note.says}"
    return None


def _undeclared(sort: type[Noted], key: str) -> tuple[str, str] | None:
    """Return the same for a key that is not declared: on a loop or block it may be a user's own."""
    if sort is Func:
        near = difflib.get_close_matches(key, BY_KEY, 1)
    else:
        near = difflib.get_close_matches(key, [n.key for n in NOTES if n.on is not Func], 1, ALIKE)
        if not near:
            return None
    notes = ", ".join(n.key for n in NOTES if n.on is sort)
    hint = f"did you mean `{near[0]}`?" if near else f"its notes: {notes}"
    return f"`{key}` is not a note of a {_word(sort)}", hint


def _word(sort: type[Noted]) -> str:
    return {Func: "function", For: "loop", Block: "block"}[sort]


def of_function(written: Notes) -> Notes:
    """Return a function's notes, given as its text has them, in the form that they have today.

    Texts of before have ``frozen="0,2"`` for ``frozen=(0, 2)``, ``alias1=0`` for
    ``updates=((1, 0),)`` and ``async="A,B"`` for ``async_buffers=("A", "B")``.
    """
    found: dict[str, NoteValue] = {}
    pairs: list[tuple[int, int]] = []
    for key, value in written.items():
        number = key.removeprefix("alias")
        if key != number and number.isdecimal() and isinstance(value, int):
            pairs.append((int(number), value))
            continue
        note = ASYNC_BUFFERS if key == ASYNC.key else BY_KEY.get(key)
        if note is None or note.form.fits(value):
            found[key] = value
        else:
            found[note.key] = note.form.old(value)
    return {**found, UPDATES.key: tuple(pairs)} if pairs else found
