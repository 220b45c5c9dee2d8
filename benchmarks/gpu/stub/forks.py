"""Runs functions over the stand-in, each in a fork of one child that has imported everything.

A fork starts with a driver that nobody has used, and a crash or a hang ends nothing but itself. The
child reads one request a line from stdin, in JSON, and answers with one line on stdout::

    python -m gpu.stub.forks LIBRARY
"""

from __future__ import annotations

import faulthandler
import gc
import importlib.util
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from nestwright.codegen.driver import parallel

from . import control
from .library import environment

LONGEST = 300  # seconds of one function: only a hang takes so long
TOLD = 4000  # characters of what a crashed fork wrote


class Forks:
    """The child. ``run`` gives nothing where a function has passed, else what went wrong."""

    def __init__(self, library: Path, folder: Path) -> None:
        made = environment(library.parent)
        made["PYTHONPATH"] = os.pathsep.join([str(folder), made.get("PYTHONPATH", "")])
        command = [sys.executable, "-m", "gpu.stub.forks", str(library)]
        pipe = subprocess.PIPE
        self.child = subprocess.Popen(command, env=made, stdin=pipe, stdout=pipe, text=True)

    def run(self, file: Path, function: str, params: Mapping[str, Any]) -> str:
        """Run a function of a file: it gets the stand-in as ``stub``, and the parameters."""
        assert self.child.stdin is not None and self.child.stdout is not None
        request = {"file": str(file), "function": function, "params": dict(params)}
        print(json.dumps(request, default=str), file=self.child.stdin, flush=True)
        answer = self.child.stdout.readline()
        if not answer:
            return f"the child that forks ended with status {self.child.wait()}"
        return str(json.loads(answer))

    def close(self) -> None:
        """End the child."""
        assert self.child.stdin is not None and self.child.stdout is not None
        self.child.stdin.close()
        self.child.stdout.close()
        self.child.wait()


def main() -> None:
    """Serve the requests."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what functions print is not an answer
    parallel.JOBS_PER_HELPER = sys.maxsize  # models are small, and whoever forks uses other cores
    library = Path(sys.argv[1])
    for line in sys.stdin:
        request = json.loads(line)
        try:
            file = _imported(Path(request["file"]))
        except BaseException:
            told = traceback.format_exc()
        else:
            told = _forked(file, request, library)
        print(json.dumps(told), file=answers, flush=True)


@cache
def _imported(path: Path) -> ModuleType:
    """Return the file as a module, and what its ``prepare`` makes for all forks."""
    spec = importlib.util.spec_from_file_location(f"over_stub_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module
    spec.loader.exec_module(module)
    if hasattr(module, "prepare"):
        module.prepare()
    gc.collect()
    gc.freeze()  # no fork has to look through all of it, at each collection
    return module


def _forked(module: ModuleType, request: Mapping[str, Any], library: Path) -> str:
    """Run in a fork; what went wrong, or nothing."""
    reader, writer = os.pipe()
    with tempfile.TemporaryFile() as output:
        number = os.fork()
        if not number:
            _child(module, request, library, writer, output.fileno())
        os.close(writer)
        done, _, _ = select.select([reader], [], [], LONGEST)
        if not done:
            os.kill(number, signal.SIGKILL)
        with os.fdopen(reader) as pipe:
            told = pipe.read()
        _, status = os.waitpid(number, 0)
        output.seek(0)
        wrote = output.read().decode(errors="replace")[-TOLD:]
    if not done:
        return f"it hangs\n{wrote}"
    if not told:
        return f"it ended with status {os.waitstatus_to_exitcode(status)}\n{wrote}"
    answer = str(json.loads(told))
    return answer and f"{answer}\n{wrote}"


def _child(
    module: ModuleType, request: Mapping[str, Any], library: Path, writer: int, output: int
) -> None:
    for number in (1, 2):
        os.dup2(output, number)
    told = ""
    try:
        faulthandler.enable()
        warnings.simplefilter("error")
        stub = control.Stub(library)
        getattr(module, request["function"])(stub=stub, **request["params"])
        gc.collect()
        wrong = [*stub.reports(), *map(repr, stub.raised)]
        told = "\n".join(["the stand-in reports:", *wrong]) if wrong else ""
        if not told and stub.depth():
            told = "a context was left current"
    except BaseException:
        told = traceback.format_exc()
    os.write(writer, json.dumps(told[-60000:]).encode())
    os._exit(0)


if __name__ == "__main__":
    main()
