"""The texts that follow from the declarations of primitives: ``methods.py`` and the page."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from .declare import Primitive

METHODS = '''\
"""The primitives as methods, as declared: ``pytest --bless tests/schedule`` writes this file.

``docs/primitives.md`` says more of each. Those that are declared elsewhere
are methods of a ``Schedule`` too, without types.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..ir.loop.nodes import Scope
from .cursor import BlockRef, LoopRef


class Methods:
    """Every primitive as a method that has its types."""

    __slots__ = ()

    def perform(self, name: str, *args: object, **named: object) -> Any:
        """Check a primitive's arguments, run it, take over its result and note the step."""
        raise NotImplementedError

'''


def methods_text(primitives: Iterable[Primitive]) -> str:
    """The file ``schedule/methods.py``."""
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


def _quoted(text: str) -> str:
    rows = textwrap.wrap(text, 85)
    return f'"""{rows[0]}"""' if len(rows) == 1 else '"""' + "\n".join(rows) + '\n"""'
