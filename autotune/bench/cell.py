"""One cell of a sweep: a model built twice, raced beside peers, checked; and its groups raced."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...codegen.driver.build import PreparedModule
from ...codegen.driver.options import BuildOptions
from ...codegen.plan.saved.write import write
from ...codegen.runtime.executable import Executable
from ...ir.accuracy import relative_error, rounds_products, tolerance
from ...ir.arrays import Array
from ...ir.dtypes import from_numpy
from ...ir.errors import ArtifactError, NestwrightError
from ...ir.scratch import scratch
from ..explain.graph import model_graph
from ..log.contents import Log
from ..log.records import Best
from ..log.units import counted
from ..measure.pool import Pool
from ..measure.roofline import profiled
from ..recipe import Constants
from ..tasks.extract import extract
from .attributed import attributed
from .data import CONTROL, DEFAULT, TUNED, CellBench, CellKey, WayBench
from .groups import bench_groups, edges
from .logs import unused
from .peers import table
from .peers.table import PeerWay
from .race.arrays import write_arrays
from .race.entrant import Lost, WayEntry
from .race.run import RaceRules, first_cores, race
from .subject import BenchModel

SECONDS = 4.0  # of timing for each way, unless the result is clear before
NOISY = 0.1  # spread of a control from which a cell is warned of
OWN = f"{__package__}.race"


@dataclass(frozen=True, slots=True)
class CellPlan:
    """The options of a sweep, the same in all its cells; ``tell`` gets a line at each step.

    ``attribute`` are the seconds for measuring what the winners' decisions buy, 0 for not at all.
    """

    constants: Constants
    seed: int
    check: bool
    peers: tuple[PeerWay, ...]
    callers: tuple[int, ...]
    tell: Callable[[str], object]
    attribute: float = 0.0
    profile: bool = False


def bench_cell(
    key: CellKey, subject: BenchModel, options: BuildOptions, log: Log, plan: CellPlan
) -> CellBench:
    """Build a model by default and with the winners of a log, and measure both beside peers.

    Raises ``NestwrightError`` for a model that cannot be built or run.
    """
    target = options.target
    builds = _Builds.of(subject, options, log, plan)
    with scratch("bench") as folder, Pool(target.threads) as pool:
        ways = _ways(key, subject, builds, plan, folder)
        plan.tell(f"{key}: groups")
        builder = builds.builder
        tasks = extract(builder.optimized, target, groups=builder.groups)
        groups = bench_groups(tasks, target, log, builds.winners, pool, folder, plan.seed)
        if plan.attribute > 0:
            plan.tell(f"{key}: why the winners won")
            groups = attributed(
                groups, tasks, builds.winners, target, pool, folder, plan.seed, plan.attribute
            )
    cost = builds.plain.cost_analysis()
    flops, moved = float(cost.get("flops", 0.0)), float(cost.get("bytes accessed", 0.0))
    found = CellBench(key, ways, groups, edges(builder.groups), flops, moved)
    found = replace(found, graph=model_graph(builder, key.model))
    if plan.profile:
        plan.tell(f"{key}: profile")
        exe = builds.tuned
        taken = profiled(exe, exe.random_arguments(plan.seed)).without_folders()
        found = replace(found, profile=taken.to_json())
    known = builds.winners or any(t.seconds for g in groups for t in g.trials)
    odd = [unused(key.log, log, target)] if key.log and not known else []
    return replace(found, warnings=(*odd, *_warnings(found, _bound(subject, builds, plan))))


@dataclass(frozen=True, slots=True)
class _Builds:
    """A model built by default and tuned, and the seconds that each took."""

    builder: PreparedModule
    winners: Mapping[str, Best]
    plain: Executable
    tuned: Executable
    seconds: tuple[float, float]

    @staticmethod
    def of(subject: BenchModel, options: BuildOptions, log: Log, plan: CellPlan) -> _Builds:
        """Build with default schedules, and with a log's winners; errors as for ``build``."""
        began = time.perf_counter()
        builder = PreparedModule(
            subject.known.module, options, subject.known.constants(plan.constants, freeze=True)
        )
        prepared = time.perf_counter()
        plain = builder.build({})
        built = time.perf_counter()
        winners = log.winners(options.target, builder.groups.distinct)
        tuned = builder.build({k: log.trace(b) for k, b in winners.items()})
        done = time.perf_counter()
        seconds = (built - began, prepared - began + done - built)
        return _Builds(builder, winners, plain, tuned, seconds)

    @property
    def same(self) -> bool:
        """True if both builds have the same code."""
        codes = [
            (e.bundle.program, dict(e.bundle.kernels), e.plan) for e in (self.plain, self.tuned)
        ]
        return codes[0] == codes[1]


def _ways(
    key: CellKey, subject: BenchModel, builds: _Builds, plan: CellPlan, folder: Path
) -> tuple[WayBench, ...]:
    """Race our builds, the control and the peers; code that is the same is timed once."""
    own = {TUNED: builds.tuned} if builds.same else {TUNED: builds.tuned, DEFAULT: builds.plain}
    for name, exe in own.items():
        write(exe.bundle, folder / f"{name}.nw", durable=False)
    files = {**{name: f"{name}.nw" for name in own}, CONTROL: f"{TUNED}.nw"}
    threads = builds.builder.target.threads
    base = WayEntry(
        "", ".own:open_build", OWN, folder, threads, first_cores(threads), seed=plan.seed
    )
    entries = [replace(base, name=name, file=folder / file) for name, file in files.items()]
    others, absent = _entries(base, subject, builds, plan, folder)
    error = _errors(subject, builds, plan) if plan.check else None
    plan.tell(f"{key}: timing")
    rules = RaceRules(SECONDS, folder, plan.callers, error, lambda t: plan.tell(f"{key}: {t}"))
    found = {w.name: w for w in race([*entries, *others], rules)}
    if found[TUNED].problem:
        raise ArtifactError("cannot time the model", found[TUNED].problem)
    found.setdefault(DEFAULT, replace(found[TUNED], name=DEFAULT))
    spent = dict(zip((DEFAULT, TUNED), builds.seconds, strict=True))
    count = counted(len(builds.winners), "schedule")
    told = {
        DEFAULT: "default schedules",
        TUNED: f"{count} of {key.log}"
        if builds.winners
        else "default schedules: no log has others",
        CONTROL: "the tuned build, as if it were another",
    }
    ours = [
        replace(w, detail=told[name], first=w.first and w.first + spent.get(name, spent[TUNED]))
        for name in told
        for w in (found.pop(name),)
    ]
    return (*ours, *found.values(), *absent)


def _entries(
    base: WayEntry, subject: BenchModel, builds: _Builds, plan: CellPlan, folder: Path
) -> tuple[list[WayEntry], list[WayBench]]:
    """Return the peers that take part, and those that cannot, with the reason."""
    entries: list[WayEntry] = []
    absent: list[WayBench] = []
    forms = subject.forms(folder) if plan.peers else {}
    constants = subject.known.constants(plan.constants, freeze=True)
    for peer in plan.peers:
        problem = peer.problem(forms)
        place = folder / f"{peer.form}.arguments"
        try:
            given = subject.arguments(builds.builder.frozen, plan.seed, constants, peer.form)
        except NestwrightError as e:
            problem = problem or str(e)
        if problem:
            absent.append(WayBench(peer.name, problem=problem))
            continue
        if not place.exists():
            write_arrays(place, list(given.values()))
        entries.append(
            replace(
                base,
                name=peer.name,
                open=peer.open,
                package=table.__package__ or "",
                file=forms[peer.form],
                names=tuple(given),
                arguments=place,
                single=peer.single,
            )
        )
    return entries, absent


def _errors(
    subject: BenchModel, builds: _Builds, plan: CellPlan
) -> Callable[[Sequence[Array]], float]:
    """Return a function from results to their largest ``relative_error``.

    It raises ``Lost`` for results of other numbers or shapes than the interpreter's.
    """
    wanted = _wanted(subject, builds, plan)

    def error(found: Sequence[Array]) -> float:
        shapes, others = [a.shape for a in wanted], [a.shape for a in found]
        if shapes != others:
            raise Lost(f"its results are {others}, and the interpreter's {shapes}"[:300])
        return max(map(relative_error, found, wanted), default=0.0)

    return error


def _bound(subject: BenchModel, builds: _Builds, plan: CellPlan) -> float:
    """Return the largest error that is accepted of any way; infinite without a check."""
    if not plan.check:
        return float("inf")
    rounded = rounds_products(builds.builder.target, builds.builder.options.weights)
    floats = (a.dtype for a in _wanted(subject, builds, plan) if a.dtype.kind != "b")
    return max((tolerance(from_numpy(t), rounded) for t in floats), default=0.0)


def _wanted(subject: BenchModel, builds: _Builds, plan: CellPlan) -> list[Array]:
    """Return the interpreter's results of what is built."""
    made = builds.builder
    return subject.expected(made.frozen, plan.seed, made.options)


def _warnings(cell: CellBench, bound: float) -> Sequence[str]:
    """Return why figures of a cell are not to be trusted."""
    found = []
    if cell.spread > NOISY:
        found.append(
            f"the same build, timed as two, differs by {cell.spread:.0%}: "
            "smaller differences say nothing"
        )
    for w in cell.ways:
        if w.error is not None and w.error > bound:
            found.append(f"{w.name} computes something else: its error is {w.error:.1e}")
    return found
