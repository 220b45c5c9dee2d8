"""Canonical text of a computation, independent of its names: the identity of a tuning task.

``body.7 { x.3 = .. }``  ->  ``HloModule canonical  ENTRY main { p0 = .. v0 = .. }``

Instructions are renamed in post-order from the root, computations in the order of their first call.
Metadata and attributes that never change a result are omitted; absent layouts are printed as
row-major. So the text depends only on shapes, element types, layouts, attributes and the graph.
"""

from __future__ import annotations

import re
from dataclasses import replace
from hashlib import sha256
from itertools import chain

from ..attributes import FREE_TEXT
from ..nodes import Computation, Instruction
from ..rewrite import called, post_order
from .printer import show_operation

_SIZES = re.compile(r"(?<=[a-z0-9])\[([\d,]+)\]")


def key(computation: Computation) -> str:
    """Return the SHA-256 of the canonical text, in hexadecimal."""
    return sha256(canonical_text(computation).encode()).hexdigest()


def form_and_sizes(text: str) -> tuple[str, tuple[int, ...]]:
    """Return a canonical text with ranks in place of sizes, and the sizes in order.

    Computations of equal form have the same element types, ranks and attributes.
    """
    found = (m[1].split(",") for m in _SIZES.finditer(text))
    form = _SIZES.sub(lambda m: f"[{m[1].count(',') + 1}]", text)
    return form, tuple(map(int, chain.from_iterable(found)))


def canonical_text(computation: Computation) -> str:
    """Return the text of a module of ``computation`` and its callees, with canonical names."""
    names = _names(computation)
    parts = ["HloModule canonical"]
    for c, name in names.items():
        head = "ENTRY main {" if c is computation else f"{name} {{"
        parts.append("\n".join([head, *_rows(c, names), "}"]))
    return "\n\n".join(parts) + "\n"


def _names(computation: Computation) -> dict[Computation, str]:
    """Name all computations needed, callees first, in an order that depends on no name."""
    names: dict[Computation, str] = {}

    def visit(c: Computation) -> None:
        for i in post_order([*c.parameters, c.root]):
            for callee in called(_sorted(i)):
                if callee not in names:
                    visit(callee)
        names[c] = f"c{len(names)}"

    visit(computation)
    names[computation] = "main"
    return names


def _rows(computation: Computation, names: dict[Computation, str]) -> list[str]:
    local: dict[Instruction, str] = {}
    rows: list[str] = []
    for i in post_order([*computation.parameters, computation.root]):
        number = i.attrs.get("number")
        local[i] = f"p{number}" if i.opcode == "parameter" else f"v{len(local)}"
        mark = "ROOT " if i is computation.root else ""
        rows.append(f"  {mark}{local[i]} = {show_operation(_sorted(i), local, names, FREE_TEXT)}")
    return rows


def _sorted(i: Instruction) -> Instruction:
    """Return the instruction with its attributes sorted by name."""
    return replace(i, attrs=dict(sorted(i.attrs.items()))) if len(i.attrs) > 1 else i
