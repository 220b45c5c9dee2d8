"""Small models that need each mechanism of the runtime, built once for all forks of a process."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from nestwright.codegen.driver.build import build
from nestwright.codegen.plan.bundle import Bundle
from nestwright.codegen.plan.code.device import DeviceCode
from nestwright.codegen.plan.code.form import Code
from nestwright.codegen.runtime.executable import Executable
from nestwright.ir.accuracy import relative_error, tolerance
from nestwright.ir.dtypes import from_numpy
from nestwright.ir.hlo.analysis.inputs import random_arguments
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.nodes import HloModule
from nestwright.ir.hlo.text import parse

from .control import Stub
from .simulated import TARGET, Kernels

TEXTS = {
    # One kernel.
    "double": """HloModule double
ENTRY main { x = f32[4,6] parameter(0)
  ROOT y = f32[4,6] add(x, x) }
""",
    # A product and a row sum: several kernels, two results, values in the arena.
    "chain": """HloModule chain
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
ENTRY main {
  x = f32[32,48] parameter(0)
  w = f32[48,16] parameter(1)
  d = f32[32,16] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  e = f32[32,16] tanh(d)
  zero = f32[] constant(0)
  s = f32[32] reduce(e, zero), dimensions={1}, to_apply=add
  ROOT t = (f32[32,16], f32[32]) tuple(e, s)
}
""",
    # One group of two launches, the second of which reads what the first has written.
    "twice": """HloModule twice
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
largest { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] maximum(a, b) }
ENTRY main {
  x = f32[100000] parameter(0)
  e = f32[100000] exponential(x)
  zero = f32[] constant(0)
  s = f32[] reduce(e, zero), dimensions={0}, to_apply=add
  m = f32[] reduce(e, zero), dimensions={0}, to_apply=largest
  ROOT t = (f32[100000], f32[], f32[]) tuple(e, s, m)
}
""",
    # One launch, the last block of which adds what the others have left in a workspace.
    "split": """HloModule split
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
ENTRY main {
  x = f32[100000] parameter(0)
  zero = f32[] constant(0)
  ROOT s = f32[] reduce(x, zero), dimensions={0}, to_apply=add
}
""",
    # A loop of which the host asks after every turn, and a branch.
    "decide": """HloModule decide
more { s = (s32[], f32[8,64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(7)
  ROOT r = pred[] compare(i, n), direction=LT }
step { s = (s32[], f32[8,64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  v = f32[8,64] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  w = f32[8,64] tanh(v)
  ROOT r = (s32[], f32[8,64]) tuple(j, w) }
double { x = f32[8,64] parameter(0)
  ROOT r = f32[8,64] add(x, x) }
same { x = f32[8,64] parameter(0)
  ROOT r = f32[8,64] negate(x) }
square { x = f32[8,64] parameter(0)
  ROOT r = f32[8,64] multiply(x, x) }
ENTRY main { i = s32[] parameter(0)
  v = f32[8,64] parameter(1)
  s = (s32[], f32[8,64]) tuple(i, v)
  w = (s32[], f32[8,64]) while(s), condition=more, body=step
  x = f32[8,64] get-tuple-element(w), index=1
  ROOT r = f32[8,64] conditional(i, x, x, x), branch_computations={double, same, square}
}
""",
    # Nothing to do, of nothing.
    "empty": """HloModule empty
ENTRY main { x = f32[0,5] parameter(0)
  y = f32[3] parameter(1)
  a = f32[0,5] negate(x)
  b = f32[3] negate(y)
  ROOT t = (f32[0,5], f32[3]) tuple(a, b) }
""",
}


@dataclass(frozen=True)
class Prepared:
    """A model that is built: its bundle, and the simulator's code of its launches."""

    module: HloModule
    bundle: Bundle
    kernels: Kernels

    def over(self, stub: Stub, shared: int = 0, cubin: bytes | None = None) -> Executable:
        """Return the executable, not loaded yet, over a stand-in.

        Launches ask for ``shared`` bytes at least; ``cubin`` takes the place of the machine code.
        """
        self.kernels.attach(stub)
        codes: dict[str, Code] = {}
        for symbol, code in self.bundle.kernels.items():
            assert isinstance(code, DeviceCode)
            launches = (replace(x, shared_bytes=max(shared, x.shared_bytes)) for x in code.launches)
            image = code.cubin if cubin is None else cubin
            codes[symbol] = replace(code, launches=tuple(launches), cubin=image)
        return Executable(replace(self.bundle, kernels=codes), lambda: self.module)

    def arguments(self, seed: int = 0) -> list[Any]:
        """Random arguments."""
        return random_arguments(self.module.entry, seed)


@cache
def prepared(name: str, target: str = TARGET) -> Prepared:
    """One of ``TEXTS``, or a file of HLO."""
    text = TEXTS[name] if name in TEXTS else Path(name).read_text()
    module = parse(text)
    made = build(module, target)
    return Prepared(module, made.bundle, Kernels(made, module))


def leaves(x: Any) -> list[Any]:
    """Return the arrays of a result."""
    return [y for part in x for y in leaves(part)] if isinstance(x, tuple) else [x]


def assert_right(module: HloModule, args: list[Any], result: Any) -> None:
    """A result is what the interpreter makes of the arguments."""
    with np.errstate(all="ignore"):
        wanted = leaves(evaluate(module, args))
    for got, want in zip(leaves(result), wanted, strict=True):
        limit = tolerance(from_numpy(np.asarray(want).dtype))
        error = relative_error(np.asarray(got), np.asarray(want))
        assert error <= limit, f"an error of {error}, at most {limit}"
