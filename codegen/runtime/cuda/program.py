"""A bundle on a GPU: arguments go to the device, the plan runs there, results come back.

Arguments that are on the device already are used in place. If there are any, the results stay on
the device too, as ``DeviceArray``s, and a call returns as soon as its work is submitted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, lru_cache, partial
from typing import Any

import numpy as np

from ....ir.arrays import Array, as_array
from ....ir.dtypes import from_numpy
from ....ir.errors import ArgumentError, NestwrightError, TargetError, UnsupportedError
from ....ir.library.session import Session
from ...plan.bundle import Bundle
from ...plan.code.device import DeviceCode
from ...plan.function import CompiledFunc
from ...plan.loaded import ThunkTime, Times
from ...plan.nodes import KernelThunk, LibraryThunk, Plan, walk
from ...plan.signature import ArraySpec, is_bounded, slots
from ...plan.updates import updated_in_place
from ..arguments import (
    answer,
    as_seen,
    check_outputs,
    convert,
    flatten,
    flatten_outputs,
    rebuild,
    refuse_keyword,
)
from ..bounded import empty, live, padded
from ..packing import packers
from ..profile.measure import quicker
from .arrays import DeviceArray, Placed, is_on_gpu, take
from .device import Device, device
from .driver import DriverError
from .kernels import load_all
from .memory import DeviceMemory
from .recording import Places, Recorder
from .staging import Pinned, Staging
from .steps import Branch, Call, Loop, Repeat, Segment, Step, chosen, steps

DECISION_BYTES = 8
ROUNDS = 5  # of a profile


class DeviceProgram:
    """A bundle loaded into a GPU. Concurrent calls run one after the other."""

    def __init__(self, bundle: Bundle, on: Device) -> None:
        self.bundle = bundle
        self.plan: Plan = bundle.plan
        self.device = on
        codes = {s: c for s, c in bundle.kernels.items() if isinstance(c, DeviceCode)}
        self._call = on.during(f"a call of {bundle.name} failed")
        with on.during(f"{bundle.name} cannot be loaded"):
            self.kernels = load_all(codes, bundle.target, on, bundle.name)
            self.staging = staging(on)
            sizes = self.plan.arena_bytes, self.plan.constant_bytes
            self.arena = on.allocate(sizes[0], f"the arena of {bundle.name}")
            self.constants = on.allocate(sizes[1], f"the constants of {bundle.name}")
            self.staging.upload(bundle.constants, self.constants.address)
            self._decision = Pinned(on, DECISION_BYTES)
        self.steps = steps(self.plan.thunks)
        self._session = Session()
        self._homes: dict[tuple[str, int], DeviceMemory] = {}
        self._recorder = Recorder(on, self.kernels, self._decision.address, bundle.name)
        self.params, self.results = slots(self.plan.params), slots(self.plan.results)
        self._sizes = tuple(p.bytes for p in self.params), tuple(r.bytes for r in self.results)
        self._updated = updated_in_place(self.plan)
        thunks = [t for t in self.plan.thunks if isinstance(t, KernelThunk)]
        one = len(thunks) == len(self.kernels) == 1
        self._suspect = f"kernel {thunks[0].symbol} of group {thunks[0].name}" if one else ""

    def call(self, *args: object, out: object = None, **unknown: object) -> Any:
        """Return the function that Python calls."""
        if unknown:
            refuse_keyword(unknown)
        return self.run(args, out)

    def run(self, args: Sequence[object], out: object) -> Any:
        """Run the program; the results go to ``out``, arrays of host or device, unless it
        is None.
        """
        plan, where = self.plan, self.bundle.name
        flat = flatten(args, plan.params, plan.param_tree, where)
        if is_bounded((*plan.params, *plan.results)):
            return self._run_bounded(flat, out)
        targets = [] if out is None else flatten_outputs(out, plan.results, plan.result_tree, where)
        with self._call:
            params = self._params(flat)
            if any(map(is_on_gpu, targets)):
                self._run_into(targets, params)
                return out
            if out is None and any(map(is_on_gpu, flat)):
                made = [self._array(r) for r in plan.results]
                self._execute(params, [a.address for a in made], lent=params)
                return rebuild(made, plan.result_tree)
            hosts = (
                empty(plan.results)
                if out is None
                else check_outputs(out, plan.results, plan.result_tree, where)
            )
            self._execute(params, self._result_homes())
            self._fetch(hosts)
            return answer(hosts, plan.results, plan.result_tree) if out is None else out

    def _run_bounded(self, flat: Sequence[object], out: object) -> Any:
        """Run by way of the host, where arrays are padded and cut to their sizes."""
        plan, where = self.plan, self.bundle.name
        hosts = (
            empty(plan.results)
            if out is None
            else check_outputs(out, plan.results, plan.result_tree, where)
        )
        whole = self._slots(flat)
        with self._call:
            self._execute(self._params(whole), self._result_homes())
            self._fetch(hosts)
        if out is not None:
            return out
        return answer(live(hosts, plan.results), plan.results, plan.result_tree)

    def _slots(self, flat: Sequence[object]) -> Sequence[object]:
        """Return the values for the parameters' slots, given those for the parameters."""
        specs = self.plan.params
        if not is_bounded(specs):
            return flat
        rows = enumerate(zip(flat, specs, strict=True))
        arrays = [convert(self._on_host(x, i), s, i, self.bundle.name) for i, (x, s) in rows]
        whole = padded(arrays, specs)
        return [as_seen(a, s) for a, s in zip(whole, self.params, strict=True)]

    def _on_host(self, value: object, number: int) -> object:
        if isinstance(value, DeviceArray):
            return value.numpy()
        if is_on_gpu(value):
            raise ArgumentError(
                f"argument {number}",
                "another library's array on a GPU, where sizes are bounded",
                self.bundle.name,
                "pass it as a NumPy array",
            )
        return value

    def join(self, communicator: object) -> None:
        """Refuse: values are exchanged between processes whose code runs in them."""
        raise TargetError(
            f"{self.bundle.name} runs on a GPU, {communicator!r} joins processes",
            "exchanging values between GPUs needs NCCL, which this version does not use",
            hint='build it with target="cpu"',
        )

    def put(self, value: object) -> DeviceArray:
        """Copy an array to the device that this program runs on."""
        array = as_array(value, "array", self.bundle.name)
        try:
            element = from_numpy(array.dtype)
        except KeyError:
            why = f"no model takes elements of type {array.dtype}"
            raise ArgumentError("array", why, self.bundle.name) from None
        made = self._array(ArraySpec("array", element, array.shape))
        with self._call:
            self.staging.upload(np.ascontiguousarray(array), made.address)
        return made

    def synchronize(self) -> None:
        """Wait until all calls are done; their faults are raised here."""
        with self._call:
            self._wait()
            self.device.let_go(self.bundle.name)

    def repeated(
        self, calls: Sequence[tuple[Sequence[DeviceArray], Sequence[DeviceArray]]]
    ) -> Callable[[], None]:
        """Return a function that submits all these calls, each (arguments, results), as one graph,
        for timing.

        ``UnsupportedError`` for a model whose run needs decisions of the host.
        """
        if not all(isinstance(s, Segment) and s.decision is None for s in self.steps):
            raise UnsupportedError(f"{self.bundle.name} as one graph", "it has loops or branches")
        runs: list[tuple[Segment, Places]] = []
        for params, results in calls:
            bases = self.arena.address, self.constants.address
            places = Places([p.address for p in params], [r.address for r in results], *bases)
            runs += [(s, places) for s in self.steps if isinstance(s, Segment)]
        with self._call:
            graph = self._recorder.together(runs)

        def submit(held: object = calls) -> None:
            with self._call:
                self.device.in_progress[self.bundle.name] = None
                graph.launch(self.bundle.name)

        return submit

    def seconds(self, action: Callable[[], object]) -> float:
        """Return the device's time for the work that an action submits, measured by events."""
        call, on = self.device.driver.call, self.device
        with self._call:
            events: list[Any] = []
            try:
                for _ in range(2):
                    events.append(on.event())
                call("cuEventRecord", events[0], on.stream)
                action()
                call("cuEventRecord", events[1], on.stream)
                self._wait()
                return float(call("cuEventElapsedTime", *events)) * 1e-3
            finally:
                for event in events:
                    on.dispose("cuEventDestroy", event)

    def profile(self, args: Sequence[object], rounds: int | None) -> Times:
        """Return the device's times of runs and of their outermost thunks, from events."""
        plan, rounds = self.plan, rounds or ROUNDS
        flat = self._slots(flatten(args, plan.params, plan.param_tree, self.bundle.name))
        alone = [steps((t,)) for t in plan.thunks]
        found: list[list[float]] = [[] for _ in alone]
        runs: list[float] = []
        with self._call:
            places = self._places(self._params(flat), self._result_homes())
            for _ in range(rounds):
                runs.append(self.seconds(partial(self._run_steps, self.steps, places)))
                for n, todo in enumerate(alone):
                    found[n].append(self.seconds(partial(self._run_steps, todo, places)))
        numbers = {id(t): n for n, t in enumerate(walk(plan.thunks))}
        times = {
            numbers[id(t)]: ThunkTime(quicker(seconds), 1)
            for t, seconds in zip(plan.thunks, found, strict=True)
        }
        return Times(rounds, quicker(runs), sum(t.seconds for t in times.values()), times)

    def _params(self, flat: Sequence[object]) -> list[Placed]:
        """Return the arguments on the device."""
        return [
            self._place(x, s, i) for i, (x, s) in enumerate(zip(flat, self.params, strict=True))
        ]

    def _place(self, value: object, spec: ArraySpec, number: int) -> Placed:
        if type(value) is DeviceArray and value.fits(spec, self.device):
            return Placed(value.address, value)
        where = self.bundle.name
        if is_on_gpu(value):
            return take(value, spec, f"argument {number} ({spec.name})", where, self.device)
        array = convert(value, spec, number, where)
        home = self._home("param", number, spec)
        self.staging.upload(array, home.address)
        return Placed(home.address, home)

    def _run_into(self, targets: Sequence[object], params: Sequence[Placed]) -> None:
        """Run into arrays on the device, through temporaries where they overlap with arguments that
        the plan does not update.
        """
        specs = self.plan.results
        found = [
            take(t, r, "out", self.bundle.name, self.device)
            for t, r in zip(targets, specs, strict=True)
        ]
        if any(p.read_only for p in found):
            raise ArgumentError("out", "an array that may only be read", self.bundle.name)
        if any(p.copied for p in found):
            raise ArgumentError(
                "out",
                "an array on the device must be row-major (or lie as the layout says) and "
                "begin at 16 bytes",
                self.bundle.name,
            )
        places = tuple(p.address for p in params), tuple(p.address for p in found)
        lent = [*params, *found]
        if no_overlap(*places, *self._sizes, self._updated):
            self._execute(params, [p.address for p in found], lent)
        else:
            homes = self._result_homes()
            self._execute(params, homes, lent)
            for place, home, spec in zip(found, homes, specs, strict=True):
                if spec.bytes:
                    self.device.driver.call(
                        "cuMemcpyDtoDAsync", place.address, home, spec.bytes, self.device.stream
                    )
            self._lend(lent)

    def _fetch(self, arrays: Sequence[Array]) -> None:
        """Copy the results from the device."""
        self._wait()  # so that a fault is reported as this program's
        for array, place, spec in zip(arrays, self._result_homes(), self.results, strict=True):
            direct = array.flags.c_contiguous
            made = array if direct else np.empty(spec.stored, array.dtype)
            self.staging.download(place, made)
            if not direct:
                np.copyto(array, made)
        self.device.let_go(self.bundle.name)

    def _array(self, spec: ArraySpec) -> DeviceArray:
        memory = self.device.allocate(spec.bytes, spec.name)
        return DeviceArray(self.device, memory, spec, self.staging)

    def _home(self, kind: str, number: int, spec: ArraySpec) -> DeviceMemory:
        """Return the fixed device memory of a host argument or result."""
        if (kind, number) not in self._homes:
            what = f"{spec.name} of {self.bundle.name}"
            self._homes[kind, number] = self.device.allocate(spec.bytes, what)
        return self._homes[kind, number]

    def _result_homes(self) -> list[int]:
        return [self._home("result", i, r).address for i, r in enumerate(self.results)]

    def _places(self, params: Sequence[Placed], results: Sequence[int]) -> Places:
        bases = self.arena.address, self.constants.address
        return Places([p.address for p in params], list(results), *bases)

    def _execute(
        self, params: Sequence[Placed], results: Sequence[int], lent: Sequence[Placed] = ()
    ) -> None:
        """Submit a run. ``lent`` arguments are held until the device is done, even if this
        raises.
        """
        try:
            self._run_steps(self.steps, self._places(params, results))
        except BaseException:
            with suppress(DriverError, NestwrightError):
                self._lend(lent)
            raise
        self._lend(lent)

    def _run_steps(self, todo: Sequence[Step], places: Places) -> None:
        for step in todo:
            match step:
                case Segment():
                    self._recorder.submit(step, places)
                    if step.decision is not None:
                        self._wait()
                case Call(thunk=thunk):
                    self._library(thunk, places)
                case Loop(body=body):
                    while self._decision.bytes[0]:
                        self.device.raise_if_interrupted()
                        self._run_steps(body, places)
                case Repeat(body=body, times=times):
                    for _ in range(times):
                        self.device.raise_if_interrupted()
                        self._run_steps(body, places)
                case Branch(branches=branches, pred=pred):
                    read = self._decision.bytes[: 1 if pred else 4].tobytes()
                    value = int.from_bytes(read, "little", signed=True)
                    self._run_steps(branches[chosen(len(branches), pred, value)], places)

    def _library(self, thunk: LibraryThunk, places: Places) -> None:
        """Compute a library call on the host, after the work submitted before it."""
        self._wait()
        operands: list[Array] = []
        for s, of in zip(thunk.operands, thunk.call.operands, strict=True):
            operands.append(np.empty(of.shape, of.dtype))
            self.staging.download(places.address(s), operands[-1])
        try:
            made = self._session.run(thunk.call, operands)
        except Exception as error:
            error.add_note(f"in a call of {self.bundle.name}")
            raise
        for s, array in zip(thunk.results, made, strict=True):
            self.staging.upload(array, places.address(s))

    def _wait(self) -> None:
        """Wait for the device.

        A fault names the kernel if only that can be at fault, else the models that were in
        progress.
        """
        others = self.device.in_progress.keys() - {self.bundle.name}
        what = (
            f"one of {', '.join(self.device.in_progress)}"
            if others
            else self._suspect or self.bundle.name
        )
        self.device.synchronize(what, self.bundle.name)

    def _lend(self, params: Sequence[Placed]) -> None:
        """Keep other libraries' memory alive until the device is done with it."""
        foreign = [p.foreign for p in params if p.foreign is not None]
        self.device.hold(foreign, self.bundle.name)


@lru_cache(maxsize=256)
def no_overlap(
    params: tuple[int, ...],
    results: tuple[int, ...],
    param_bytes: tuple[int, ...],
    result_bytes: tuple[int, ...],
    updated: frozenset[tuple[int, int]] = frozenset(),
) -> bool:
    """True if no result, given by address, overlaps with an argument or another result.

    An argument and a result that ``updated`` has as a pair may be the same memory.
    """
    same = {i for i, r in updated if params[i] == results[r]}
    spans = [
        (a, a + n, False)
        for i, (a, n) in enumerate(zip(params, param_bytes, strict=True))
        if n and i not in same
    ]
    spans += [(a, a + n, True) for a, n in zip(results, result_bytes, strict=True) if n]
    read = written = 0  # the ends of the spans so far
    for start, end, is_result in sorted(spans):
        if start < written or (is_result and start < read):
            return False
        read, written = (read, max(written, end)) if is_result else (max(read, end), written)
    return True


def load(bundle: Bundle) -> DeviceProgram:
    """Load a bundle on this machine's GPU. ``TargetError`` where there is none that can run it."""
    try:
        found = device()
    except TargetError as error:
        raise TargetError(
            f"{bundle.name} was built for {bundle.target.spec}", f"{error.what}: {error.why}"
        ) from error
    return DeviceProgram(bundle, found)


class DeviceFunc:
    """A function on its own on this machine's GPU: a program of one kernel."""

    def __init__(self, compiled: CompiledFunc) -> None:
        self.program = load(compiled.bundle)
        self._packers = packers(compiled.packs)

    def run(self, args: Sequence[object], out: object) -> Any:
        """Run as a program does; inputs are packed first where the code wants that."""
        made = list(args)
        for index, pack in self._packers.items():
            if index < len(made):
                made[index] = pack.pack(np.asarray(made[index]))
        return self.program.run(made, out)


def load_function(compiled: CompiledFunc) -> DeviceFunc:
    """Load a function on this machine's GPU; raises as ``load``."""
    return DeviceFunc(compiled)


@cache
def staging(on: Device) -> Staging:
    """Return the page-locked memory of a device, shared by its programs."""
    return Staging(on)
