"""A tuned program from its text in the log: its function, seeded inputs, reference results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...ir.arrays import Array
from ...ir.dtypes import to_numpy
from ...ir.errors import LogError
from ...ir.formats import FORMATS
from ...ir.hlo.analysis.inputs import random_arguments
from ...ir.hlo.interp.evaluate import evaluate_computation
from ...ir.hlo.nodes import Computation
from ...ir.hlo.text import parse as parse_hlo
from ...ir.loop.interp.evaluate import run as run_loops
from ...ir.loop.nodes import Buffer, Func
from ...ir.loop.parser import parse as parse_loops
from ...ir.loop.widen import in_f64
from ...te.from_hlo import lower_group
from ...te.from_hlo.storage import restored, stored

KERNEL = "kernel"


@dataclass(frozen=True)
class Program:
    """One task's computation, independent of any schedule; ``vectors`` is as for a target."""

    form: str
    text: str
    vectors: bool = True

    @cached_property
    def computation(self) -> Computation | None:
        """The HLO computation; None for a program that came as loops."""
        return parse_hlo(self.text, "<task>").entry if self.form == "hlo" else None

    @cached_property
    def func(self) -> Func:
        """The function in default order."""
        if self.computation is not None:
            return lower_group(self.computation, KERNEL, self.vectors)
        if self.form == "loop":
            return parse_loops(self.text)
        raise LogError("cannot read a workload", f"its form is {self.form!r}", hint="hlo or loop")

    @property
    def inputs(self) -> tuple[Buffer, ...]:
        """The function's input parameters."""
        return self.func.params[: len(self.func.params) - self.func.outputs]

    @property
    def outputs(self) -> tuple[Buffer, ...]:
        """The function's output parameters."""
        return self.func.params[len(self.func.params) - self.func.outputs :]

    def arguments(self, seed: int) -> list[Array]:
        """Return one array per input, determined by the seed, in the layout of the buffers."""
        if self.computation is not None:
            return [stored(a) for a in random_arguments(self.computation, seed)]
        return [_draw(b, seed, n) for n, b in enumerate(self.inputs)]

    def expect(self, arguments: Sequence[Array]) -> list[Array]:
        """Return the interpreter's results for the arguments, one array per output."""
        if self.computation is None:
            return run_loops(self.func, arguments)
        shapes = (p.array for p in self.computation.parameters)
        given = [restored(a, s) for a, s in zip(arguments, shapes, strict=True)]
        with np.errstate(all="ignore"):
            result = evaluate_computation(self.computation, given)
        return [stored(r) for r in (result if isinstance(result, tuple) else (result,))]

    def expect_wide(self, arguments: Sequence[Array]) -> list[Array] | None:
        """Return a loop program's results evaluated in f64; None if it cannot be widened."""
        wide = in_f64(self.func)
        if wide is None:
            return None
        pairs = zip(arguments, wide.params, strict=False)
        return run_loops(wide, [a.astype(to_numpy(b.dtype)) for a, b in pairs])


def _draw(buffer: Buffer, seed: int, number: int) -> Array:
    rng = np.random.default_rng([seed, number])
    match buffer.dtype.kind:
        case "pred":
            return rng.random(buffer.shape) < 0.5
        case "signed" | "unsigned":
            high = min(10, 2 ** (buffer.dtype.bits - 1))
            return np.asarray(rng.integers(0, high, buffer.shape)).astype(to_numpy(buffer.dtype))
        case _:
            x = np.asarray(rng.standard_normal(buffer.shape))
            unsigned = buffer.dtype.is_float and not FORMATS[buffer.dtype].sign
            return (np.abs(x) if unsigned else x).astype(to_numpy(buffer.dtype))
