"""A compiling child process: jobs as JSON lines on stdin, code on stdout.

A job is ``{"text": canonical HLO, "symbol": str, "target": spec, "trace": list or null,
"bypassing": numbers of outputs}``. The answer is a JSON line, followed by the bytes of the code's
parts and those of each pack; a job that fails is answered ``{"failed": true}``, and the parent,
which repeats it, gets the error itself. The first line is ``{"shared": bool}``, whether to compile
what all executables share: the answer has the sizes of its objects, which follow.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, BinaryIO

from ...ir.target import HERE, Target
from ...schedule.language.trace import Trace
from ..plan.code.form import code_pieces
from ..targets.cpu.backend import shared_runtime
from .compile_group import compile_text


def serve(jobs: BinaryIO, answers: BinaryIO) -> None:
    """Answer jobs until their stream ends."""
    for line in jobs:
        job = json.loads(line)
        header, code = _first(job["shared"]) if "shared" in job else _answer(job)
        answers.write(json.dumps(header).encode() + b"\n" + code)
        answers.flush()


def _first(shared: bool) -> tuple[dict[str, Any], bytes]:
    objects = shared_runtime(Target.parse(HERE)) if shared else ()
    return {"sizes": [len(each) for each in objects]}, b"".join(objects)


def _answer(job: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    timings: dict[str, float] = {}
    steps, accuracy = job["trace"], job["accuracy"]
    trace = None if steps is None else Trace.from_json(steps, accuracy=accuracy)
    try:
        target = Target.parse(job["target"])
        streamed = tuple(job["bypassing"])
        kernel = compile_text(job["text"], job["symbol"], target, trace, timings, streamed)
    except Exception:
        return {"failed": True}, b""
    pieces = code_pieces(kernel.code)
    sizes = [(name, len(piece)) for name, piece in pieces.items()]
    shared = {"in_place": kernel.sharing.in_place, "updates": kernel.sharing.updates}
    packs = [(p.index, p.symbol, p.size, len(p.object)) for p in kernel.packs]
    known = {"buffers": kernel.buffers, "workspace": kernel.workspace, "timings": timings}
    known["traced"] = kernel.traced
    header = {"parts": sizes, "packs": packs, **known, **shared}
    return header, b"".join((*pieces.values(), *(p.object for p in kernel.packs)))


if __name__ == "__main__":
    try:
        serve(sys.stdin.buffer, sys.stdout.buffer)
    except BrokenPipeError:  # the parent was killed
        os._exit(1)  # Python would try to write the rest at its end
