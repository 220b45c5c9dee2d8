"""One text for one computation, whatever its names: what identifies a tuning task.

``body.7 { x.3 = .. }``  ->  ``HloModule canonical  ENTRY main { p0 = .. v0 = .. }``

Instructions are renamed in the order of a walk from the root, computations in the order in which
they are met. Metadata and attributes that never change a result are left out, absent layouts are
written as row-major. So the text depends on shapes, element types, layouts, attributes and the
graph, and on nothing else.
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256

from ..attributes import FREE_TEXT
from ..nodes import Computation, Instruction
from ..rewrite import called, post_order
from .printer import show_operation


def key(computation: Computation) -> str:
    """sha256 of the canonical text, in hexadecimal."""
    return sha256(canonical_text(computation).encode()).hexdigest()


def canonical_text(computation: Computation) -> str:
    """HLO text of a module of ``computation`` and what it calls, names replaced by numbers."""
    names = _names(computation)
    parts = ["HloModule canonical"]
    for c, name in names.items():
        head = "ENTRY main {" if c is computation else f"{name} {{"
        parts.append("\n".join([head, *_rows(c, names), "}"]))
    return "\n\n".join(parts) + "\n"


def _names(computation: Computation) -> dict[Computation, str]:
    """Names of all computations needed, callees first, in an order that names do not change."""
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
    """With its attributes in order of name."""
    return replace(i, attrs=dict(sorted(i.attrs.items()))) if len(i.attrs) > 1 else i
