"""Models that were built beforehand: a folder with code, recipes of arguments, right results.

Weights are arguments, drawn by name from recipes, so a model of 500 MB is a folder of 1 MB.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .clocks import Array
from .prediction import Prediction

SAMPLED = 4096  # elements of each result that are kept to compare with
CODE, FACTS, RIGHT, EXPORTED = "model.nw", "model.json", "right.npz", "model.jax"


@dataclass(frozen=True)
class Recipe:
    """An argument, drawn by its name: normal numbers, or integers from 0 to ``below``."""

    name: str
    shape: tuple[int, ...]
    scale: float = 1.0
    shift: float = 0.0
    below: int = 0

    def drawn(self) -> Array:
        """Return the argument; every process draws the same."""
        rng = np.random.default_rng(zlib.crc32(self.name.encode()))
        if self.below:
            return rng.integers(0, self.below, self.shape, dtype=np.int32)
        made = rng.standard_normal(self.shape, dtype=np.float32)
        return (made * self.scale + self.shift).astype(np.float32)


@dataclass(frozen=True)
class Prebuilt:
    """A model out of a folder. ``exported`` is what jax wrote of it, where jax was there."""

    name: str
    exe: Any
    recipes: tuple[Recipe, ...]
    right: tuple[Array, ...]
    predicted: Mapping[str, Prediction]
    exported: bytes = b""

    def arguments(self) -> list[Array]:
        """Return all arguments, in order."""
        return [r.drawn() for r in self.recipes]

    def error(self, results: Sequence[Any]) -> float:
        """Return the largest error of a result, relative to its norm, over the elements that were
        kept.
        """
        pairs = zip(results, self.right, strict=True)
        return max((_distance(sample(np.asarray(got)), want) for got, want in pairs), default=0.0)


def sample(result: Array) -> Array:
    """Some elements of a result, evenly spread."""
    flat = np.asarray(result, np.float64).ravel()
    places = np.linspace(0, max(flat.size - 1, 0), min(flat.size, SAMPLED)).astype(int)
    return flat[places].astype(np.float32)


def _distance(got: Array, want: Array) -> float:
    if got.shape != want.shape or not np.isfinite(got).all():
        return float("inf")
    apart, size = np.linalg.norm(got - want), float(np.linalg.norm(want))
    return float(apart) / max(size, 1e-30)


def write(folder: Path, model: Prebuilt) -> None:
    """Write the folder that ``read`` reads."""
    folder.mkdir(parents=True, exist_ok=True)
    model.exe.save(folder / CODE)
    facts = {
        "recipes": [asdict(r) for r in model.recipes],
        "predicted": {k: asdict(p) for k, p in model.predicted.items()},
    }
    (folder / FACTS).write_text(json.dumps(facts))
    right = {f"out{i}": array for i, array in enumerate(model.right)}
    np.savez_compressed(folder / RIGHT, allow_pickle=False, **right)
    if model.exported:
        (folder / EXPORTED).write_bytes(model.exported)


def read(folder: Path) -> Prebuilt:
    """Return the model in a folder."""
    from nestwright.codegen.driver.artifact import load

    facts = json.loads((folder / FACTS).read_text())
    recipes = tuple(Recipe(**{**r, "shape": tuple(r["shape"])}) for r in facts["recipes"])
    predicted = {k: Prediction(**p) for k, p in facts["predicted"].items()}
    with np.load(folder / RIGHT, allow_pickle=False) as stored:
        right = tuple(stored[f"out{i}"] for i in range(len(stored.files)))
    place = folder / EXPORTED
    exported = place.read_bytes() if place.exists() else b""
    return Prebuilt(folder.name, load(folder / CODE), recipes, right, predicted, exported)
