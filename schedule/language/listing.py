"""Texts that follow from the declarations of primitives: ``methods.py`` and the docs page."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable

from ..declare import Primitive

METHODS = '''\
"""The primitives as methods, as declared: ``pytest --bless tests/schedule`` writes this file.

``docs/primitives.md`` says more of each. Those that are declared elsewhere
are methods of a ``Schedule`` too, without types.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir.loop.nodes import Scope
from ..cursor import BlockRef, LoopRef


class Methods:
    """Every primitive as a method that has its types."""

    __slots__ = ()

    def perform(self, name: str, *args: object, **named: object) -> Any:
        """Check a primitive's arguments, run it, take over its result and note the step."""
        raise NotImplementedError

'''


def methods_text(primitives: Iterable[Primitive]) -> str:
    """The file ``schedule/language/methods.py``."""
    parts = (_method(p) for p in sorted(primitives, key=lambda p: p.name))
    return METHODS + "\n".join(parts)


def _method(p: Primitive) -> str:
    names = [("*" if x.variadic else "") + x.name for x in p.parameters]
    call = f"self.perform({', '.join([repr(p.name).replace(chr(39), chr(34)), *names])})"
    spelled = ["self", *(x.spelled().replace("'", '"') for x in p.parameters)]
    head = f"    def {p.name}({', '.join(spelled)}) -> {p.result_text()}:"
    if len(head) > 100:
        inside = ", ".join(spelled)
        head = f"    def {p.name}(\n        {inside}\n    ) -> {p.result_text()}:"
        if len(inside) > 92:
            rows = "".join(f"        {x},\n" for x in spelled)
            head = f"    def {p.name}(\n{rows}    ) -> {p.result_text()}:"
    doc = textwrap.indent(_quoted(p.summary().split("\n\n")[0]), "        ")
    if p.result is None:
        return f"{head}\n{doc}\n        {call}\n"
    given = f"        given: {p.result_text()} = {call}"
    if len(given) > 100:
        given = given.replace("(", "(\n            ").replace(")", "\n        )")
    return f"{head}\n{doc}\n{given}\n        return given\n"


def page_text(primitives: Iterable[Primitive], old: str) -> str:
    """``docs/primitives.md``: its introduction as in ``old``, then a table and a part for each.

    What the examples print is left as it is in ``old``, where the same example stands there.
    """
    found = sorted(primitives, key=lambda p: p.name)
    rows = (f"| [`{p.name}`](#{p.name}) | {_short(p)} |" for p in found)
    table = "\n".join(["| primitive | |", "|---|---|", *rows])
    parts = (_part(p, old) for p in found)
    return "\n\n".join([old[: old.index(TABLE)] + TABLE, table, *parts]) + "\n"


TABLE = "## All of them"


def _part(p: Primitive, old: str) -> str:
    example = _example(p)
    before = re.search(re.escape(example) + r"\n\n```text\n(.*?)```", old, re.DOTALL)
    printed = before[1] if before else ""
    signature = f"`{p.signature()}`"
    text = p.summary().replace("``", "`")
    refused = "Refused:\n\n" + _items(p.section("Refused:").replace("``", "`"))
    shown = f"{example}\n\n```text\n{printed}```"
    return "\n\n".join([f"### {p.name}", signature, text, refused, shown])


def _items(text: str) -> str:
    """The items of a list, one a line."""
    return re.sub(r"\n\s+", " ", text)


def _example(p: Primitive) -> str:
    """An example's lines, around the last of which the text of the function is taken."""
    *lines, last = p.section("Example:").splitlines()
    rows = [*lines, "before = sch.show()", last, "print(changes(before, sch.show()))"]
    return "\n".join(["```python", *rows, "```"])


def _short(p: Primitive) -> str:
    """The first sentence, without what follows a colon."""
    text = " ".join(p.summary().split("\n\n")[0].split())
    return text.replace("``", "`").replace("|", "\\|")


def _quoted(text: str) -> str:
    rows = textwrap.wrap(text, 85)
    return f'"""{rows[0]}"""' if len(rows) == 1 else '"""' + "\n".join(rows) + '\n"""'
