"""State shared by the phases of FuseOps: groups under construction, and which may grow.

Cheap producers of data (broadcasts, slices, iotas, splats, a little work on those or on one
parameter) are *clones*: every group that uses one makes its own, so they neither tie groups
together nor take memory. Edges of the group graph go from the sources of a clone to its users.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from ..nodes import Computation, Instruction
from ..ops.definition import Pattern, Role
from ..ops.registry import definition
from ..rewrite import users
from .graph import Clusters
from .kinds import (
    dims,
    flops,
    is_decoding,
    is_free,
    is_part,
    is_view,
    is_work,
    nbytes,
    pattern,
    size,
    start_of_piece,
)

LIMIT = 128
"""Most instructions that do arithmetic in one group: kernels must stay small."""

OUTPUTS = 4
"""Most results of one group."""

CLONE_FLOPS = 4.0
"""Most work for one element that is done again in every group rather than stored."""

SMALL = 4096
"""Elements that are worth computing once more or staging inside a kernel."""

ACCESSES = 4
"""Most different places at which a group may need one producer for one result element."""

PIECES = "pieces"
"""Among the kinds of groups that only some targets take, the name of those that are given pieces of
buffers, as dynamic slices cut them, without a copy."""

_IN_MEMORY = (Pattern.OUT_FUSABLE, Pattern.IN_FUSABLE, Pattern.WINDOW, Pattern.OPAQUE)
"""Kinds of instructions whose results have a buffer."""

Key = Hashable


@dataclass(slots=True)
class Growing:
    """One group under construction. ``kind`` as in ``Group``; ``space`` is what it loops over."""

    kind: str
    anchor: Instruction
    space: tuple[int, ...]
    axes: tuple[int, ...] = ()
    members: dict[Instruction, set[Key]] = field(default_factory=dict)
    work: int = 0


class State:
    """The groups of one computation while they grow.

    With ``pieces``, slices whose start is computed may be pieces of other buffers as well.
    """

    def __init__(self, computation: Computation, *, pieces: bool = False) -> None:
        self.computation = computation
        self.users = users(computation)
        self.needed_by: dict[Instruction, list[Instruction]] = {
            i: [] for i in computation.instructions
        }
        self._stored: dict[Instruction, bool] = {}
        for i in reversed(computation.instructions):
            self._stored[i] = self._is_stored(i)
        self.clones = _clones(computation, self._stored)
        self.parts = self._parts()
        self._starts = self._place_pieces() if pieces else {}
        self.needs = {i: self._needs(i) for i in computation.instructions}
        for i, sources in self.needs.items():
            if i not in self.clones or self._stored[i]:
                for o in sources:
                    self.needed_by[o].append(i)
        self.clusters = Clusters(computation, self.needs)
        self._position = {i: n for n, i in enumerate(computation.instructions)}
        self.group_of: dict[Instruction, Growing] = {}
        self.reasons: dict[tuple[Instruction, Instruction], str] = {}

    def _needs(self, i: Instruction) -> tuple[Instruction, ...]:
        found: dict[Instruction, None] = {}
        for o in i.operands:
            if self._starts.get(i) is o:
                found[o] = None
            elif o in self.clones and accepts_clone(i, o):
                found.update(dict.fromkeys(self._needs(o)))
            elif not is_free(o) or not accepts_clone(i, o):
                found[o] = None
        return tuple(found)

    def position(self, i: Instruction) -> int:
        """Return the place of an instruction in program order."""
        return self._position[i]

    def start(
        self,
        kind: str,
        anchor: Instruction,
        axes: tuple[int, ...] = (),
        space: tuple[int, ...] | None = None,
    ) -> Growing:
        """Return a new group of one instruction."""
        g = Growing(kind, anchor, dims(anchor) if space is None else space, axes)
        g.members[anchor] = {"result"}
        g.work = 1
        self.group_of[anchor] = g
        return g

    def is_free_to_join(self, i: Instruction) -> bool:
        """True if an instruction is work that no group has taken."""
        return i not in self.group_of and is_work(i)

    def is_stored(self, i: Instruction) -> bool:
        """True if some user needs the whole of ``i`` in memory, whatever is fused."""
        return self._stored[i]

    def _is_stored(self, i: Instruction) -> bool:
        if i is self.computation.root:
            return True
        return any(
            not takes_elements(u, i) or (is_view(u) and self._stored[u]) for u in self.users[i]
        )

    def _parts(self) -> set[Instruction]:
        """The slices in memory that are pieces of other buffers, and so are in no group.

        Users that can compute a slice in place do so all the same.
        """
        found: set[Instruction] = set()
        for i in self.computation.instructions:
            if self._stored[i] and is_part(i):
                whole = i.operands[0]
                if whole in found or (whole not in self.clones and not is_free(whole)):
                    found.add(i)
        return found

    def _place_pieces(self) -> dict[Instruction, Instruction]:
        """Add dynamic slices of what is in memory anyway to the parts; return where they start.

        A start is stored, to be read whenever a kernel is given the piece.
        """
        found: dict[Instruction, Instruction] = {}
        for i in self.computation.instructions:
            start = start_of_piece(i) if self._stored[i] else None
            if start is None or not self._is_in_memory(i.operands[0]):
                continue
            found[i] = start
            self.parts.add(i)
            self._stored[start] = True
            while is_view(start):
                start = start.operands[0]
                self._stored[start] = True
        return found

    def _is_in_memory(self, i: Instruction) -> bool:
        """True if a value has a buffer whether or not a slice of it is a piece of that."""
        while is_view(i):
            i = i.operands[0]
        if i in self.parts or pattern(i) in _IN_MEMORY:
            return True
        return self._stored[i] if is_work(i) else not is_free(i)

    def is_alias(self, i: Instruction) -> bool:
        """True if ``i`` is its operand's buffer, or a piece of it, where no group computes it."""
        return is_view(i) or i in self.parts

    def refusal(self, g: Growing, i: Instruction) -> str:
        """Why ``i`` cannot be put into ``g`` for reasons of order or size; empty if it can."""
        blocker = self.clusters.cycle(g.anchor, i)
        if blocker is not None:
            return f"would make a cycle through `{blocker.name}`"
        if g.work + (flops(i) > 0) > LIMIT:
            return f"group has {g.work} instructions"
        return ""

    def put(self, g: Growing, i: Instruction, keys: set[Key]) -> None:
        """Add ``i`` to ``g``; ``refusal`` has been asked before."""
        self.clusters.merge(g.anchor, i)
        self.group_of[i] = g
        g.members[i] = keys
        g.work += flops(i) > 0

    def take_inside(self, g: Growing, i: Instruction) -> None:
        """Add ``i``, all of whose users are in ``g`` or its clones: no result, whoever reads it."""
        self._stored[i] = False
        if i not in self.clones:
            self.put(g, i, {"full"})

    def unite(self, g: Growing, other: Growing) -> None:
        """Put all of ``other`` into ``g``; the two anchors' clusters must be free to merge."""
        self.clusters.merge(g.anchor, other.anchor)
        for i, keys in other.members.items():
            self.group_of[i] = g
            g.members[i] = keys
        g.work += other.work

    def outputs(self, g: Growing) -> list[Instruction]:
        """Members that something outside of the group uses."""
        return [i for i in g.members if self.is_output(g, i)]

    def is_output(self, g: Growing, i: Instruction) -> bool:
        """True if something outside of ``g`` uses its member ``i``, clones counted as users."""
        if self.is_stored(i):
            return True
        return any(self.group_of.get(u) is not g for u in self.needed_by[i])

    def keys(self, g: Growing, i: Instruction) -> set[Key]:
        """Return the keys by which the group indexes ``i``, one per way of indexing."""
        return set(self._shares(g, i))

    def evaluations(self, g: Growing, i: Instruction) -> float:
        """Return how often the group computes each element of ``i``, in the mean.

        A slice computes only what it takes.
        """
        return sum(self._shares(g, i).values())

    def _shares(self, g: Growing, i: Instruction) -> dict[Key, float]:
        """Return the keys by which the group indexes ``i``, each with the share of ``i`` that
        it takes.
        """
        found: dict[Key, float] = {}
        for u in self.users[i]:
            if u in g.members:
                below = dict.fromkeys(g.members[u], 1.0)
            elif u in self.clones:
                below = self._shares(g, u)
            else:
                continue
            part = definition(u.opcode).takes_part and u.operands[0] is i
            taken = min(1.0, size(u) / max(1, size(i))) if part else 1.0
            for k, share in below.items():
                key = _through(u, i, k)
                found[key] = max(found.get(key, 0.0), share * taken)
        return found


def accepts_clone(user: Instruction, clone: Instruction) -> bool:
    """True if ``user`` computes a clone in place instead of reading it from memory."""
    return takes_elements(user, clone)


def takes_elements(user: Instruction, operand: Instruction) -> bool:
    """True if ``user`` can have ``operand`` computed element by element inside its own loops."""
    match pattern(user):
        case Pattern.ELEMENTWISE | Pattern.BROADCAST | Pattern.INJECTIVE | Pattern.REDUCTION:
            return True
        case Pattern.OUT_FUSABLE:
            return is_free(operand) or is_decoding(operand)
        case Pattern.WINDOW:
            return is_free(operand)
        case Pattern.IN_FUSABLE:
            whole = operand.array.dtype.kind == "complex"
            parts = definition(operand.opcode).role is Role.PARTS
            return operand is user.operands[0] and (parts or not whole)
        case _:
            return False


def _clones(
    computation: Computation, stored: Mapping[Instruction, bool]
) -> dict[Instruction, float]:
    """Instructions that every using group computes for itself, with their work per element.

    What is in memory anyway is read there if it is smaller than all that it is made of.
    """
    found: dict[Instruction, float] = {}
    made_of: dict[Instruction, set[Instruction]] = {}
    for i in computation.instructions:
        match pattern(i):
            case Pattern.BROADCAST:
                work = 0.0
            case Pattern.ELEMENTWISE | Pattern.INJECTIVE if _is_cheap(i, found):
                work = flops(i) + sum(found.get(o, 0.0) for o in i.operands)
            case _:
                continue
        sources = {x for o in i.operands for x in made_of.get(o, {o}) if size(x) != 1}
        if not stored[i] or sum(map(nbytes, sources)) <= nbytes(i):
            found[i], made_of[i] = work, sources
    return found


def _is_cheap(i: Instruction, clones: dict[Instruction, float]) -> bool:
    """True if doing ``i`` again costs no more than reading its result would."""
    again = definition(i.opcode).recompute
    if again is not None:
        return again
    if is_view(i) and i.operands[0] in clones:
        return True  # whatever its size: a view of what is in no buffer has none
    if size(i) <= 1 and not _is_position(i):
        return False
    if is_decoding(i):
        return True
    if flops(i) + sum(clones.get(o, 0.0) for o in i.operands) > CLONE_FLOPS:
        return False
    rest = [o for o in i.operands if o not in clones and size(o) != 1]
    if rest and pattern(i) is Pattern.INJECTIVE:
        return False
    return sum(nbytes(o) for o in rest) <= nbytes(i) and all(o.opcode == "parameter" for o in rest)


def _is_position(i: Instruction) -> bool:
    """True for scalar arithmetic on integers, as on the number of a token."""
    scalars = all(size(x) == 1 and not x.array.dtype.is_float for x in (i, *i.operands))
    return scalars and pattern(i) is Pattern.ELEMENTWISE


def _through(user: Instruction, operand: Instruction, key: Key) -> Key:
    """Return the index of ``operand`` where ``user`` is indexed by ``key``."""
    match pattern(user):
        case Pattern.ELEMENTWISE | Pattern.OUT_FUSABLE:
            return key
        case Pattern.REDUCTION:
            return "full"
        case _:
            if is_view(user):
                return (key, user.opcode, dims(user), dims(operand))
            if pattern(user) is Pattern.BROADCAST or definition(user.opcode).permutes:
                return (key, user.opcode, user.attrs.get("dimensions", ()))
            return (key, user)
