"""A built model that can be called: ``exe(x, w)`` takes NumPy arrays and returns NumPy arrays.

On a GPU it also takes arrays on the device (``put`` makes them): the results then stay there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from ...ir.errors import ArgumentError, ArtifactError, OutOfMemoryError
from ...ir.lazy import LazyModule
from ..plan.bundle import Bundle, Variant, variants
from ..plan.nodes import Plan, show
from ..plan.notes import DEVICES, DRAWS, FALLBACK, HLO, WEIGHTS
from ..plan.signature import names
from ..targets.registry import export_c, load, loads_eagerly

if TYPE_CHECKING:
    from ...ir.hlo.nodes import HloModule
    from ..plan.interface import CLibrary
    from ..plan.loaded import Loaded
    from .call_tree import CallTree
    from .profile.data import Profile


_ARGUMENTS = LazyModule(".arguments", __package__)  # for calls by name
TOGETHER = 5  # rounds of a profile that several processes make, each as many


class Executable:
    """A compiled model. Made by ``nestwright.build`` and ``nestwright.load``."""

    def __init__(
        self,
        bundle: Bundle,
        module: Callable[[], HloModule] | None = None,
        stages: Callable[[str], str] | None = None,
    ) -> None:
        """Wrap a bundle; its code is loaded at once or at the first call, depending on the target.

        ``module`` reads the model that it was built from, before optimization; ``stages`` returns
        the text of a stage of compilation. An executable that was loaded from a file has neither.
        """
        self.bundle = bundle
        self._others: tuple[Bundle, ...] = ()
        self._module: HloModule | None = None
        self._read_module = module
        self._stages = stages
        self._loading = Lock()
        self._loaded: Loaded | None = None
        self._call: Callable[..., Any] = self._first_call
        self._tree: CallTree | None = None
        if loads_eagerly(bundle.target) and bundle.target.is_host:
            self.loaded()

    def __call__(self, /, *args: object, **named: object) -> Any:
        """Run the model; return one array or a tuple of arrays, as the HLO root says.

        The arguments are the entry's parameters in order, without frozen ones; after those that are
        given by place, others may be given by name (``input_names``). Arrays must have the exact
        element type and shape; see ``arguments`` for other accepted types. ``out=``, an array
        or tuples of arrays like the result, receives the results and is returned (unless it is the
        name of an input that is not given by place). It may overlap
        arguments; one that the model copies and then updates, such as a cache, is updated where it
        is if it is also given for that result. Raises
        ``ArgumentError``, and ``OutOfMemoryError``, which is a ``MemoryError``, if the results
        cannot be allocated. A signal whose handler raises, such as Ctrl-C, ends the call with that
        exception; the contents of ``out`` are then undefined.

        An executable that ``Lowered.compile`` made of a function or module also takes the model's
        own arguments, trees and keywords, and gives its own tree with arrays as leaves; ``flat`` is
        the same code without that.
        """
        try:
            return self._named(args, named) if named else self._call(*args)
        except OutOfMemoryError:
            raise
        except ArgumentError:
            if self._tree is None or not self._tree.after_leaves:
                raise
            return self._tree.call(self._flat_call, args, named)
        except MemoryError as error:
            raise OutOfMemoryError(
                "there is no memory for this call", str(error) or self._needs(), self.name
            ) from error

    def on(self, communicator: object, seconds: float | None = None) -> Executable:
        """Return this executable for calls that all ranks of a communicator make together.

        The model is written for several devices (``replica_count``, ``num_partitions``, or the
        groups of its collectives); rank ``replica * partitions + partition`` runs one of them, on
        that device's arguments. ``communicator`` is one of ``mpi4py``, or has the methods of
        ``collectives.communicator.Communicator``. All ranks call this together, and then wait
        for each other in calls, ``seconds`` (120) at most. Raises ``CommunicationError`` if the
        numbers of devices and ranks differ, if the ranks run different programs, or if a rank does
        not answer; ``TargetError`` if the code runs on a GPU.
        """
        from .collectives.join import joined

        found = joined(self.bundle, communicator, seconds)
        other = Executable(self.bundle, self._read_module, self._stages)
        other.loaded().join(found)
        return other if self._tree is None else other.called_as(self._tree)

    def _first_call(self, *args: object) -> Any:
        return self.loaded().call(*args)

    def _tree_call(self, /, *args: object, **named: object) -> Any:
        assert self._tree is not None
        return self._tree.call(self._flat_call, args, named)

    def _flat_call(self, /, *args: object, **named: object) -> Any:
        is_input = "out" in named and "out" in self.input_names[len(args) :]
        out = None if is_input else named.pop("out", None)
        if named:
            args = _ARGUMENTS.in_order(args, named, self.input_names, self.name)
        loaded = self._loaded or self.loaded()
        return loaded.call(*args) if out is None else loaded.call(*args, out=out)

    def _named(self, args: tuple[object, ...], named: dict[str, object]) -> Any:
        tree = self._tree is not None and not self._tree.after_leaves
        return self._tree_call(*args, **named) if tree else self._flat_call(*args, **named)

    def _by_place(self) -> Callable[..., Any]:
        """Return what takes arguments by place."""
        if self._tree is not None and not self._tree.after_leaves:
            return self._tree_call
        return self._first_call if self._loaded is None else self._loaded.call

    def _needs(self) -> str:
        needs = self.memory_analysis()
        results, arena = needs["output_size_in_bytes"], needs["temp_size_in_bytes"]
        return f"the results take {results} bytes, intermediate values {arena}"

    @property
    def flat(self) -> Executable:
        """This executable with flat calls: it takes leaves and gives one array or a tuple."""
        return self if self._tree is None else self.called_as(None)

    def __copy__(self) -> Executable:
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        return other

    def __reduce__(self) -> NoReturn:
        raise ArtifactError(
            f"{self.name} cannot be pickled or copied deeply",
            "its code is loaded into this process",
            hint="exe.save(path) writes a file that nestwright.load(path) reads in another "
            "process; a child that was forked can call it as it is",
        )

    def called_as(self, tree: CallTree | None) -> Executable:
        """Return this executable for calls with another tree; code that is loaded is shared."""
        other = copy(self)
        other._tree = tree
        other._call = other._by_place()
        return other

    @property
    def name(self) -> str:
        """The model's name."""
        return self.bundle.name

    @property
    def plan(self) -> Plan:
        """The thunks in order, and where values are stored."""
        return self.bundle.plan

    @cached_property
    def input_names(self) -> tuple[str, ...]:
        """The names of the arguments, in order: the model's own, or those of the parameters."""
        return names(self.plan.params, self.plan.param_tree)

    @cached_property
    def output_names(self) -> tuple[str, ...]:
        """The names of the results, in order; ``result 0`` and so on where the model has none."""
        return names(self.plan.results, self.plan.result_tree)

    @property
    def module(self) -> HloModule:
        """The model as HLO. ``ArtifactError`` if a saved executable does not contain it."""
        if self._module is None and self._read_module is not None:
            self._module = self._read_module()
        if self._module is None:
            text = self.bundle.notes.get(HLO, "")
            if not text:
                raise self._without_hlo()
            from ...ir.hlo.text import parse

            self._module = parse(text, f"<{self.name}>")
        return self._module

    def random_arguments(self, seed: int = 0) -> list[Any]:
        """Draw arguments from a seed, the same wherever the executable is loaded.

        ``nestwright.ir.hlo.analysis.inputs`` defines how. An argument is an array, or tuples of
        arrays as the parameter says. ``ArtifactError`` if a saved executable does not record how to
        draw them.
        """
        from ...ir.hlo.analysis.inputs import Draw, draw_all, require_seed

        require_seed(seed, self.name)
        try:
            recipes = json.loads(self.bundle.notes.get(DRAWS, ""))
            pairs = zip(self.plan.params, recipes, strict=True)
            found = [Draw(p.dims, p.dtype, float(r[0]), bool(r[1])) for p, r in pairs]
        except (ValueError, TypeError, LookupError):
            raise ArtifactError(
                f"cannot draw arguments for {self.name}",
                "it does not record how to draw them",
                hint="pass the arguments as a file",
            ) from None
        return list(_ARGUMENTS.rebuild(draw_all(found, seed), self.plan.param_tree))

    def put(self, value: object) -> Any:
        """Copy an array to where this executable runs: on a GPU a ``DeviceArray``, else NumPy's.

        Arguments that are on the GPU are used in place, and the results stay there.
        """
        put = getattr(self.loaded(), "put", np.array)
        return put(value)

    def save(
        self, path: str | os.PathLike[str], sign: str | os.PathLike[str] | None = None
    ) -> None:
        """Write one file that ``nestwright.load`` reads, atomically, with all variants.

        ``sign`` is the file of a private key, Ed25519 in PEM, to sign the file with.
        """
        if not isinstance(path, str | os.PathLike):
            raise ArtifactError(f"cannot write {path!r}", "it is not a path")
        if len(self.bundle.variants) > 1 + len(self._others):
            raise ArtifactError(
                f"cannot write {path}",
                "one variant of the file was loaded, and it has others",
                hint="copy the file",
            )
        from pathlib import Path

        from ..plan.saved.write import write

        write(self.bundle, Path(path), others=self._others, sign=sign)

    @property
    def variants(self) -> tuple[Variant, ...]:
        """The processors that this was built for, which of them is in force, what others lack.

        Empty where there is one only.
        """
        return self.bundle.variants

    def with_variants(self, bundle: Bundle, others: Sequence[Bundle]) -> Executable:
        """Return an executable that runs ``bundle`` and is saved with ``others`` as well."""
        rows = variants([b.target for b in (bundle, *others)])
        found = Executable(replace(bundle, variants=rows), self._read_module, self._stages)
        found._module, found._others = self._module, tuple(others)
        return found if self._tree is None else found.called_as(self._tree)

    def export_c(
        self,
        folder: str | os.PathLike[str],
        *,
        name: str = "",
        weights: str = "object",
        threads: int | None = None,
    ) -> CLibrary:
        """Write the model as a static library for C and C++, which needs no Python, atomically.

        ``folder`` gets the library, headers, an example program, and files for CMake and
        pkg-config; an empty folder and an earlier library are replaced. ``name`` is the library's
        and the prefix of its symbols, by default the model's. The ``weights`` are in the library
        ("object") or in a file that programs map ("file"). ``threads`` is how many an instance
        uses by default; with 1 the library does without pthread. Raises ``UnsupportedError`` for a
        model that needs functions of Python, for bounded sizes and for a GPU, ``ArgumentError`` for
        options that there are not, ``ArtifactError`` if the folder cannot be written.
        """
        if not isinstance(folder, str | os.PathLike):
            raise ArtifactError(f"cannot write {folder!r}", "it is not a path")
        from pathlib import Path

        return export_c(self.bundle, Path(folder), name, weights, threads)

    def cost_analysis(self) -> dict[str, float]:
        """Return the work of one run, under jax's names: ``flops``, ``transcendentals``, ``bytes
        accessed``.

        Counted on the optimized module; loop bodies count once.
        """
        return dict(self.bundle.costs)

    def memory_analysis(self) -> dict[str, int]:
        """Return the bytes of arguments, results, arena and code, under jax's names."""
        return {
            "argument_size_in_bytes": sum(p.bytes for p in self.plan.params),
            "output_size_in_bytes": sum(r.bytes for r in self.plan.results),
            "alias_size_in_bytes": 0,
            "temp_size_in_bytes": self.plan.arena_bytes,
            "generated_code_size_in_bytes": self.bundle.code_bytes,
            "constant_size_in_bytes": self.plan.constant_bytes,
        }

    def weights_analysis(self) -> dict[str, Any]:
        """Return what ``weights=`` or ``accuracy=`` of the build did: ``form``, the one asked for
        or the accuracy, and a row for each of ``weights``.

        A row has ``name`` (of the product), ``form``, ``shape``, ``bytes``, ``narrow_bytes``,
        ``max_abs_error``, ``relative_rms_error`` (errors against f32) and ``kept``, which says why
        this weight stayed f32. Empty if weights were not narrowed.
        """
        return self._note(WEIGHTS)

    def fallbacks(self) -> dict[str, str]:
        """Return why groups run in the interpreter, by name; ``fallback=`` of the build asks for
        it.
        """
        return self._note(FALLBACK)

    def _note(self, key: str) -> dict[str, Any]:
        """Return a note that is a JSON object, empty without it."""
        try:
            found = json.loads(self.bundle.notes.get(key, "{}"))
        except ValueError as error:
            why = f"its note {key!r} is not JSON"
            hint = "build the model again"
            raise ArtifactError("the built model is damaged", why, self.name, hint) from error
        return found if isinstance(found, dict) else {}

    def as_text(self, stage: str = "plan") -> str:
        """Return the model's text at a stage of compilation (``hlo``, ``optimized``, ...,
        ``plan``).

        A loaded executable has ``hlo`` and ``plan`` only.
        """
        if stage == "plan":
            return show(self.plan)
        if self._stages is not None:
            return self._stages(stage)
        text = self.bundle.notes.get(HLO, "")
        if stage == "hlo" and text:
            return text
        if stage == "hlo":
            raise self._without_hlo()
        why = "a saved executable holds the stages hlo and plan only"
        hint = "`nestwright show MODEL` prints them from the model that it was built from"
        raise ArtifactError(f"no text of stage {stage!r}", why, self.name, hint)

    def _without_hlo(self) -> ArtifactError:
        why = "weights were frozen into it, or it was built of a loop function"
        hint = "the model that it was built from has it"
        return ArtifactError(f"{self.name} does not contain its HLO", why, hint=hint)

    def profile(self, /, *args: object, rounds: int | None = None, **named: object) -> Profile:
        """Return the time of every step of a call, what it computes and where; see ``Profile``.

        Arguments are as for a call, without ``out=``. ``rounds`` calls as they are and as many with
        timed steps are made in turns; by default for about a second, 5 at least. The profile's
        ``notes`` say where timing takes over 5 % of a call. Raises what a call raises.
        """
        if rounds is not None and (not isinstance(rounds, int) or rounds < 1):
            raise ArgumentError(f"rounds={rounds!r}", "at least one round is needed", self.name)
        if "out" in named:
            raise ArgumentError("out=", "a profile keeps no results", self.name)
        from .profile.assemble import assembled

        if rounds is None and DEVICES in self.bundle.notes:
            rounds = TOGETHER
        times = self.loaded().profile(self._leaves(args, named), rounds)
        return assembled(self.bundle, times, self.memory_analysis())

    def _leaves(self, args: tuple[object, ...], named: dict[str, object]) -> tuple[object, ...]:
        """Return the arguments of a call as the flat call takes them."""
        taken: list[tuple[object, ...]] = []

        def take(*given: object, **rest: object) -> Any:
            found = _ARGUMENTS.in_order(given, rest, self.input_names, self.name) if rest else given
            taken.append(tuple(found))
            return self._flat_call(*found)

        if self._tree is None:
            take(*args, **named)
        else:
            self._tree.call(take, args, named)
        return taken[-1]

    def loaded(self) -> Loaded:
        """Return the loaded code; ``TargetError`` if this machine cannot run it."""
        with self._loading:
            if self._loaded is None:
                self._loaded = load(self.bundle)
                self._call = self._by_place()
            return self._loaded

    def _repr_html_(self) -> str:
        from .html import page

        return page(self.bundle, self.input_names, self.output_names, self.memory_analysis())

    def __repr__(self) -> str:
        params = ", ".join(f"{p.name}: {p}" for p in self.plan.params)
        results = ", ".join(map(str, self.plan.results))
        return f"<Executable {self.name}({params}) -> ({results}) for {self.bundle.target.spec}>"
