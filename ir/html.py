"""Pieces of HTML that objects show in notebooks: escaped, without scripts, styles or links."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape


def table(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table of texts."""
    head = "".join(f"<th>{escape(t)}</th>" for t in titles)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def facts(found: Mapping[str, object]) -> str:
    """Return names and values as a table of two columns."""
    rows = "".join(
        f"<tr><th>{escape(name)}</th><td>{escape(str(value))}</td></tr>"
        for name, value in found.items()
    )
    return f"<table><tbody>{rows}</tbody></table>"


def text(title: str, body: str) -> str:
    """Return a text of several lines, its spaces kept, that a click on the title opens."""
    return f"<details><summary>{escape(title)}</summary><pre>{escape(body)}</pre></details>"
