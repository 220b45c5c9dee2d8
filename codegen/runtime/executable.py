"""A built model that can be called: ``exe(x, w)`` takes NumPy arrays and gives NumPy arrays."""

from __future__ import annotations

import ctypes
import json
import os
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...ir.dtypes import to_numpy
from ...ir.errors import ArgumentError, ArtifactError, TargetError
from ...ir.hlo.inputs import Draw, draw_all
from ...ir.hlo.nodes import HloModule
from ...ir.hlo.text import parse
from .. import cpu
from ..plan import Plan, children, show
from ..program import PROGRAM
from .arguments import Array, Tree, check_outputs, convert_all, rebuild
from .bundle import Bundle, write
from .entry import MAX_PARAMETERS, Entry
from .outputs import allocator
from .process import runtime
from .profile import ThunkTime, profile

HOLDS_GIL_BELOW = 20_000  # FLOP and bytes: a run this short does not pay for releasing the GIL


@dataclass(frozen=True, slots=True)
class Native:
    """A bundle in this process: its entry, and the function Python calls."""

    library: cpu.Library
    entry: Entry
    call: Callable[..., Any]


class Executable:
    """A compiled model. Made by ``nestwright.build`` and ``nestwright.load``.

    ``module`` is the model it was built from, before optimization.
    """

    def __init__(
        self,
        bundle: Bundle,
        module: HloModule | None = None,
        stages: Callable[[str], str] | None = None,
    ) -> None:
        """``stages`` gives the text of a stage of compilation; a loaded executable has none."""
        self.bundle = bundle
        self._module = module
        self._stages = stages
        self.native = _load(bundle, self._slow) if bundle.target.is_host else None
        self._call = self._slow if self.native is None else self.native.call

    def __call__(self, *args: object, out: object = None) -> Any:
        """Run the model: one array or a tuple of arrays, as the HLO root says.

        The arguments are the entry's parameters in order, those that were frozen left out. Arrays
        must have the exact element type and shape; see ``arguments`` for what else is taken.
        ``out``, an array or tuples of arrays like the answer, gets the results and is returned.
        Raises ``ArgumentError``.
        """
        return self._call(*args) if out is None else self._slow(*args, out=out)

    @property
    def name(self) -> str:
        """The model's name."""
        return self.bundle.name

    @property
    def plan(self) -> Plan:
        """What runs, in which order, and where the values stand."""
        return self.bundle.plan

    @property
    def module(self) -> HloModule:
        """The model as HLO. ``ArtifactError`` where a saved executable does not hold it."""
        if self._module is None:
            text = self.bundle.notes.get("hlo", "")
            if not text:
                raise ArtifactError(
                    f"{self.name} holds no HLO", "weights were frozen into it when it was built"
                )
            self._module = parse(text, f"<{self.name}>")
        return self._module

    def random_arguments(self, seed: int = 0) -> list[Array]:
        """Arguments drawn from a seed, the same wherever the executable is loaded.

        ``nestwright.ir.hlo.inputs`` says how. ``ArtifactError`` for tuple parameters, and where a
        saved executable does not tell.
        """
        try:
            recipes = json.loads(self.bundle.notes.get("draws", ""))
            pairs = zip(self.plan.params, recipes, strict=True)
            found = [Draw(p.dims, p.dtype, float(r[0]), bool(r[1])) for p, r in pairs]
        except (ValueError, TypeError, LookupError):
            raise ArtifactError(
                f"cannot draw arguments for {self.name}", "it does not say of what kind they are",
                hint="pass the arguments as a file",
            ) from None  # fmt: skip
        return draw_all(found, seed)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one file that ``nestwright.load`` reads; it appears whole or not at all."""
        write(self.bundle, Path(path))

    def cost_analysis(self) -> dict[str, float]:
        """Work of one run: ``flops``, ``transcendentals``, ``bytes accessed``; as jax names them.

        Counted on the optimized module; loop bodies count once.
        """
        return dict(self.bundle.costs)

    def memory_analysis(self) -> dict[str, int]:
        """Bytes of arguments, results, arena and code, under jax's names."""
        return {
            "argument_size_in_bytes": sum(p.bytes for p in self.plan.params),
            "output_size_in_bytes": sum(r.bytes for r in self.plan.results),
            "alias_size_in_bytes": 0,
            "temp_size_in_bytes": self.plan.arena_bytes,
            "generated_code_size_in_bytes": self.bundle.code_bytes,
            "constant_size_in_bytes": self.plan.constant_bytes,
        }

    def as_text(self, stage: str = "plan") -> str:
        """The model's text at a stage of compilation (``hlo``, ``optimized``, ..., ``plan``).

        A loaded executable knows ``hlo`` and ``plan`` only.
        """
        if stage == "plan":
            return show(self.plan)
        if self._stages is not None:
            return self._stages(stage)
        text = self.bundle.notes.get("hlo", "")
        if stage == "hlo" and text:
            return text
        raise ArtifactError(
            f"no text of stage {stage!r}", "a saved executable holds the stages hlo and plan only"
        )

    def run_arrays(self, arrays: Sequence[Array], results: Sequence[Array]) -> None:
        """Run on C-contiguous arrays that are known to fit: the parameters' and the results'."""
        native = self.loaded()
        params = (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays))
        outputs = (ctypes.c_void_p * len(results))(*(a.ctypes.data for a in results))
        run = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(
            runtime().addresses["nw_run"]
        )
        if run(native.entry.address, params, outputs):
            raise MemoryError(f"no memory for the {self.plan.arena_bytes} bytes of the arena")

    def profile(self, *args: object, rounds: int = 5) -> tuple[ThunkTime, ...]:
        """The time of each thunk of the plan, run one at a time; arguments as for a call."""
        native, plan = self.loaded(), self.plan
        runtime().set_threads(self.bundle.target.threads)
        arrays = convert_all(args, plan.params, plan.param_tree, self.name)
        sizes = plan.arena_bytes, self.bundle.constants, rounds
        return profile(plan.thunks, native.library.address, arrays, _empty(plan), *sizes)

    def loaded(self) -> Native:
        """The loaded code; ``TargetError`` if this machine cannot run it."""
        if self.native is None:
            raise TargetError(
                f"{self.name} was built for {self.bundle.target.spec}",
                "this machine cannot run its code",
                hint="save it and load it on such a machine",
            )
        return self.native

    def _slow(self, *args: object, out: object = None, **unknown: object) -> Any:
        """The call that converts what it gets, or says what is wrong with it."""
        if unknown:
            raise ArgumentError(f"unknown keyword {next(iter(unknown))!r}", "only out= is known")
        self.loaded()
        plan, where = self.plan, self.name
        arrays = convert_all(args, plan.params, plan.param_tree, where)
        if out is None:
            results = _empty(plan)
            self.run_arrays(arrays, results)
            return rebuild(results, plan.result_tree)
        targets = check_outputs(out, plan.results, plan.result_tree, where)
        direct = _are_apart(targets, arrays)
        results = targets if direct else _empty(plan)
        self.run_arrays(arrays, results)
        if not direct:
            for target, result in zip(targets, results, strict=True):
                np.copyto(target, result)
        return out

    def __repr__(self) -> str:
        params = ", ".join(f"{p.name}: {p}" for p in self.plan.params)
        results = ", ".join(map(str, self.plan.results))
        return f"<Executable {self.name}({params}) -> ({results}) for {self.bundle.target.spec}>"


def _empty(plan: Plan) -> list[Array]:
    return [allocator(r.bytes)(r.dims, to_numpy(r.dtype)) for r in plan.results]


def _are_apart(targets: Sequence[Array], arrays: Sequence[Array]) -> bool:
    """Can the run write to the targets directly? Not if they are strided or overlap anything."""
    for i, target in enumerate(targets):
        if not target.flags.c_contiguous:
            return False
        if any(np.may_share_memory(target, other) for other in (*arrays, *targets[:i])):
            return False
    return True


def _load(bundle: Bundle, slow: Callable[..., Any]) -> Native:
    plan = bundle.plan
    shared = runtime(bundle.runtime)
    library = cpu.load([*bundle.kernels.values(), bundle.program], shared.addresses)
    work = sum(bundle.costs.values()) + plan.arena_bytes
    entry = Entry(
        params=plan.params,
        results=plan.results,
        run=library.address(PROGRAM),
        arena_bytes=plan.arena_bytes,
        constants=int(bundle.constants.ctypes.data),
        allocators=[allocator(r.bytes) for r in plan.results],
        slow=slow,
        threads=bundle.target.threads,
        release_gil=work >= HOLDS_GIL_BELOW or _has_control(plan),
        as_tuple=isinstance(plan.result_tree, tuple),
    )
    free = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(shared.addresses["nw_arena_free"])
    weakref.finalize(entry, _free_arena, free, entry.words).atexit = False
    flat = _is_flat(plan.result_tree) and len(plan.params) <= MAX_PARAMETERS
    call = entry.callable(bundle.name, shared.addresses["nw_call"], library) if flat else slow
    return Native(library, entry, call)


def _free_arena(free: Callable[[int], None], words: np.ndarray[Any, Any]) -> None:
    free(int(words.ctypes.data))


def _has_control(plan: Plan) -> bool:
    return any(children(t) for t in plan.thunks)


def _is_flat(results: Tree) -> bool:
    """Is the answer one array or a tuple of arrays?"""
    return isinstance(results, int) or all(isinstance(r, int) for r in results)
