"""torch's operator database, compiled and held against eager torch.

::

    python benchmarks/doors/torch/operators.py                    # forward, f32, i64 and bool
    python benchmarks/doors/torch/operators.py --samples 2        # two samples of each
    python benchmarks/doors/torch/operators.py --gradients        # backward of usual operators, f32
    python benchmarks/doors/torch/operators.py --only softmax,mm  # some

Each sample of ``op_db`` (torch.testing._internal.common_methods_invocations) is traced by
AOTAutograd; what comes out is compiled by ``graph_module`` and ``nw.build``, and called. Samples
whose graph has an operator that ``docs/torch.md`` names as refused are counted apart, and so are
those that torch cannot trace. Needs torch and ``expecttest``; nothing comes from the cache.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import sys
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

RTOL, ATOL = 1e-4, 1e-5
CHOOSE = ("sort", "topk", "kthvalue", "median", "nanmedian", "mode", "msort")
"""Operators with indices, of which equal elements may have any."""
USUAL = """
abs add addmm addmv amax amin asin atan baddbmm bmm cat clamp cos cosh cumsum diagonal div dot
exp expand expm1 flip gather index_add index_select linalg.vector_norm log log1p log_softmax
logsumexp matmul maximum mean minimum mm mul mv neg nn.functional.adaptive_avg_pool2d
nn.functional.avg_pool2d nn.functional.batch_norm nn.functional.conv1d nn.functional.conv2d
nn.functional.conv3d nn.functional.conv_transpose2d nn.functional.cross_entropy
nn.functional.elu nn.functional.embedding nn.functional.gelu nn.functional.group_norm
nn.functional.hardswish nn.functional.interpolate.bilinear nn.functional.interpolate.nearest
nn.functional.layer_norm nn.functional.leaky_relu nn.functional.linear nn.functional.max_pool2d
nn.functional.mse_loss nn.functional.nll_loss nn.functional.pad.constant nn.functional.relu
nn.functional.rms_norm nn.functional.scaled_dot_product_attention nn.functional.silu
nn.functional.softplus permute pow prod reciprocal repeat rsqrt scatter_add select sigmoid sin
slice softmax sqrt squeeze stack std sub sum tan tanh transpose tril unsqueeze var view where
"""
"""The operators whose gradients are tested."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One sample: ``verdict`` is equal, wrong, failed, refused or untraced; and why."""

    name: str
    dtype: str
    verdict: str
    why: str = ""


def compiler() -> Callable[..., Callable[..., Any]]:
    """Return a compiler for AOTAutograd."""
    import torch

    import nestwright as nw
    from nestwright.ir.frontends.torch.dtypes import as_array, as_tensor
    from nestwright.ir.frontends.torch.walk import graph_module

    def compile_(gm: torch.fx.GraphModule, example: Sequence[Any]) -> Callable[..., Any]:
        exe = nw.build(graph_module(gm))
        (output,) = (n for n in gm.graph.nodes if n.op == "output")
        places = [getattr(n, "meta", {}).get("val", n) for n in output.args[0]]

        def run(given: Sequence[Any]) -> list[Any]:
            arrays = [as_array(t) for t in given if isinstance(t, torch.Tensor)]
            found = exe(*arrays)
            flat = iter(found if isinstance(found, tuple) else (found,))
            tensors = (isinstance(p, torch.Tensor) for p in places)
            return [
                as_tensor(np.array(next(flat))) if is_tensor else p
                for p, is_tensor in zip(places, tensors, strict=True)
            ]

        run._boxed_call = True  # type: ignore[attr-defined]
        return run

    return compile_


@dataclass(frozen=True, slots=True)
class Sample:
    """A call of an operator: a function of the tensors among its arguments."""

    name: str
    operator: Any
    call: Any

    def parts(self) -> tuple[Callable[..., Any], list[Any]]:
        """Return the function and its tensors."""
        import torch
        import torch.utils._pytree as pytree

        flat, spec = pytree.tree_flatten((self.call.input, self.call.args, self.call.kwargs))
        places = [k for k, x in enumerate(flat) if isinstance(x, torch.Tensor)]

        def function(*tensors: Any) -> Any:
            leaves = list(flat)
            for k, t in zip(places, tensors, strict=True):
                leaves[k] = t
            first, rest, named = pytree.tree_unflatten(leaves, spec)
            return self.operator(first, *rest, **named)

        return function, [flat[k] for k in places]


def forward(sample: Sample, compile_: Any, decompositions: Any) -> None:
    """Compare results; raises what torch, the compiler or the comparison raise."""
    import torch

    function, tensors = sample.parts()
    with torch.no_grad():
        want = function(*(t.clone() for t in tensors))
        got = traced(function, compile_, decompositions)(*(t.clone() for t in tensors))
    if "empty" in sample.name:
        got, want = torch.zeros(got.shape), torch.zeros(want.shape)
    got, want = chosen(sample, got, want)
    equal(got, want, lambda: in_doubles(function, tensors))


def backward(sample: Sample, compile_: Any, decompositions: Any) -> None:
    """Compare the gradients of a sum of results, each weighted by its own numbers."""
    import torch

    function, tensors = sample.parts()

    def gradients(f: Callable[..., Any], given: list[Any]) -> list[Any]:
        leaves = [t.detach().clone().requires_grad_(t.requires_grad) for t in given]
        results = [r for r in flat_tensors(f(*leaves)) if r.requires_grad]
        total = sum(
            (r * torch.linspace(0.5, 1.5, r.numel()).reshape(r.shape).to(r)).sum() for r in results
        )
        wanted = [t for t in leaves if t.requires_grad]
        return list(torch.autograd.grad(total, wanted, allow_unused=True))

    want = gradients(function, tensors)
    got = gradients(traced(function, compile_, decompositions), tensors)
    doubles = [
        t.double().detach().requires_grad_(t.requires_grad) if t.is_floating_point() else t
        for t in tensors
    ]
    equal(got, want, lambda: gradients(function, doubles))


def traced(function: Callable[..., Any], compile_: Any, decompositions: Any) -> Callable[..., Any]:
    """Return the function under AOTAutograd."""
    from functorch.compile import aot_function
    from torch._guards import TracingContext, tracing
    from torch._subclasses import FakeTensorMode

    aot = aot_function(function, fw_compiler=compile_, decompositions=decompositions)

    def call(*tensors: Any) -> Any:
        with tracing(TracingContext(FakeTensorMode(allow_non_fake_inputs=True))):
            return aot(*tensors)

    return call


def in_doubles(function: Callable[..., Any], tensors: list[Any]) -> Any:
    """The results in f64."""
    return function(*(t.double() if t.is_floating_point() else t for t in tensors))


def equal(got: Any, want: Any, doubles: Callable[[], Any]) -> None:
    """Raise unless results equal eager's, or are nearer than those to what f64 gives."""
    import torch

    kept = {"rtol": RTOL, "atol": ATOL, "equal_nan": True, "check_stride": False}
    try:
        torch.testing.assert_close(got, want, **kept)
    except AssertionError:
        exact = flat_tensors(doubles())
        ours, theirs = flat_tensors(got), flat_tensors(want)
        if not all(nearer(*three) for three in zip(ours, theirs, exact, strict=True)):
            raise


def nearer(got: Any, want: Any, exact: Any) -> bool:
    """True if floats are off by no more than eager's."""
    import torch

    if not got.is_floating_point() or got.shape != exact.shape:
        return bool(torch.equal(got, want))
    ours, theirs = ((t.double() - exact).abs() for t in (got, want))
    known = torch.isfinite(exact)
    if not torch.equal(torch.isfinite(got), torch.isfinite(want)):
        return False
    return bool((ours[known] <= theirs[known].max() + ATOL).all()) if known.any() else True


def chosen(sample: Sample, got: Any, want: Any) -> tuple[Any, Any]:
    """Indices of equal elements as the elements that they choose."""
    x, call = sample.call.input, sample.call
    name = sample.name.partition(".")[0]
    if not hasattr(x, "dim") or not x.dim():
        return got, want
    start = 1 if name in ("topk", "kthvalue") else 0
    numbers = [a for a in call.args[start:] if isinstance(a, int) and not isinstance(a, bool)]
    dim = call.kwargs.get("dim", numbers[0] if numbers else -1)
    if name == "argsort":
        return x.gather(dim, got), x.gather(dim, want)
    if name in CHOOSE and isinstance(want, tuple) and len(want) == 2:
        at = got[1] if got[1].dim() == x.dim() else got[1].unsqueeze(dim)
        return (got[0], x.gather(dim, at).reshape(want[0].shape)), (want[0], want[0])
    return got, want


def flat_tensors(value: Any) -> list[Any]:
    """The tensors of nested results."""
    import torch
    import torch.utils._pytree as pytree

    return [t for t in pytree.tree_leaves(value) if isinstance(t, torch.Tensor)]


def samples(
    names: Sequence[str], dtypes: Sequence[str], count: int, gradients: bool
) -> Iterator[tuple[Sample, str]]:
    """The samples of the database, at most ``count`` of each operator and type."""
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    for operator in op_db:
        variant = operator.variant_test_name
        name = f"{operator.name}.{variant}" if variant else operator.name
        if names and name not in names and operator.name not in names:
            continue
        if name.startswith(("sparse", "jiterator")):
            continue
        for kind in dtypes:
            dtype = getattr(torch, kind)
            if dtype not in operator.supported_dtypes("cpu"):
                continue
            if gradients and not operator.supports_autograd:
                continue
            torch.manual_seed(0)
            drawn = operator.sample_inputs("cpu", dtype, requires_grad=gradients)
            for call in itertools.islice(drawn, count):
                yield Sample(name, operator, call), kind


UNTRACED = (
    "fake",
    "data-dependent",
    "DataDependent",
    "DynamicOutput",
    "placeholders=",
    "non-tensor",
    "SparseCPU",
)
"""Parts of the messages by which torch says that it cannot trace a function."""


def outcome(sample: Sample, kind: str, run: Callable[[Sample], None]) -> Outcome:
    """Return how one sample went."""
    from nestwright.ir.errors import UnsupportedError

    try:
        run(sample)
    except UnsupportedError as e:
        why = "; ".join(sorted({f"{f.opcode}: {f.reason}" for f in e.findings})) or str(e)
        return Outcome(sample.name, kind, "refused", why)
    except Exception as e:
        told = f"{type(e).__name__}: {e}".replace("\n", " ")
        if any(part in told for part in UNTRACED):
            return Outcome(sample.name, kind, "untraced", told[:200])
        wrong = isinstance(e, AssertionError)
        return Outcome(sample.name, kind, "wrong" if wrong else "failed", told[:300])
    return Outcome(sample.name, kind, "equal")


def told(found: Sequence[Outcome], seconds: float, refused: bool) -> None:
    """Print counts, what is wrong, and what is refused."""
    counts = Counter(o.verdict for o in found)
    judged = counts["equal"] + counts["wrong"] + counts["failed"]
    share = 100 * counts["equal"] / max(judged, 1)
    names = {o.name for o in found if o.verdict == "equal"}
    print(f"{counts['equal']} of {judged} samples equal eager: {share:.2f} %")
    print(f"of {len(names)} operators")
    print(f"{counts['refused']} refused, {counts['untraced']} not traced by torch; {seconds:.0f} s")
    for kind in sorted({o.dtype for o in found}):
        own = Counter(o.verdict for o in found if o.dtype == kind)
        print(f"  {kind}: {dict(own)}")
    shown: set[tuple[str, str]] = set()
    for o in found:
        if o.verdict in ("wrong", "failed") and (o.name, o.dtype) not in shown:
            shown.add((o.name, o.dtype))
            print(f"{o.verdict} {o.name} {o.dtype}: {o.why}")
    if refused:
        reasons: dict[str, set[str]] = defaultdict(set)
        for o in found:
            if o.verdict == "refused":
                reasons[o.why].add(o.name)
        for why, of in sorted(reasons.items()):
            print(f"refused: {why[:120]} ({' '.join(sorted(of))})")


def main() -> int:
    """Run the samples that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--samples", type=int, default=sys.maxsize, help="of each operator and type"
    )
    parser.add_argument("--only", default="", help="names of operators, with commas between")
    parser.add_argument("--dtypes", default="float32,int64,bool")
    parser.add_argument("--gradients", action="store_true")
    parser.add_argument("--refused", action="store_true", help="list what is refused")
    parser.add_argument("--seconds", type=float, default=math.inf, help="stop after so long")
    given = parser.parse_args()
    os.environ.setdefault("NESTWRIGHT_CACHE", "off")
    warnings.simplefilter("ignore")
    from nestwright.ir.frontends.torch.decompositions import decompositions

    compile_, rules = compiler(), decompositions()
    names = given.only.split(",") if given.only else USUAL.split() if given.gradients else ()
    dtypes = ["float32"] if given.gradients else given.dtypes.split(",")
    judge = backward if given.gradients else forward
    found, start = [], time.perf_counter()
    for sample, kind in samples(names, dtypes, given.samples, given.gradients):
        found.append(outcome(sample, kind, lambda s: judge(s, compile_, rules)))
        if time.perf_counter() - start > given.seconds:
            print(f"stopped after {given.seconds} s at {sample.name}")
            break
    told(found, time.perf_counter() - start, given.refused)
    return 1 if any(o.verdict in ("wrong", "failed") for o in found) else 0


if __name__ == "__main__":
    sys.exit(main())
