"""Launches of whole models on GPUs, counted without one.

    python benchmarks/gpu/launches/main.py                    # sm_80, sm_90a, sm_100a
    python benchmarks/gpu/launches/main.py --arch sm_90a --only bert --kernels
    python benchmarks/gpu/launches/main.py --json counts.json # then, in another checkout or later:
    python benchmarks/gpu/launches/main.py --against counts.json

Models are those of the corpus beside this checkout, forms of attention and, if jax is here, GPT-2
as jax traces it, all with default schedules and weights as arguments. Columns: launches of one run;
those of fewer than 32 blocks; copies, and how many are left where a caller passes caches as
argument and result; values that the host waits for; bytes of spills; instructions of the code of
all launches; kernels. With ``--json`` rows are added to a file, in place of older ones of the same
model and architecture.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])  # names begin at benchmarks/

from checkout import ROOT, importable

CORPUS = ROOT.parent / "shared" / "corpus" / "models"
ATTENTION = ROOT / "tests" / "codegen" / "native" / "attention"
_COLUMNS = ("launches", "small", "copies", "left", "reads", "spills", "instructions")
_HEAD = ("model", "arch", "before", *_COLUMNS, "kernels", "seconds")


def main(argv: Sequence[str]) -> None:
    """Print the table."""
    options = _options(argv)
    with importable():
        found = [(name, text) for name, text in _models() if options.only in name]
        print(f"| {' | '.join(_HEAD)} |\n|{'---|' * len(_HEAD)}", flush=True)
        before = json.loads(options.against.read_text()) if options.against else {}
        for name, text in found:
            for arch in options.arch:
                _row(name, text(), arch, options, before.get(f"{name} {arch}", {}))


def _models() -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield names, and functions that return a model's HLO text."""
    for path in sorted(CORPUS.glob("*.hlo")):
        yield path.stem, path.read_text
    for path in sorted(ATTENTION.glob("*.hlo")):
        yield f"attention/{path.stem}", path.read_text
    if importlib.util.find_spec("jax") is None:
        print("gpu/launches: without jax, GPT-2 is left out", file=sys.stderr)
        return
    from gpu.measure.decoding import FORMS
    from gpu.measure.models import MODELS, text

    for name, model in {"gpt2_decode": MODELS["gpt2_decode"], **FORMS}.items():
        yield name, lambda model=model: text(model)  # type: ignore[misc]


def _row(name: str, text: str, arch: str, options: Any, before: Any) -> None:
    """Build a model, print its row and store it."""
    import nestwright as nw
    from gpu.launches.count import count, to_json

    start = time.perf_counter()
    exe = nw.build(nw.parse(text), f"cuda -arch={arch}", cache=False)
    seconds = time.perf_counter() - start
    counted = count(exe.bundle)
    made = to_json(counted)
    cells = [name, arch, str(before.get("launches", "")), *(str(made[c]) for c in _COLUMNS)]
    print(f"| {' | '.join([*cells, str(len(counted.kernels)), f'{seconds:.0f}'])} |", flush=True)
    if options.kernels:
        for kernel in counted.kernels:
            print(f"    {kernel}")
    if options.json:
        old = json.loads(options.json.read_text()) if options.json.exists() else {}
        rows = dict(sorted((old | {f"{name} {arch}": made}).items()))
        lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(rows[key])}" for key in rows)
        options.json.write_text(f"{{\n{lines}\n}}\n")


def _options(argv: Sequence[str]) -> argparse.Namespace:
    from gpu.budgets.table import ARCHES

    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--arch", nargs="+", default=ARCHES)
    parser.add_argument("--only", default="", help="models whose name has this in it")
    parser.add_argument("--json", type=Path, help="the file that rows are added to")
    parser.add_argument("--against", type=Path, help="counts of before, to print beside these")
    parser.add_argument("--kernels", action="store_true", help="list the kernels")
    return parser.parse_args(argv)


if __name__ == "__main__":
    main(sys.argv[1:])
