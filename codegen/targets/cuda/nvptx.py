"""PTX for an NVIDIA GPU from LLVM text, made by child processes.

LLVM aborts where it has no instruction for what it is asked, so it never runs here. Children are
kept for the jobs of this process, at most one a core; one that dies takes its job's kernel with
it, nothing else.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from queue import LifoQueue
from threading import Timer
from types import MappingProxyType
from typing import IO

from ....ir.errors import TargetError, UnsupportedError, VerifyError
from ....ir.target import Target
from ..workers import workers

SECONDS = 120.0  # for one module
LONGEST = 64 << 20  # characters of one module

PTX_VERSIONS: Mapping[int, int] = MappingProxyType(
    {75: 78, 80: 78, 86: 78, 89: 78, 90: 80, 100: 86, 103: 88, 120: 87, 121: 88}
)
"""The PTX version to ask for, by the architecture's number: the oldest that knows it, so that old
drivers take the code too. An LLVM that does not know the version silently takes another."""


LATER: Mapping[str, int] = MappingProxyType(
    {
        "@llvm.nvvm.ff.to.e": 81,
        "@llvm.nvvm.e4m3x2.to.": 81,
        "@llvm.nvvm.e5m2x2.to.": 81,
        "mma.sync.aligned.m16n8k32.row.col.f32.": 84,
    }
)
"""Intrinsics and instructions by how their names begin, and the PTX version that first has them: a
module with one asks for that where its architecture is older."""


def features(arch: str, text: str = "") -> str:
    """Return LLVM's feature list for an architecture such as ``sm_90a`` and a module's text."""
    found = re.fullmatch(r"sm_(\d+)[af]?", arch)
    version = PTX_VERSIONS.get(int(found[1])) if found else None
    if version is None:
        raise TargetError(f"GPU architecture {arch!r}", "no PTX version is known for it")
    return f"+ptx{max([version, *(v for name, v in LATER.items() if name in text)])}"


def compile(text: str, target: Target) -> str:
    """Return the PTX of an LLVM module for a GPU.

    ``VerifyError`` if LLVM does not accept the text, ``UnsupportedError`` if it has no code for it.
    """
    if target.kind != "cuda":
        raise TargetError(f"{target.spec!r} is not a GPU", "this is the PTX code generator")
    if len(text) > LONGEST:
        raise VerifyError(f"LLVM module of {len(text)} characters", f"at most {LONGEST}")
    asked = features(target.cpu, text)
    child = _pool.take()
    try:
        ptx = child.ask(text, target.cpu, asked)
    finally:
        _pool.put(child)
    _check_version(ptx, target.cpu, asked)
    unknown = re.search(r"\bllvm[.$_][\w.$]*", ptx)
    if unknown:
        raise UnsupportedError(
            f"{_named(text)} for {target.cpu}", f"LLVM has no PTX for {unknown[0]}"
        )
    return ptx


def _check_version(ptx: str, arch: str, asked: str) -> None:
    """Raise ``TargetError`` if LLVM silently took another PTX version than it was asked for."""
    got = re.search(r"^\.version (\d+)\.(\d+)", ptx, re.MULTILINE)
    if got is None or f"+ptx{got[1]}{got[2]}" != asked:
        raise TargetError(
            f"GPU architecture {arch!r}",
            "the LLVM of this llvmlite does not know it",
            hint="pip install --upgrade llvmlite",
        )


def _named(text: str) -> str:
    names = re.findall(r"^define ptx_kernel void @([\w.$]+)", text, re.MULTILINE)
    return f"kernel {', '.join(names[:3])}" if names else "a module without kernels"


class _Child:
    """A compiling process, started when it is first asked."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.errors: IO[bytes] | None = None

    def ask(self, text: str, arch: str, features: str) -> str:
        data = text.encode()
        job = json.dumps({"arch": arch, "features": features, "size": len(data)}).encode()
        for _ in range(2):  # where memory is short the system kills a child that is idle, too
            try:
                return self._answer(job + b"\n" + data, text, arch)
            except BrokenPipeError:
                why = self._last_words()
                self.stop()
        raise UnsupportedError(f"{_named(text)} for {arch}", f"LLVM gave up: {why}")

    def _answer(self, job: bytes, text: str, arch: str) -> str:
        """Return the PTX that the child makes; ``BrokenPipeError`` if it died before."""
        process = self._started()
        assert process.stdin is not None and process.stdout is not None
        timer = Timer(SECONDS, process.kill)
        timer.start()
        try:
            process.stdin.write(job)
            process.stdin.flush()
            answer = json.loads(process.stdout.readline() or b"null")
            code = process.stdout.read(answer.get("size", 0)) if answer else b""
        except BrokenPipeError:
            raise
        except (OSError, ValueError):
            answer = None
        except BaseException:  # such as Ctrl-C: its answer would be taken for the next job's
            self.stop()
            raise
        finally:
            timer.cancel()
        if answer is None or len(code) != answer.get("size", 0):
            why = self._last_words()
            self.stop()
            raise UnsupportedError(f"{_named(text)} for {arch}", f"LLVM gave up: {why}")
        if "error" in answer:
            raise VerifyError(f"LLVM code of {_named(text)} is not well formed", answer["error"])
        return code.decode()

    def _started(self) -> subprocess.Popen[bytes]:
        if self.process is None or self.process.poll() is not None:
            self.stop()
            self.errors = tempfile.TemporaryFile()  # noqa: SIM115 -- closed by stop
            paths = os.pathsep.join(p for p in sys.path if p)
            self.process = subprocess.Popen(
                [sys.executable, "-m", f"{__package__}.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.errors,
                env={**os.environ, "PYTHONPATH": paths},
                process_group=0,  # a terminal's Ctrl-C is for this process, which then ends it
            )
        return self.process

    def _last_words(self) -> str:
        assert self.process is not None and self.errors is not None
        self.process.kill()
        status = self.process.wait()
        self.errors.seek(0)
        lines = self.errors.read().decode(errors="replace").splitlines()
        errors = [x for x in lines if "error" in x.lower() or "cannot" in x.lower()]
        return next(iter(errors or lines[-1:]), f"its process ended with status {status}")

    def stop(self) -> None:
        """End the child, whatever it does."""
        if self.process is not None:
            self.process.kill()
            for stream in (self.process.stdout, self.process.stdin, self.errors):
                with suppress(OSError):
                    if stream is not None:
                        stream.close()
            self.process.wait()
        self.process = self.errors = None


class _Pool:
    """The children of one process; a fork begins with none."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begin anew, with children of this process alone."""
        self.free: LifoQueue[_Child] = LifoQueue()
        self.children = [_Child() for _ in range(workers())]
        for child in self.children:
            self.free.put(child)

    def take(self) -> _Child:
        """Return a child that is free, preferring the one used last; wait for one if need be."""
        return self.free.get()

    def put(self, child: _Child) -> None:
        self.free.put(child)

    def stop(self) -> None:
        for child in self.children:
            child.stop()


_pool = _Pool()
atexit.register(_pool.stop)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.reset)
