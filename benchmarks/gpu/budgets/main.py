"""Instructions in the hottest loops of important kernels, and what they may have.

    python benchmarks/gpu/budgets/main.py                    # sm_80, sm_90a, sm_100a
    python benchmarks/gpu/budgets/main.py --arch sm_90a --only softmax
    python benchmarks/gpu/budgets/main.py --json before.json # then, in another checkout or later:
    python benchmarks/gpu/budgets/main.py --against before.json
    python benchmarks/gpu/budgets/main.py --opcodes --only "gelu f32"  # what the instructions are

Nothing is run: the code is assembled by ptxas and read from nvdisasm (pip: nvidia-cuda-nvdisasm).

Exit status: 0 all within their budgets, 1 some are not, 2 a tool is missing.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])  # names begin at benchmarks/

from checkout import importable

_HEAD = ("kernel", "arch", "before", "now", "budget", "for each", "loop", "registers", "slow")


def main(argv: Sequence[str]) -> int:
    """Print the table."""
    options = _options(argv)
    with importable():
        from gpu.budgets.count import missing

        if missing():
            print(f"gpu/budgets: there is no {missing()} on this machine", file=sys.stderr)
            return 2
        return _table(options)


def _table(options: argparse.Namespace) -> int:
    from gpu.budgets.count import count, within
    from gpu.budgets.table import ARCHES, BUDGETS

    before: Mapping[str, float] = json.loads(options.against.read_text()) if options.against else {}
    now: dict[str, float] = {}
    over = False
    print(f"| {' | '.join(_HEAD)} |\n|{'---|' * len(_HEAD)}", flush=True)
    for row in (b for b in BUDGETS if options.only in b.kernel):
        for arch in options.arch or ARCHES:
            c = count(row.kernel, row.measure, arch)
            key = f"{row.kernel} {arch}"
            now |= {key: c.each} if c.work else {}
            over |= not within(c, row)
            old = f"{before[key]:.4g}" if key in before else ""
            cells = (row.kernel, arch, old, f"{c.each:.4g}", f"{row.on(arch):.4g}", row.measure)
            more = (str(c.loop.instructions), str(c.registers), str(c.slow + c.spills))
            print(f"| {' | '.join(cells + more)} |", flush=True)
            if options.opcodes:
                for name, number in sorted(c.loop.opcodes.items(), key=lambda item: -item[1]):
                    print(f"    {number:4} {name}")
    if options.json:
        options.json.write_text(json.dumps(now, indent=1) + "\n")
    return int(over)


def _options(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--arch", action="append", help="may be repeated")
    parser.add_argument("--only", default="", help="kernels whose name has this in it")
    parser.add_argument("--json", type=Path, help="where to write the counts")
    parser.add_argument("--against", type=Path, help="counts of before, to print beside these")
    parser.add_argument("--opcodes", action="store_true", help="list the loops' opcodes")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
