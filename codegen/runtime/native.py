"""Executables on this machine's processor: native code behind one C function.

Code for a simulated GPU is loaded in the same way.
"""

from __future__ import annotations

import ctypes
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from struct import Struct
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from ...ir.arrays import Array
from ...ir.dtypes import to_numpy
from ...ir.errors import TargetError
from ...ir.lazy import LazyModule
from ...ir.target import Target
from ..plan.bundle import Bundle
from ..plan.nodes import Plan, children, library_thunks, walk
from ..plan.signature import Tree, is_bounded, slots
from ..plan.symbols import (
    FAILED,
    LIBRARY,
    PARALLEL,
    POOL,
    PROBE,
    PROBE_COST,
    PROGRAM,
    polls_interrupts,
)
from ..plan.updates import updated_in_place
from ..targets.registry import backend
from . import jit
from .entry import MAX_PARAMETERS, Entry, Maker
from .outputs import allocator
from .process import SHARED, Runtime, runtime

if TYPE_CHECKING:
    from ..plan.function import CompiledFunc
    from ..plan.loaded import Times
    from .collectives.communicator import Communicator
    from .dlpack.exchange import Exchange
    from .function import NativeFunc
    from .library_calls import LibraryCalls
    from .profile.measure import Probe

_EXCHANGE = LazyModule(".dlpack.exchange", __package__)  # most calls have NumPy's arrays,
_CONVERTED = LazyModule(".converted", __package__)  # which native code takes as they are
_RUN = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p)
HOLDS_GIL_BELOW = 20_000  # FLOP and bytes: a run this short does not pay for releasing the GIL


def load(bundle: Bundle) -> Native:
    """Load a bundle. ``TargetError`` if this machine cannot run its code."""
    _require_host(bundle.name, bundle.target)
    return Native(bundle)


def _require_host(name: str, target: Target) -> None:
    if missing := target.missing:
        raise TargetError(
            f"{name} was built for {target.spec}",
            f"this machine cannot run its code: it lacks {', '.join(missing)}",
            hint='load it on such a machine, or build it for this one: target "cpu"',
        )


class Native:
    """A bundle's native code, loaded. ``call`` is the function that Python calls."""

    def __init__(self, bundle: Bundle, probed: Sequence[bytes] = ()) -> None:
        """Load a bundle; ``probed`` is object code to run its plan with, and to time it."""
        self.bundle = bundle
        self.plan = bundle.plan
        self._updated = updated_in_place(self.plan)
        shared = runtime(bundle.runtime[:SHARED])
        self.host = _host(self.plan, bundle.name, bundle.target)
        symbols = {**shared.addresses, **({LIBRARY: self.host.address} if self.host else {})}
        if probed:
            symbols[POOL] = symbols.pop(PARALLEL)
        self.library = self.linked(symbols, probed or (bundle.program,))
        self._twin: tuple[Native, Probe] | None = None
        self._profiling = Lock()
        made = [(allocator(r.bytes), r.dims, to_numpy(r.dtype)) for r in slots(self.plan.results)]
        as_tuple = isinstance(self.plan.result_tree, tuple)
        self.entry = self._entry(made, self._slow, as_tuple, shared)
        self._guarded, self._run = shared.guarded, _RUN(shared.addresses["nw_run"])
        self._table = self.entry.address
        sizes = len(slots(self.plan.params)), len(slots(self.plan.results))
        self._addresses = tuple(Struct(f"{n}P").pack for n in sizes)
        self.call: Callable[..., Any] = self._slow
        if self._is_direct:
            self.call = self.entry.callable(bundle.name, shared.addresses["nw_call"], self.library)

    @property
    def _is_direct(self) -> bool:
        """True if native code itself may take the arguments of a call."""
        return _is_flat(self.plan) and len(self.plan.params) <= MAX_PARAMETERS

    def linked(self, symbols: Mapping[str, int], program: Sequence[bytes]) -> jit.JitLibrary:
        """Link the kernels and the program that calls them; ``symbols`` are what they call."""
        kernels = [code for code in self.bundle.kernels.values() if isinstance(code, bytes)]
        own = self.bundle.runtime[SHARED:]
        return jit.load([*kernels, *program, *own], symbols)

    def _entry(
        self, makers: Sequence[Maker], slow: Callable[..., Any], as_tuple: bool, shared: Runtime
    ) -> Entry:
        plan, bundle = self.plan, self.bundle
        work = sum(bundle.costs.values()) + plan.arena_bytes
        polling = any(map(polls_interrupts, bundle.kernels.values()))
        entry = Entry(
            slots(plan.params),
            slots(plan.results),
            makers,
            updated=self._updated,
            run=self.library.address(PROGRAM),
            arena_bytes=plan.arena_bytes,
            constants=int(bundle.constants.ctypes.data),
            slow=slow,
            failure=self._failure,
            threads=bundle.target.threads,
            release_gil=work >= HOLDS_GIL_BELOW or _has_control(plan) or polling,
            as_tuple=as_tuple,
        )
        return _with_arena(entry, shared)

    def _slow(self, *args: object, out: object = None, **unknown: object) -> Any:
        """Convert the arguments and run, or raise an error that says what is wrong with them."""
        if unknown:
            _CONVERTED.refuse_keyword(unknown)
        found = self.run(args, out)
        if not self.entry.reads:
            self._learn(args)
        return found

    def tensor_call(
        self, exchange: Exchange, makers: Sequence[Maker], slow: Callable[..., Any]
    ) -> Callable[..., Any]:
        """Return a function of another library's arrays, which returns a tuple of them.

        A maker is a function and its two arguments, which allocate a result of type
        ``exchange.kind``. ``slow`` gets the calls whose arrays do not fit the parameters as they
        are, or all of them where native code cannot take the arguments.
        """
        if not self._is_direct:
            return slow
        shared = runtime()
        entry = self._entry(makers, slow, True, shared)
        entry.read(exchange)
        return entry.callable(self.bundle.name, shared.addresses["nw_call"], self.library)

    def _learn(self, args: Sequence[object]) -> None:
        """Let the entry itself read arrays of the type that this call had, where it can."""
        for kind in {type(a): None for a in args}:
            if exchange := _EXCHANGE.exchange_of(kind):
                self.entry.read(exchange)
                return

    def run(self, args: Sequence[object], out: object) -> Any:
        """Run the program; the results go to ``out`` unless it is None."""
        name, updated = self.bundle.name, self._updated
        return _CONVERTED.run(self.plan, args, out, self.run_arrays, name, updated)

    def run_arrays(self, arrays: Sequence[Array], results: Sequence[Array]) -> None:
        """Run on C-contiguous arrays that are known to fit the parameters' and results' slots."""
        self.run_at([a.ctypes.data for a in arrays], [a.ctypes.data for a in results])

    def run_at(self, params: Sequence[int], results: Sequence[int]) -> None:
        """Run on the addresses of row-major arrays; the caller guarantees that they fit."""
        inputs, outputs = self._addresses
        status = self._guarded(self._run, self._table, inputs(*params), outputs(*results))
        if status == FAILED:
            self._failure()
        if status:
            raise MemoryError(f"no memory for the {self.plan.arena_bytes} bytes of the arena")

    def _failure(self) -> None:
        """Raise what the library call raised that failed."""
        assert self.host is not None
        self.host.failure()

    def join(self, communicator: Communicator) -> None:
        """Run collectives by a communicator from now on."""
        if self.host is not None:
            self.host.communicator = communicator

    def put(self, value: Any) -> Any:
        """Return the array itself: the program runs on the host's memory."""
        return value

    def seconds(self, action: Callable[[], object]) -> float:
        """Return the wall time of an action."""
        began = time.perf_counter()
        action()
        return time.perf_counter() - began

    def profile(self, args: Sequence[object], rounds: int | None) -> Times:
        """Return the times of calls and of their thunks, by default for about a second."""
        from .profile.measure import measure

        with self._profiling:
            twin, probe = self._twin = self._twin or self._probed()
            if self.host is not None and self.host.communicator is not None:
                twin.join(self.host.communicator)
            calls = partial(self.call, *args), partial(twin.call, *args)
            return measure(self.plan, *calls, probe, rounds)

    def _probed(self) -> tuple[Native, Probe]:
        """Return the same code with a program that times its thunks, and its probe."""
        from .profile.measure import Probe

        bundle = self.bundle
        try:
            make = backend(bundle.target).probed
        except ModuleNotFoundError as error:
            why = f"a profile compiles a program, and {error.name} is not installed"
            raise TargetError(
                f"cannot profile {bundle.name}", why, hint=f"pip install {error.name}"
            ) from None
        assert make is not None
        twin = type(self)(bundle, make(self.plan, bundle.target, bundle.kernels))
        cost = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(twin.library.address(PROBE_COST))
        number = sum(1 for _ in walk(self.plan.thunks))
        return twin, Probe(twin.library.address(PROBE), cost, number)


def load_function(compiled: CompiledFunc) -> NativeFunc:
    """Load a function. ``TargetError`` if this machine cannot run its code."""
    from .function import NativeFunc

    _require_host(compiled.name, compiled.target)
    return NativeFunc.load(compiled)


def _host(plan: Plan, where: str, target: Target) -> LibraryCalls | None:
    """Return the calls of host functions; None for a plan without."""
    if not (thunks := library_thunks(plan)):
        return None
    from .library_calls import LibraryCalls

    return LibraryCalls(thunks, where, target)


def _with_arena(entry: Entry, shared: Runtime) -> Entry:
    """Return an entry whose arena is freed with it."""
    free = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(shared.addresses["nw_arena_free"])
    weakref.finalize(entry, _free_arena, free, entry.table).atexit = False
    return entry


def _free_arena(free: Callable[[int], None], entry: np.ndarray[Any, Any]) -> None:
    free(int(entry.ctypes.data))


def _has_control(plan: Plan) -> bool:
    return any(children(t) for t in plan.thunks)


def _is_flat(plan: Plan) -> bool:
    """True if the result is one array or a flat tuple, and every array is row-major and of fixed
    size.
    """
    tree: Tree = plan.result_tree
    flat = isinstance(tree, int) or all(isinstance(r, int) for r in tree)
    every = (*plan.params, *plan.results)
    return flat and not any(s.order for s in every) and not is_bounded(every)
