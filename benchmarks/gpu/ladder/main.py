"""The first thing to run on a machine with an NVIDIA GPU: which mechanism works, which does not.

    python benchmarks/gpu/ladder/main.py --out FOLDER [--only R,R | --from R] [--prebuilt FOLDER]
    python benchmarks/gpu/ladder/main.py --prebuild FOLDER      # beforehand, on any machine
    python benchmarks/gpu/ladder/main.py --dry-run              # without a GPU
    compute-sanitizer python benchmarks/gpu/ladder/main.py --in-process --only RUNG

Each rung is one mechanism, checked in a process of its own under a time limit, in the order in
which they rely on each other: one line each, with what was found or the first line of why not.
FOLDER gets ladder.json and ladder.log, which has everything that the processes printed. Builds need
no GPU and go on while earlier rungs run; --prebuilt saves them. The package need not be installed.
A dry run has small sizes, kernels in the simulator and the runtime over a stub of the driver.

Exit status: 0 all is right, 1 something failed, 2 there is no GPU here or the request is wrong.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])  # names begin at benchmarks/

from checkout import importable

from gpu.ladder import programs, stub
from gpu.ladder.child import serve
from gpu.ladder.climb import Numbered, climb, in_process
from gpu.ladder.report import Report
from gpu.ladder.rung import Rung
from gpu.ladder.site import Site, quiet
from gpu.ladder.stub import Made
from gpu.ladder.table import BY_NAME, RUNGS

DRY_PATIENCE = 6.0  # times a rung's limits: a simulation beside other work
MOST_AHEAD = 6


def main(argv: Sequence[str]) -> int:
    """Do what is asked; the exit status."""
    options = _options(argv)
    if options.list:
        for number, rung in options.rungs:
            print(f"{number:>2}  {rung.name:<12}{rung.about}")
        return 0
    quiet()
    with importable():
        if options.child:
            ((_, rung),) = options.rungs
            serve(_site(rung, options), options.control, _patience(rung, options)[1])
            return 0
        if options.prebuild:
            return _prebuild(options)
        with stub.made() if options.dry_run else nullcontext(Made(None)) as found:
            options.stub, options.lacking = found
            return _climb(options)


def _climb(options: argparse.Namespace) -> int:
    """Run the rungs; the exit status."""
    facts = {"arch": options.arch, "dry_run": options.dry_run, "stub": options.lacking or "here"}
    report = Report(options.out, facts)
    report.begin()
    if options.in_process:
        for _, rung in options.rungs:
            os.environ.update(rung.env if len(options.rungs) == 1 else {})
        return in_process(options.rungs, lambda rung: _site(rung, options), report)
    patience = partial(_patience, options=options)
    return climb(options.rungs, _command(options), options.ahead, patience, report)


def _options(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    ahead = max(1, min(MOST_AHEAD, (os.cpu_count() or 2) // 2))
    parser.add_argument("--out", type=Path, default=Path("report/ladder"), help="for results")
    parser.add_argument("--only", default="", metavar="RUNG[,RUNG]", help="these rungs")
    parser.add_argument("--from", default="", dest="first", metavar="RUNG", help="from this one on")
    parser.add_argument("--list", action="store_true", help="the rungs")
    parser.add_argument("--in-process", action="store_true", help="no children and no limits")
    parser.add_argument("--prebuild", type=Path, metavar="FOLDER", help="build, and run nothing")
    parser.add_argument("--prebuilt", type=Path, metavar="FOLDER", help="what --prebuild made")
    parser.add_argument("--arch", default="sm_90", help="what is built for (sm_90)")
    parser.add_argument("--dry-run", action="store_true", help="small sizes, without a GPU")
    parser.add_argument("--seconds", type=float, help="of each rung, instead of its own limit")
    parser.add_argument("--ahead", type=int, default=ahead, help=f"preparing at once ({ahead})")
    parser.add_argument("--child", default="", help=argparse.SUPPRESS)
    parser.add_argument("--control", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--stub", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--lacking", default="", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    options.rungs = _chosen(parser, options)
    if options.prebuilt and not options.prebuilt.is_dir():
        parser.error(f"--prebuilt: there is no folder {options.prebuilt}")
    if options.ahead < 0 or (options.seconds is not None and options.seconds <= 0):
        parser.error("--ahead and --seconds are above 0")
    return options


def _chosen(parser: argparse.ArgumentParser, options: argparse.Namespace) -> list[Numbered]:
    asked = [n for n in (options.child or options.only).split(",") if n]
    for name in (*asked, *filter(None, [options.first])):
        if name not in BY_NAME:
            parser.error(f"no rung {name!r}: there are {', '.join(BY_NAME)}")
    numbered = list(enumerate(RUNGS, 1))
    start = list(BY_NAME).index(options.first) if options.first else 0
    return [(n, r) for n, r in numbered if (not asked or r.name in asked) and n > start]


def _site(rung: Rung, options: argparse.Namespace) -> Site:
    made = Made(options.stub, options.lacking)
    return Site(rung, options.dry_run, options.arch, options.prebuilt, made)


def _patience(rung: Rung, options: argparse.Namespace) -> tuple[float, float]:
    factor = DRY_PATIENCE if options.dry_run else 1.0
    return rung.prepare * factor, options.seconds or rung.seconds * factor


def _command(options: argparse.Namespace) -> list[str]:
    """Return the command that starts a child, without the child's own options."""
    command = [sys.executable, __file__, "--arch", options.arch]
    command += ["--prebuilt", str(options.prebuilt.resolve())] if options.prebuilt else []
    command += ["--seconds", str(options.seconds)] if options.seconds else []
    command += ["--stub", str(options.stub)] if options.stub else []
    command += ["--lacking", options.lacking] if options.lacking else []
    return command + (["--dry-run"] if options.dry_run else [])


def _prebuild(options: argparse.Namespace) -> int:
    """Build every program that the rungs run on a GPU, once."""
    options.prebuild.mkdir(parents=True, exist_ok=True)
    todo = {p.name: p for _, r in options.rungs for p in r.programs(dry=False).values()}
    total = 0
    for program in todo.values():
        place = programs.save(program, f"cuda -arch={options.arch}", options.prebuild)
        total += place.stat().st_size
        print(f"{place.stat().st_size:>9}  {place.name}", flush=True)
    print(f"{len(todo)} programs, {total} bytes in {options.prebuild}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
