"""The contents of the kit, one row per item: files, faults, the packing list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

LIMIT = 15 << 20  # bytes


@dataclass(frozen=True)
class Item:
    """Files of the kit by pattern: what they are, and which of the packer's makers makes them."""

    pattern: str
    maker: str
    what: str


ITEMS = (
    Item("wheels/platformdirs-*.whl", "wheels", "where caches are on each system"),
    Item("wheels/xgboost_cpu-*.whl", "wheels", "the tuner's cost model"),
    Item("corpus/*.hlo", "corpus", "small models of the corpus, for the tests on a GPU"),
    Item("corpus/*.right.npz", "corpus", "the interpreter's results for them"),
    Item("kernels/*.nw", "kernels", "the workloads of gpu/measure at full size, built for sm_90a"),
    Item("models/*/model.nw", "models", "PTX and machine code for sm_90a, weights as arguments"),
    Item("models/*/model.json", "models", "recipes of the arguments; predictions by group"),
    Item("models/*/right.npz", "models", "elements of the right results"),
    Item("models/*/model.jax", "models", "the same program as jax exports it"),
    Item("ladder/*", "ladder", "the kernels of the ladder's rungs"),
)


def item_of(path: str) -> Item | None:
    """Return the row that a file of the kit belongs to."""
    return next((i for i in ITEMS if fnmatch(path, i.pattern)), None)


def files(kit: Path) -> list[str]:
    """Return every file of a kit, relative to it."""
    return sorted(p.relative_to(kit).as_posix() for p in kit.rglob("*") if p.is_file())


def faults(kit: Path, makers: Sequence[str]) -> list[str]:
    """Return the rows of these makers that a packed kit lacks, and files that belong to no row."""
    found = files(kit)
    unknown = [
        f"{path}: no row of the kit's contents has it" for path in found if not item_of(path)
    ]
    held = {item_of(path) for path in found}
    missing = [f"{i.pattern}: missing" for i in ITEMS if i.maker in makers and i not in held]
    return unknown + missing


def listing(kit: Path) -> str:
    """Return the packing list: bytes of each row, and of all."""
    sizes = {path: (kit / path).stat().st_size for path in files(kit)}
    lines = []
    for item in ITEMS:
        own = [n for path, n in sizes.items() if item_of(path) is item]
        lines.append(f"{sum(own):>12,} {len(own):>4} files  {item.pattern:<28} {item.what}")
    return "\n".join((*lines, f"{sum(sizes.values()):>12,} of {LIMIT:,} bytes"))


def rows() -> str:
    """Return the contents as a table of a Markdown page."""
    lines = [f"| `{i.pattern}` | {i.what} |" for i in ITEMS]
    return "\n".join(("| files | what they are |", "|---|---|", *lines))
