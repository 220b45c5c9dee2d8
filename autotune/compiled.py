"""The executable of a lowered model: loaded from the cache on disk, or built and put there."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from ..codegen import driver
from ..codegen.driver.build_key import BuildKey, build_key
from ..codegen.driver.cached import build_or_load
from ..codegen.driver.frozen_weights import FrozenWeights
from ..codegen.driver.schedules import Schedules
from ..codegen.driver.stages import stage_text
from ..codegen.driver.store import folder
from ..codegen.plan.bundle import Bundle
from ..codegen.plan.notes import ALLOWED
from ..codegen.runtime.executable import Executable
from ..codegen.targets.timings import timed
from ..ir import hlo
from ..ir.errors import NestwrightWarning
from ..ir.frontends.imported import Imported
from ..ir.frontends.load import imported as imported_model
from ..ir.frontends.load import is_one_file
from ..ir.hlo.nodes import HloModule
from .log.units import counted
from .recipe import BuildRecipe


def built(
    model: BuildRecipe, schedules: Schedules, timings: dict[str, float], cache: bool
) -> Executable:
    """Return the executable of a model: out of the store, if it is used and has it, else built.

    What the executable keeps to show its stages has no large arrays.
    """
    unread = not isinstance(model.model, Imported) and is_one_file(model.model)
    frozen = dict(model.constants) if unread else _frozen(model, timings)
    module, held = _module_of(model.model if unread else model.imported), FrozenWeights(frozen)
    options = model.options

    def stage(name: str) -> str:
        return stage_text(module(), options, name, schedules=schedules, constants=held.arrays())

    def fresh() -> Executable:
        with timed(timings, "parse"):
            known = model.imported
        return driver.build_module(
            known.module,
            options,
            schedules,
            frozen,
            timings,
            inputs=known.names(frozen),
            outputs=known.outputs,
        )

    key = None
    if cache and folder() is not None:
        with timed(timings, "cache"):
            key = _key(model, schedules, frozen, unread)
    if key is None:
        return fresh()

    def kept(bundle: Bundle) -> Executable:
        return Executable(bundle, module, stage)

    return build_or_load(key, model.name, fresh, kept, timings)


def key_of(model: BuildRecipe, schedules: Schedules) -> BuildKey | None:
    """Return the key under which the cache has a model; None for a file that cannot be read."""
    unread = not isinstance(model.model, Imported) and is_one_file(model.model)
    return _key(model, schedules, dict(model.constants) if unread else model.frozen, unread)


def _key(
    model: BuildRecipe, schedules: Schedules, frozen: dict[int | str, Any], unread: bool
) -> BuildKey | None:
    content = content_of(model.model if unread else model.imported)
    return None if content is None else build_key(content, model.options, schedules, frozen)


def _frozen(model: BuildRecipe, timings: dict[str, float]) -> dict[int | str, Any]:
    """Return the arrays to freeze of a model that has to be read to find them."""
    with timed(timings, "parse"):
        return dict(model.frozen)


def _module_of(model: str | os.PathLike[str] | Imported) -> Callable[[], HloModule]:
    """Return a function that returns the module, and keeps no weights."""
    if isinstance(model, Imported):
        graph = model.module
        return lambda: graph
    return lambda: imported_model(model).module


def content_of(model: str | os.PathLike[str] | Imported) -> bytes | None:
    """Return a hash of a model's graph and names; None for a file that cannot be read.

    The weights that it carries are hashed with the other frozen arrays.
    """
    if isinstance(model, Imported):
        return sha256(
            hlo.digest(model.module) + repr((model.inputs, model.outputs)).encode()
        ).digest()
    try:
        return sha256(Path(model).read_bytes()).digest()
    except (OSError, ValueError):
        return None


def warn_of_weights(exe: Executable) -> None:
    """Warn, in a single warning, of weights that cannot have the form that was asked for."""
    found = exe.weights_analysis()
    asked = not str(found.get("form")).startswith(ALLOWED)
    rows = found.get("weights", ()) if asked else ()
    kept = [f"{w['name']} because {w['kept']}" for w in rows if w["kept"]]
    if kept:
        named = "; ".join(kept[:4]) + ("; .." if len(kept) > 4 else "")
        text = f"{counted(len(kept), 'weight')} of {exe.name} left f32: {named}"
        warnings.warn(text, NestwrightWarning, stacklevel=4)
