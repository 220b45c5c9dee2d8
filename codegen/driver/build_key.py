"""The key of a built model in the cache: everything that determines it, as text by field.

The model, the frozen constants, the schedules, the target, the versions of the packages that
generate code and the compiler's own source. Two keys can be compared field by field, which tells
why a model was built again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...ir.arrays import as_array, row_major
from ...ir.library.registry import registered
from ...ir.targets.processor import cores
from ..targets.registry import assembler
from .options import BuildOptions
from .schedules import identity

if TYPE_CHECKING:
    from ...schedule.language.trace import Trace

LARGE = 1 << 24  # bytes of constants that all cores hash
CHUNK = 1 << 23  # bytes that are hashed at a time
DIGITS = 32  # of a digest in a field
MODEL = "model"
NOTHING = "none"
_GENERATORS = ("llvmlite", "numpy", "ml-dtypes")


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A field of a key that differs: what it was, and what it is."""

    field: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.field}: {self.old} -> {self.new}"


@dataclass(frozen=True)
class BuildKey:
    """Everything that determines a built model, as text by field."""

    fields: Mapping[str, str]

    @cached_property
    def name(self) -> str:
        """The name of the cache's entry: a hash of all fields."""
        return sha256(json.dumps(dict(self.fields), sort_keys=True).encode()).hexdigest()

    def changes_from(self, old: BuildKey) -> tuple[FieldChange, ...]:
        """Return the fields that differ from another key's; none only if the keys are equal."""
        names = dict.fromkeys((*old.fields, *self.fields))
        pairs = ((n, old.fields.get(n, NOTHING), self.fields.get(n, NOTHING)) for n in names)
        return tuple(FieldChange(n, a, b) for n, a, b in pairs if a != b)


def build_key(
    model: bytes,
    options: BuildOptions,
    schedules: Mapping[str, Trace],
    constants: Mapping[int | str, Any] | None,
) -> BuildKey:
    """Return the key of a build; ``model`` is a digest of the model's own bytes."""
    target = options.target
    facts = asdict(target) | {"features": sorted(target.features)}
    functions = registered()  # a registered custom call is not expanded, nor refused
    return BuildKey(
        {
            MODEL: model.hex(),
            **_compiler(),
            **{f"target's {name}": _text(value) for name, value in facts.items()},
            "assembler": _text(assembler(target)),
            **_scheduled(schedules),
            "excess precision": _text(options.excess_precision),
            "narrow weights": _text(options.weights),
            "fallback": _text(options.fallback),
            "registered functions": _text(functions),
            **_constants(constants or {}),
        }
    )


def _text(value: Any) -> str:
    """A value as text: words as they are, anything else as JSON."""
    return value if isinstance(value, str) and value else json.dumps(value, sort_keys=True)


def _scheduled(schedules: Mapping[str, Trace]) -> dict[str, str]:
    found = identity(schedules)
    models = found.pop("models", None)
    fields = {f"schedule of {key[:DIGITS]}": _digest(_text(t)) for key, t in found.items()}
    return fields if models is None else fields | {"winners of models": _digest(_text(models))}


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:DIGITS]


def _constants(constants: Mapping[int | str, Any]) -> dict[str, str]:
    """The fields of the constants, hashed in chunks, by all cores where there is much to hash."""
    kinds: dict[str, str] = {}
    parts: list[tuple[str, memoryview]] = []
    for name, value in sorted(constants.items(), key=lambda item: repr(item[0])):
        array = row_major(as_array(value, f"constant {name!r}"))
        field = f"constant {name!r}"
        kinds[field] = f"{array.dtype}{list(array.shape)}"
        data = array.reshape(-1).view(np.uint8).data
        parts += [(field, data[at : at + CHUNK]) for at in range(0, len(data), CHUNK)]
    digests = {field: sha256() for field in kinds}
    for (field, _), found in zip(parts, _hashed([chunk for _, chunk in parts]), strict=True):
        digests[field].update(found)
    return {f: f"{kind} {digests[f].hexdigest()[:DIGITS]}" for f, kind in kinds.items()}


def _hashed(chunks: list[memoryview]) -> Iterable[bytes]:
    if sum(map(len, chunks)) < LARGE:
        return [sha256(chunk).digest() for chunk in chunks]
    with ThreadPoolExecutor(cores()) as pool:
        return list(pool.map(lambda chunk: sha256(chunk).digest(), chunks))


@cache
def _compiler() -> dict[str, str]:
    """The fields of this compiler: its files by size and date, and the packages that shape its
    code.
    """
    digest, newest = sha256(), (0.0, "")
    for path, stat in _sources(Path(__file__).parents[2]):
        digest.update(f"{path} {stat.st_size} {stat.st_mtime_ns}\n".encode())
        newest = max(newest, (stat.st_mtime, path))
    found = {"nestwright's source": f"{digest.hexdigest()[:DIGITS]} (newest: {newest[1]})"}
    for package in _GENERATORS:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


_LAYERS = ("ir", "te", "schedule", "codegen")  # what takes part in a build
_ENDINGS = (".py", ".ll")


def _sources(root: Path) -> Iterator[tuple[str, os.stat_result]]:
    for layer in _LAYERS:
        for folder_, _, files in sorted(os.walk(root / layer)):
            for file in sorted(f for f in files if f.endswith(_ENDINGS)):
                path = os.path.join(folder_, file)
                yield os.path.relpath(path, root), os.stat(path)
