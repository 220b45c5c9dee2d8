"""PTX from LLVM text, and the child process that makes it: LLVM may end a process it runs in.

A job on stdin is a JSON line ``{"arch": str, "features": str, "size": int}`` and as many bytes
of LLVM text. The answer on stdout is ``{"size": int}`` and as many bytes of PTX, or a line
``{"error": str}``.
"""

from __future__ import annotations

import json
import sys
from functools import cache
from typing import Any, BinaryIO

import llvmlite.binding as llvm

TRIPLE = "nvptx64-nvidia-cuda"


@cache
def _machine(arch: str, features: str) -> Any:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple(TRIPLE)
    return target.create_target_machine(cpu=arch, features=features, opt=3)


def _optimize(module: Any, machine: Any) -> None:
    """Run the passes that tidy up the emitted text; its loops are final already."""
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    builder = llvm.create_pass_builder(machine, options)
    passes = llvm.create_new_module_pass_manager()
    passes.add_sroa_pass()
    passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
    passes.add_new_gvn_pass()
    passes.run(module, builder)


def ptx_of(text: str, arch: str, features: str) -> str:
    """Return the PTX of an LLVM module. ``RuntimeError`` if LLVM does not accept the text."""
    machine = _machine(arch, features)
    module = llvm.parse_assembly(text)
    module.triple = TRIPLE
    module.data_layout = str(machine.target_data)
    module.verify()
    _optimize(module, machine)
    return str(machine.emit_assembly(module))


def _answer(job: dict[str, Any], text: bytes) -> tuple[dict[str, Any], bytes]:
    try:
        code = ptx_of(text.decode(), job["arch"], job["features"]).encode()
    except Exception as error:
        return {"error": str(error).strip() or type(error).__name__}, b""
    return {"size": len(code)}, code


def serve(jobs: BinaryIO, answers: BinaryIO) -> None:
    """Answer jobs until their stream ends."""
    while line := jobs.readline():
        job = json.loads(line)
        header, code = _answer(job, jobs.read(job["size"]))
        answers.write(json.dumps(header).encode() + b"\n" + code)
        answers.flush()


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)
