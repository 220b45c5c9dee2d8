"""The kit for a first run on a machine with a GPU that has no network: packs it, checks it.

    python benchmarks/gpu/kit/main.py                # packs .kit in the checkout: git ignores it
    python benchmarks/gpu/kit/main.py --only wheels,ladder
    python benchmarks/gpu/kit/main.py --check [--python PYTHON]   # on a bare Python 3.12, no GPU
    python benchmarks/gpu/kit/main.py --commands     # what to run there, in order

Packing needs the package index, the corpus beside the checkout and, for whole models, jax and
flatbuffers. docs/decisions/gpu-first-run.md says what the kit is for.

Exit status: 0 done, 1 the kit is not packed or a check failed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])  # names begin at benchmarks/

from checkout import importable

from gpu import places
from gpu.kit import bare, packing, session


def main(argv: Sequence[str]) -> int:
    """Pack, check or print."""
    options = _options(argv)
    if options.commands:
        print(session.shown())
        return 0
    if options.check:
        return bare.check(options.kit, options.python)
    try:
        with importable():
            print(packing.pack(options.kit, options.only.split(",")))
    except packing.Refused as refusal:
        print(f"gpu/kit: {refusal}", file=sys.stderr)
        return 1
    return 0


def _options(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--kit", type=Path, default=places.kit(), help="the kit's folder")
    parser.add_argument("--only", default=",".join(packing.MAKERS), help="parts to pack anew")
    parser.add_argument("--check", action="store_true", help="on a bare environment")
    parser.add_argument("--python", default="", help="of a bare environment; else one is made")
    parser.add_argument("--commands", action="store_true", help="print them")
    options = parser.parse_args(argv)
    wrong = [p for p in options.only.split(",") if p not in packing.MAKERS]
    if wrong:
        parser.error(f"no part {wrong[0]!r}: there are {', '.join(packing.MAKERS)}")
    return options


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
