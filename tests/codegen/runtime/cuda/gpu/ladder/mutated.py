"""Climbs over the stub with a thing of the runtime broken, in forks of one process.

What the rungs run is built before any fork (``prepare``): see ``gpu.stub.forks``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from gpu.ladder import programs
from gpu.ladder import stub as ladder_stub
from gpu.ladder.main import main
from gpu.ladder.site import Site
from gpu.ladder.stub import Made
from gpu.ladder.table import BY_NAME
from gpu.stub import library
from gpu.stub.control import Stub
from gpu.stub.simulated import Kernels


def replaced(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Put what ``make`` makes of an attribute in its place."""
    setattr(owner, name, make(getattr(owner, name)))


def upload_without_the_last_byte() -> None:
    from nestwright.codegen.runtime.cuda import staging

    def make(plain: Any) -> Any:
        return lambda self, array, address: plain(
            self, np.ascontiguousarray(array).reshape(-1).view(np.uint8)[:-1], address
        )

    replaced(staging.Staging, "upload", make)


def download_of_stale_pieces() -> None:
    """The host reads a piece of page-locked memory before the copy has come."""
    from nestwright.codegen.runtime.cuda import staging

    replaced(staging.Staging, "_wait", lambda plain: lambda self, piece: None)


def machine_code_never_taken() -> None:
    from nestwright.codegen.runtime.cuda import kernels

    replaced(kernels, "_image", lambda plain: lambda code, sm, on: kernels._compiled(code, on))


def shared_memory_not_asked_for() -> None:
    from nestwright.codegen.runtime.cuda import driver

    def make(plain: Any) -> Any:
        return lambda self, function, *args: (
            None if function == "cuFuncSetAttribute" else plain(self, function, *args)
        )

    replaced(driver.Driver, "call", make)


def graph_of_other_addresses() -> None:
    from nestwright.codegen.runtime.cuda import recording

    replaced(recording, "_outside", lambda plain: lambda run, params: lambda addresses: None)


def graph_never_made() -> None:
    from nestwright.codegen.runtime.cuda import recording

    replaced(recording, "SYNC", lambda plain: "PATH")


def loop_left_out() -> None:
    from nestwright.codegen.runtime.cuda import program, steps

    def make(plain: Any) -> Any:
        return lambda self, todo, places: plain(
            self, [s for s in todo if not isinstance(s, steps.Loop)], places
        )

    replaced(program.DeviceProgram, "_run_steps", make)


def out_ignored() -> None:
    from nestwright.codegen.runtime.cuda import program

    def make(plain: Any) -> Any:
        return lambda self, targets, params: self._execute(params, self._result_homes())

    replaced(program.DeviceProgram, "_run_into", make)


def results_on_arguments() -> None:
    from nestwright.codegen.runtime.cuda import program

    replaced(program, "no_overlap", lambda plain: lambda *spans: True)


def strides_ignored() -> None:
    from nestwright.codegen.runtime.cuda import arrays

    replaced(arrays, "_is_dense", lambda plain: lambda shape, strides: True)


def lent_memory_used_at_once() -> None:
    from nestwright.codegen.runtime.cuda import memory

    replaced(memory.DeviceMemory, "lend", lambda plain: lambda self: None)


def other_stream_not_waited_for() -> None:
    from nestwright.codegen.runtime.cuda import device

    replaced(device.Device, "follow", lambda plain: lambda self, stream: None)


def taker_not_made_to_wait() -> None:
    from nestwright.codegen.runtime.cuda import device

    replaced(device.Device, "lead", lambda plain: lambda self, stream: None)


def fault_forgotten() -> None:
    from nestwright.codegen.runtime.cuda import device

    replaced(device.Device, "check", lambda plain: lambda self: None)


def kernel_not_named() -> None:
    from nestwright.codegen.runtime.cuda import recording

    replaced(recording.LaunchOp, "__str__", lambda plain: lambda self: "a kernel")


MUTATIONS = {
    "copies": (upload_without_the_last_byte, download_of_stale_pieces),
    "cubin": (machine_code_never_taken,),
    "shared": (shared_memory_not_asked_for,),
    "graph": (graph_of_other_addresses, graph_never_made),
    "while": (loop_left_out,),
    "out": (out_ignored, results_on_arguments),
    "strided": (strides_ignored, other_stream_not_waited_for),
    "dlpack": (lent_memory_used_at_once, taker_not_made_to_wait),
    "fault": (fault_forgotten, kernel_not_named),
}
"""What breaks, by the rung that is meant to fail."""


def once(make: Callable[..., Any], key: Callable[[Any], object]) -> Callable[..., Any]:
    """What ``make`` makes of arguments with the same key is made once; they are kept, too."""
    made: dict[object, Any] = {}

    def kept(*args: Any) -> Any:
        about = tuple(map(key, args))
        if about not in made:
            made[about] = args, make(*args)
        return made[about][1]

    return kept


def prepare() -> None:
    """Build all that the rungs run, as each fork will ask for it again."""
    behind = once(Kernels, id)
    replaced(programs, "build", lambda plain: once(plain, repr))
    replaced(
        ladder_stub,
        "put_behind",
        lambda plain: lambda exe: behind(exe).attach(ladder_stub.control()),
    )
    for rung in MUTATIONS:
        Site(BY_NAME[rung], dry=True, stub=Made(Path(library.NAME))).prepare()


def climb(stub: Stub, mutation: str, folder: str, rungs: str, file: str) -> None:
    """Climb some rungs, dry; ``file`` is the library of the stub, which is loaded."""
    warnings.simplefilter("default")
    replaced(library, "build", lambda plain: lambda folder: Path(file))
    for broken in (m for many in MUTATIONS.values() for m in many if m.__name__ == mutation):
        broken()
    main(["--dry-run", "--in-process", "--out", folder, "--only", rungs])
