"""A function with another body: what every lowering pass ends with."""

from __future__ import annotations

from dataclasses import replace

from ....ir.loop.nodes import Func, Stmt


def with_body(func: Func, body: Stmt) -> Func:
    """Return ``func`` over ``body``; the same object if it has that body already."""
    return func if body is func.body else replace(func, body=body)
