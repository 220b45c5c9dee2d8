"""The corpus beside this repository, compiled for a target and held against its stored results.

::

    python benchmarks/conformance.py stablehlo          # 1,405 operations, as HLO text
    python benchmarks/conformance.py stablehlo --mlir   # the same as StableHLO text
    python benchmarks/conformance.py models             # networks
    python benchmarks/conformance.py models --mlir
    python benchmarks/conformance.py xla                # modules out of XLA's repositories
    python benchmarks/conformance.py xla --text         # all of them: parse, print, parse again
    python benchmarks/conformance.py stablehlo --target "cuda-sim -arch=sm_90a" --every 5

Cases are shared out over ``--jobs`` processes; one of ``xla`` or ``models`` has its own process,
limited to ``--seconds``. Nothing comes from the cache. Prints what failed, why, the time taken, and
what took over ``SLOW`` seconds.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from fuzz import sandbox
from side_by_side import ROOT

CORPUS = ROOT.parent / "shared" / "corpus"
LARGEST = 16 << 30  # bytes of memory for one case in a process of its own
SLOW = 10.0  # seconds


class Result(NamedTuple):
    """One case: ``verdict`` is right, wrong, refused (a typed error) or failed."""

    name: str
    verdict: str
    why: str = ""


def judged(name: str, run: Callable[[], str]) -> Result:
    """Return the verdict of ``run``, which returns a difference or raises."""
    from nestwright.ir.errors import NestwrightError

    start = time.perf_counter()
    try:
        differs = run()
    except NestwrightError as error:
        return Result(name, "refused", str(error).replace("\n", " ")[:300])
    except Exception as error:
        return Result(name, "failed", f"{type(error).__name__}: {error}"[:300])
    if (seconds := time.perf_counter() - start) > SLOW:
        print(f"slow     {name}: {seconds:.0f} s", flush=True)
    return Result(name, "wrong" if differs else "right", differs)


def tools() -> None:
    """Makes the corpus's own modules importable, which draw arguments and judge results."""
    sys.path.insert(0, str(CORPUS / "tools"))
    os.environ["NESTWRIGHT_CACHE"] = "off"


def operations(given: argparse.Namespace) -> list[Result]:
    """Run the cases of stablehlo_testdata, some hundred to a process."""
    tools()
    import cases

    import nestwright as nw

    every = list(cases.cases(CORPUS / "stablehlo_testdata", given.only))[:: given.every]

    def run(case: Any) -> str:
        out = nw.build(case.mlir if given.mlir else case.hlo, given.target)(*case.inputs)
        results = out if isinstance(out, tuple) else (out,)
        return "" if cases.passes(case, results) else "other values"

    def outcome(number: int) -> str:
        result = judged(every[number].name, lambda: run(every[number]))
        return "right" if result.verdict == "right" else f"BAD {result.verdict}: {result.why}"

    told = sandbox.run(outcome, range(len(every)), given.jobs)
    found = [(every[n].name, text.removeprefix("BAD ")) for n, text in told.findings]
    bad = [Result(name, *text.split(": ", 1)) for name, text in found if ": " in text]
    bad += [Result(name, "failed", text) for name, text in found if ": " not in text]
    return [Result("", "right")] * told.counts["right"] + bad


def model(path: Path, text: bool, target: str) -> Result:
    """One file beside its NAME.json and NAME.expected.npz; with ``text``, only its text."""
    tools()
    import nestwright as nw
    from nestwright.ir.comparison import leaves

    def again() -> str:
        shown = nw.show(nw.parse(path.read_text(), str(path)))
        return "" if nw.show(nw.parse(shown)) == shown else "it prints differently"

    def run() -> str:
        import make_inputs
        import reference

        spec = json.loads(path.with_suffix(".json").read_text())
        out = nw.build(path, target)(*make_inputs.make_inputs(spec))
        results = [np.asarray(a) for a in leaves(out)]
        with np.load(path.with_suffix(".expected.npz")) as stored:
            found = reference.summarize(results)
            return ", ".join(reference.compare(dict(stored), found, spec["tolerance"]))

    return judged(path.stem, again if text else run)


def _child(answer: Connection, path: Path, text: bool, target: str) -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (LARGEST, LARGEST))
    answer.send(model(path, text, target))


def alone(path: Path, text: bool, target: str, seconds: float) -> Result:
    """Run a case in a process of its own, which is killed when its time is over."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=_child, args=(theirs, path, text, target))
    child.start()
    theirs.close()
    try:
        result: Result = (
            ours.recv()
            if ours.poll(seconds)
            else Result(path.stem, "failed", f"over {seconds:.0f} s")
        )
    except EOFError:
        child.join()
        result = Result(path.stem, "failed", f"its process ended with {child.exitcode}")
    child.kill()
    child.join()
    return result


def files(what: str, mlir: bool, text: bool) -> Iterator[Path]:
    """Return the files of a folder that are to be tried."""
    folder = CORPUS / {"xla": "xla_hlo", "models": "models"}[what]
    for path in sorted(folder.glob("*.mlir" if mlir else "*.hlo")):
        if text or path.with_suffix(".expected.npz").exists():
            yield path


def main() -> int:
    """Try a part of the corpus; 1 if anything failed."""
    parser = argparse.ArgumentParser(description="Compile the corpus and compare.")
    parser.add_argument("what", choices=["stablehlo", "models", "xla"])
    parser.add_argument("--mlir", action="store_true", help="read the StableHLO text")
    parser.add_argument("--text", action="store_true", help="only read and print")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=180.0)
    parser.add_argument("--target", default="cpu", help="what is built for")
    parser.add_argument("--every", type=int, default=1, help="of so many cases one")
    parser.add_argument("--only", default="", help="names that contain this")
    given = parser.parse_args()
    if not CORPUS.is_dir():
        print(f"no corpus at {CORPUS}", file=sys.stderr)
        return 1
    start = time.perf_counter()
    if given.what == "stablehlo":
        results = operations(given)
    else:
        paths = [p for p in files(given.what, given.mlir, given.text) if given.only in p.stem]
        run = partial(alone, text=given.text, target=given.target, seconds=given.seconds)
        with ThreadPoolExecutor(given.jobs) as threads:
            results = list(threads.map(run, paths[:: given.every]))
    for result in results:
        if result.verdict != "right":
            print(f"{result.verdict:8} {result.name}: {result.why}")
    count = Counter(r.verdict for r in results)
    seconds = time.perf_counter() - start
    told = ", ".join(f"{n} {verdict}" for verdict, n in sorted(count.items()))
    print(f"{len(results)} cases: {told or 'none'}; {seconds:.0f} s in {given.jobs} processes")
    return 0 if set(count) <= {"right"} else 1


if __name__ == "__main__":
    sys.exit(main())
