"""Our executables as contenders, and what the device itself does: a copy, an empty launch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .clocks import Array, Contender, spread

COPIED = 1 << 30  # bytes of the copy that bandwidths are held against
COPIES = 12  # readings of it
LAUNCHES = 256  # of a kernel without work, in one graph
SMALL = """HloModule small
ENTRY main { x = f32[128] parameter(0)
  ROOT y = f32[128] negate(x) }
"""


def leaves(value: Any) -> list[Any]:
    """Return a nest of tuples as a list."""
    return [y for x in value for y in leaves(x)] if isinstance(value, tuple | list) else [value]


def nestwright(exe: Any, sets: Sequence[Sequence[Array]], calls: int = 0) -> Contender:
    """Return an executable on sets of arguments, one after the other, as one graph where it can be
    one.

    ``calls`` is the least number of calls in the graph.
    """
    if exe.bundle.target.kind != "cuda":
        return _on_this_processor(exe, sets)
    from nestwright.ir.errors import UnsupportedError

    program = exe.loaded()
    put = [[program.put(a) for a in arrays] for arrays in sets]
    outs = [exe(*arrays) for arrays in put]
    turns = range(max(len(put), calls))
    rounds = [(put[n % len(put)], leaves(outs[n % len(put)])) for n in turns]
    how = "graph"
    try:
        submit = program.repeated(rounds)
    except UnsupportedError:  # it has decisions of the host
        how = "calls"

        def submit() -> None:
            for n in turns:
                exe(*put[n % len(put)], out=outs[n % len(put)])

    def result() -> list[Array]:
        exe(*put[0], out=outs[0])
        return [x.numpy() for x in leaves(outs[0])]

    return Contender(
        "nestwright", how, len(turns), submit, program.synchronize, program.seconds, result
    )


def _on_this_processor(exe: Any, sets: Sequence[Sequence[Array]]) -> Contender:
    def submit() -> None:
        for arrays in sets:
            exe(*arrays)

    def result() -> list[Array]:
        return [np.asarray(x) for x in leaves(exe(*sets[0]))]

    return Contender("nestwright", "calls", len(sets), submit, lambda: None, None, result)


def copy_bandwidth() -> float:
    """Bytes per second of a copy on the device, reads and writes counted: the median."""
    from nestwright.codegen.runtime.cuda.device import device

    gpu = device()
    a, b = gpu.allocate(COPIED), gpu.allocate(COPIED)
    call = gpu.driver.call
    readings = []
    with gpu:
        for _ in range(COPIES):
            start, end = gpu.event(), gpu.event()
            call("cuEventRecord", start, gpu.stream)
            call("cuMemcpyDtoDAsync", b.address, a.address, COPIED, gpu.stream)
            call("cuEventRecord", end, gpu.stream)
            gpu.synchronize("a copy")
            readings.append(float(call("cuEventElapsedTime", start, end)) * 1e-3)
            call("cuEventDestroy", start)
            call("cuEventDestroy", end)
    middle = spread(readings)
    assert middle is not None
    return 2 * COPIED / middle["median"]


def launch_seconds(exe: Any) -> float:
    """Seconds from one launch to the next in a graph of kernels that do next to nothing.

    ``exe`` is ``SMALL``, built.
    """
    small = nestwright(exe, [[np.zeros(128, np.float32)]], LAUNCHES)
    readings = [small.device(1) for _ in range(COPIES)]
    middle = spread(readings)
    assert middle is not None
    return middle["median"]
