"""The graph of a model's groups: what runs, what flows between, and why it was not fused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

from ...codegen.driver import PreparedModule
from ...ir.hlo.fuse.fusion import Edge, Fusion, Group
from ...ir.hlo.fuse.groups import VIEW_FOLLOWS
from ...ir.hlo.fuse.kinds import pattern
from ...ir.hlo.fuse.order import called
from ...ir.hlo.nodes import Computation, HloModule, Instruction
from ...ir.hlo.ops.definition import Pattern
from ...ir.hlo.shape_text import show_shape
from ..tasks.counting import flops, moved, size
from ..tasks.extract import runs_of

FEW = 16
"""Parameters up to which each is a box of its own; of more, only those that several read."""

INPUT, RESULT = "input", "result"
OUTSIDE = {Pattern.CONTROL: "control flow", Pattern.LIBRARY: "library call"}
FROM = {
    INPUT: "an argument of the model is in memory already",
    "control flow": "a loop, branch or call has its results in memory",
    "library call": "a library function writes whole arrays",
}
TO = {
    RESULT: "a result of the model is stored",
    "control flow": "a loop, branch or call takes its operands from memory",
    "library call": "a library function reads whole arrays",
}


@dataclass(frozen=True, slots=True)
class Vertex:
    """A node of the graph: a group, a parameter, the results, control flow, a library call.

    ``kind`` is a group's, or ``input``, ``result``, ``control flow`` or ``library call``. ``work``
    is the FLOPs of one run by the table of element-wise operations, ``bytes`` what one run reads
    and writes at least; ``runs`` is how often a run of the model executes it. ``operations`` are
    opcodes that compute, ``constants`` the bytes of constants among ``bytes``, ``parameters`` the
    names of the parameters it reads. A group has a ``key``; control flow ``calls`` computations by
    name.
    """

    name: str
    kind: str
    shape: str
    runs: float = 1.0
    work: float = 0.0
    bytes: int = 0
    constants: int = 0
    parameters: tuple[str, ...] = ()
    operations: tuple[str, ...] = ()
    key: str = ""
    calls: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Flow:
    """Values that go from one vertex to another through memory, and why: at least one reason."""

    source: str
    target: str
    values: tuple[str, ...]
    bytes: int
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ComputationGraph:
    """The vertices of a computation in the order in which they run, and what flows between.

    ``fused`` are the edges inside of groups: producer, consumer, reason.
    """

    name: str
    vertices: tuple[Vertex, ...]
    flows: tuple[Flow, ...]
    fused: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True)
class ModelGraph:
    """A model as groups: its entry first, then every computation that control flow runs."""

    name: str
    target: str
    computations: tuple[ComputationGraph, ...]

    @cached_property
    def totals(self) -> tuple[float, float]:
        """FLOPs and bytes of one run of the model, over its groups."""
        found = [v for c in self.computations for v in c.vertices if v.key]
        return sum(v.runs * v.work for v in found), sum(v.runs * v.bytes for v in found)

    def shares(self, vertex: Vertex) -> tuple[float, float]:
        """Return the share of a group's runs in the model's FLOPs and bytes."""
        work, size_ = self.totals
        return (
            vertex.runs * vertex.work / work if work else 0.0,
            vertex.runs * vertex.bytes / size_ if size_ else 0.0,
        )


def model_graph(prepared: PreparedModule, name: str = "") -> ModelGraph:
    """Return the graph of a module's groups for the target that it was prepared for.

    ``name`` is the model's; by default the module's.
    """
    groups, module = prepared.groups, prepared.optimized
    times = runs_of(module, groups)
    graphs = tuple(
        _FlowReader(fusion, groups.keys, times[c], _arguments(module, c)).graph()
        for c, fusion in groups.fusions.items()
    )
    return ModelGraph(name or module.name, prepared.target.spec, graphs)


def _arguments(module: HloModule, c: Computation) -> int:
    """Return the number of parameters, which decides which of them are boxes."""
    return len(c.parameters) if c is module.entry else FEW


class _FlowReader:
    """Reads the vertices and flows of one computation off its fusion."""

    def __init__(
        self, fusion: Fusion, keys: Mapping[Group, str], runs: float, parameters: int
    ) -> None:
        self.fusion, self.keys, self.runs = fusion, keys, runs
        self.many = parameters > FEW
        self.home = {o: g for g in fusion.groups for o in g.outputs}
        self.members = {g: frozenset(g.members) for g in fusion.groups}
        self.edges: dict[tuple[Instruction, Instruction], Edge] = {
            (e.producer, e.consumer): e for e in fusion.edges
        }
        self.outside = [i for i in fusion.computation.instructions if pattern(i) in OUTSIDE]

    def graph(self) -> ComputationGraph:
        """Return the whole computation."""
        flows = self._flows()
        used = {end for f in flows for end in (f.source, f.target)}
        vertices = [v for v in self._vertices() if v.kind != INPUT or v.name in used]
        fused = tuple(
            (e.producer.name, e.consumer.name, e.reason) for e in self.fusion.edges if e.fused
        )
        return ComputationGraph(self.fusion.computation.name, tuple(vertices), flows, fused)

    def _vertices(self) -> Iterator[Vertex]:
        computation = self.fusion.computation
        for p in computation.parameters:
            yield Vertex(p.name, INPUT, show_shape(p.shape), self.runs, bytes=size(p.shape))
        yield from map(self._group, self.fusion.groups)
        for i in self.outside:
            calls = tuple(c.name for c in called(i))
            yield Vertex(
                i.name,
                OUTSIDE[pattern(i)],
                show_shape(i.shape),
                self.runs,
                operations=(i.opcode,),
                calls=calls,
            )
        root = computation.root
        yield Vertex(RESULT, RESULT, show_shape(root.shape), self.runs, bytes=size(root.shape))

    def _group(self, g: Group) -> Vertex:
        constants = sum(size(i.shape) for i in g.inputs if i.opcode == "constant")
        return Vertex(
            name=g.name,
            kind=g.kind,
            shape=", ".join(show_shape(o.shape) for o in g.outputs),
            runs=self.runs,
            work=flops(g.computation),
            bytes=int(moved(g.computation)),
            constants=constants,
            parameters=tuple(i.name for i in g.inputs if i.opcode == "parameter"),
            operations=tuple(i.opcode for i in g.members if pattern(i) is not Pattern.ALIAS),
            key=self.keys[g],
        )

    def _flows(self) -> tuple[Flow, ...]:
        """Return all flows, those between the same two vertices as one."""
        found: dict[tuple[str, str], dict[str, tuple[int, list[str]]]] = {}
        reads = chain(
            ((g.name, i, self.members[g]) for g in self.fusion.groups for i in g.inputs),
            ((i.name, o, frozenset({i})) for i in self.outside for o in i.operands),
            [(RESULT, self.fusion.computation.root, frozenset[Instruction]())],
        )
        kinds = {i.name: OUTSIDE[pattern(i)] for i in self.outside} | {RESULT: RESULT}
        for target, value, readers in reads:
            for source, kind, made, why in self._sources(value, readers):
                if source == target:
                    continue  # a loop's operand that is the loop's own part
                texts = _texts(kind, kinds.get(target, ""), why)
                values = found.setdefault((source, target), {})
                _, earlier = values.get(made.name, (0, []))
                part = min(size(value.shape), size(made.shape))
                values[made.name] = part, [*dict.fromkeys([*earlier, *texts])]
        readers_of: dict[str, int] = {}
        for source, _ in found:
            readers_of[source] = readers_of.get(source, 0) + 1
        names = {p.name for p in self.fusion.computation.parameters}
        return tuple(
            Flow(
                a,
                b,
                tuple(values),
                sum(n for n, _ in values.values()),
                tuple(dict.fromkeys(w for _, ws in values.values() for w in ws)),
            )
            for (a, b), values in found.items()
            if not (self.many and a in names and readers_of[a] == 1)
        )

    def _sources(
        self, value: Instruction, readers: frozenset[Instruction], why: Sequence[str] = ()
    ) -> Iterator[tuple[str, str, Instruction, list[str]]]:
        """Yield where a value comes from, through views and tuples: name, kind, value and
        reasons.
        """
        told = [*why, *self._reasons(value, readers)]
        if (g := self.home.get(value)) is not None:
            yield g.name, g.kind, value, told
        elif value.opcode == "parameter":
            yield value.name, INPUT, value, told
        elif pattern(value) in OUTSIDE:
            yield value.name, OUTSIDE[pattern(value)], value, told
        else:
            for o in dict.fromkeys(value.operands):
                yield from self._sources(o, frozenset({value}), told)

    def _reasons(self, value: Instruction, readers: frozenset[Instruction]) -> list[str]:
        """Why ``value`` was not computed where it is read."""
        edges = (self.edges.get((value, r)) for r in readers if value in r.operands)
        return [e.reason for e in edges if e is not None]


def _texts(source: str, target: str, noted: Sequence[str]) -> list[str]:
    """Return the reasons of a flow: of its ends, else those of FuseOps, without that of mere
    views.
    """
    if told := [text for text in (FROM.get(source), TO.get(target)) if text]:
        return told[:1]
    return [why for why in noted if why != VIEW_FOLLOWS] or list(noted)
