"""Models of open sizes: an executable for each size, or for each bucket of sizes.

In a bucket the graph of its largest size serves the smaller ones, as bounded dimensions whose
padding is masked. Each size is lowered, so that its graph can be compared with the bucket's
(``ir.hlo.passes.bounded.mark``); only a bucket is compiled.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from threading import RLock
from typing import Any, TypeAlias

import numpy as np

from ..codegen.plan.counters import count
from ..codegen.runtime.executable import Executable
from ..codegen.runtime.profile.data import Profile
from ..ir.arrays import as_array
from ..ir.errors import ArgumentError, NestwrightError, UnsupportedError
from ..ir.frontends.imported import Imported
from ..ir.frontends.load import imported_for
from ..ir.hlo import digest
from ..ir.hlo.passes.bounded.mark import mark
from .lowered import Lowered
from .recipe import GraphLike
from .recompile import CallSignature, Compilation, told_if_long
from .rules import OpenShapes, OpenSize, SizeRule, check_sizes, read_rule

Key: TypeAlias = tuple[tuple[str | int, tuple[int, ...], Any], ...]
"""The place or name, the shape and the element type of each input of a call."""


@dataclass(slots=True)
class _Bucket:
    """The graph of a bucket's largest size, another of nearly that size, what was compiled."""

    largest: Imported
    probe: Imported | None
    executables: dict[bytes, Executable] = field(default_factory=dict)


class SizedModel:
    """A model whose inputs have open sizes: made by ``build(model, shapes=..., rule=...)``.

    A call takes the inputs by place or by name, and compiles for sizes, or for a bucket of them,
    that it has not seen; ``explain_recompile`` says why each was compiled. It may be called from
    several threads.
    """

    def __init__(
        self,
        model: GraphLike,
        shapes: OpenShapes,
        rule: SizeRule,
        lowered: Callable[[Imported], Lowered],
        log: str | os.PathLike[str] | None = None,
    ) -> None:
        """``lowered`` makes a model of known sizes ready to be compiled, with the log's schedules.

        ``ArgumentError`` for what is no rule.
        """
        self._model, self._lowered, self._log = model, lowered, log
        self._shapes = {which: tuple(sizes) for which, sizes in shapes.items()}
        self._buckets = read_rule(rule)
        self._served: dict[Key, Executable] = {}
        self._held: dict[tuple[Any, ...], _Bucket] = {}
        self._compilations: list[Compilation] = []
        self._compiling = RLock()

    def __call__(self, /, *args: Any, out: Any = None, **named: Any) -> Any:
        """Run the model; return an array or a tuple, like the model's root.

        ``ArgumentError`` for inputs whose sizes are not among those asked for,
        ``UnsupportedError``, which names the operator, for a model that cannot be padded.
        """
        more = named if out is None else {**named, "out": out}
        return self.executable(*args, **named)(*args, **more)

    def profile(self, /, *args: Any, rounds: int | None = None, **named: Any) -> Profile:
        """Return the profile of a call with these inputs; see ``Executable.profile``."""
        return self.executable(*args, **named).profile(*args, rounds=rounds, **named)

    def executable(self, /, *args: Any, **named: Any) -> Executable:
        """Return the executable for these inputs, compiling it if need be."""
        key = tuple(
            [(k, *_kind(a, k)) for k, a in enumerate(args)]
            + [(k, *_kind(a, k)) for k, a in named.items()]
        )
        found = self._served.get(key)
        if found is None:
            with self._compiling, told_if_long(f"compiling for {_signature(key)}"):
                found = self._served[key] = self._served.get(key) or self._serve(key)
        return found

    @property
    def compilations(self) -> tuple[Compilation, ...]:
        """All compilations, in order; ``explain_recompile`` says why each was needed."""
        return tuple(self._compilations)

    def _serve(self, key: Key) -> Executable:
        model = self._at(key)
        wanted = self._wanted(model, key)
        if self._buckets is None:
            return self._compile(model, key)
        whole = self._rounded(key, wanted)
        bucket = self._held.get(whole)
        if bucket is None:
            largest = model if whole == key else self._at(whole)
            bucket = self._held[whole] = _Bucket(largest, self._probe(whole, wanted))
        others = [bucket.probe] if bucket.probe is not None else []
        others += [model] if whole != key else []
        try:
            _same_weights(bucket.largest, others)
            marked = mark(bucket.largest.module, [m.module for m in others])
        except UnsupportedError:
            if not _has_ones(key, whole):
                raise
            return self._compile(model, key)  # front-ends write other graphs for a size of 1
        name = digest(marked)
        if name not in bucket.executables:
            found = replace(bucket.largest, module=marked)
            bucket.executables[name] = self._compile(found, whole)
        return bucket.executables[name]

    def _at(self, key: Key) -> Imported:
        """Return the model for inputs of these sizes."""
        return imported_for(
            self._model,
            {which: dims for which, dims, _ in key},
            tuple(np.broadcast_to(np.zeros((), dtype), dims) for _, dims, dtype in key),
        )

    def _compile(self, model: Imported, key: Key) -> Executable:
        began = time.monotonic()
        exe = self._lowered(model).compile(self._log).flat
        count(shapes=1)
        self._compilations.append(Compilation(_signature(key), time.monotonic() - began))
        return exe

    def _wanted(self, model: Imported, key: Key) -> Mapping[str | int, tuple[OpenSize, ...]]:
        """Return the sizes that are allowed, for each input of a call by its place or name.

        ``ArgumentError`` where the call's are not among them, and for unknown inputs.
        """
        names = model.names(model.weights)
        by_number = {model.number(which): sizes for which, sizes in self._shapes.items()}
        unknown = [w for w in self._shapes if model.number(w) not in range(len(names))]
        if unknown:
            told = ", ".join(names[:8])
            raise ArgumentError(f"there is no input {unknown[0]!r}", hint=f"inputs: {told}")
        found = {which: by_number.get(model.number(which), dims) for which, dims, _ in key}
        for which, dims, _ in key:
            check_sizes(which, dims, found[which])
        return found

    def _rounded(self, key: Key, wanted: Mapping[str | int, tuple[OpenSize, ...]]) -> Key:
        """Return the call's inputs with open sizes as large as their buckets."""

        def up(which: str | int, n: int, size: OpenSize) -> int:
            if isinstance(size, int) or self._buckets is None:
                return n
            most = self._buckets.up(n, f"input {which!r}")
            return min(most, max(size)) if isinstance(size, range) else most

        return tuple(
            (w, tuple(up(w, n, s) for n, s in zip(dims, wanted[w], strict=True)), dtype)
            for w, dims, dtype in key
        )

    def _probe(
        self, whole: Key, wanted: Mapping[str | int, tuple[OpenSize, ...]]
    ) -> Imported | None:
        """Return the model for sizes one below a bucket's; None if it has none of these."""

        def below(n: int, size: OpenSize) -> int:
            return n if isinstance(size, int) or n < 3 else n - 1

        smaller = tuple(
            (w, tuple(below(n, s) for n, s in zip(dims, wanted[w], strict=True)), dtype)
            for w, dims, dtype in whole
        )
        try:
            return self._at(smaller) if smaller != whole else None
        except NestwrightError:
            return None


def _has_ones(key: Key, whole: Key) -> bool:
    """True if a size that its bucket rounds up is 1."""
    rows = zip(key, whole, strict=True)
    return any(n == 1 < m for (_, a, _), (_, b, _) in rows for n, m in zip(a, b, strict=True))


def _kind(a: Any, which: str | int) -> tuple[tuple[int, ...], Any]:
    """Return the shape and element type of an input."""
    try:
        return tuple(a.shape), np.dtype(a.dtype)
    except Exception:  # no array of NumPy's kind: attributes may raise anything
        array = as_array(a, f"input {which!r}")
        return array.shape, array.dtype


def _signature(key: Key) -> CallSignature:
    return CallSignature(None, tuple((dims, dtype) for _, dims, dtype in key))


def _same_weights(model: Imported, others: list[Imported]) -> None:
    """Raise ``UnsupportedError`` if the weights depend on the size of the inputs."""
    for other in others:
        for n, a in model.weights.items():
            b = other.weights.get(n)
            if b is None or (a is not b and not np.array_equal(a, b)):
                name = model.module.entry.parameters[n].name
                raise UnsupportedError(
                    f"the sizes of {model.module.name} cannot be padded to those of a bucket",
                    f"its weight `{name}` depends on the size",
                    hint='rule="exact" compiles each size',
                )
