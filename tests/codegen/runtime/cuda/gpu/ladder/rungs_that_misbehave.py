"""A script beside `gpu/ladder/main.py` whose rungs hang, crash, exit and print garbage.

It is what `test_climb.py` climbs: ``--climb FOLDER RUNG...`` in one process, or a child.
"""

from __future__ import annotations

import argparse
import atexit
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from gpu.ladder.child import serve
from gpu.ladder.climb import climb
from gpu.ladder.report import Report
from gpu.ladder.rung import Rung, Skipped, Wrong
from gpu.ladder.site import Site

FOREVER = "import time\nwhile True: time.sleep(1000)"


def good(site: Site) -> str:
    site.numbers["answer"] = 42
    return "all is well"


def wrong(site: Site) -> str:
    raise Wrong("3 of 4 wrong\nand this is the rest")


def skipped(site: Site) -> str:
    raise Skipped("there is no such library")


def raises(site: Site) -> str:
    raise ValueError("what is this?\nmore of it")


def hangs(site: Site) -> str:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    grandchild = subprocess.Popen([sys.executable, "-c", FOREVER])
    Path(os.environ["MARK"]).write_text(f"{os.getpid()} {grandchild.pid}")
    threading.Event().wait()
    return ""


def crashes(site: Site) -> str:
    os.kill(os.getpid(), signal.SIGSEGV)
    return ""


def leaves(site: Site) -> str:
    os._exit(0)


def exits(site: Site) -> str:
    sys.exit(3)


def prints(site: Site) -> str:
    for descriptor in (1, 2):
        for _ in range(64):
            os.write(descriptor, bytes(range(256)) * 64)
    os.write(1, b"the last words\n")
    return "still right"


def lies(site: Site) -> str:
    """Writes what is no event into every descriptor that it has."""
    for descriptor in range(3, 12):
        try:
            os.write(descriptor, b'{"event": \n[1]\nnull\n\xff\n')
        except OSError:
            continue
    return "still right"


def crashes_after(site: Site) -> str:
    atexit.register(os.kill, os.getpid(), signal.SIGSEGV)
    return "right so far"


def stays(site: Site) -> str:
    threading.Thread(target=threading.Event().wait).start()
    return "right so far"


def never(size: int) -> object:
    threading.Event().wait()
    return size


RUNGS = {
    rung.name: rung
    for rung in (
        *(
            Rung(run.__name__, run, "")
            for run in (
                good,
                wrong,
                skipped,
                raises,
                hangs,
                crashes,
                leaves,
                exits,
                prints,
                lies,
                crashes_after,
                stays,
            )
        ),
        Rung("late", good, "", never, (1,), (1,)),  # type: ignore[arg-type]
    )
}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--child")
    parser.add_argument("--control", type=int)
    parser.add_argument("--climb", nargs="+", default=[])
    options = parser.parse_args()
    if options.child:
        serve(Site(RUNGS[options.child], dry=True), options.control, 1e4)
        return 0
    folder, *names = options.climb
    rungs = [(n, RUNGS[name]) for n, name in enumerate(names, 1)]
    report = Report(Path(folder), {"arch": "sm_90"})
    report.begin()
    return climb(rungs, [sys.executable, __file__], 1, lambda rung: (1e4, 1e4), report)


if __name__ == "__main__":
    sys.exit(main())
