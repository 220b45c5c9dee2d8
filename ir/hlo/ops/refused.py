"""Operations that are read and printed and not computed, with the reason that errors give.

The halves of operations cut in two are among them: ``asynchronous`` joins a start and its done to
the one operation that they are.
"""

from __future__ import annotations

from .definition import NO_CODE, ONE_DEVICE, QUEUE, OpDef

_EXCHANGES = ("it exchanges values between devices", ONE_DEVICE)
_OUTSIDE = ("it exchanges values with another program or the host", QUEUE)

_HALVES = (
    *(f"async-{half}" for half in ("start", "update", "done")),
    *(
        f"{whole}-{half}"
        for whole in ("copy", "all-gather", "all-reduce", "collective-permute")
        for half in ("start", "done")
    ),
)

DEFINITIONS = (
    OpDef("infeed", refused=("it reads from a queue of the device", QUEUE), acts=True),
    OpDef("outfeed", refused=("it writes to a queue of the device", QUEUE), acts=True),
    OpDef("send", refused=_OUTSIDE, acts=True),
    OpDef("send-done", refused=_OUTSIDE),
    OpDef("recv", refused=_OUTSIDE, acts=True),
    OpDef("recv-done", refused=_OUTSIDE),
    OpDef("ragged-all-to-all", refused=_EXCHANGES),
    OpDef("collective-reduce", refused=_EXCHANGES),
    OpDef(
        "shuffle",
        refused=("its order is not defined outside of XLA", "use sort on random keys"),
    ),
    OpDef(
        "ragged-dot",
        refused=(
            "this version has no code for ragged products",
            "write it as dots and selects",
        ),
    ),
    OpDef("scaled-dot", refused=(NO_CODE[0], "scale the operands and use dot")),
    *(OpDef(name, refused=NO_CODE) for name in _HALVES),
)
