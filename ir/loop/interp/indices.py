"""Index arithmetic for the interpreter: as Python, not as a closure for each operation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from ...dtypes import index, pred
from ..nodes import Const, Expr, Op, Var
from .scalar import Closure

LEVELS = 40  # of operations: Python's parser takes some more

_INDICES = {
    "add": "({} + {})",
    "subtract": "({} - {})",
    "multiply": "({} * {})",
    "floordiv": "({} // {})",
    "floormod": "({} % {})",
    "minimum": "min({}, {})",
    "maximum": "max({}, {})",
    "lt": "({} < {})",
    "le": "({} <= {})",
    "gt": "({} > {})",
    "ge": "({} >= {})",
    "eq": "({} == {})",
    "ne": "({} != {})",
}
_CONDITIONS = {"and": "({} and {})", "or": "({} or {})", "not": "(not {})"}


def source(e: Expr, slots: Mapping[Var, int], levels: int = LEVELS) -> str | None:
    """Return an index, or a condition on indices, as Python that reads ``env``.

    None where it takes more than variables and literals, or more levels. ``slots`` are the places
    of variables in ``env``.
    """
    match e:
        case Var(dtype=dtype) if dtype in (index, pred):
            return f"env[{slots[e]}]"
        case Const(value=int(c), dtype=dtype) if dtype == index:
            return f"({int(c)})"
        case Op(name=name, args=args) if levels:
            form = _form(name, args)
            parts = [source(a, slots, levels - 1) for a in args] if form else [None]
            return None if None in parts else form.format(*parts)
        case _:
            return None


def _form(name: str, args: tuple[Expr, ...]) -> str:
    """Return how an operation is written; nothing if it is not one of indices and conditions."""
    if name == "select" and args[0].dtype == pred and args[1].dtype == index:
        return "({1} if {0} else {2})"
    if name in _INDICES and all(a.dtype == index for a in args):
        return _INDICES[name]
    return _CONDITIONS.get(name, "") if all(a.dtype == pred for a in args) else ""


@lru_cache(maxsize=1 << 12)
def compiled(text: str) -> Closure:
    """Return the closure of such a text, which ``text_of`` gives back."""
    made = eval(f"lambda env: {text}")
    made.text = text
    return made  # type: ignore[no-any-return]


def text_of(closure: Closure) -> str:
    """Return the text of a closure; nothing if it was not made of one."""
    found: str = getattr(closure, "text", "")
    return found


@lru_cache(maxsize=1 << 12)
def maker(names: str, *lines: str) -> Callable[..., Callable[[list[Any]], Any]]:
    """Return what makes a function of ``env`` from values that its lines call by these names."""
    scope: dict[str, Any] = {}
    body = "\n  ".join(lines)
    exec(f"def make({names}):\n def run(env):\n  {body}\n return run", scope)
    return scope["make"]  # type: ignore[no-any-return]
