"""The table of operators: a row for each operator, from the version that first means what it does.

A file of ``operators/`` holds a family. Its functions take a ``Node`` and return the node's
results: one term, or a tuple of values where the operator has several. Each says in
``@operator`` which operators it computes; ``operators/__init__`` names the families.

    @operator("Gemm")
    def gemm(node: Node) -> Term: ...

    @operator("Softmax", since=13)
    def softmax(node: Node) -> Term: ...

An operator without a row that ONNX defines by a function of others is read through that function.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from .node import Node
    from .values import Value

Results: TypeAlias = "Value | tuple[Value, ...]"
Meaning: TypeAlias = "Callable[[Node], Results]"


@dataclass(frozen=True, slots=True)
class Operator:
    """A row: an operator of a domain, the first version that it holds for, and its meaning.

    ``sized`` says that the meaning counts no padding of arrays whose sizes vary; any other row is
    given none such.
    """

    domain: str
    name: str
    since: int
    meaning: Meaning
    sized: bool = False


_ROWS: dict[tuple[str, str], list[Operator]] = {}


def operator(
    *names: str, since: int = 1, domain: str = "", sized: bool = False
) -> Callable[[Meaning], Meaning]:
    """Declare a function as the meaning of operators, from version ``since`` of the domain on.

    ``sized``: also for arrays of bounded size (``Operator.sized``).
    """

    def declare(meaning: Meaning) -> Meaning:
        for name in names:
            rows = _ROWS.setdefault((domain, name), [])
            assert all(row.since != since for row in rows), f"{name} {since} has two rows"
            rows.append(Operator(domain, name, since, meaning, sized))
        return meaning

    return declare


def row(domain: str, name: str, version: int) -> Operator | None:
    """Return the row for an operator in a version of its domain, None if there is none."""
    rows = [r for r in _ROWS.get((domain, name), ()) if r.since <= version]
    return max(rows, key=lambda r: r.since, default=None)


def all_rows() -> list[Operator]:
    """Return the whole table, by domain, name and version."""
    rows = [row for rows in _ROWS.values() for row in rows]
    return sorted(rows, key=lambda r: (r.domain, r.name, r.since))
