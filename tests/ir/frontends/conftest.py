"""What the tests of front-ends share: a text, read, verified and computed by the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nestwright.ir.frontends.stablehlo.reader import parse
from nestwright.ir.hlo import text as hlo
from nestwright.ir.hlo.analysis.verify import verify
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.nodes import HloModule

from .forms import Form

Compute = Callable[..., list[Any]]


def read(text: str) -> HloModule:
    """A module of StableHLO text, which is well formed and prints as HLO that reads back."""
    module = parse(text, "test.mlir")
    verify(module)
    shown = hlo.show(module)
    assert hlo.show(hlo.parse(shown)) == shown
    return module


@pytest.fixture
def stablehlo() -> Callable[[str], HloModule]:
    return read


@pytest.fixture
def compute() -> Compute:
    """``compute(text, *arguments)``: the results of a module of StableHLO text, a list."""

    def run(text: str, *arguments: Any) -> list[Any]:
        found = evaluate(read(text), [np.asarray(a) for a in arguments])
        return list(found) if isinstance(found, tuple) else [found]

    return run


@pytest.fixture
def body(compute: Compute) -> Compute:
    """``body(arguments, results, operations, *values)``: the same of a function's inside.

    The types of arguments are named ``%a``, ``%b``, ... in order.
    """

    def run(arguments: str, results: str, operations: str, *values: Any) -> list[Any]:
        types = arguments.split(" ") if arguments else []
        given = ", ".join(f"%{chr(97 + n)}: {t}" for n, t in enumerate(types))
        return compute(f"func.func @main({given}) -> ({results}) {{\n{operations}\n}}", *values)

    return run


@pytest.fixture
def check_form(body: Compute) -> Callable[[Form], None]:
    """``check_form(form)`` fails unless the form's operations compute what is expected."""

    def check(form: Form) -> None:
        operations, arguments, result, values, expected = form
        (found,) = body(arguments, result, f"{operations}\nreturn %r : {result}", *values)
        wanted = np.asarray(expected)
        assert found.shape == wanted.shape
        np.testing.assert_allclose(found, wanted.astype(found.dtype), rtol=1e-5)

    return check
