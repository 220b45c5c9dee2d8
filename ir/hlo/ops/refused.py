"""Operations that are parsed and printed but not compiled, with the reason that errors give.

The halves of asynchronous operations are among them: ``analysis/asynchronous`` joins a start and
its done into one operation.
"""

from __future__ import annotations

from .collectives import DEVICES, GATHERS
from .definition import NO_CODE, ONE_DEVICE, QUEUE, OpDef
from .linear import PAIRED

_EXCHANGES = ("it exchanges values between devices", ONE_DEVICE)
_OUTSIDE = ("it exchanges values with another program or the host", QUEUE)
_CHANNEL = "channel_id? is_host_transfer?"

_HALVES = (
    *(
        OpDef(f"async-{half}", calls=("calls",), refused=NO_CODE)
        for half in ("start", "update", "done")
    ),
    OpDef("all-gather-start", attributes=GATHERS, refused=NO_CODE),
    OpDef("all-reduce-start", attributes=DEVICES, calls=("to_apply",), refused=NO_CODE),
    OpDef("collective-permute-start", attributes=DEVICES, refused=NO_CODE),
    OpDef("copy-start", refused=NO_CODE),
    *(
        OpDef(f"{whole}-done", refused=NO_CODE)
        for whole in ("all-gather", "all-reduce", "collective-permute", "copy")
    ),
)

DEFINITIONS = (
    OpDef("infeed", refused=("it reads from a queue of the device", QUEUE), side_effect=True),
    OpDef("outfeed", refused=("it writes to a queue of the device", QUEUE), side_effect=True),
    OpDef("send", attributes=_CHANNEL, refused=_OUTSIDE, side_effect=True),
    OpDef("send-done", attributes=_CHANNEL, refused=_OUTSIDE),
    OpDef("recv", attributes=_CHANNEL, refused=_OUTSIDE, side_effect=True),
    OpDef("recv-done", attributes=_CHANNEL, refused=_OUTSIDE),
    OpDef("ragged-all-to-all", attributes=DEVICES, refused=_EXCHANGES),
    OpDef("collective-reduce", refused=_EXCHANGES),
    OpDef(
        "shuffle",
        refused=("its order is not defined outside of XLA", "use sort on random keys"),
    ),
    OpDef(
        "scaled-dot",
        attributes=PAIRED,
        refused=(NO_CODE[0], "scale the operands and use dot"),
    ),
    *_HALVES,
)
