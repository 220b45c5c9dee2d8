"""JAX's own harnesses of its primitives through ``nw.jit``, beside ``jax.jit``.

::

    python benchmarks/doors/jax/harnesses.py                      # about 7,400 calls
    python benchmarks/doors/jax/harnesses.py --of gradients       # of what has gradients
    python benchmarks/doors/jax/harnesses.py --of vmap --every 10 # two of each at once, a sample
    python benchmarks/doors/jax/harnesses.py --only 'scatter_.*'  # of matching names
    python benchmarks/doors/jax/harnesses.py --json all.json      # each case, its verdict

The harnesses are those of ``jax._src.internal_test_util.test_harnesses``, with 64 bits. A verdict
is right, wrong, refused (a typed error) or failed (any other); what JAX itself refuses is not
counted. Needs jax and absl-py; nothing comes from the build cache.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])  # names begin at benchmarks/

import numpy as np

from doors.verdicts import Case, told, verdict, written

TOLERANCES = {
    "float64": 1e-12,
    "complex128": 1e-12,
    "float32": 1e-5,
    "complex64": 1e-5,
    "float16": 3e-3,
    "bfloat16": 2e-2,
}
"""Of the root mean square of a result, and of each number; other types are equal."""


def harnesses(pattern: str, start: int, every: int) -> Iterator[Any]:
    """Yield the harnesses whose names match and that JAX's CPU runs: one of ``every``."""
    from absl import flags

    flags.FLAGS(sys.argv[:1])
    from jax._src.internal_test_util import test_harnesses

    found = [h for h in test_harnesses.all_harnesses if h.filter("cpu")]
    yield from [h for h in found if re.search(pattern, h.fullname)][start::every]


def plain(harness: Any, arguments: Sequence[Any]) -> tuple[Callable[..., Any], Sequence[Any]]:
    """Return the harness's function and its arguments."""
    return harness.dyn_fun, arguments


def batched(harness: Any, arguments: Sequence[Any]) -> tuple[Callable[..., Any], Sequence[Any]]:
    """Return the function of two calls at once, whose second has the arguments reversed."""
    import jax

    arrays = [np.asarray(a) for a in arguments]
    return jax.vmap(harness.dyn_fun), [np.stack([a, np.flip(a)]) for a in arrays]


def gradients(harness: Any, arguments: Sequence[Any]) -> tuple[Callable[..., Any], Sequence[Any]]:
    """Return the gradients of a weighted sum of the results for all arguments of floats."""
    import jax
    import jax.numpy as jnp

    floats = [n for n, a in enumerate(arguments) if np.asarray(a).dtype.kind in "fV"]

    def total(*given: Any) -> Any:
        parts = jax.tree.leaves(harness.dyn_fun(*given))
        real = [p for p in parts if jnp.issubdtype(p.dtype, jnp.floating)]
        weights = [jnp.linspace(0.5, 1.5, p.size, dtype=p.dtype).reshape(p.shape) for p in real]
        return sum(jnp.sum(p * w) for p, w in zip(real, weights, strict=True))

    return jax.grad(total, floats), arguments


FORMS = {"calls": plain, "vmap": batched, "gradients": gradients}


def reference(form: Any, harness: Any) -> tuple[Any, Sequence[Any], Sequence[Any]] | None:
    """Return the function, its arguments and XLA's results; None for what JAX cannot do."""
    import jax

    try:
        function, arguments = form(harness, harness.dyn_args_maker(np.random.RandomState(0)))
        return function, arguments, leaves(jax.jit(function)(*arguments))
    except Exception:
        return None


def leaves(results: Any) -> list[Any]:
    """Return all arrays of results, and the numbers of keys."""
    import jax

    def numbers(x: Any) -> Any:
        is_key = jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key)
        return np.asarray(jax.random.key_data(x) if is_key else x)

    return [numbers(x) for x in jax.tree.leaves(results)]


def compare(found: Any, wanted: Any) -> None:
    """Raise ``AssertionError`` where a result is not as near to XLA's as its type allows."""
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype), (
        f"{found.dtype} {found.shape}"
    )
    tolerance = TOLERANCES.get(found.dtype.name)
    if tolerance is None:
        assert found.tobytes() == wanted.tobytes(), f"{np.sum(found != wanted)} differ"
        return
    wide = np.complex128 if np.iscomplexobj(found) else np.float64
    parts = [np.stack([x.real, x.imag]) for x in (found.astype(wide), wanted.astype(wide))]
    usual = np.isfinite(parts[1])
    size = np.sqrt(np.mean(parts[1][usual] ** 2)) if usual.any() else 0.0
    np.testing.assert_allclose(*parts, rtol=tolerance, atol=tolerance * size)


def run(form: Any, harness: Any, show: int) -> Case | None:
    """Return what came of a harness; None if JAX cannot do it."""
    import nestwright as nw

    ready = reference(form, harness)
    if ready is None:
        return None
    function, arguments, wanted = ready

    def call() -> None:
        found = leaves(nw.jit(function)(*arguments))
        for one, other in zip(found, wanted, strict=True):
            compare(one, other)

    result, why = verdict(call)
    if result != "right":
        print(f"{result:8} {harness.fullname}: {why[:show]}", flush=True)
    return Case(harness.fullname, (harness.group_name,), result, why)


def main() -> int:
    """Run the harnesses that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--of", choices=tuple(FORMS), default="calls", help="what is compiled")
    parser.add_argument("--only", default="", help="a regular expression for names")
    parser.add_argument("--every", type=int, default=1, help="take one of so many")
    parser.add_argument("--start", type=int, default=0, help="the first of them")
    parser.add_argument("--show", type=int, default=200, help="characters of a reason")
    parser.add_argument("--json", type=Path, help="write every case there")
    asked = parser.parse_args()
    os.environ.setdefault("NESTWRIGHT_CACHE", "off")
    import jax

    jax.config.update("jax_enable_x64", True)
    began = time.perf_counter()
    tried = [
        run(FORMS[asked.of], harness, asked.show)
        for harness in harnesses(asked.only, asked.start, asked.every)
    ]
    cases = [c for c in tried if c is not None]
    told(cases)
    print(f"{len(tried) - len(cases)} not by JAX; {time.perf_counter() - began:.0f} s")
    written(cases, asked.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
