"""Object code from LLVM text that was not written by the emitter, made in a child process.

LLVM ends the process on some text that its verifier accepts, and may take any time and memory. So
such text is verified and compiled by a process of its own with limits on both.

The child's stdin is a JSON line ``{"target": spec}`` and the text. Its stdout is a JSON line
``{"size": int}`` and as many bytes of object code, or a line ``{"what": str, "why": str}``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress

from ....ir.errors import LimitError, NestwrightError, UnsupportedError, VerifyError
from ....ir.target import Target
from .toolchain import LONGEST, compile

SECONDS = 120  # of processor time
MEMORY = 8 << 30  # bytes of address space


def compile_untrusted(text: str, target: Target) -> bytes:
    """Return the object code of an LLVM module for a processor.

    ``VerifyError`` if LLVM does not accept the text, ``LimitError`` if it is too long or takes too
    long, ``UnsupportedError`` if LLVM gives up on it.
    """
    if len(text) > LONGEST:
        raise LimitError(f"LLVM module of {len(text)} characters", f"the limit is {LONGEST}")
    job = json.dumps({"target": target.host.spec}).encode() + b"\n" + text.encode()
    paths = os.pathsep.join(p for p in sys.path if p)
    try:
        done = subprocess.run(
            [sys.executable, "-m", f"{__package__}.untrusted"],
            input=job,
            capture_output=True,
            timeout=2 * SECONDS,
            env={**os.environ, "PYTHONPATH": paths},
        )
    except subprocess.TimeoutExpired:
        raise LimitError("compiling the LLVM module", f"takes over {SECONDS} s") from None
    head, _, code = done.stdout.partition(b"\n")
    try:
        answer = json.loads(head)
    except ValueError:
        raise UnsupportedError("this LLVM module", f"LLVM gave up: {_last_words(done)}") from None
    if "size" in answer and len(code) == answer["size"]:
        return code
    raise VerifyError(answer.get("what", "this LLVM module"), answer.get("why", "no answer"))


def _last_words(done: subprocess.CompletedProcess[bytes]) -> str:
    lines = done.stderr.decode(errors="replace").splitlines()
    errors = [x for x in lines if "error" in x.lower() or "cannot" in x.lower()]
    return next(iter(errors or lines[-1:]), f"its process ended with status {done.returncode}")


def _limit() -> None:
    with suppress(ImportError, OSError, ValueError):  # not every system has such limits
        import resource

        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def main() -> None:
    """Answer one job; see the module."""
    _limit()
    target = Target.parse(json.loads(sys.stdin.buffer.readline())["target"])
    try:
        code = compile(sys.stdin.buffer.read().decode(), target)
        answer: dict[str, object] = {"size": len(code)}
    except NestwrightError as error:
        code, answer = b"", {"what": error.what, "why": error.why}
    except ValueError as error:
        code, answer = b"", {"what": "this LLVM module", "why": str(error)}
    sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n" + code)


if __name__ == "__main__":
    main()
