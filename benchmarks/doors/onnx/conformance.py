"""ONNX's own tests of operators through the Backend interface, and the corpus's real models.

::

    python benchmarks/doors/onnx/conformance.py nodes                     # about 1,880 cases
    python benchmarks/doors/onnx/conformance.py nodes --only 'reduce_.*'  # of matching names
    python benchmarks/doors/onnx/conformance.py nodes --every 20          # a sample of them
    python benchmarks/doors/onnx/conformance.py nodes --json nodes.json   # each case, its verdict
    python benchmarks/doors/onnx/conformance.py models --cache FOLDER     # fetched by pip into it

Nodes are judged by the package's own comparison. A verdict is right, wrong, refused (a typed
error) or failed (any other). Nothing comes from the build cache.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])  # names begin at benchmarks/

import numpy as np
from side_by_side import ROOT

from doors.verdicts import Case, told, verdict, written

CORPUS = ROOT.parent / "shared" / "corpus"


def node_cases(pattern: str, start: int, every: int) -> list[Any]:
    """Return the package's node tests whose names match: one of ``every``, from ``start`` on."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = load_model_tests(kind="node")
    chosen = sorted(t.name for t in found if re.search(pattern, t.name))[start::every]
    return [t for t in found if t.name in set(chosen)]


def run_node_case(test: Any) -> None:
    """Run a node test; ``AssertionError`` where the results are not what it expects."""
    from onnx.backend.test.runner import Runner, _normalize_tensor

    import nestwright.interop.onnx as backend

    prepared = backend.prepare(test.model)
    for inputs, expected in test.data_sets:
        wanted = arrays([_normalize_tensor(e) for e in expected])
        found = arrays(prepared.run([_normalize_tensor(i) for i in inputs]))
        Runner.assert_similar_outputs(wanted, found, test.rtol, test.atol)


def arrays(results: Sequence[Any]) -> list[Any]:
    """Return all arrays of results; the package cannot compare scalars in a sequence."""
    return [a for r in results for a in (arrays(r) if isinstance(r, list) else [r])]


def nodes(pattern: str, start: int, every: int, show: int) -> list[Case]:
    """Run node tests and print those that are not right."""
    found = []
    for test in node_cases(pattern, start, every):
        operators = tuple(dict.fromkeys(n.op_type for n in test.model.graph.node))
        result, why = verdict(lambda test=test: run_node_case(test))
        found.append(Case(test.name, operators, result, why))
        if result != "right":
            print(f"{result:8} {test.name}: {why[:show]}", flush=True)
    return found


def models(cache: Path) -> list[Case]:
    """Run the corpus's models on their stored inputs."""
    sys.path.insert(0, str(CORPUS / "tools"))
    import onnx_reference

    folder = CORPUS / "onnx_models"
    (cache / "packages").mkdir(parents=True, exist_ok=True)
    found = []
    for entry in json.loads((folder / "manifest.json").read_text()):
        path = onnx_reference.fetch(entry, cache)
        began = time.perf_counter()
        result, why = verdict(lambda entry=entry, path=path: run_model(entry, path, onnx_reference))
        seconds = time.perf_counter() - began
        print(f"{result:8} {entry['name']} ({seconds:.1f} s) {why}", flush=True)
        found.append(Case(entry["name"], tuple(entry["ops"]), result, why))
    return found


def run_model(entry: Any, path: Path, reference: Any) -> None:
    """Build a model for the shapes of its inputs, run it and compare with the stored outputs."""
    import nestwright as nw
    from nestwright.ir.frontends.load import load

    feed = reference.inputs(entry)
    model = load(path, {name: value.shape for name, value in feed.items()})
    exe = nw.build(model)
    results = exe(**{name: feed[name] for name in exe.input_names})
    outputs = results if isinstance(results, tuple) else (results,)
    stored = reference.summarize(dict(enumerate(map(np.asarray, outputs))))
    with np.load(CORPUS / "onnx_models" / f"{entry['name']}.expected.npz") as expected:
        for key in expected:
            assert agrees(expected, stored, key, reference), f"{key} differs"


def agrees(expected: Any, stored: dict[str, Any], key: str, reference: Any) -> bool:
    """True if results agree by the corpus's measure, or within a rounding of the largest of them.

    ONNX Runtime's sigmoid is off by 6e-8 where its value is less, and samples of a map of
    probabilities may all be.
    """
    if reference.close(expected[key], stored[key]):
        return True
    stats = expected[f"{key.removesuffix('_samples')}_stats"] if "_samples" in key else [0]
    rounding = float(np.abs(stats).max()) * 2**-22
    return bool(np.allclose(expected[key], stored[key], rtol=1e-3, atol=rounding))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=("nodes", "models"))
    parser.add_argument("--only", default="", help="a regular expression for names")
    parser.add_argument("--every", type=int, default=1, help="take one case of so many")
    parser.add_argument("--start", type=int, default=0, help="the first of them")
    parser.add_argument("--show", type=int, default=200, help="characters of a reason")
    parser.add_argument("--json", type=Path, help="write every case there")
    parser.add_argument(
        "--cache", type=Path, default=Path("build/onnx_models"), help="models by pip"
    )
    asked = parser.parse_args()
    os.environ.setdefault("NESTWRIGHT_CACHE", "off")
    began = time.perf_counter()
    cases = (
        nodes(asked.only, asked.start, asked.every, asked.show)
        if asked.what == "nodes"
        else models(asked.cache)
    )
    told(cases)
    print(f"{time.perf_counter() - began:.0f} s")
    written(cases, asked.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
